// Flash Decode: the fused operator, its bulk-synchronous twin and the local kernel alone, which take turns in one run
// on the same KV.
//
//   bench_flash_decode [--ranks=W] [--variants=NAME,...] [--repeats=7] [--shots=0|1|2] [--memory=GiB] [--quick]
//                      [--taxes] [--late=US,...] [--budget=S] [--batches=B,...] [--tokens=N,...,ragged]
//                      [--heads=Q-KV,...]
//                      [--dims=64,96,128,192,256] [--page_sizes=P,...]
//                      [--kinds=own,shared] [--dtypes=f16,bf16] [Google Benchmark's options]
//
// Names: flash_decode/VARIANT/W:w/batch:b/kv:n/heads:q-kv/d:d/page:p/pages:P. n: tokens of one sequence over all ranks,
// which have equal shards; `ragged`: lengths drawn from 1 to 131072, measured beside an even batch of as many tokens.
// P: `own`, every sequence has pages of its own; `shared`, all sequences have the same pages. Pages lie in random
// order. The label is the element type. real_time is one iteration of the slowest rank: the median of the repeats, each
// a replay of R iterations. measure.hpp has the protocol. Variants:
//
//   fused, fused_eager    flash_decode, in a graph or not
//   local                 the same kernel in a world of one rank: its shard alone, no communication
//   bsp_eager, bsp_graph  local, all-gather of its outputs and LSE by the vendor's library, a kernel that combines them
//   read                  the floor: a kernel that only reads as many bytes of KV, one after the other
//   heads                 flash_decode with output::heads, in a graph
//   heads_bsp             local, a kernel that packs its outputs and LSE by owner, all-to-all by the vendor's library,
//   a
//                         kernel that combines those of this rank's heads; in a graph
//   invariant             flash_decode that is batch_invariant, in a graph
// The last three are measured if --variants names them.
//
// Without lists, one axis at a time varies around 96-12 heads, d = 128, f16. With a list the sweep is the product of
// all lists; a list that is not given is 1 sequence, 131072 tokens, 96-12, 128, pages of 16 tokens, own, f16. Shapes
// that do not fit in --memory of a rank are left out.
// --late: measures bsp_graph and fused again, as NAME/late:US. In every iteration another rank, round robin, begins US
// microseconds late. 0 is always among the times, and the others are compared with it, because making a rank late takes
// a kernel.
// --taxes: few shapes, with the variants that show the three taxes of a bulk-synchronous program: eager and graph, and
// late ranks.
// --shots: flash_decode_options::shots of the fused kernel; 0: automatic.
// Counters: bytes: of KV on the longest rank, counted once if pages are shared; target: the time for these bytes at 4.4
// TB/s, and 8 us (4 us for one rank), if sequences have pages of their own; speedup: the better twin's time over this
// one.
#include "harness.hpp"
#include "libraries.hpp"

#include <fusewire/ops/flash_decode.hpp>

#include <chrono>
#include <map>
#include <numeric>
#include <optional>
#include <random>

using namespace fusewire;
using namespace fusewire::bench;

namespace {

enum class dtype { bf16, f16 };

constexpr int longest_drawn = 131072;
constexpr std::size_t distinct = std::size_t(1) << 29;  // bytes of KV that rotate, several times any L2

struct shape {
  int batch = 1, kv = 131072;  // tokens of a sequence; 0: ragged
  int q_heads = 96, kv_heads = 12, d = 128, page = 16;
  bool shared = false;
  dtype type = dtype::f16;
  int ranks = 1;

  int tokens(int sequence) const {
    if (kv > 0) return kv;
    std::mt19937 random(7u + unsigned(sequence));
    random.discard(8);
    return 1 + int(random() % longest_drawn);
  }
  int length(int rank, int sequence) const {
    return tokens(sequence) / ranks + (rank < tokens(sequence) % ranks ? 1 : 0);
  }
  int max_pages() const {
    int longest = 1;
    for (int s = 0; s < batch; ++s) longest = std::max(longest, length(0, s));
    return ceil_div(longest, page);
  }
  /// Pages of one copy of the KV, on the longest rank: rank 0.
  int pages() const {
    int all = 0;
    for (int s = 0; s < (shared ? 1 : batch); ++s) all += std::max(1, ceil_div(length(0, s), page));
    return all;
  }
  std::size_t token_elements() const { return std::size_t(kv_heads) * std::size_t(d); }  // of K
  std::size_t page_bytes() const { return std::size_t(page) * token_elements() * 2; }    // of K
  std::size_t copy_bytes() const { return std::size_t(pages()) * page_bytes() * 2; }
  int iterations() const {
    return copy_bytes() > (std::size_t(2) << 30) ? 8 : copy_bytes() > (std::size_t(256) << 20) ? 16 : 48;
  }
  int copies() const { return std::min(iterations(), int((distinct - 1) / copy_bytes()) + 1); }
  int rows() const { return batch * q_heads; }
  std::size_t result() const { return std::size_t(rows()) * std::size_t(d); }
  // Out, then lse, of one rank
  std::size_t payload() const { return round_up(result() * 2 + std::size_t(rows()) * 4, 256); }
  // The same of a rank's own heads, for the largest share
  std::size_t head_payload() const {
    return round_up(std::size_t(batch) * std::size_t(ceil_div(q_heads, ranks)) * (std::size_t(d) * 2 + 4), 256);
  }
  std::size_t pool_bytes() const { return std::size_t(copies()) * copy_bytes(); }
  double bytes() const {
    double all = 0;
    for (int s = 0; s < (shared ? 1 : batch); ++s) all += length(0, s);
    return all * double(token_elements()) * 4;
  }
  double target() const { return bytes() / 4.4e6 + (ranks > 1 ? 8 : 4); }
};

struct settings {
  int ranks, repeats, shots;
  std::vector<std::string> variants;
  std::vector<int> late;  // us
  bool has(char const* variant) const { return std::count(variants.begin(), variants.end(), variant) > 0; }
};
template <class T>
using invariant_decode = flash_decode<T, decode_features{.batch_invariant = true}>;
settings set;

struct capacity {
  std::size_t pool = 0, pages = 0, outputs = 0, payloads = 0, payload = 0, signal = 0, bulk = 0, q = 0, references = 0,
              rows = 1;  // bytes, table entries
  int batch = 1;

  void include(shape const& s) {
    auto const R = std::size_t(s.iterations());
    auto const grow = [](std::size_t& x, std::size_t to) { x = std::max(x, to); };
    grow(pool, s.pool_bytes());
    grow(pages, std::size_t(s.copies()) * std::size_t(s.batch) * std::size_t(s.max_pages()));
    grow(outputs, R * s.result() * 2);
    grow(payloads, R * s.payload());
    grow(payload, std::max(s.payload(), s.head_payload()));
    flash_decode_options const o{.max_batch = s.batch,
                                 .q_heads = s.q_heads,
                                 .kv_heads = s.kv_heads,
                                 .head_dim = s.d,
                                 .page_size = s.page,
                                 .max_pages = s.max_pages()};
    requirements all = flash_decode<f16>::requirements(s.ranks, o);
    if (set.has("heads")) all = all + flash_decode<f16>::requirements(s.ranks, o);
    if (set.has("invariant")) all = all + invariant_decode<f16>::requirements(s.ranks, o);
    grow(signal, all.signal());
    grow(bulk, all.bulk());
    grow(references, (s.result() + std::size_t(s.rows())) * 4);
    grow(rows, std::size_t(s.rows()));
    batch = std::max(batch, s.batch);
  }
};

constexpr int parts = 24576;  // of all rows at least, for the reference

struct rank_state : rank_base {
  rank_state(world& w_, capacity const& c)
      : rank_base(w_, round_up(2 * c.references + c.bulk + 64_MiB, 2_MiB), round_up(c.signal + 2_MiB, 2_MiB)),
        ch(h, {.max_bytes = 1, .flags_per_source = 1}), partial(h.allocate<float>(2 * c.references / 4)),
        alone(w_.split(w_.rank())),
        alone_heap(alone, {.bulk = 128_MiB, .signal = 2_MiB, .wait_limit = std::chrono::seconds(2)}),
        alone_ch(alone_heap, {.max_bytes = 1, .flags_per_source = 1}), nccl(w_), send(nccl.allocate(c.payloads)),
        received(nccl.allocate(c.payload * std::size_t(w_.size()))),
        packed(nccl.allocate(c.payload * std::size_t(w_.size()))), k(c.pool / 2), v(c.pool / 2), q(c.outputs),
        out(c.outputs), table(c.pages * 4), lengths(std::size_t(c.batch) * 4), first(c.references), last(c.references),
        split(std::max(std::size_t(parts), c.rows) * 258 * 4), pool_elements(c.pool / 4) {}

  channel ch;
  sym<float> partial;  // references of this rank's shard, iterations 0 and R - 1: o [rows, d], lse [rows]
  world alone;         // of this rank only
  heap alone_heap;
  channel alone_ch;
  collectives nccl;
  std::byte *send, *received, *packed;  // [R], [W] and [W] payloads; registered
  buffer k, v;                          // all copies' pages
  buffer q, out;                        // [R][batch, q heads, d]
  buffer table, lengths;                // [copies][batch, max_pages], [batch]
  buffer first, last;                   // fp32 [batch, q heads, d]: references of iterations 0 and R - 1
  buffer split;
  std::size_t pool_elements;
  std::optional<dtype> filled;
};

/// The KV as the reference kernels see it.
template <class T>
struct reference_kv {
  T const *k, *v;
  std::int32_t const *table, *lengths;
  int max_pages, page, q_heads, kv_heads;
};

/// One wave per part of a row's tokens: o [D], m, l in fp32, of scores in natural units. Plain on purpose: the other
/// kernels are checked against it.
template <class T, int D>
__global__ void __launch_bounds__(256)
    reference_parts(reference_kv<T> kv, T const* q, int rows, int parts_of_row, float* out) {
  constexpr int mine = (D + wave::width - 1) / wave::width, waves = 256 / wave::width;
  int const first = int(blockIdx.x) * waves + int(threadIdx.x) / wave::width, lane = int(threadIdx.x) % wave::width;
  for (int i = first; i < rows * parts_of_row; i += int(gridDim.x) * waves) {
    int const row = i / parts_of_row, part = i % parts_of_row, sequence = row / kv.q_heads,
              head = row % kv.q_heads / (kv.q_heads / kv.kv_heads);
    int const n = kv.lengths[sequence], length = (n + parts_of_row - 1) / parts_of_row,
              end = min(n, (part + 1) * length);
    float query[mine] = {}, o[mine] = {}, m = minus_infinity, l = 0;
    auto const each = [&](auto const& f) {  // d of this lane
      for (int j = 0; j < mine; ++j)
        if (j * wave::width + lane < D) f(j);
    };
    each([&](int j) { query[j] = float(q[std::int64_t(row) * D + j * wave::width + lane]) * rsqrtf(float(D)); });
    for (int t = part * length; t < end; ++t) {
      std::int64_t const token =
          std::int64_t(kv.table[std::int64_t(sequence) * kv.max_pages + t / kv.page]) * kv.page + t % kv.page;
      std::int64_t const at = (token * kv.kv_heads + head) * D + lane;
      float x = 0;
      each([&](int j) { x += query[j] * float(kv.k[at + j * wave::width]); });
      for (int mask = 1; mask < wave::width; mask *= 2) x += platform::shuffle_xor(x, mask);
      float const top = fmaxf(m, x), shrink = expf(m - top), weight = expf(x - top);
      m = top;
      l = l * shrink + weight;
      each([&](int j) { o[j] = o[j] * shrink + weight * float(kv.v[at + j * wave::width]); });
    }
    float* const to = out + std::int64_t(i) * (D + 2);
    each([&](int j) { to[j * wave::width + lane] = o[j]; });
    if (lane == 0) {
      to[D] = m;
      to[D + 1] = l;
    }
  }
}

/// Combines the parts of each row to o [rows, d] and lse [rows]. A block of d threads per row.
__global__ void join_parts(float const* from, int parts_of_row, int rows, float* to) {
  int const row = int(blockIdx.x), d = int(blockDim.x), j = int(threadIdx.x);
  auto const of = [&](int part) { return from + (std::int64_t(row) * parts_of_row + part) * (d + 2); };
  float m = minus_infinity, l = 0, o = 0;
  for (int i = 0; i < parts_of_row; ++i) m = fmaxf(m, of(i)[d]);
  for (int i = 0; i < parts_of_row; ++i) {
    float const weight = of(i)[d] == minus_infinity ? 0 : expf(of(i)[d] - m);
    l += of(i)[d + 1] * weight;
    o += of(i)[j] * weight;
  }
  to[std::int64_t(row) * d + j] = l > 0 ? o / l : 0;
  if (j == 0) to[std::int64_t(rows) * d + row] = m + logf(l);
}

/// The same over the ranks' o and lse.
__global__ void join_ranks(world_view w, sym<float> partial, std::int64_t skip, int rows, float* to) {
  int const row = int(blockIdx.x), d = int(blockDim.x), j = int(threadIdx.x);
  auto const of = [&](int r) { return w.on(r, partial) + skip; };
  float m = minus_infinity, l = 0, o = 0;
  for (int r = 0; r < w.size(); ++r) m = fmaxf(m, of(r)[std::int64_t(rows) * d + row]);
  for (int r = 0; r < w.size(); ++r) {
    float const lse = of(r)[std::int64_t(rows) * d + row], weight = lse == minus_infinity ? 0 : expf(lse - m);
    l += weight;
    o += of(r)[std::int64_t(row) * d + j] * weight;
  }
  to[std::int64_t(row) * d + j] = l > 0 ? o / l : 0;
}

/// The twin's last kernel: combines the payloads of all ranks (out, then lse) to out. A thread has eight neighbouring
/// d.
template <class T>
__global__ void __launch_bounds__(256)
    combine_payloads(std::byte const* all, std::int64_t payload, int ranks, int rows, int d, T* out) {
  struct alignas(16) eight {
    T x[8];
  };
  std::int64_t const i = std::int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= std::int64_t(rows) * d / 8) return;
  std::int64_t const row = i * 8 / d;
  auto const lse = [&](int r) {
    return reinterpret_cast<float const*>(all + r * payload + std::int64_t(rows) * d * 2)[row];
  };
  float m = minus_infinity, l = 0, o[8] = {};
  for (int r = 0; r < ranks; ++r) m = fmaxf(m, lse(r));
  for (int r = 0; r < ranks; ++r) {
    float const weight = lse(r) == minus_infinity ? 0 : expf(lse(r) - m);
    eight const part = reinterpret_cast<eight const*>(all + r * payload)[i];
    l += weight;
    for (int j = 0; j < 8; ++j) o[j] += float(part.x[j]) * weight;
  }
  eight sum;
  for (int j = 0; j < 8; ++j) sum.x[j] = T(l > 0 ? o[j] / l : 0.0f);
  reinterpret_cast<eight*>(out)[i] = sum;
}

/// Packs this rank's outputs and lse for their owners: for each rank out [batch, own heads, d], then lse [batch, own
/// heads], `payload` bytes apart. A thread has eight neighbouring d.
template <class T>
__global__ void __launch_bounds__(256)
    pack_heads(T const* out, float const* lse, head_partition owners, int rank, int batch, int heads, int d,
               std::int64_t payload, std::byte* others, std::byte* mine) {
  std::int64_t const i = std::int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (i >= std::int64_t(batch) * heads * d / 8) return;
  int const row = int(i * 8 / d), sequence = row / heads, head = row % heads, owner = owners.owner(head);
  index_range const own = owners.of(owner);
  std::int64_t const at = std::int64_t(sequence) * own.size() + head - own.begin;
  std::byte* const to = (owner == rank ? mine : others) + owner * payload;
  reinterpret_cast<uint4*>(to)[at * (d / 8) + i % (d / 8)] = reinterpret_cast<uint4 const*>(out)[i];
  if (i * 8 % d == 0) reinterpret_cast<float*>(to + std::int64_t(batch) * own.size() * d * 2)[at] = lse[row];
}

/// Reads n vec4s of k and n of v, with four in flight per thread. There is a block for every 4 x blockDim.x vec4s, so
/// that addresses rise with time.
__global__ void __launch_bounds__(512) read_only(uint4 const* k, uint4 const* v, std::int64_t n, unsigned* never) {
  std::int64_t const first = std::int64_t(blockIdx.x) * 4 * blockDim.x + threadIdx.x;
  uint4 x[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (std::int64_t const at = first + i * int(blockDim.x); at < 2 * n) x[i] = at < n ? k[at] : v[at - n];
  unsigned sum = 0;
#pragma unroll
  for (auto const& vec4 : x) sum ^= vec4.x ^ vec4.y ^ vec4.z ^ vec4.w;
  if (sum == 0x5eedf00d) *never = sum;  // else the compiler would drop the loads
}

template <class T>
class shape_runner {
 public:
  shape_runner(rank_state& st, shape const& s) : st_(st), s_(s) { prepare(); }

  std::vector<figure> run() {
    flash_decode_options const o{.max_batch = s_.batch,
                                 .q_heads = s_.q_heads,
                                 .kv_heads = s_.kv_heads,
                                 .head_dim = s_.d,
                                 .page_size = s_.page,
                                 .max_pages = s_.max_pages(),
                                 .shots = reduce_algorithm(set.shots)};
    flash_decode<T> fused(st_.ch, o), local(st_.alone_ch, o);
    flash_decode_options by_heads = o;
    by_heads.output = output::heads;
    by_heads.shots = reduce_algorithm::automatic;
    std::optional<flash_decode<T>> heads;
    if (set.has("heads")) heads.emplace(st_.ch, by_heads);
    std::optional<invariant_decode<T>> invariant;
    if (set.has("invariant")) invariant.emplace(st_.ch, o);
    auto const shard = [&](int i) {
      local(st_.stream(), call(i, reinterpret_cast<T*>(send(i)), reinterpret_cast<float*>(send(i) + s_.result() * 2)));
    };
    auto const twin = [&](int i) {
      shard(i);
      st_.nccl.complete(st_.stream());
      st_.nccl.all_gather(st_.stream(), send(i), st_.received, s_.payload());
      combine_payloads<<<dim3(unsigned((s_.result() / 8 + 255) / 256)), dim3(256), 0, st_.stream()>>>(
          st_.received, std::int64_t(s_.payload()), s_.ranks, s_.rows(), s_.d, out(i));
    };
    auto const twin_of_heads = [&](int i) {
      shard(i);
      auto const payload = std::int64_t(s_.head_payload());
      pack_heads<<<dim3(unsigned((s_.result() / 8 + 255) / 256)), dim3(256), 0, st_.stream()>>>(
          reinterpret_cast<T const*>(send(i)), reinterpret_cast<float const*>(send(i) + s_.result() * 2), owners_,
          st_.w.rank(), s_.batch, s_.q_heads, s_.d, payload, st_.packed, st_.received);
      std::vector<collectives::message> messages;
      for (int r = 0; r < s_.ranks; ++r)
        if (r != st_.w.rank())
          messages.push_back(
              {st_.packed + r * payload, st_.received + r * payload, s_.head_payload(), s_.head_payload(), r});
      st_.nccl.exchange(st_.stream(), messages);
      combine_payloads<<<dim3(unsigned((own_result() / 8 + 255) / 256)), dim3(256), 0, st_.stream()>>>(
          st_.received, payload, s_.ranks, s_.batch * own_.size(), s_.d, out(i));
    };
    std::vector<variant> all;
    for (auto const& name : set.variants) {
      if (name == "heads") add(all, name, true, [&](int i) { (*heads)(st_.stream(), call(i, out(i), nullptr)); });
      if (name == "heads_bsp") add(all, name, true, twin_of_heads);
      if (name == "invariant")
        add(all, name, true, [&](int i) { (*invariant)(st_.stream(), call(i, out(i), nullptr)); });
      if (name == "fused" || name == "fused_eager")
        add(all, name, name == "fused", [&](int i) { fused(st_.stream(), call(i, out(i), nullptr)); });
      if (name == "local") {
        add(all, name, true, shard);
        all.back().poison = [this] {
          check_hip(hipMemsetAsync(send(0), 0xff, std::size_t(s_.iterations()) * s_.payload(), st_.stream()),
                    "hipMemsetAsync");
        };
        all.back().check = [this] {
          for (int const i : {0, 1})
            compare_with(reinterpret_cast<T const*>(send(i * (s_.iterations() - 1))),
                         st_.h.view().here(st_.partial) + i * part_floats());
        };
      }
      if (name == "bsp_eager") add(all, name, false, twin);
      if (name == "bsp_graph") add(all, name, true, twin);
      if (name == "read") all.push_back({name, [this](int i) { read(i); }, true, {}, {}});
    }
    add_late(all, set.late);
    auto figures = measure(st_, all, s_.iterations(), set.repeats, [this] {
      st_.ch.reset();
      st_.alone_ch.reset();
    });
    return figures;
  }

 private:
  T* q(int i) const { return st_.q.template as<T>() + std::size_t(i) * s_.result(); }
  T* out(int i) const { return st_.out.template as<T>() + std::size_t(i) * s_.result(); }
  std::byte* send(int i) const { return st_.send + std::size_t(i) * s_.payload(); }
  std::int32_t* table(int i) const {
    return st_.table.template as<std::int32_t>() +
           std::size_t(i % s_.copies()) * std::size_t(s_.batch) * std::size_t(s_.max_pages());
  }
  std::int64_t part_floats() const { return std::int64_t(s_.result()) + s_.rows(); }
  float* reference(int i) const { return (i == 0 ? st_.first : st_.last).template as<float>(); }
  flash_decode_call<T> call(int i, T* to, float* lse) const {
    return {.q = q(i),
            .k_cache = st_.k.template as<T>(),
            .v_cache = st_.v.template as<T>(),
            .block_table = table(i),
            .lengths = st_.lengths.template as<std::int32_t>(),
            .out = to,
            .lse = lse,
            .batch = s_.batch,
            .kv_is_ready = true};
  }
  void read(int i) const {
    auto const n = std::int64_t(s_.bytes() / 2 / sizeof(uint4)),
               skip = std::int64_t(i % s_.copies()) * std::int64_t(s_.copy_bytes() / 2 / sizeof(uint4));
    read_only<<<dim3(unsigned((2 * n + 2047) / 2048)), dim3(512), 0, st_.stream()>>>(
        st_.k.template as<uint4>() + skip, st_.v.template as<uint4>() + skip, n, st_.scratch.as<unsigned>() + 48);
  }
  void compare_with(T const* x, float const* reference) const {
    compare<<<dim3(256), dim3(256), 0, st_.stream()>>>(x, reference, std::int64_t(s_.result()), st_.scratch.as<sums>());
  }

  std::size_t own_result() const { return std::size_t(s_.batch) * std::size_t(own_.size()) * std::size_t(s_.d); }
  void compare_heads(T const* x, float const* reference) const {
    std::int64_t const own = std::int64_t(own_.size()) * s_.d;
    for (int s = 0; s < s_.batch; ++s)
      compare<<<dim3(256), dim3(256), 0, st_.stream()>>>(
          x + s * own, reference + (std::int64_t(s) * s_.q_heads + own_.begin) * s_.d, own, st_.scratch.as<sums>());
  }

  void add(std::vector<variant>& all, std::string const& name, bool graph, std::function<void(int)> iteration) const {
    all.push_back({name, std::move(iteration), graph,
                   [this] {
                     check_hip(
                         hipMemsetAsync(out(0), 0xff, std::size_t(s_.iterations()) * s_.result() * 2, st_.stream()),
                         "hipMemsetAsync");
                   },
                   [this, name] {
                     for (int const i : {0, s_.iterations() - 1}) {
                       if (name.starts_with("heads")) compare_heads(out(i), reference(i));
                       else compare_with(out(i), reference(i));
                     }
                   }});
  }

  /// Fills the pool of pages once per type. Every shape takes its pages from the pool, in its own order. The
  /// query is the same on all ranks.
  void prepare() {
    hipStream_t const stream = st_.stream();
    int const rank = st_.w.rank(), R = s_.iterations(), pages = s_.max_pages();
    auto const fill = [&](T* to, std::size_t n, std::uint64_t seed) {
      fill_normal<<<dim3(2048), dim3(256), 0, stream>>>(to, 1, std::int64_t(n), 0, 0, std::int64_t(n), seed);
    };
    if (st_.filled != s_.type) {
      fill(st_.k.template as<T>(), st_.pool_elements, 1000 + std::uint64_t(rank));
      fill(st_.v.template as<T>(), st_.pool_elements, 2000 + std::uint64_t(rank));
      st_.filled = s_.type;
    }
    fill(q(0), std::size_t(R) * s_.result(), 1);
    std::vector<std::int32_t> order(std::size_t(s_.copies()) * std::size_t(s_.pages())),
        tables(std::size_t(s_.copies()) * std::size_t(s_.batch) * std::size_t(pages)), n;
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(unsigned(rank)));
    for (int s = 0; s < s_.batch; ++s) n.push_back(s_.length(rank, s));
    auto next = order.begin();
    for (int copy = 0; copy < s_.copies(); ++copy)
      for (int s = 0; s < s_.batch; ++s) {
        auto const row = tables.begin() + (std::ptrdiff_t(copy) * s_.batch + s) * pages;
        int const mine = ceil_div(n[std::size_t(s)], s_.page);
        if (s_.shared && s > 0) std::copy(row - pages, row - pages + mine, row);
        else {
          std::copy(next, next + mine, row);
          next += mine;
        }
      }
    check_hip(
        hipMemcpyAsync(st_.table.template as<void>(), tables.data(), tables.size() * 4, hipMemcpyHostToDevice, stream),
        "hipMemcpyAsync");
    check_hip(hipMemcpyAsync(st_.lengths.template as<void>(), n.data(), n.size() * 4, hipMemcpyHostToDevice, stream),
              "hipMemcpyAsync");
    int const parts_of_row = std::clamp(parts / s_.rows(), 1, ceil_div(pages * s_.page, 64));
    auto const here = [&](int i) { return st_.h.view().here(st_.partial) + i * part_floats(); };
    for (int const i : {0, 1}) {
      int const iteration = i * (R - 1);
      reference_kv<T> const kv{st_.k.template as<T>(),
                               st_.v.template as<T>(),
                               table(iteration),
                               st_.lengths.template as<std::int32_t>(),
                               pages,
                               s_.page,
                               s_.q_heads,
                               s_.kv_heads};
      auto const kernel = s_.d == 64    ? &reference_parts<T, 64>
                          : s_.d == 96  ? &reference_parts<T, 96>
                          : s_.d == 128 ? &reference_parts<T, 128>
                          : s_.d == 192 ? &reference_parts<T, 192>
                                        : &reference_parts<T, 256>;
      kernel<<<dim3(2048), dim3(256), 0, stream>>>(kv, q(iteration), s_.rows(), parts_of_row,
                                                   st_.split.template as<float>());
      join_parts<<<dim3(unsigned(s_.rows())), dim3(unsigned(s_.d)), 0, stream>>>(st_.split.template as<float>(),
                                                                                 parts_of_row, s_.rows(), here(i));
    }
    check_hip(hipGetLastError(), "the reference");
    check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize");
    st_.w.barrier();
    for (int const i : {0, 1})
      join_ranks<<<dim3(unsigned(s_.rows())), dim3(unsigned(s_.d)), 0, stream>>>(
          st_.h.view(), st_.partial, i * part_floats(), s_.rows(), reference(i));
    check_hip(hipGetLastError(), "the reference");
    check_hip(hipStreamSynchronize(stream), "hipStreamSynchronize");
    st_.w.barrier();
  }

  rank_state& st_;
  shape s_;
  head_partition owners_{s_.q_heads, s_.ranks};
  index_range own_ = owners_.of(st_.w.rank());
};

struct row : shape_figures {
  shape s;
  figure const* twin(std::string const& variant) const {
    if (variant.starts_with("heads")) return of("heads_bsp");
    return faster("bsp_eager", "bsp_graph");
  }
};

std::unique_ptr<team<rank_state>> ranks;
std::map<std::string, row> results;
std::vector<std::string> order_of_results;

char const* name_of(dtype t) { return t == dtype::bf16 ? "bf16" : "f16"; }
/// The benchmark's name. "/late:US" of a variant's name goes to the end.
std::string name_of(std::string const& variant, shape const& s) {
  auto const slash = std::min(variant.find('/'), variant.size());
  return text("flash_decode/", variant.substr(0, slash), "/W:", s.ranks, "/batch:", s.batch,
              "/kv:", s.kv > 0 ? text(s.kv) : "ragged", "/heads:", s.q_heads, "-", s.kv_heads, "/d:", s.d,
              "/page:", s.page, "/pages:", s.shared ? "shared" : "own", variant.substr(slash));
}

/// The first benchmark of a shape measures all of its variants.
void report(benchmark::State& state, std::string const& variant, shape const& s) {
  std::string const key = name_of(name_of(s.type), s);
  bool const first = !results.contains(key);
  row const* const r = results_of(state, results, key, variant, row{{}, s}, *ranks, [&](rank_state& st) {
    return s.type == dtype::bf16 ? shape_runner<bf16>(st, s).run() : shape_runner<f16>(st, s).run();
  });
  if (!r) return;
  if (first) order_of_results.push_back(key);
  state.SetLabel(name_of(s.type));
  figure const* const found = report_variant(state, *r, variant, s.type == dtype::bf16 ? 1e-2 : 2e-3);
  if (!found) return;
  state.counters["bytes"] = s.bytes();
  state.counters["hbm_gb_s"] = s.bytes() / found->us * 1e-3;
  if (!s.shared) state.counters["target"] = s.target();
  if (variant.find('/') != std::string::npos) return;  // ranks that are late are compared with each other
  if (auto const* t = r->twin(variant)) state.counters["speedup"] = t->us / found->us;
}

void print_table() {
  std::printf("\nmicroseconds of one iteration, slowest rank, median; HBM: KV at 4.8 TB/s; target: KV at 4.4 TB/s + 8 "
              "us, + 4 us for one rank; speedup: fused over the better twin; NVLS off\n");
  std::printf("%2s %5s %7s %6s %3s %4s %-6s %-4s |%8s %8s %8s %8s %8s |%8s %8s |%8s %7s\n", "W", "batch", "kv", "heads",
              "d", "page", "pages", "type", "fused", "local", "eager", "graph", "read", "HBM", "target", "GB/s",
              "speedup");
  for (auto const& key : order_of_results) {
    row const& r = results[key];
    std::printf("%2d %5d %7s %6s %3d %4d %-6s %-4s |", r.s.ranks, r.s.batch,
                r.s.kv > 0 ? text(r.s.kv).c_str() : "ragged", text(r.s.q_heads, "-", r.s.kv_heads).c_str(), r.s.d,
                r.s.page, r.s.shared ? "shared" : "own", name_of(r.s.type));
    for (char const* v : {"fused", "local", "bsp_eager", "bsp_graph", "read"}) {
      if (auto const* f = r.of(v)) std::printf("%8.2f ", f->us);
      else std::printf("%8s ", "-");
    }
    std::printf("|%8.2f ", r.s.bytes() / 4.8e6);
    if (r.s.shared) std::printf("%8s |", "-");
    else std::printf("%8.2f |", r.s.target());
    auto const *f = r.of("fused"), *t = r.twin("fused");
    if (f) std::printf("%8.0f ", r.s.bytes() / f->us * 1e-3);
    if (f && t) std::printf("%7.2f", t->us / f->us);
    std::printf("\n");
  }
}

void print_taxes() {
  std::printf(
      "\nkernels: of an iteration; host: microseconds to enqueue it; late: what it takes longer when round robin "
      "one rank is that much late, all of it if everybody waits\n");
  std::printf("%2s %5s %7s %-9s |%8s %8s %8s %8s |", "W", "batch", "kv", "", "kernels", "host us", "eager", "graph");
  for (int const late : set.late) std::printf(" late %3d", late);
  std::printf("\n");
  for (auto const& key : order_of_results) {
    row const& r = results[key];
    for (auto const& [graph, eager] : {std::pair{"bsp_graph", "bsp_eager"}, std::pair{"fused", "fused_eager"}}) {
      auto const *g = r.of(graph), *e = r.of(eager);
      if (!g || !e) continue;
      std::printf("%2d %5d %7d %-9s |%8.0f %8.2f %8.2f %8.2f |", r.s.ranks, r.s.batch, r.s.kv, graph, g->kernels,
                  e->host_us, e->us, g->us);
      for (int const late : set.late)
        if (auto const *l = r.of(text(graph, "/late:", late)), *none = r.of(text(graph, "/late:0")); l && none)
          std::printf(" %+7.1f ", l->us - none->us);
      std::printf("\n");
    }
  }
}

std::vector<shape> default_sweep(bool quick) {
  constexpr int K = 1024;
  std::vector<shape> all;
  if (quick)
    return {{.kv = 8 * K, .page = 1},
            {.kv = 8 * K},
            {.kv = 128 * K},
            {.batch = 4, .kv = 8 * K, .page = 1, .shared = true},
            {.kv = 16 * K, .d = 64, .type = dtype::bf16}};
  for (int const page : {1, 16})
    for (int const kv : {8, 16, 32, 64, 128, 256, 512, 1024}) all.push_back({.kv = kv * K, .page = page});
  for (int const batch : {4, 8, 16, 64})
    for (int const kv : {8, 128}) all.push_back({.batch = batch, .kv = kv * K});
  for (int const batch : {4, 16})
    for (int const kv : {8, 32, 128, 512}) all.push_back({.batch = batch, .kv = kv * K, .page = 1, .shared = true});
  for (int const kv : {16, 128}) {
    all.push_back({.kv = kv * K, .page = 64});
    all.push_back({.kv = kv * K, .q_heads = 64, .kv_heads = 8});
    all.push_back({.kv = kv * K, .q_heads = 32, .kv_heads = 32});
    all.push_back({.kv = kv * K, .d = 64});
  }
  all.push_back({.batch = 16, .kv = 0});
  for (int const kv : {16, 128}) all.push_back({.kv = kv * K, .type = dtype::bf16});
  return all;
}

std::vector<shape> few_shapes() { return {{.kv = 8192}, {.kv = 65536}, {.kv = 524288}, {.batch = 16, .kv = 8192}}; }

/// The even batch beside a ragged one: as many tokens, in equal sequences.
shape even(shape s) {
  double sum = 0;
  for (int i = 0; i < s.batch; ++i) sum += s.tokens(i);
  s.kv = int(sum / s.batch + 0.5);
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  command_line c(
      argc, argv,
      "bench_flash_decode [--ranks=W] [--variants=NAME,...] [--repeats=7] [--shots=0|1|2] [--memory=GiB] [--quick]\n"
      "                          [--batches=B,...] [--tokens=N,...,ragged] [--heads=Q-KV,...] [--dims=64,...,256] "
      "[--page_sizes=P,...]\n"
      "                          [--kinds=own,shared] [--dtypes=f16,bf16] [--taxes] [--late=US,...] [--budget=S]\n"
      "NAME: fused, fused_eager, local, bsp_eager, bsp_graph, read, heads, heads_bsp, invariant. With a list of shapes "
      "the sweep is the product of all lists.\n"
      "--late: round robin, one rank per iteration is late. --taxes: few shapes, eager and graph, ranks that are "
      "late.");
  bool const taxes = c.flag("taxes"), quick = c.flag("quick");
  using names = std::vector<std::string>;
  set = {c.number("ranks", std::max(1, gpus())), c.number("repeats", quick ? 3 : 7), c.number("shots", 0, "[0-2]"),
         c.words("variants", "fused|fused_eager|local|bsp_eager|bsp_graph|read|heads|heads_bsp|invariant",
                 taxes ? names{"fused", "fused_eager", "local", "bsp_eager", "bsp_graph"}
                       : names{"fused", "local", "bsp_eager", "bsp_graph", "read"}),
         late_times(c, taxes)};
  std::size_t const memory = std::size_t(c.number("memory", 28)) << 30;
  auto const batches = c.numbers("batches", {}), page_sizes = c.numbers("page_sizes", {});
  auto const dims = c.words("dims", "64|96|128|192|256", {}), tokens = c.words("tokens", "ragged|[1-9][0-9]{0,8}", {}),
             heads = c.words("heads", "[1-9][0-9]{0,3}-[1-9][0-9]{0,3}", {});
  auto const kinds = c.words("kinds", "own|shared", {}), dtypes = c.words("dtypes", "f16|bf16", {});
  progress::get().take_budget(c);
  bool const to_file = writes_file(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (set.ranks < 1 || set.ranks > gpus()) {
    std::fprintf(stderr, "bench_flash_decode: %d ranks, %d GPUs: a GPU per rank is needed\n", set.ranks, gpus());
    return 77;
  }
  std::vector<shape> sweep{{}};
  auto const vary = [&sweep](auto const& values, auto change) {
    std::vector<shape> all;
    for (auto const& s : sweep)
      for (auto const& value : values) change(all.emplace_back(s), value);
    if (!values.empty()) sweep = std::move(all);
  };
  if (batches.empty() && dims.empty() && page_sizes.empty() && tokens.empty() && heads.empty() && kinds.empty() &&
      dtypes.empty())
    sweep = taxes ? few_shapes() : default_sweep(quick);
  vary(dtypes, [](shape& s, std::string const& x) { s.type = x == "bf16" ? dtype::bf16 : dtype::f16; });
  vary(kinds, [](shape& s, std::string const& x) { s.shared = x == "shared"; });
  vary(heads, [](shape& s, std::string const& x) {
    s.q_heads = std::atoi(x.c_str()), s.kv_heads = std::atoi(x.c_str() + x.find('-') + 1);
  });
  vary(dims, [](shape& s, std::string const& x) { s.d = std::atoi(x.c_str()); });
  vary(page_sizes, [](shape& s, int x) { s.page = x; });
  vary(batches, [](shape& s, int x) { s.batch = x; });
  vary(tokens, [](shape& s, std::string const& x) { s.kv = x == "ragged" ? 0 : std::atoi(x.c_str()); });
  capacity room;
  auto const take = [&](shape const& s) {
    if (s.pool_bytes() > memory) return;
    for (auto const& v : with_late(set.variants, set.late)) {
      std::string const name = name_of(v, s);
      if (!selected(name)) continue;
      progress::get().plan();
      room.include(s);
      benchmark::RegisterBenchmark(name.c_str(), report, v, s)
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMicrosecond);
    }
  };
  for (shape s : sweep) {
    s.ranks = set.ranks;
    take(s);
    if (s.kv == 0) take(even(s));
  }
  add_context(set.ranks);
  benchmark::AddCustomContext(vendor::collectives_name,
                              text(NCCL_MAJOR, '.', NCCL_MINOR, '.', NCCL_PATCH, ", NVLS off"));
  ranks =
      std::make_unique<team<rank_state>>(set.ranks, [room](world& w) { return std::make_unique<rank_state>(w, room); });
  run_benchmarks(to_file);
  print_table();
  if (taxes) print_taxes();
  ranks.reset();
  benchmark::Shutdown();
  return 0;
}
