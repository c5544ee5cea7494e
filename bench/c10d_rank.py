"""A rank of bench/c10d: steps of a GPT under DDP or FSDP2, or all-reduces, on one backend."""
import argparse
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn

from model import SIZES, VOCABULARY
from step_peer import GPT, batch


def wrapped(model, strategy):
    if strategy == "ddp":
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    from torch.distributed.fsdp import fully_shard
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Training:
    def __init__(self, strategy, preset, samples):
        torch.manual_seed(7)
        self.sizes, self.samples, self.position = SIZES[preset], samples, 0
        model = GPT(**self.sizes, vocabulary=VOCABULARY)
        self.model = wrapped(model, strategy)
        # fused AdamW takes no DTensor on CPU
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3, foreach=True)

    def step(self):
        tokens, targets = batch(self.position, dist.get_rank(), dist.get_world_size(), self.samples,
                                self.sizes["block"], VOCABULARY)
        self.position += 1
        self.optimizer.zero_grad()
        loss = self.model(tokens, targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()


class AllReduce:
    def __init__(self, elements):
        self.tensor = torch.ones(elements)

    def step(self):
        self.tensor.fill_(dist.get_rank() + 1)
        dist.all_reduce(self.tensor)
        return self.tensor[-1].item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--work", required=True, help="ddp, fsdp2 or a number of elements")
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--samples", type=int, default=4)
    a = parser.parse_args()
    torch.set_num_threads(1)
    if a.backend == "hanji":
        import hanji_c10d  # noqa: F401
    dist.init_process_group(a.backend)
    work = (AllReduce(int(a.work)) if a.work.isdigit()
            else Training(a.work, a.preset, a.samples))
    for line in sys.stdin:
        seconds, results = [], []
        for _ in range(json.loads(line)["steps"]):
            start = time.perf_counter()
            results.append(work.step())
            seconds.append(time.perf_counter() - start)
        print(json.dumps({"seconds": seconds, "losses": results}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
