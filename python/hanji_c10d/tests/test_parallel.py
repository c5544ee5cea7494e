"""Python's own parallelism runs unchanged on "hanji", and ends where it does on "gloo"."""

import unittest

import torch
import torch.distributed as dist
from torch import nn

from ranks import run_ranks

import hanji_c10d  # noqa: F401


def make_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 16), nn.Linear(16, 4))


def train(net, rank, steps=4):
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    torch.manual_seed(100 + rank)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(8, 12)).square().mean().backward()
        optimizer.step()


def data_parallel(rank, size):
    net = nn.parallel.DistributedDataParallel(make_net(), bucket_cap_mb=0.001)
    train(net, rank)
    return [p.detach() for p in net.parameters()]


def fully_sharded(rank, size):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("cpu", (size,))
    net = make_net()
    for layer in net:
        fully_shard(layer, mesh=mesh)
    train(fully_shard(net, mesh=mesh), rank)
    return [p.full_tensor().detach() for p in net.parameters()]


def uneven_inputs(rank, size):
    """One rank has fewer batches, and each uses another part of the net."""
    class Forked(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.ways = make_net(), nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

        def forward(self, x):
            return self.ways[rank % 2](self.net(x))

    torch.manual_seed(2)
    net = nn.parallel.DistributedDataParallel(Forked(), find_unused_parameters=True)
    with net.join():
        train(net, rank, steps=3 + rank)
    return [p.detach() for p in net.parameters()]


def accumulated(rank, size):
    net = nn.parallel.DistributedDataParallel(make_net(), gradient_as_bucket_view=True)
    torch.manual_seed(100 + rank)
    for _ in range(2):
        with net.no_sync():
            net(torch.randn(8, 12)).square().mean().backward()
        net(torch.randn(8, 12)).square().mean().backward()
    return [p.grad for p in net.parameters()]


def sharded_and_replicated(rank, size):
    """Two dimensions: replicas of shards, whose bytes lie in memory of the backend's."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = dist.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicas", "shards"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    net = make_net()
    for layer in net:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    net = fully_shard(net, mesh=mesh, mp_policy=policy)
    for module in net.modules():
        if hasattr(module, "set_allocate_memory_from_process_group_for_comm"):
            module.set_allocate_memory_from_process_group_for_comm(True)
    train(net, rank)
    return [p.full_tensor().detach() for p in net.parameters()]


def sharded_and_tensor_parallel(rank, size):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)

    mesh = dist.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp", "tp"))
    net = parallelize_module(make_net()[0:3], mesh["tp"],
                             {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(net, mesh=mesh["dp"])
    train(net, mesh["dp"].get_local_rank())
    return [p.full_tensor().detach() for p in net.parameters()]


def distributed_tensors(rank, size):
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)

    mesh = dist.init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
    whole = torch.arange(35.0).view(7, 5)  # rows do not divide by the ranks
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    summed = DTensor.from_local(whole + rank, mesh, [Partial()]).redistribute(mesh, [Replicate()])
    net = parallelize_module(make_net()[0:3], mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.manual_seed(5)
    out = net(torch.randn(6, 12))
    out.square().mean().backward()
    return [columns.full_tensor(), columns.to_local(), summed.to_local(), out.detach(),
            net[0].weight.grad.full_tensor()]


def pipelined(rank, size):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    net = make_net()
    half = net[:2] if rank == 0 else net[2:]
    stage = PipelineStage(half, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=nn.MSELoss())
    torch.manual_seed(9)
    inputs, targets = torch.randn(16, 12), torch.randn(16, 4)
    losses = []
    for _ in range(2):
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=losses)
    return [p.grad for p in half.parameters()] + [torch.stack(losses) if losses else torch.ones(1)]


class Parallel(unittest.TestCase):
    def same_as_gloo(self, body, size=2):
        both = [run_ranks(body, size, backend) for backend in ("hanji", "gloo")]
        for ours, theirs in zip(*both, strict=True):
            self.assertGreater(len(ours), 0)
            for a, b in zip(ours, theirs, strict=True):
                self.assertTrue(torch.equal(a, b), f"{body.__name__}: {(a - b).abs().max()}")

    def test_data_parallel(self):
        self.same_as_gloo(data_parallel)

    def test_fully_sharded(self):
        self.same_as_gloo(fully_sharded)

    def test_uneven_inputs(self):
        self.same_as_gloo(uneven_inputs)

    def test_accumulated(self):
        self.same_as_gloo(accumulated)

    def test_sharded_and_replicated(self):
        self.same_as_gloo(sharded_and_replicated, 4)

    def test_sharded_and_tensor_parallel(self):
        self.same_as_gloo(sharded_and_tensor_parallel, 4)

    def test_distributed_tensors(self):
        self.same_as_gloo(distributed_tensors)

    def test_pipelined(self):
        self.same_as_gloo(pipelined)


if __name__ == "__main__":
    unittest.main()
