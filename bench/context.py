"""How long is a step of a GPT whose ranks share the tokens of a sample: by Ulysses, by a ring, by one rank alone?

The same model and samples of 256, 1024 and 4096 tokens. Losses of all three in float64 are compared first. Then
interleaved steps of Ulysses against the ring, and of both against one rank that has the whole sample. PyTorch's
context_parallel is tried, and what stops it on CPUs is said.
"""
import os
import subprocess
import sys

from model import ROOT, start_hanji
from pairs import Comparison
from step import compared, distance, losses, timed

LENGTHS = (256, 1024, 4096)
SMOKE_LENGTHS = (64,)


def start(a, length, way=None, dtype="float32"):
    """Each sample is a micro-batch: what is kept of it is what cp divides."""
    ranks = a.ranks if way else 1
    extra = [f"model.block={length}", "train.micro_batch=1", "train.warmup_steps=0"]
    extra += [f"mesh.cp={ranks}", f"parallel.context={way}"] if way else []
    return start_hanji(None, ranks, a.preset, batch=a.ranks // ranks, dtype=dtype, extra=extra)


def check(a, length, rows):
    expected = None
    for way in (None, "ulysses", "ring"):
        job = start(a, length, way, dtype="float64")
        found = losses(job, 3)
        job.close()
        expected = expected or found
        apart = distance(found, expected)
        rows.add(f"{length} tokens, {way or 'one rank'}: float64 losses over 3 steps differ by {apart:.1e} "
                 "(at most 1e-9)", question="losses", tokens=length, way=way, apart=apart, at_most=1e-9)
        assert apart <= 1e-9


def compare_ways(a, length, rows):
    jobs = {way: start(a, length, way) for way in ("ulysses", "ring", None)}
    for first, second in (("ulysses", "ring"), ("ulysses", None), ("ring", None)):
        result = Comparison(timed(jobs[first]), timed(jobs[second])).run(a.pairs, a.steps)
        rows.add(f"{length} tokens: {first} {result}  {second or 'one rank'}", question="context", tokens=length,
                 ranks=a.ranks, first=first, second=second or "one rank", **result.row())
    for job in jobs.values():
        job.close()


def try_peer(folder, rows):
    tried = subprocess.run([sys.executable, ROOT / "bench/context_peer.py"], capture_output=True, text=True, timeout=120,
                           env={**os.environ, "CONTEXT_PEER_STORE": str(folder / "store")})
    reason = (tried.stderr.strip().splitlines() or [""])[-1] if tried.returncode else None
    rows.add("PyTorch's context_parallel " + (f"does not run on CPUs: {reason}" if reason else "runs, and is not timed yet"),
             question="context peer", reason=reason)


def run(folder, a, rows):
    try_peer(folder, rows)
    for length in SMOKE_LENGTHS if a.smoke else LENGTHS:
        check(a, length, rows)
        compare_ways(a, length, rows)


if __name__ == "__main__":
    compared(__doc__, run)
