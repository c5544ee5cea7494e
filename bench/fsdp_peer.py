"""The peer of bench/fsdp: the same GPT and data by torch.distributed.fsdp.fully_shard over Gloo."""
import os

import torch
import torch.distributed as dist
from peer_gpt import GPT, parameter_groups, parser, serve
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    arguments = parser()
    arguments.add_argument("--tuned", action="store_true")
    a = arguments.parse_args()
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
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=1e-3, betas=(0.9, 0.99),
                                  **({"fused": True} if a.tuned else {}))
    serve(model, optimizer, a, rank, ranks)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
