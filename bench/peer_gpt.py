"""What the peers written in PyTorch have in common: one GPT, its tokens, its optimizer, a rank's loop."""
import argparse
import json
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


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
        x = t.wte(tokens) + t.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in t.h:
            x = block(x)
        logits = F.linear(t.ln_f(x), t.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def batch(step, rank, ranks, size, block, vocabulary):
    """The tokens that bench/step_rank.cpp and bench/plain_gpt.h make: a hash of the position."""
    count = size * (block + 1)
    index = torch.arange(count, dtype=torch.int64) + (step * ranks + rank) * count
    tokens = (((index * 2654435761) & 0xFFFFFFFF) >> 7) % vocabulary
    tokens = tokens.view(size, block + 1)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def parameter_groups(model):
    """Matrices decay, vectors do not, as hanji's optimizers do."""
    return [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]


def parser():
    """The arguments of every rank."""
    parser = argparse.ArgumentParser()
    for name in ("layers", "heads", "width", "block", "vocabulary", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--initial", required=True)
    return parser


def clip_to_one(parameters):
    """Scales the gradients to a norm of at most 1."""
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)


def take_steps(model, optimizer, a, rank, ranks, steps, clip=clip_to_one):
    """The steps of these numbers: (seconds of each, losses over all ranks)."""
    seconds, losses = [], []
    for step in steps:
        tokens, targets = batch(step, rank, ranks, a.batch, a.block, a.vocabulary)
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = model(tokens, targets)
        loss.backward()
        if clip:
            clip(model.parameters())
        optimizer.step()
        total = loss.detach().double()
        if ranks > 1:
            dist.all_reduce(total)
        losses.append(total.item() / ranks)
        seconds.append(time.perf_counter() - start)
    return seconds, losses


def serve(model, optimizer, a, rank, ranks, clip=clip_to_one):
    """Answers lines of stdin, {"steps": 5}, by {"seconds": [...], "losses": [...]}."""
    step = 0
    for line in sys.stdin:
        count = json.loads(line)["steps"]
        seconds, losses = take_steps(model, optimizer, a, rank, ranks, range(step, step + count), clip)
        step += count
        print(json.dumps({"seconds": seconds, "losses": losses}), flush=True)
