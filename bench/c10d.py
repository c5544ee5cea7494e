"""What does Python gain when its process group is "hanji" instead of "gloo"?

A training step of a GPT under Python's DDP and FSDP2, and plain all-reduces, in turns on both
backends; the first steps must give equal losses. Needs python/hanji_c10d (./dev python).
"""
import argparse
import pathlib
import sys

from pairs import Comparison, Ranks, slowest

HERE = pathlib.Path(__file__).resolve().parent


def start(backend, work, a):
    command = [sys.executable, str(HERE / "c10d_rank.py"), "--backend", backend, "--work", work,
               "--preset", a.preset]
    return Ranks(backend, command, a.ranks)


def losses(job):
    return [answer["losses"] for answer in job.ask(steps=3)]


def compare(name, work, a, steps):
    ours, theirs = start("hanji", work, a), start("gloo", work, a)
    first, second = losses(ours), losses(theirs)
    if first != second:
        sys.exit(f"{name}: results differ: {first} on hanji, {second} on gloo")
    result = Comparison(lambda n: slowest(ours.ask(steps=n)), lambda n: slowest(theirs.ask(steps=n)))
    print(f"{name:22} hanji {result.run(a.pairs, steps)} gloo", flush=True)
    ours.close(), theirs.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--smoke", action="store_true")
    a = parser.parse_args()
    if a.smoke:
        a.preset, a.pairs = "nano", 2
    compare("DDP step", "ddp", a, 2)
    compare("FSDP2 step", "fsdp2", a, 2)
    for elements, steps in ((2, 200), (1 << 10, 200), (1 << 18, 20), (1 << 24, 2)):
        compare(f"all_reduce {4 * elements} B", str(elements), a, steps)


if __name__ == "__main__":
    main()
