"""The peer of bench/memory: the same MLP and data by PyTorch's DDP or fully_shard over Gloo."""
import argparse
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        with torch.no_grad():
            for p in self.parameters():
                p.fill_(3e-5)

    def forward(self, x):
        return x + torch.relu(self.linear(x))


def rows(step, rank, ranks, width):
    count = 8 * width
    index = torch.arange(count, dtype=torch.double) + (step * ranks + rank) * count
    return index.sin().view(8, width).float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", choices=("ddp", "fully_shard"), required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--width", type=int, required=True)
    a = parser.parse_args()
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    print(json.dumps({"at": "start"}), flush=True)
    model = nn.Sequential(*(Layer(a.width) for _ in range(a.layers)))
    if a.strategy == "ddp":
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        mesh = dist.init_device_mesh("cpu", (ranks,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=a.strategy == "ddp")  # fused takes no DTensor on CPU
    print(json.dumps({"at": "wrapped"}), flush=True)
    step = 0
    for line in sys.stdin:
        losses = []
        for _ in range(json.loads(line)["steps"]):
            optimizer.zero_grad(set_to_none=a.strategy != "ddp")
            loss = model(rows(step, rank, ranks, a.width)).square().mean()
            loss.backward()
            optimizer.step()
            total = loss.detach().double()
            dist.all_reduce(total)
            losses.append(total.item() / ranks)
            step += 1
        print(json.dumps({"losses": losses}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
