"""The peer of bench/gpu_step: the same GPT and the same data in PyTorch, in one process on a GPU.

As it comes, with the fused AdamW; with --compile by torch.compile. Steps of a request are timed together, from an idle
device to an idle one, and losses are read after the last: PyTorch does not wait for the device within a step.
"""
import json
import sys
import time

import torch
from peer_gpt import GPT, batch, clip_to_one, parameter_groups, parser
from safetensors.torch import load_file


class Autocast(torch.nn.Module):
    """A model whose forward runs in bfloat16 where that pays."""

    def __init__(self, model, device):
        super().__init__()
        self.model, self.device = model, device

    def forward(self, *inputs):
        with torch.autocast(self.device, torch.bfloat16):
            return self.model(*inputs)


def finish(device):
    if device == "cuda":
        torch.cuda.synchronize()


def batches_of(a, steps):
    made = [batch(step, 0, 1, a.batch, a.block, a.vocabulary) for step in steps]
    return [[one.pin_memory() for one in pair] for pair in made] if a.device == "cuda" else made


def take_steps(model, optimizer, a, steps):
    """(mean seconds of these steps, their losses)."""
    batches, losses = batches_of(a, steps), []
    finish(a.device)
    start = time.perf_counter()
    for tokens, targets in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = model(tokens.to(a.device, non_blocking=True), targets.to(a.device, non_blocking=True))
        loss.backward()
        clip_to_one(model.parameters())
        optimizer.step()
        losses.append(loss.detach())
    finish(a.device)
    seconds = (time.perf_counter() - start) / len(batches)
    return [seconds] * len(batches), [loss.double().item() for loss in losses]


def main():
    arguments = parser()
    arguments.add_argument("--dtype", choices=("float32", "float64", "bf16"), default="float32")
    arguments.add_argument("--precision", choices=("highest", "high"), default="highest")
    arguments.add_argument("--device", default="cuda")
    arguments.add_argument("--compile", action="store_true")
    a = arguments.parse_args()
    torch.set_float32_matmul_precision(a.precision)  # "high": TF32 on GPUs
    model = GPT(a.layers, a.heads, a.width, a.block, a.vocabulary)
    if a.dtype == "float64":
        model.double()
    model.load_state_dict(load_file(a.initial))
    model.to(a.device)
    trained = Autocast(model, a.device) if a.dtype == "bf16" else model
    if a.compile:
        trained = torch.compile(trained)
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=1e-3, betas=(0.9, 0.99), fused=True)
    step = 0
    for line in sys.stdin:
        count = json.loads(line)["steps"]
        seconds, losses = take_steps(trained, optimizer, a, range(step, step + count))
        step += count
        print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)


if __name__ == "__main__":
    main()
