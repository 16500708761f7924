"""usage: torchrun --nproc-per-node N custom_epilogue.py"""
import torch
import torch.distributed as dist
import torch.nn.functional as F

import fusewire

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
group, bf16 = dist.group.WORLD, {"device": "cuda", "dtype": torch.bfloat16}
fusewire.init(group, max_m=512, max_k=1024)

silu = fusewire.compile("""
    float y = x + float(bias[column]);
    return scale * y / (1 + __expf(-y));""", bias=torch.Tensor, scale=float)

x, w, b = torch.randn(512 // group.size(), 1024, **bf16), torch.randn(256, 1024, **bf16) / 32, torch.randn(256, **bf16)
h = silu.ag_gemm(x, w, bias=b, scale=0.5, group=group)  # the first call compiles its kernel

right = 0.5 * F.silu(F.linear(fusewire.all_gather(x, group=group).float(), w.float(), b.float()))
print(f"rank {dist.get_rank()}: relative error {((h - right).norm() / right.norm()).item():.4f}")
fusewire.destroy(group)
dist.destroy_process_group()
