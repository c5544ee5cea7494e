"""Training with every strategy against PyTorch's DDP and fully_shard: one GPT, its weights, its data.

Float64: the difference of each parameter is at most 1e-10 of its norm. Float32: no further from the
peer than 4 times what its own ways to multiply matrices are apart, measured beside it. Bfloat16 from
float32 masters: at most half as far as the peer is from itself in float32 (with AVX512-BF16 a
median parameter is 27 times nearer, and the losses are equal).
"""
import ctypes
import functools
import importlib.util
import itertools
import json
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
# Ways of the peer: the strategy, the precision that it asks of products (medium: by oneDNN).
PEER = {"ddp": ("ddp", "highest"), "fully_shard": ("fully_shard", "highest"),
        "ddp_onednn": ("ddp", "medium"), "mixed": ("mixed", "highest")}


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


def train_peer(folder, dtype, way, rank):
    import torch
    from peer_gpt import GPT, parameter_groups, take_steps
    torch.set_num_threads(1)
    strategy, precision = PEER[way]
    torch.set_float32_matmul_precision(precision)
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
        write(folder / f"{dtype}.peer.{way}.safetensors", whole)
        (folder / f"{dtype}.peer.{way}.losses").write_text(json.dumps(losses))


def peer_rank(folder, rank, port):
    import torch
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(RANKS))
    torch.distributed.init_process_group("gloo")
    for dtype, way in itertools.product(("float64", "float32"), PEER):
        if dtype == "float32" or way in ("ddp", "fully_shard"):
            train_peer(folder, dtype, way, rank)
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
    def peer(self, dtype, way):
        losses = json.loads((self.folder / f"{dtype}.peer.{way}.losses").read_text())
        return read(self.folder / f"{dtype}.peer.{way}.safetensors"), losses

    def ours(self, dtype, strategy):
        return read(self.folder / f"{dtype}.{strategy}.safetensors"), self.losses[dtype, strategy]

    def test_ten_steps_in_float64_are_those_of_the_peer(self):
        losses = self.peer("float64", "ddp")[1]
        self.assertLess(losses[-1], 0.9 * losses[0], "it learns")
        for strategy, way in itertools.product(OURS, ("ddp", "fully_shard")):
            with self.subTest(ours=strategy, peer=way):
                apart = distances(self.ours("float64", strategy), self.peer("float64", way))
                self.assertLessEqual(max(apart), 1e-10)

    def test_float32_is_as_near_as_the_peer_is_to_itself(self):
        ways = [self.peer("float32", way) for way in PEER if way != "mixed"]
        pairs = itertools.combinations(ways, 2)
        spread = [max(column) for column in zip(*(distances(a, b) for a, b in pairs))]
        self.assertGreater(min(spread), 0, "the peer's ways give one result: nothing to compare by")
        for strategy, way in itertools.product(OURS, ("ddp", "fully_shard")):
            with self.subTest(ours=strategy, peer=way):
                apart = distances(self.ours("float32", strategy), self.peer("float32", way))
                for one, allowed in zip(apart, spread, strict=True):
                    self.assertLessEqual(one, 4 * allowed)

    def test_bfloat16_under_float32_masters_is_that_of_the_peer(self):
        peer = self.peer("float32", "mixed")
        rounding = distances(peer, self.peer("float32", "fully_shard"))
        apart = distances(self.ours("float32", "mixed"), peer)
        for one, allowed in zip(apart, rounding, strict=True):
            self.assertLessEqual(one, allowed / 2)


if __name__ == "__main__":
    unittest.main()
