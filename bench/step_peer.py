"""The peer of bench/step: the same GPT and the same data in PyTorch, with DDP over Gloo.

As strong as a careful user makes it: flash attention, fused AdamW, gradients that are views of the
buckets. Starts from the parameters that the other side saved.
"""
import argparse
import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for part in self.c_attn(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = Attention(width, heads), MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, layers, heads, width, block, vocabulary):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocabulary, width), wpe=nn.Embedding(block, width),
            h=nn.ModuleList(Block(width, heads) for _ in range(layers)), ln_f=nn.LayerNorm(width)))

    def forward(self, tokens, targets):
        t = self.transformer
        x = t.wte(tokens) + t.wpe(torch.arange(tokens.shape[1]))
        for block in t.h:
            x = block(x)
        logits = F.linear(t.ln_f(x), t.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def batch(step, rank, ranks, size, block, vocabulary):
    """The tokens that bench/step_rank.cpp makes: a hash of the position."""
    count = size * (block + 1)
    index = torch.arange(count, dtype=torch.int64) + (step * ranks + rank) * count
    tokens = (((index * 2654435761) & 0xFFFFFFFF) >> 7) % vocabulary
    tokens = tokens.view(size, block + 1)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def main():
    parser = argparse.ArgumentParser()
    for name in ("layers", "heads", "width", "block", "vocabulary", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--dtype", choices=("float32", "float64", "bf16"), default="float32")
    parser.add_argument("--precision", choices=("highest", "medium"), default="highest")
    parser.add_argument("--initial", required=True)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    a = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision(a.precision)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    model = GPT(a.layers, a.heads, a.width, a.block, a.vocabulary)
    if a.dtype == "float64":
        model.double()
    model.load_state_dict(load_file(a.initial))
    trained = model
    if ranks > 1:
        dist.init_process_group("gloo")
        trained = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                   {"params": plain, "weight_decay": 0.0}],
                                  lr=a.learning_rate, betas=(0.9, 0.99), fused=True)
    autocast = (lambda: torch.autocast("cpu", torch.bfloat16)) if a.dtype == "bf16" \
        else contextlib.nullcontext
    step = 0
    for line in sys.stdin:
        seconds, losses = [], []
        for _ in range(json.loads(line)["steps"]):
            tokens, targets = batch(step, rank, ranks, a.batch, a.block, a.vocabulary)
            start = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            with autocast():
                loss = trained(tokens, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total = loss.detach().double()
            if ranks > 1:
                dist.all_reduce(total)
            losses.append(total.item() / ranks)
            seconds.append(time.perf_counter() - start)
            step += 1
        print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
