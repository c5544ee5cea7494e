"""How long is a training step of a GPT, against PyTorch's DDP on the same machine?

Both sides start from the same parameters, see the same tokens, and take turns in blocks of steps.
Losses are compared before anything is timed: float64 must agree to 1e-10; float32 is held against
4 times the peer's own spread between its two GEMM paths, and a miss is said.
"""
import argparse
import pathlib
import tempfile

from model import start_hanji, start_peer
from pairs import Comparison, slowest


def timed(job):
    return lambda steps: slowest(job.ask(steps=steps))


def losses(job, steps):
    return job.ask(steps=steps)[0]["losses"]


def distance(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def check_float64(folder, a):
    ours = start_hanji(folder / "float64", a.ranks, a.preset, dtype="float64")
    peer = start_peer(folder / "float64", a.ranks, a.preset, dtype="float64")
    apart = distance(losses(ours, 3), losses(peer, 3))
    print(f"float64 losses over 3 steps differ by {apart:.1e} (at most 1e-10)")
    assert apart <= 1e-10
    ours.close(), peer.close()


def compare(folder, a, ranks, dtype):
    initial = folder / f"initial-{ranks}-{dtype}"
    ours = start_hanji(initial, ranks, a.preset, dtype=dtype)
    peers = [start_peer(initial, ranks, a.preset, dtype=dtype, precision=precision)
             for precision in ("highest", "medium")]
    first = [losses(job, 5) for job in (ours, *peers)]
    spread = distance(first[1], first[2])
    apart = min(distance(first[0], first[1]), distance(first[0], first[2]))
    print(f"\n{ranks} ranks, {dtype}; kernels: {ours.kernels}")
    print(f"losses over 5 steps differ by {apart:.1e}, the peer's own paths by {spread:.1e}")
    # Floor: float32 rounds a loss near 5.5 to 5e-7, so equal paths may still differ by some.
    if dtype == "float32" and apart > max(4 * spread, 2e-6):
        print("NOT within 4 times the peer's own spread: float64 agrees, float32 rounds differently")
    results = {}
    for peer in peers:
        results[peer.name] = Comparison(timed(ours), timed(peer)).run(a.pairs, a.steps)
        print(f"hanji {results[peer.name]}  {peer.name}", flush=True)
    for job in (ours, *peers):
        job.close()
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--smoke", action="store_true")
    a = parser.parse_args()
    if a.smoke:
        a.preset, a.pairs, a.steps = "nano", 2, 3
    with tempfile.TemporaryDirectory(prefix="hanji-bench-") as folder:
        folder = pathlib.Path(folder)
        check_float64(folder, a)
        compare(folder, a, a.ranks, "float32")
        compare(folder, a, a.ranks, "bf16")
        compare(folder, a, 1, "float32")


if __name__ == "__main__":
    main()
