"""How long is a step of a GPT whose ranks share the tokens of a sample: by Ulysses, by a ring, by one rank alone?

The same model and samples of 256, 1024 and 4096 tokens. Losses of all three in float64 are compared first. Then
steps of all three in turn: Ulysses against the ring, and both against one rank that has the whole sample. PyTorch's
context_parallel is tried, and what stops it on CPUs is said.
"""
import itertools
import os
import statistics
import subprocess
import sys

from model import ROOT, start_hanji
from pairs import Comparison
from step import compared, distance, losses, timed

LENGTHS = (256, 1024, 4096)
SMOKE_LENGTHS = (64,)
WAYS = ("ulysses", "ring")


def start(a, length, way=None, dtype="float32"):
    """Each sample is a micro-batch: what is kept of it is what cp divides."""
    ranks = a.ranks if way else 1
    extra = [f"model.block={length}", "train.micro_batch=1", "train.warmup_steps=0"]
    extra += [f"mesh.cp={ranks}", f"parallel.context={way}"] if way else []
    return start_hanji(None, ranks, a.preset, batch=a.ranks // ranks, dtype=dtype, extra=extra)


def check(a, length, rows):
    expected = None
    for way in (None, *WAYS):
        job = start(a, length, way, dtype="float64")
        found = losses(job, 2)
        job.close()
        expected = expected or found
        apart = distance(found, expected)
        rows.add(f"{length} tokens, {way or 'one rank'}: float64 losses over 2 steps differ by {apart:.1e} "
                 "(at most 1e-9)", question="losses", tokens=length, way=way, apart=apart, at_most=1e-9)
        assert apart <= 1e-9


def compare_ways(a, length, rows):
    """Each round times every way once; the order alternates. Of long samples a round has fewer steps."""
    steps = max(1, a.steps * LENGTHS[0] // length)
    jobs = {way: start(a, length, way) for way in (*WAYS, None)}
    results = {pair: Comparison() for pair in itertools.combinations(jobs, 2)}
    for number in range(a.pairs):
        order = list(jobs) if number % 2 == 0 else list(reversed(jobs))
        seconds = {way: statistics.median(timed(jobs[way])(steps)) for way in order}
        for (first, second), result in results.items():
            result.add(seconds[first], seconds[second])
    for (first, second), result in results.items():
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
