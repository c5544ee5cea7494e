"""What does Python gain when its process group is "hanji" instead of "gloo"?

A training step of a GPT under Python's DDP and FSDP2, and plain all-reduces, interleaved on both
backends; the first steps must give equal losses. "_views" lets the gradients lie in DDP's buckets,
"_heap" lets FSDP2 take its buffers from the backend, and "heap:" lets the all-reduce do so.
Needs python/hanji_c10d (./dev python).
"""
import argparse
import importlib.util
import pathlib
import sys

from pairs import Comparison, Ranks, slowest
from rows import Rows

HERE = pathlib.Path(__file__).resolve().parent


def start(backend, work, a):
    command = [sys.executable, str(HERE / "c10d_rank.py"), "--backend", backend, "--work", work,
               "--preset", a.preset, "--samples", str(a.samples)]
    return Ranks(backend, command, a.ranks)


def losses(job):
    return [answer["losses"] for answer in job.ask(steps=3)]


def compare(name, work, a, steps, rows):
    ours, theirs = start("hanji", work, a), start("gloo", work, a)
    first, second = losses(ours), losses(theirs)
    if first != second:
        sys.exit(f"{name}: results differ: {first} on hanji, {second} on gloo")
    result = Comparison(lambda n: slowest(ours.ask(steps=n)), lambda n: slowest(theirs.ask(steps=n)))
    result.run(a.pairs, steps)
    rows.add(f"{name:27} hanji {result} gloo", question="c10d", work=name, **result.row())
    ours.close(), theirs.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--samples", type=int, default=1, help="per rank and step")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("works", nargs="*", help="of those below; all by default")
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    if not importlib.util.find_spec("hanji_c10d"):
        return rows.skip("no hanji_c10d in this Python; `./dev python` installs it")
    if a.smoke:
        a.preset, a.pairs = "nano", 2
    steps = {"ddp": 2, "ddp_views": 2, "fsdp2": 2, "fsdp2_heap": 2}
    for elements, count in ((2, 200), (1 << 10, 200), (1 << 18, 20), (1 << 24, 2)):
        steps |= {str(elements): count, f"heap:{elements}": count}
    for work in a.works or steps:
        elements = "" if work.startswith(("ddp", "fsdp")) else int(work.split(":")[-1])
        name = f"all_reduce {4 * elements} B" + ", heap" * (":" in work) if elements else work
        compare(name, work, a, steps[work], rows)


if __name__ == "__main__":
    main()
