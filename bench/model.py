"""The job of bench/step and bench/overlap, in the words of both sides."""
import pathlib
import sys

from pairs import Ranks

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {"nano": dict(layers=2, heads=2, width=32, block=32),
         "baby": dict(layers=6, heads=6, width=384, block=256)}
VOCABULARY = 256


def start_hanji(initial, ranks, preset="baby", batch=4, dtype="float32", cores=None, extra=(), **how):
    """`how`: of Ranks."""
    settings = [f"model.preset={preset}", f"model.vocabulary={VOCABULARY}", "data.vocabulary=byte",
                f"train.global_batch={batch * ranks}", f"compute.dtype={dtype}",
                "compute.threads=1", "train.clip=1.0", "train.learning_rate=1e-3",
                "train.beta2=0.99", *extra]
    if dtype == "bf16":
        settings.append("compute.slow_dtype=true")  # measured also where it is slower
    command = [str(ROOT / "build/dev/bin/bench/step_rank")]
    for setting in settings:
        command += ["--set", setting]
    if initial:
        command += ["--save-initial", str(initial)]
    job = Ranks("hanji", command, ranks, cores, **how)
    told = job.receive()
    for name in ("kernels", "moves", "products", "products_why"):
        setattr(job, name, told[0][name])
    job.products_seconds = max(rank["products_seconds"] for rank in told)
    return job


def start_peer(initial, ranks, preset="baby", batch=4, dtype="float32", precision="highest",
               cores=None, script="step_peer.py", extra=()):
    command = [sys.executable, str(ROOT / "bench" / script), "--initial", str(initial),
               "--vocabulary", str(VOCABULARY), "--batch", str(batch), "--dtype", dtype,
               "--precision", precision, *extra]
    for name, value in SIZES[preset].items():
        command += [f"--{name}", str(value)]
    return Ranks(f"PyTorch {precision}", command, ranks, cores)
