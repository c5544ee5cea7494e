"""What torchrun starts: two groups in turn on the agent's own store, left without a word."""

import os

import torch
import torch.distributed as dist

import hanji_c10d  # noqa: F401

sums = []
for turn in range(2):
    dist.init_process_group("hanji")
    tensor = torch.tensor(dist.get_rank() + 1.0)
    dist.all_reduce(tensor)
    sums.append(str(tensor.item()))
    if turn == 0:
        dist.destroy_process_group()
os.write(1, (" ".join(sums) + "\n").encode())  # at once: the ranks share the pipe
