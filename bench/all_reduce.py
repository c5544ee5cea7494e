"""How long are the collectives that training makes, against the memory's limit and other libraries?

A sweep of `hanji bench`: all_reduce over the sizes that matter for 2 ranks, and for 4 on as few cores;
the routines with shares at 64 MiB.
"""
import argparse
import subprocess

from model import ROOT

ALL_REDUCE = ("8", "64KiB", "4MiB", "64MiB")
SHARES = ("reduce_scatter", "all_gather", "all_to_all")


def sweep(a):
    """(ranks, arguments of `hanji bench`)"""
    for ranks in a.ranks:
        for size in ALL_REDUCE[:2] if a.smoke else ALL_REDUCE:
            yield ranks, ["all_reduce", "--bytes", size]
    if 2 in a.ranks and not a.smoke:
        yield 2, ["all_reduce", "--bytes", "64MiB", "-d", "bfloat16"]
        for routine in SHARES:
            yield 2, [routine, "--bytes", "64MiB"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--peer", default="openmpi,gloo,pytorch")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--json", action="store_true", help="the lines of `hanji bench --json`")
    a = parser.parse_args()
    for ranks, arguments in sweep(a):
        pairs = 2 if a.smoke else a.pairs
        subprocess.run([ROOT / "build/dev/bin/hanji", "bench", *arguments, "--ranks", str(ranks), "--pairs",
                        str(pairs), "--peer", a.peer, "--python", ROOT / ".venv/bin/python",
                        *(["--json"] if a.json else [])], check=True)


if __name__ == "__main__":
    main()
