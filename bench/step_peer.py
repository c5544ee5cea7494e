"""The peer of bench/step: the same GPT and the same data in PyTorch, with DDP over Gloo.

As strong as a careful user makes it: flash attention, fused AdamW, gradients that are views of the
buckets. Starts from the parameters that the other side saved.
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from peer_gpt import GPT, parameter_groups, parser, serve
from safetensors.torch import load_file


class Autocast(nn.Module):
    """A model whose forward runs in bfloat16 where that pays."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(*inputs)


def main():
    arguments = parser()
    arguments.add_argument("--dtype", choices=("float32", "float64", "bf16"), default="float32")
    arguments.add_argument("--precision", choices=("highest", "medium"), default="highest")
    arguments.add_argument("--learning-rate", type=float, default=1e-3)
    a = arguments.parse_args()
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
    if a.dtype == "bf16":
        trained = Autocast(trained)
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=a.learning_rate, betas=(0.9, 0.99),
                                  fused=True)
    serve(trained, optimizer, a, rank, ranks)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
