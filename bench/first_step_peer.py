"""One rank of torchrun for bench/first_step: one step of DDP, then the time of day to a file."""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn

from peer_gpt import GPT, batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    for name in ("layers", "heads", "width", "block", "vocabulary"):
        parser.add_argument(f"--{name}", type=int, required=True)
    a = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(
        GPT(a.layers, a.heads, a.width, a.block, a.vocabulary))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens, targets = batch(0, dist.get_rank(), dist.get_world_size(), 8, a.block, a.vocabulary)
    model(tokens, targets).backward()
    optimizer.step()
    if dist.get_rank() == 0:
        with open(a.out + ".part", "w") as file:
            file.write(str(time.time()))
        os.rename(a.out + ".part", a.out)
    dist.barrier()  # past the measured time: gloo aborts a rank whose peer leaves first
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
