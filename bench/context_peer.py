"""Does PyTorch's context_parallel attend on CPUs? Two processes over Gloo, forward and backward; ends with its error if not."""
import os

import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

RANKS = 2


def attend(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    parts = [torch.randn(1, 2, 16, 8) for _ in range(3)]
    with context_parallel(init_device_mesh("cpu", (RANKS,)), buffers=parts, buffer_seq_dims=[2, 2, 2],
                          no_restore_buffers=set(parts)):
        for part in parts:
            part.requires_grad_()
        F.scaled_dot_product_attention(*parts, is_causal=True).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(attend, args=(os.environ["CONTEXT_PEER_STORE"],), nprocs=RANKS)
