"""How long are the collectives that training makes, against the memory's limit and other libraries?

A sweep of `hanji bench` over the sizes that matter, for 2 ranks and for 4 on as few cores.
"""
import argparse
import subprocess

from model import ROOT

SIZES = ["8", "64KiB", "4MiB", "64MiB"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--peer", default="openmpi,gloo,pytorch")
    parser.add_argument("--smoke", action="store_true")
    a = parser.parse_args()
    for ranks in a.ranks:
        for size in SIZES[:2] if a.smoke else SIZES:
            pairs = 2 if a.smoke else a.pairs
            subprocess.run([ROOT / "build/dev/bin/hanji", "bench", "all_reduce", "--bytes", size,
                            "--ranks", str(ranks), "--pairs", str(pairs), "--peer", a.peer,
                            "--python", ROOT / ".venv/bin/python"], check=True)


if __name__ == "__main__":
    main()
