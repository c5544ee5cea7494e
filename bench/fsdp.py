"""What does a step cost when every rank keeps a share, against our DDP and PyTorch's fully_shard?

One GPT of plain torch::nn modules by every strategy, from the same parameters, on the same tokens.
Losses are compared before anything is timed: those of our strategies to the bit, the peer's to
1e-4 over 3 steps in float32. Then all take turns in blocks of steps.
"""
import argparse
import pathlib
import sys
import tempfile

from model import ROOT, SIZES, VOCABULARY
from pairs import Comparison, Ranks, slowest

OURS = ("ddp", "zero1", "zero2", "fully", "lens", "gathered")


def timed(job):
    return lambda steps: slowest(job.ask(steps=steps))


def start(name, program, a, initial, *extra):
    command = [*program, "--initial", str(initial), "--vocabulary", str(VOCABULARY), "--batch",
               str(a.batch), *extra]
    for size, value in SIZES[a.preset].items():
        command += [f"--{size}", str(value)]
    return Ranks(name, command, a.ranks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="of ours and of 'peer' and 'tuned'")
    parser.add_argument("--smoke", action="store_true")
    a = parser.parse_args()
    if a.smoke:
        a.preset, a.pairs, a.steps = "nano", 2, 3
    wanted = a.only or [*OURS[1:], "peer", "tuned"]
    with tempfile.TemporaryDirectory(prefix="hanji-bench-") as folder:
        initial = pathlib.Path(folder) / "initial.safetensors"
        rank = [str(ROOT / "build/dev/bin/bench/fsdp_rank")]
        base = start("ddp", rank, a, initial, "--strategy", "ddp")
        base.receive()
        expected = base.ask(steps=3)[0]["losses"]
        for name in wanted:
            if name in OURS:
                job = start(name, rank, a, initial, "--strategy", name)
                job.receive()
                allowed = 0
            else:
                job = start(f"PyTorch fully_shard{', tuned' if name == 'tuned' else ''}",
                            [sys.executable, str(ROOT / "bench/fsdp_peer.py")], a, initial,
                            *(["--tuned"] if name == "tuned" else []))
                allowed = 1e-4
            losses = job.ask(steps=3)[0]["losses"]
            apart = max(abs(x - y) for x, y in zip(losses, expected))
            assert apart <= allowed, (name, losses, expected)
            result = Comparison(timed(base), timed(job)).run(a.pairs, a.steps)
            print(f"hanji ddp {result}  {job.name}; losses differ by {apart:.1e}", flush=True)
            job.close()
        base.close()


if __name__ == "__main__":
    main()
