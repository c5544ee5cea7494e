"""A rank of bench/c10d: steps of a GPT under DDP or FSDP2, or all-reduces, on one backend.

Each step says how long it took and what came out.
"""
import argparse
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn

from model import SIZES, VOCABULARY
from peer_gpt import GPT, batch


def wrapped(model, strategy):
    if strategy.startswith("ddp"):
        views = strategy == "ddp_views"
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=views)
    from torch.distributed.fsdp import fully_shard
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in [*model.transformer.h, model]:
        module.set_allocate_memory_from_process_group_for_comm(strategy == "fsdp2_heap")
    return model


class Training:
    def __init__(self, strategy, preset, samples):
        torch.manual_seed(7)
        self.sizes, self.samples, self.position = SIZES[preset], samples, 0
        model = GPT(**self.sizes, vocabulary=VOCABULARY)
        self.model = wrapped(model, strategy)
        # fused AdamW takes no DTensor on CPU
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3, foreach=True)

    def step(self):
        start = time.perf_counter()
        tokens, targets = batch(self.position, dist.get_rank(), dist.get_world_size(), self.samples,
                                self.sizes["block"], VOCABULARY)
        self.position += 1
        self.optimizer.zero_grad()
        loss = self.model(tokens, targets)
        loss.backward()
        self.optimizer.step()
        return time.perf_counter() - start, loss.item()


class AllReduce:
    """Of ordinary memory, or "heap:N", of N elements where the backend allocates them, if it does."""
    def __init__(self, work):
        elements, cpu = int(work.split(":")[-1]), torch.device("cpu")
        backend = dist.group.WORLD._get_backend(cpu)
        if work.startswith("heap") and backend.supports_tensor_alloc(cpu):
            self.tensor = backend.allocate_tensor(elements, dtype=torch.float, device=cpu)
        else:
            self.tensor = torch.ones(elements)

    def step(self):
        self.tensor.fill_(dist.get_rank() + 1)
        start = time.perf_counter()
        dist.all_reduce(self.tensor)
        return time.perf_counter() - start, self.tensor[-1].item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--work", required=True, help="ddp, ddp_views, fsdp2, fsdp2_heap, N elements, or heap:N")
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--samples", type=int, default=4)
    a = parser.parse_args()
    torch.set_num_threads(1)
    if a.backend == "hanji":
        import hanji_c10d  # noqa: F401
    dist.init_process_group(a.backend)
    work = (AllReduce(a.work) if a.work[-1].isdigit() and a.work != "fsdp2"
            else Training(a.work, a.preset, a.samples))
    for line in sys.stdin:
        seconds, results = [], []
        for _ in range(json.loads(line)["steps"]):
            took, result = work.step()
            seconds.append(took)
            results.append(result)
        print(json.dumps({"seconds": seconds, "losses": results}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
