"""usage: torchrun --nproc-per-node N own_kernel.py

A kernel of one's own that communicates: every rank gets the sum of all ranks' rows, added in the order of ranks.
"""
import torch
import torch.distributed as dist

import fusewire

SOURCE = """
__global__ void sum_rows(channel_view ch, matrix<float const> x, matrix<float> y) {
  block const b;
  channel_epoch const e = ch.begin(b);
  int const ranks = ch.world.size(), cols = x.cols;
  auto const row_of = [&](int peer, int source, int r) { return e.inbox<float>(peer) + (source * x.rows + r) * cols; };
  for (int r = b.index(); r < x.rows; r += b.count())  // pushers wait for nothing
    for (int i = 0; i < ranks; ++i) {
      int const peer = ch.world.next(i);
      copy(b, x.at(r, 0), row_of(peer, ch.world.rank(), r), cols);
      e.signal(b, peer, r);
    }
  for (int r = b.index(); r < x.rows; r += b.count()) {
    for (int source = 0; source < ranks; ++source) e.wait(b, source, r);
    for (int c = b.rank(); c < cols; c += b.size()) {
      float sum = 0;
      for (int source = 0; source < ranks; ++source) sum += row_of(ch.world.rank(), source, r)[c];
      y(r, c) = sum;
    }
  }
  e.end(b);
}"""


def main(group, rows=64, cols=1000):
    """Whether the sums are right, eager and in a graph."""
    fusewire.init(group)
    sum_rows = fusewire.kernel("sum_rows", SOURCE, max_bytes=group.size() * rows * cols * 4, flags_per_source=rows,
                               group=group)
    x = torch.randint(-8, 8, (rows, cols), device="cuda").float()
    y = torch.empty_like(x)
    sum_rows(x, y, blocks=16, extents=(rows, cols))

    def is_right():
        wanted = x.clone()
        dist.all_reduce(wanted, group=group)
        return torch.equal(y, wanted)

    right, graph = {"eager": is_right()}, torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sum_rows(x, y, blocks=16, extents=(rows, cols))
    x += 1
    graph.replay()
    right["graph"] = is_right()
    fusewire.check(group)
    fusewire.destroy(group)  # collective; ends the kernel, too
    return right


if __name__ == "__main__":
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    print(f"rank {dist.get_rank()}: right: {main(dist.group.WORLD)}")
    dist.destroy_process_group()
