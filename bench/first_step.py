"""How long from the command to the end of step 1, against torchrun with the same model?

Both train `nano` with 2 ranks; each start is a fresh process tree; starts of both are interleaved.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from model import ROOT, SIZES, VOCABULARY
from rows import Rows


def hanji(folder, number):
    out = folder / f"run-{number}"
    subprocess.run([ROOT / "build/dev/bin/hanji", "train", "--ranks", "2", "--steps", "1",
                    "--out", out, "--set", "model.preset=nano",
                    "--set", f"model.vocabulary={VOCABULARY}", "--set", "data.vocabulary=byte",
                    "--set", "train.evaluate_batches=1"],
                   check=True, stdout=subprocess.DEVNULL)
    return json.loads((out / "summary.json").read_text())["first_step_seconds"]


def torchrun(folder, number):
    out = folder / f"peer-{number}"
    start = time.time()
    arguments = [argument for name, value in SIZES["nano"].items()
                 for argument in (f"--{name}", str(value))]
    ended = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         ROOT / "bench/first_step_peer.py", str(out), *arguments, "--vocabulary", str(VOCABULARY)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if ended.returncode != 0:
        raise SystemExit(f"torchrun ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return float(out.read_text()) - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    with tempfile.TemporaryDirectory(prefix="hanji-bench-") as folder:
        folder = pathlib.Path(folder)
        first = hanji(folder, "first")
        rows.say(f"hanji, first ever (measures memory and kernels): {first:.2f} s")
        times = [(hanji(folder, i), torchrun(folder, i)) for i in range(1 if a.smoke else a.pairs)]
    ours, theirs = zip(*times)
    ratios = [b / a for a, b in times]
    rows.add(f"hanji {statistics.median(ours):.2f} s ({min(ours):.2f} to {max(ours):.2f}), "
             f"torchrun {statistics.median(theirs):.2f} s ({min(theirs):.2f} to {max(theirs):.2f}): "
             f"{statistics.median(ratios):.1f}x over {len(ratios)} pairs",
             question="first_step", first_seconds=statistics.median(ours),
             second_seconds=statistics.median(theirs), ratio=statistics.median(ratios), low=min(ratios),
             high=max(ratios), pairs=len(ratios), first_ever_seconds=first)


if __name__ == "__main__":
    main()
