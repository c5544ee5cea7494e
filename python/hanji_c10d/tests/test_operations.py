"""Every operation of torch.distributed on backend "hanji", against values known beforehand."""

import datetime
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest

import torch
import torch.distributed as dist

from ranks import run_ranks

import hanji_c10d

HERE = pathlib.Path(__file__).resolve().parent
TYPES = [torch.float, torch.double, torch.half, torch.bfloat16, torch.int8, torch.uint8,
         torch.int16, torch.int32, torch.int64]


def reductions(rank, size):
    failed = []
    expected = {"SUM": 6, "PRODUCT": 6, "MIN": 1, "MAX": 3}
    integers = {"BAND": 0, "BOR": 3, "BXOR": 0}
    for dtype in TYPES:
        for name, value in {**expected, **({} if dtype.is_floating_point else integers)}.items():
            for shape in [(5,), (0,), (), (3, 2)]:
                tensor = torch.full(shape, rank + 1, dtype=dtype)
                dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
                if not torch.equal(tensor, torch.full(shape, value, dtype=dtype)):
                    failed.append((str(dtype), name, shape, tensor))
    average = torch.tensor([rank + 1.0])
    dist.all_reduce(average, op=dist.ReduceOp.AVG)
    turned = (torch.arange(6.0).view(2, 3) + rank).t()
    dist.all_reduce(turned)
    flags = torch.tensor([rank == 0, False])
    dist.all_reduce(flags)
    pair = torch.tensor([1 + 2j]) * (rank + 1)
    dist.all_reduce(pair)
    negative = torch.tensor([-1, 100], dtype=torch.int8) * (rank - 1)
    dist.all_reduce(negative, op=dist.ReduceOp.MIN)
    kept = torch.full((3,), rank + 1)
    dist.reduce(kept, 2)
    scaled = torch.tensor([1.0, 2.0])
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(rank + 0.5))
    if scaled.tolist() != [4.5, 9]:
        failed.append(("premultiplied", scaled))
    return failed, average, turned, flags, pair, negative, kept


def moves(rank, size):
    mine = torch.full((2,), rank, dtype=torch.complex64)
    gathered = [torch.empty(2, dtype=torch.complex64) for _ in range(size)]
    dist.all_gather(gathered, mine)
    flat = torch.empty(2 * size, dtype=torch.bool)
    dist.all_gather_into_tensor(flat, torch.tensor([True, rank == 1]))
    uneven = [torch.empty(i + 1) for i in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), rank + 0.0))
    on_one = [torch.empty(2, dtype=torch.complex64) for _ in range(size)] if rank == 1 else None
    dist.gather(mine, on_one, dst=1)
    part = torch.empty(3, 2).t()
    dist.scatter(part, [torch.full((2, 3), i + 0.0) for i in range(size)] if rank == 0 else None)
    scattered = torch.empty(2)
    dist.reduce_scatter(scattered, [torch.full((2,), i + rank + 0.0) for i in range(size)])
    base = torch.empty(1)
    dist.reduce_scatter_tensor(base, torch.arange(size) + rank + 0.0)
    even = torch.empty(size)
    dist.all_to_all_single(even, torch.arange(size) * 10.0 + rank)
    split = torch.empty(sum(range(1, size + 1)))
    dist.all_to_all_single(split, torch.full((size * (rank + 1),), rank + 0.0),
                           list(range(1, size + 1)), [rank + 1] * size)
    listed = [torch.empty(i + 1) for i in range(size)]
    dist.all_to_all(listed, [torch.full((rank + 1,), rank + 0.0) for _ in range(size)])
    told = torch.full((2, 2), rank).t()
    dist.broadcast(told, 1)
    return gathered, flat, uneven, on_one, part, scattered, base, even, split, listed, told


def moved_objects(rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    told = [{"from": 2}, 7] if rank == 2 else [None, None]
    dist.broadcast_object_list(told, 2)
    on_one = [None] * size if rank == 1 else None
    dist.gather_object("x" * rank, on_one, dst=1)
    part = [None]
    dist.scatter_object_list(part, [(i, "part") for i in range(size)] if rank == 0 else None)
    sent = [rank]
    if rank == 0:
        dist.send_object_list(["sent", {}], 2)
    elif rank == 2:
        sent = [None, None]
        dist.recv_object_list(sent, 0)
    return gathered, told, on_one, part, sent


def messages(rank, size):
    tensor = torch.zeros(3)
    found = []
    if rank == 0:
        for _ in range(size - 1):
            found.append((dist.recv(tensor), tensor[0].item()))
    else:
        dist.send(torch.full((3,), rank + 0.0), 0, tag=0)
    dist.barrier()  # or the second recv from any rank may meet rank 2's next message
    out = torch.full((2,), rank + 0.0)
    into = torch.empty(2)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, out, (rank + 1) % size),
                                    dist.P2POp(dist.irecv, into, (rank - 1) % size)])
    for work in works:
        work.wait()
    pending = dist.irecv(tensor) if rank == 0 else None
    if rank == 2:
        dist.send(torch.full((3,), 9.0), 0)
    if pending:
        while not pending.is_completed():
            time.sleep(0.001)
        found.append((pending._source_rank(), tensor[0].item()))
    return sorted(found), into


def works(rank, size):
    tensor = torch.full((1 << 18,), rank + 1.0)
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    while not work.is_completed():
        time.sleep(0.001)
    parts = [torch.ones(2), torch.ones(3)]
    dist.all_reduce_coalesced(parts)
    with dist._coalescing_manager(async_ops=True) as manager:
        for part in parts:
            dist.all_reduce(part)
    manager.wait()
    with torch.inference_mode():
        inferred = [torch.empty(1) for _ in range(size)]
        dist.all_gather(inferred, torch.tensor([rank + 1.0]))
        told = [value.item() for value in inferred]
    return work.is_success(), tensor[-1], doubled.wait()[0], parts, told


def groups(rank, size):
    sums = []
    for members in ([0, 1], [1, 2], [0, 2], [2]):
        group = dist.new_group(members)
        if rank in members:
            tensor = torch.tensor(float(rank))
            dist.all_reduce(tensor, group=group)
            sums.append(tensor.item())
        if members == [0, 2]:
            dist.destroy_process_group(group)
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    dist.init_process_group("hanji", store=dist.PrefixStore("again", store), rank=rank,
                            world_size=size)
    hanji_c10d.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return sums, tensor.item()


def parts(rank, size):
    world = dist.group.WORLD
    minute = datetime.timedelta(minutes=1)
    part = world.split_group([0, 2], timeout=minute, group_name="even ranks")
    sums = None
    if part is not None:
        tensors = [torch.tensor([rank + 1.0])]
        part.allreduce(tensors).wait()
        sums = part.size(), tensors[0].item()
    backend = world._get_backend(torch.device("cpu"))
    bucket = backend.allocate_tensor(4, dtype=torch.bfloat16, device=torch.device("cpu"))
    dist.all_reduce(bucket.fill_(rank))
    return sums, bucket.tolist()


def refusals(rank, size):
    said = []
    for call in (lambda: dist.all_reduce(torch.ones(1), op=dist.ReduceOp.BAND),
                 lambda: dist.all_gather_into_tensor(torch.empty(3), torch.ones(2))):
        try:
            call()
            said.append("nothing")
        except RuntimeError as error:
            said.append(str(error))
    sparse = torch.sparse_coo_tensor([[rank]], [2.0], (size,))
    dist.all_reduce(sparse)
    return said, sparse.to_dense()


def mismatch(rank, size):
    try:
        dist.all_reduce(torch.ones(3 + rank))
    except RuntimeError as error:
        return str(error)


def a_rank_dies(rank, size):
    if rank == 1:
        os._exit(0)
    begin = time.time()
    try:
        dist.all_reduce(torch.ones(3))
    except RuntimeError as error:
        torch.save(f"{time.time() - begin < 10} {error}", os.environ["HANJI_TEST_SAID"])


def as_installed(folder):
    """The environment of a Python that finds in `folder` what pip leaves beside an installed package."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    info = pathlib.Path(folder) / "hanji_c10d-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hanji_c10d\nVersion: 0\n")
    (info / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()))
    return {**os.environ, "PYTHONPATH": f"{folder}:{pathlib.Path(hanji_c10d.__file__).parent.parent}"}


class Operations(unittest.TestCase):
    def test_reductions(self):
        results = run_ranks(reductions, 3)
        for rank, (failed, average, turned, flags, pair, negative, kept) in enumerate(results):
            self.assertEqual(failed, [])
            self.assertEqual(average.item(), 2)
            self.assertTrue(torch.equal(turned, (torch.arange(6.0).view(2, 3) * 3 + 3).t()))
            self.assertEqual(flags.tolist(), [True, False])
            self.assertEqual(pair.item(), 6 + 12j)
            self.assertEqual(negative.tolist(), [-1, -100])
            self.assertEqual(kept.tolist(), [6] * 3 if rank == 2 else [rank + 1] * 3)

    def test_moves(self):
        for rank, values in enumerate(run_ranks(moves, 3)):
            gathered, flat, uneven, on_one, part, scattered, base, even, split, listed, told = values
            self.assertEqual([t.real.tolist() for t in gathered], [[0, 0], [1, 1], [2, 2]])
            self.assertEqual(flat.tolist(), [True, False, True, True, True, False])
            self.assertEqual(torch.cat(uneven).tolist(), [0, 1, 1, 2, 2, 2])
            if rank == 1:
                self.assertEqual([t.real.tolist() for t in on_one], [[0, 0], [1, 1], [2, 2]])
            self.assertEqual(part.tolist(), [[rank] * 3] * 2)
            self.assertEqual(scattered.tolist(), [3 * rank + 3] * 2)
            self.assertEqual(base.tolist(), [3 * rank + 3])
            self.assertEqual(even.tolist(), [10 * rank, 10 * rank + 1, 10 * rank + 2])
            self.assertEqual(split.tolist(), [0, 1, 1, 2, 2, 2])
            self.assertEqual(torch.cat(listed).tolist(), [0, 1, 1, 2, 2, 2])
            self.assertEqual(told.tolist(), [[1, 1], [1, 1]])

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "torch moves objects through numpy")
    def test_objects(self):
        everyone = [{"rank": 0}, {"rank": 1}, {"rank": 2}]
        self.assertEqual(run_ranks(moved_objects, 3),
                         [(everyone, [{"from": 2}, 7], None, [(0, "part")], [0]),
                          (everyone, [{"from": 2}, 7], ["", "x", "xx"], [(1, "part")], [1]),
                          (everyone, [{"from": 2}, 7], None, [(2, "part")], ["sent", {}])])

    def test_messages(self):
        results = run_ranks(messages, 3)
        self.assertEqual(results[0][0], [(1, 1.0), (2, 2.0), (2, 9.0)])
        self.assertEqual([into.tolist() for _, into in results], [[2, 2], [0, 0], [1, 1]])

    def test_works(self):
        for success, last, doubled, parts, told in run_ranks(works, 2):
            self.assertEqual(told, [1, 2])
            self.assertTrue(success)
            self.assertEqual((last.item(), doubled.item()), (3, 6))
            self.assertEqual([part.tolist() for part in parts], [[4, 4], [4, 4, 4]])

    def test_groups_and_meeting_again(self):
        self.assertEqual(run_ranks(groups, 3),
                         [([1.0, 2.0], 3), ([1.0, 3.0], 3), ([3.0, 2.0, 2.0], 3)])

    def test_parts_and_their_memory(self):
        buckets = [3.0] * 4
        self.assertEqual(run_ranks(parts, 3), [((2, 4), buckets), (None, buckets), ((2, 4), buckets)])

    def test_refusals(self):
        for said, sparse in run_ranks(refusals, 2):
            for words, expected in zip(said, ["float", "3 elements"], strict=True):
                self.assertIn(expected, words)
            self.assertEqual(sparse.tolist(), [2, 2])

    def test_mismatch_is_told_to_all(self):
        for said in run_ranks(mismatch, 2):
            self.assertIn("3 elements", said)
            self.assertIn("4 elements", said)

    def test_death_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["HANJI_TEST_SAID"] = f"{folder}/said"
            with self.assertRaises(Exception):
                run_ranks(a_rank_dies, 2)
            deadline = time.time() + 20
            while not os.path.exists(f"{folder}/said") and time.time() < deadline:
                time.sleep(0.05)
            self.assertRegex(torch.load(f"{folder}/said"), "True.*rank 1")

    def test_either_may_be_imported_first(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = as_installed(folder)
            for order in ("hanji_c10d, torch", "torch, hanji_c10d"):
                run = subprocess.run(
                    [sys.executable, "-B", "-c", f"import {order}; import torch.distributed as dist; "
                     "print(dist.Backend.backend_capability['hanji'])"],
                    capture_output=True, text=True, timeout=120, env=environment)
                self.assertEqual((run.stdout, run.returncode), ("['cpu']\n", 0), run.stderr)

    def test_a_group_needs_no_import(self):
        body = ("import sys, torch, torch.distributed as dist; print('hanji_c10d' in sys.modules); "
                "dist.init_process_group('hanji', store=dist.HashStore(), rank=0, world_size=1); "
                "dist.barrier(); print(dist.get_backend())")
        loads = {"1": True}  # TORCH_DEVICE_BACKEND_AUTOLOAD: whether `import torch` loads the backend
        if hasattr(dist.Backend, "_ensure_backend_registered"):  # it is loaded when it is asked for
            loads["0"] = False
        with tempfile.TemporaryDirectory() as folder:
            environment = as_installed(folder)
            for autoload, loaded in loads.items():
                run = subprocess.run([sys.executable, "-B", "-c", body], capture_output=True, text=True, timeout=120,
                                     env={**environment, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload})
                self.assertEqual((run.stdout, run.returncode), (f"{loaded}\nhanji\n", 0), run.stderr)

    def test_torchrun(self):
        run = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
             str(HERE / "torchrun_rank.py")], capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(sorted(run.stdout.split("\n")), ["", "3.0 3.0", "3.0 3.0"])


if __name__ == "__main__":
    unittest.main()
