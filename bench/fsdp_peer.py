"""The peer of bench/fsdp: the same GPT and data by torch.distributed.fsdp.fully_shard over Gloo."""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from step_peer import GPT, batch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    parser = argparse.ArgumentParser()
    for name in ("layers", "heads", "width", "block", "vocabulary", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--initial", required=True)
    parser.add_argument("--tuned", action="store_true")
    a = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("medium" if a.tuned else "highest")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    model = GPT(a.layers, a.heads, a.width, a.block, a.vocabulary)
    model.load_state_dict(load_file(a.initial))
    mesh = init_device_mesh("cpu", (ranks,))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh, reshard_after_forward=not a.tuned)
    fully_shard(model, mesh=mesh, reshard_after_forward=not a.tuned)
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99),
                                  **({"fused": True} if a.tuned else {}))
    step = 0
    for line in sys.stdin:
        seconds, losses = [], []
        for _ in range(json.loads(line)["steps"]):
            tokens, targets = batch(step, rank, ranks, a.batch, a.block, a.vocabulary)
            start = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            loss = model(tokens, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total = loss.detach().double()
            dist.all_reduce(total)
            losses.append(total.item() / ranks)
            seconds.append(time.perf_counter() - start)
            step += 1
        print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
