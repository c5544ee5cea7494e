"""Training with every strategy against PyTorch's DDP and fully_shard: one GPT, its weights, its data.

Float64: the difference of each parameter is at most 1e-10 of its norm. The other precisions are held
against float64, so that their bounds are those of the numbers and not of one machine's kernels.

Float32: both sides do the same operations with the same number of roundings and differ in the order
of sums alone. The error of n terms added one after another is about sqrt(n) roundings, in pairs
sqrt(log2 n) (Higham, Accuracy and Stability, 2002, section 4.2), and kernels lie between. So ours is
at most ORDERS = sqrt(n / log2 n) times the peer's for the longest sum, and no bound is below the
rounding of the result itself.

Bfloat16 from float32 masters: both round to bfloat16 at the same places, so a median parameter shares
most of its error with the peer's and is nearer to it than half that error; with roundings elsewhere
it would be sqrt(2) of it apart, without any once. Where the exact gradient is zero (the bias of the
keys), AdamW scales up what rounding leaves, and errors may be independent: by the triangle no
parameter is further apart than twice the error. A rank's loss is a bfloat16 number: neighbours
differ by two roundings.
"""
import ctypes
import functools
import importlib.util
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv/bin/python"
if not importlib.util.find_spec("torch") and VENV.exists() and "HANJI_TEST_VENV" not in os.environ:
    os.execve(VENV, [VENV, "-B", *sys.argv], {**os.environ, "HANJI_TEST_VENV": "1"})

RANKS, STEPS, TIMEOUT = 2, 10, 100
SIZES = types.SimpleNamespace(layers=2, heads=2, width=128, block=32, vocabulary=61, batch=4)
OURS = ("ddp", "zero1", "zero2", "fully", "gathered", "lens", "server")
PEER = ("ddp", "fully_shard", "mixed")
LONGEST_SUM = 4 * SIZES.width  # of the second product of the MLP
ORDERS = math.sqrt(LONGEST_SUM / math.log2(LONGEST_SUM))
ROUNDING = {"float32": 2 ** -24, "bfloat16": 2 ** -8}


def write(path, tensors):
    """A safetensors file: no library for it comes with PyTorch."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        raw = ctypes.string_at(tensor.data_ptr(), tensor.nbytes)
        kind = {8: "F64", 4: "F32"}[tensor.element_size()]
        header[name] = {"dtype": kind, "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def read(path):
    import torch
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:end]).items():
        if name != "__metadata__":
            begin, stop = (end + offset for offset in entry["data_offsets"])
            dtype = {"F64": torch.float64, "F32": torch.float32}[entry["dtype"]]
            tensors[name] = torch.frombuffer(bytearray(raw[begin:stop]), dtype=dtype).double()
    return tensors


def linear_in_two(linear, x):
    """What libtorch's Linear does: in 16 bits the product is rounded before the bias is added."""
    return x.matmul(linear.weight.t()).add_(linear.bias)


def wrapped(model, strategy):
    import torch
    if strategy == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = root_policy = MixedPrecisionPolicy()
    if strategy == "mixed":  # the peer's output_dtype is that of every module it is given for
        dtypes = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
        policy = MixedPrecisionPolicy(**dtypes)
        root_policy = MixedPrecisionPolicy(**dtypes, output_dtype=torch.float32)
    mesh = torch.distributed.init_device_mesh("cpu", (RANKS,))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=root_policy)


def train_peer(folder, dtype, strategy, rank):
    import torch
    from peer_gpt import GPT, parameter_groups, take_steps
    torch.set_num_threads(1)
    model = GPT(SIZES.layers, SIZES.heads, SIZES.width, SIZES.block, SIZES.vocabulary)
    model.to(getattr(torch, dtype))
    initial = read(folder / f"{dtype}.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial[name].view(parameter.shape))
    if strategy == "mixed":
        for linear in (m for m in model.modules() if isinstance(m, torch.nn.Linear)):
            linear.forward = functools.partial(linear_in_two, linear)
    trained = wrapped(model, strategy)
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=1e-3, betas=(0.9, 0.99))
    _, losses = take_steps(trained, optimizer, SIZES, rank, RANKS, range(STEPS), clip=None)
    whole = {name: getattr(value, "full_tensor", lambda value=value: value)()
             for name, value in model.named_parameters()}
    if rank == 0:
        write(folder / f"{dtype}.peer.{strategy}.safetensors", whole)
        (folder / f"{dtype}.peer.{strategy}.losses").write_text(json.dumps(losses))


def peer_rank(folder, rank, port):
    import torch
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(RANKS))
    torch.distributed.init_process_group("gloo")
    for dtype, strategy in itertools.product(("float64", "float32"), PEER):
        if (dtype, strategy) != ("float64", "mixed"):
            train_peer(folder, dtype, strategy, rank)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def distances(a, b):
    """(of the parameter that is furthest, of the median one, of the losses), relative, by norms"""
    (a, a_losses), (b, b_losses) = a, b
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    parameters = [((a[name] - b[name]).norm() / b[name].norm()).item() for name in b]
    losses = [abs(x - y) / abs(y) for x, y in zip(a_losses, b_losses, strict=True)]
    return max(parameters), statistics.median(parameters), max(losses)


class Peers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not importlib.util.find_spec("torch"):
            raise unittest.SkipTest("no Python here has torch")
        sys.path.insert(0, str(ROOT / "bench"))
        folder = tempfile.TemporaryDirectory(prefix="hanji-peers-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.write_initial()
        cls.run_peer()
        cls.run_ours()

    @classmethod
    def write_initial(cls):
        import torch
        from peer_gpt import GPT
        torch.set_num_threads(1)  # ranks are forked: no thread may live here
        torch.manual_seed(5)
        model = GPT(SIZES.layers, SIZES.heads, SIZES.width, SIZES.block, SIZES.vocabulary)
        with torch.no_grad():
            model.transformer.wte.weight.mul_(0.2)  # it makes the logits too: no huge first loss
        for dtype in ("float32", "float64"):
            write(cls.folder / f"{dtype}.safetensors", dict(model.named_parameters()))
            model.double()

    @classmethod
    def run_peer(cls):
        import torch.distributed.fsdp  # noqa: F401  once, for both ranks
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        fork = multiprocessing.get_context("fork")
        ranks = [fork.Process(target=peer_rank, args=(cls.folder, rank, port), daemon=True)
                 for rank in range(RANKS)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(TIMEOUT)
        codes = [rank.exitcode for rank in ranks]
        assert codes == [0] * RANKS, f"PyTorch's ranks ended with {codes}"

    @classmethod
    def run_ours(cls):
        command = [os.environ["HANJI_BINARY"], "run", "-n", str(RANKS),
                   os.environ["HANJI_PEERS_RANK"], cls.folder, str(STEPS),
                   *(str(size) for size in vars(SIZES).values())]
        done = subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stdout + done.stderr
        cls.losses = {(dtype, strategy): [float(loss) for loss in losses.split()]
                      for dtype, strategy, losses in
                      re.findall(r"(float\d\d) (\w+) losses(.*)", done.stdout)}

    @functools.cache
    def peer(self, dtype, strategy):
        losses = json.loads((self.folder / f"{dtype}.peer.{strategy}.losses").read_text())
        return read(self.folder / f"{dtype}.peer.{strategy}.safetensors"), losses

    def ours(self, dtype, strategy):
        return read(self.folder / f"{dtype}.{strategy}.safetensors"), self.losses[dtype, strategy]

    def test_ten_steps_in_float64_are_those_of_the_peer(self):
        losses = self.peer("float64", "ddp")[1]
        self.assertLess(losses[-1], 0.9 * losses[0], "it learns")
        for ours, peer in itertools.product(OURS, ("ddp", "fully_shard")):
            with self.subTest(ours=ours, peer=peer):
                apart = distances(self.ours("float64", ours), self.peer("float64", peer))
                self.assertLessEqual(max(apart), 1e-10)

    def test_float32_is_as_near_to_float64_as_the_peer(self):
        exact = self.peer("float64", "ddp")
        errors = (distances(self.peer("float32", way), exact) for way in ("ddp", "fully_shard"))
        allowed = [ORDERS * max(ROUNDING["float32"], *column) for column in zip(*errors)]
        for strategy in OURS:
            with self.subTest(ours=strategy):
                error = distances(self.ours("float32", strategy), exact)
                for one, most in zip(error, allowed, strict=True):
                    self.assertLessEqual(one, most)

    def test_bfloat16_under_float32_masters_is_that_of_the_peer(self):
        peer = self.peer("float32", "mixed")
        furthest, median, _ = distances(peer, self.peer("float64", "ddp"))
        self.assertGreater(median, ROUNDING["bfloat16"] / 10, "the peer computes in bfloat16")
        apart = distances(self.ours("float32", "mixed"), peer)
        allowed = (2 * furthest, median / 2, 2 * ROUNDING["bfloat16"])
        for one, most in zip(apart, allowed, strict=True):
            self.assertLessEqual(one, most)


if __name__ == "__main__":
    unittest.main()
