"""The peer of bench/pipeline: the same GPT and the same data in PyTorch, by torch.distributed.pipelining.

As strong as a careful user makes it: equal blocks per stage, flash attention, fused AdamW. The token embedding is also
the head, so the first and the last stage each have it and sum its gradients.
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from peer_gpt import GPT, parameter_groups, parser, serve
from safetensors.torch import load_file
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Stage(nn.Module):
    """One rank's blocks of a GPT, the embedding before the first and the head behind the last."""

    def __init__(self, model, rank, ranks):
        super().__init__()
        parts = model.transformer
        count = len(parts.h)
        self.h = parts.h[count * rank // ranks:count * (rank + 1) // ranks]
        self.is_first, self.is_last = rank == 0, rank + 1 == ranks
        if self.is_first or self.is_last:
            self.wte = parts.wte
        if self.is_first:
            self.wpe = parts.wpe
        if self.is_last:
            self.ln_f = parts.ln_f

    def forward(self, x):
        if self.is_first:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight) if self.is_last else x


def loss_of(logits, targets):
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


class Pipelined(nn.Module):
    """Calls a schedule, which runs the backwards too; the loss that it returns has nothing left to do."""

    def __init__(self, stage, schedule, ranks):
        super().__init__()
        self.stage, self.schedule, self.last = stage, schedule, ranks - 1
        self.tied = dist.new_group([0, self.last])

    def forward(self, tokens, targets):
        losses = []
        inputs = (tokens,) if self.stage.is_first else ()
        self.schedule.step(*inputs, target=targets if self.stage.is_last else None, losses=losses,
                           return_outputs=False)
        if self.stage.is_first or self.stage.is_last:
            dist.all_reduce(self.stage.wte.weight.grad, group=self.tied)
        loss = torch.stack(losses).mean().detach() if losses else next(self.parameters()).new_zeros(())
        dist.broadcast(loss, self.last)
        return loss.requires_grad_()

    def clip(self, parameters):
        """As clip_grad_norm_(), the embedding counted once."""
        gradients = [p.grad for p in parameters]
        second = self.stage.wte.weight if self.stage.is_last else None
        counted = [p.grad for p in self.parameters() if p is not second]
        square = sum(norm.square() for norm in torch._foreach_norm(counted))
        dist.all_reduce(square)
        torch._foreach_mul_(gradients, torch.clamp(1.0 / (square.sqrt() + 1e-6), max=1.0))


def main():
    arguments = parser()
    arguments.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    arguments.add_argument("--precision", choices=("highest", "medium"), default="highest")
    arguments.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    arguments.add_argument("--micro-batches", type=int, default=4)
    a = arguments.parse_args()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision(a.precision)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    whole = GPT(a.layers, a.heads, a.width, a.block, a.vocabulary)
    if a.dtype == "float64":
        whole.double()
    whole.load_state_dict(load_file(a.initial))
    stage = Stage(whole, rank, ranks)
    schedule = SCHEDULES[a.schedule](PipelineStage(stage, rank, ranks, torch.device("cpu")), a.micro_batches,
                                     loss_fn=loss_of)
    model = Pipelined(stage, schedule, ranks)
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=1e-3, betas=(0.9, 0.99), fused=True)
    serve(model, optimizer, a, 0, 1, model.clip)  # every rank sees the same samples
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
