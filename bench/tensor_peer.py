"""The peer of bench/tensor: the same GPT and the same data in PyTorch, cut by DTensor's tensor parallelism.

As strong as a careful user makes it: what each rank holds of a block is a column's and its row's part, so
that a block moves two sums; flash attention, fused AdamW, one dimension of the mesh. Queries, keys and
values are linears of their own, because ColwiseParallel cuts a fused one across them.
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from peer_gpt import GPT, parameter_groups, parser, serve
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class SplitAttention(nn.Module):
    """Attention over the heads that this rank has."""

    def __init__(self, fused):
        super().__init__()
        width = fused.c_proj.in_features
        self.size = width // fused.heads
        for name, weight, bias in zip(("q", "k", "v"), fused.c_attn.weight.detach().split(width),
                                      fused.c_attn.bias.detach().split(width)):
            linear = nn.Linear(width, width, dtype=weight.dtype)
            linear.weight.data.copy_(weight)
            linear.bias.data.copy_(bias)
            self.add_module(name, linear)
        self.c_proj = fused.c_proj

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (part(x).view(B, T, -1, self.size).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, -1))


def cut(model, mesh, attention):
    """Cuts every MLP of the model, and its attention if asked, over the mesh."""
    ways = {"mlp.c_fc": ColwiseParallel(), "mlp.c_proj": RowwiseParallel()}
    if attention:
        ways |= {f"attn.{name}": ColwiseParallel() for name in "qkv"} | {"attn.c_proj": RowwiseParallel()}
    for block in model.transformer.h:
        if attention:
            block.attn = SplitAttention(block.attn)
        parallelize_module(block, mesh, ways)


def clip_cut(parameters):
    """As clip_grad_norm_(), which refuses a model whose parameters are in part DTensors."""
    parts, whole = [], []
    for gradient in (p.grad for p in parameters):
        if not isinstance(gradient, DTensor):
            whole.append(gradient)
        else:
            (parts if gradient.placements[0].is_shard() else whole).append(gradient.to_local())
    square = sum(norm.square() for norm in torch._foreach_norm(parts))
    dist.all_reduce(square)
    norm = (square + sum(norm.square() for norm in torch._foreach_norm(whole))).sqrt()
    torch._foreach_mul_(parts + whole, torch.clamp(1.0 / (norm + 1e-6), max=1.0))


def groups_of(model):
    """The optimizer's groups; DTensors apart, which no fused update takes together with tensors."""
    groups = []
    for group in parameter_groups(model):
        for cut in (False, True):
            params = [p for p in group["params"] if isinstance(p, DTensor) == cut]
            groups.append({**group, "params": params})
    return groups


def main():
    arguments = parser()
    arguments.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    arguments.add_argument("--precision", choices=("highest", "medium"), default="highest")
    arguments.add_argument("--cut", choices=("mlp", "blocks"), default="blocks")
    a = arguments.parse_args()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision(a.precision)
    ranks = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    model = GPT(a.layers, a.heads, a.width, a.block, a.vocabulary)
    if a.dtype == "float64":
        model.double()
    model.load_state_dict(load_file(a.initial))
    cut(model, init_device_mesh("cpu", (ranks,)), a.cut == "blocks")
    optimizer = torch.optim.AdamW(groups_of(model), lr=1e-3, betas=(0.9, 0.99), fused=True)
    serve(model, optimizer, a, 0, 1, clip_cut)  # every rank sees the same samples
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
