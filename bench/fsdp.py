"""What does a step cost when every rank keeps a share, against our DDP and PyTorch's fully_shard?

First the GPT of `hanji train` by parallel.data, then one of plain torch::nn modules by the library,
each from the same parameters, on the same tokens. Losses are compared before anything is timed:
those of our strategies to the bit, the peer's to 1e-4 of them over 3 steps in float32. Then all take
turns in blocks of steps; so does what is added to data_parallel: loss scaling, communication hooks,
blocks that are computed again in backward.
"""
import argparse
import pathlib
import sys
import tempfile

from model import ROOT, SIZES, VOCABULARY, start_hanji
from pairs import Comparison, Ranks, slowest

TRAINED = ("server", "zero1", "zero2", "zero3")
PEERS = ("peer", "tuned")
OURS = ("zero1", "zero2", "fully", "lens", "gathered")
# What is added to data_parallel, and how far 3 losses may lie from those without it: what a hook keeps
# back comes later, so the first steps learn less. mixed: fully_shard() that computes in bfloat16.
ADDED = {"scaled": 0, "checkpointed": 0, "fp16": 1e-4, "bf16": 1e-3, "power_sgd": 0.2, "top_k": 3,
         "mixed": 0.02}


def timed(job):
    return lambda steps: slowest(job.ask(steps=steps))


def start(name, program, a, initial, *extra):
    command = [*program, "--initial", str(initial), "--vocabulary", str(VOCABULARY), "--batch",
               str(a.batch), *extra]
    for size, value in SIZES[a.preset].items():
        command += [f"--{size}", str(value)]
    return Ranks(name, command, a.ranks)


def start_peer(a, initial, tuned):
    return start(f"PyTorch fully_shard{', tuned' if tuned else ''}",
                 [sys.executable, str(ROOT / "bench/fsdp_peer.py")], a, initial,
                 *(["--tuned"] if tuned else []))


def start_trained(a, data):
    job = start_hanji(None, a.ranks, a.preset, a.batch, extra=[f"parallel.data={data}"])
    job.name = data
    return job


def compare(base, job, expected, allowed, a):
    """Losses first, then both in turns."""
    losses = job.ask(steps=3)[0]["losses"]
    apart = max(abs(x - y) / abs(y) for x, y in zip(losses, expected))
    assert apart <= allowed, (job.name, losses, expected)
    result = Comparison(timed(base), timed(job)).run(a.pairs, a.steps)
    print(f"{base.name} {result}  {job.name}; losses differ by {apart:.1e}", flush=True)
    job.close()


def compare_started_anew(a, first, second, allowed):
    """Both sides start afresh `starts` times: where a process gets its memory moves its steps by more
    than strategies differ. Losses first, each time."""
    result, apart = Comparison(), 0
    for start_number in range(a.starts):
        if start_number % 2 == 0:
            base, job = first(), second()
        else:
            job, base = second(), first()
        expected, losses = (each.ask(steps=3)[0]["losses"] for each in (base, job))
        apart = max(apart, *(abs(x - y) for x, y in zip(losses, expected)))
        assert apart <= allowed, (job.name, losses, expected)
        result.between(timed(base), timed(job)).run(a.pairs, a.steps)
        base.close(), job.close()
    print(f"{base.name} {result}  {job.name}; {a.starts} starts, losses differ by {apart:.1e}",
          flush=True)


def compare_train(a, initial):
    print("the GPT of hanji train", flush=True)
    start_hanji(initial, a.ranks, a.preset, a.batch).close()  # which writes `initial`
    for data in [name for name in TRAINED if not a.only or name in a.only]:
        compare_started_anew(a, lambda: start_trained(a, "ddp"), lambda: start_trained(a, data), 0)
    for name in [name for name in PEERS if not a.only or name in a.only]:
        compare_started_anew(a, lambda: start_trained(a, "zero3"),
                             lambda: start_peer(a, initial, name == "tuned"), 1e-4)


def compare_plain(a, initial):
    print("a GPT of torch::nn modules", flush=True)
    rank = [str(ROOT / "build/dev/bin/bench/fsdp_rank")]
    base = start("ddp", rank, a, initial, "--strategy", "ddp")
    base.receive()
    expected = base.ask(steps=3)[0]["losses"]
    for name in [name for name in (*OURS, *ADDED) if not a.only or name in a.only]:
        job = start(name, rank, a, initial, "--strategy", name)
        job.receive()
        compare(base, job, expected, ADDED.get(name, 0), a)
    for name in [name for name in PEERS if not a.only or name in a.only]:
        compare(base, start_peer(a, initial, name == "tuned"), expected, 1e-4, a)
    base.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="of ours, what is added, 'peer' and 'tuned'")
    parser.add_argument("--starts", type=int, default=4, help="of the GPT of hanji train")
    parser.add_argument("--parts", nargs="*", default=["train", "plain"])
    parser.add_argument("--smoke", action="store_true")
    a = parser.parse_args()
    if a.smoke:
        a.preset, a.pairs, a.steps, a.starts = "nano", 2, 3, 2
    with tempfile.TemporaryDirectory(prefix="hanji-bench-") as folder:
        if "train" in a.parts:
            compare_train(a, pathlib.Path(folder) / "train.safetensors")
        if "plain" in a.parts:
            compare_plain(a, pathlib.Path(folder) / "plain.safetensors")


if __name__ == "__main__":
    main()
