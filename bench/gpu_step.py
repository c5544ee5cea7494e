"""How long is a training step of a GPT on one GPU, against the same model in PyTorch, as it comes and by torch.compile?

Both sides start from the same parameters, see the same tokens, and run in interleaved blocks of steps. Before anything is
timed, losses in float64 must agree to 1e-10. In float32 the peer also runs with TF32 ("high"), which hanji does not use.
"""
import argparse
import pathlib
import sys
import tempfile

from model import VOCABULARY
from pairs import Comparison, Ranks
from rows import Rows
from step import distance, losses, timed

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {"nano": dict(layers=2, heads=2, width=32, block=32),
         "baby": dict(layers=6, heads=6, width=384, block=256),
         "gpt2": dict(layers=12, heads=12, width=768, block=1024)}
# Samples of a step: 16 k tokens, as a user of one GPU of this kind takes.
BATCH = {"nano": 12, "baby": 64, "gpt2": 16}


def start_hanji(a, initial, dtype, samples):
    settings = [f"model.preset={a.model}", f"model.vocabulary={VOCABULARY}", "data.vocabulary=byte",
                f"train.global_batch={samples}", f"compute.dtype={dtype}", f"compute.device={a.device}", "train.clip=1.0",
                "train.learning_rate=1e-3", "train.beta2=0.99", *a.set]
    if dtype == "bf16" and a.device == "cpu":
        settings.append("compute.slow_dtype=true")
    command = [str(a.build / "bin/bench/step_rank"), "--save-initial", str(initial)]
    for setting in settings:
        command += ["--set", setting]
    job = Ranks("hanji", command, 1, pinned=False)
    job.kernels = job.receive()[0]["kernels"]
    return job


def start_peer(a, initial, dtype, samples, precision="highest", compiled=False):
    command = [sys.executable, str(ROOT / "bench/gpu_peer.py"), "--initial", str(initial), "--vocabulary",
               str(VOCABULARY), "--batch", str(samples), "--dtype", dtype, "--precision", precision, "--device", a.device,
               *(["--compile"] if compiled else [])]
    for name, value in SIZES[a.model].items():
        command += [f"--{name}", str(value)]
    name = "PyTorch" + (", torch.compile" if compiled else "") + (", TF32" if precision == "high" else "")
    return Ranks(name, command, 1, pinned=False)


def check_float64(a, folder, rows):
    sides = [start_hanji(a, folder / "float64", "float64", 2)]
    sides.append(start_peer(a, folder / "float64", "float64", 2))
    apart = distance(*(losses(side, 3) for side in sides))
    for side in sides:
        side.close()
    rows.add(f"float64 losses over 3 steps differ by {apart:.1e} (at most 1e-10)", question="losses", model=a.model,
             dtype="float64", apart=apart, at_most=1e-10)
    if not apart <= 1e-10:
        sys.exit(f"float64 losses differ by {apart:.1e}, at most 1e-10: nothing is timed")


def peers_of(a, initial, dtype, samples):
    if a.compile:
        return [start_peer(a, initial, dtype, samples, compiled=True)]
    precisions = ("highest", "high") if dtype == "float32" and a.device == "cuda" else ("highest",)
    return [start_peer(a, initial, dtype, samples, precision) for precision in precisions]


def compare(a, folder, dtype, rows):
    initial, samples = folder / f"initial-{dtype}", a.batch or BATCH[a.model]
    ours = start_hanji(a, initial, dtype, samples)
    peers = peers_of(a, initial, dtype, samples)
    for side in (ours, *peers):  # compiles and fills caches; a second block because libtorch tries kernels in the first
        losses(side, 3), losses(side, 3)
    for peer in peers:
        result = Comparison(timed(ours), timed(peer)).run(a.pairs, a.steps)
        rows.add(f"{a.model} {dtype}: hanji {result}  {peer.name}", question="step", model=a.model, dtype=dtype,
                 device=a.device, samples=samples, tokens=samples * SIZES[a.model]["block"], peer=peer.name,
                 kernels=ours.kernels, **result.row())
    for side in (ours, *peers):
        side.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), default=ROOT / "build/gpu")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--model", choices=SIZES, default="baby")
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bf16"), default=["float32", "bf16"])
    parser.add_argument("--batch", type=int, help="samples of a step")
    parser.add_argument("--compile", action="store_true", help="beside torch.compile")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--set", action="append", default=[], help="a key of hanji's side")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    with tempfile.TemporaryDirectory(prefix="hanji-bench-") as folder:
        check_float64(a, pathlib.Path(folder), rows)
        for dtype in a.dtype:
            compare(a, pathlib.Path(folder), dtype, rows)


if __name__ == "__main__":
    main()
