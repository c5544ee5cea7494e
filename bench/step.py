"""How long is a training step of a GPT, against PyTorch's DDP on the same machine?

Both sides start from the same parameters, see the same tokens, and run in interleaved blocks of steps.
Losses are compared before anything is timed: float64 must agree to 1e-10, float32 to 4 times the
peer's own spread between its two GEMM paths, over several initial values; each is shown beside both
sides' distances from float64. Then hanji with compute.products = medium against PyTorch's "medium" by the same bar.
"""
import argparse
import dataclasses
import math
import pathlib
import tempfile
from collections.abc import Callable

from model import start_hanji, start_peer
from pairs import Comparison, slowest
from rows import Rows



def start_medium(sides, initial, extra=()):
    """Ours with the tolerance of PyTorch's "medium"; writes the same parameters once more."""
    return sides.ours(initial.with_name(f"{initial.name}-medium"), extra=["compute.products=medium", *extra])


def timed(job):
    return lambda steps: slowest(job.ask(steps=steps))


def losses(job, steps):
    return job.ask(steps=steps)[0]["losses"]


def root_mean_square(values):
    return math.sqrt(sum(value * value for value in values) / len(values))


def distance(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


@dataclasses.dataclass
class Sides:
    """Start one side's ranks with its parameters in `initial`, which ours writes and the peer reads."""
    ours: Callable  # (initial, dtype="float32", extra=())
    peer: Callable  # (initial, dtype="float32", precision="highest")


def check_float64(folder, sides, rows):
    ours = sides.ours(folder / "float64", dtype="float64")
    peer = sides.peer(folder / "float64", dtype="float64")
    apart = distance(losses(ours, 3), losses(peer, 3))
    rows.add(f"float64 losses over 3 steps differ by {apart:.1e} (at most 1e-10)", question="losses",
             dtype="float64", apart=apart, at_most=1e-10)
    assert apart <= 1e-10
    ours.close(), peer.close()


def float32_losses(folder, sides, seed):
    """Losses of 5 steps by side, each less those of PyTorch in float64."""
    initial = folder / f"seed-{seed}"
    starts = {"hanji": lambda: sides.ours(initial, extra=[f"train.seed={seed}"]),
              "hanji medium": lambda: start_medium(sides, initial, [f"train.seed={seed}"])}
    for precision in ("highest", "medium"):
        starts[f"PyTorch {precision}"] = lambda precision=precision: sides.peer(initial, precision=precision)
    starts["exact"] = lambda: sides.peer(initial, dtype="float64")
    found = {}
    for name, start in starts.items():
        job = start()
        found[name] = losses(job, 5)
        job.close()
    exact = found.pop("exact")
    return {name: [x - y for x, y in zip(values, exact)] for name, values in found.items()}


def check_float32(folder, sides, seeds, rows):
    """Each initial value's spread is one draw of a chaotic step, so the bar is held by all of them."""
    distances, rounded_distances, spreads = [], [], []
    for seed in range(1, seeds + 1):
        errors = float32_losses(folder, sides, seed)
        ours, rounded, highest, medium = errors.values()
        for apart, losses in ((distances, ours), (rounded_distances, rounded)):
            apart.append(min(distance(losses, highest), distance(losses, medium)))
        spreads.append(distance(highest, medium))
        off = ", ".join(f"{name} {max(map(abs, values)):.1e}" for name, values in errors.items())
        rows.say(f"float32 losses over 5 steps, seed {seed}: differ by {distances[-1]:.1e}, the peer's "
                 f"own paths by {spreads[-1]:.1e}; off float64: {off}")
    ratio = root_mean_square(distances) / root_mean_square(spreads)
    within = sum(apart <= 4 * spread for apart, spread in zip(distances, spreads))
    rows.add(f"float32: {ratio:.1f} times the peer's own spread over {seeds} initial values (at most "
             f"4), root mean squares; within 4 times for {within} of them alone", question="losses",
             dtype="float32", times_peers_spread=ratio, at_most=4, initial_values=seeds)
    rounded = root_mean_square(rounded_distances) / root_mean_square(spreads)
    rows.add(f"float32, both medium: {rounded:.1f} times that spread (at most 4)", question="losses",
             dtype="float32, both medium", times_peers_spread=rounded, at_most=4, initial_values=seeds)
    assert ratio <= 4 and rounded <= 4


def compare(initial, a, sides, row, rows):
    """Interleaved steps against both of the peer's ways; `row` says what is compared."""
    ours = sides.ours(initial, dtype=row["dtype"])
    peers = [sides.peer(initial, dtype=row["dtype"], precision=precision) for precision in ("highest", "medium")]
    rows.say("\n" + ", ".join(f"{key} {value}" for key, value in row.items()) + f"; kernels: {ours.kernels}")
    for peer in peers:
        result = Comparison(timed(ours), timed(peer)).run(a.pairs, a.steps)
        rows.add(f"hanji {result}  {peer.name}", peer=peer.name, kernels=ours.kernels,
                 products_seconds=ours.products_seconds, **row, **result.row())
    for job in (ours, *peers):
        job.close()
    if row["dtype"] == "float32" and row["ranks"] > 1:
        compare_medium(initial, a, sides, row, rows)


def compare_medium(initial, a, sides, row, rows):
    """Both sides take products of inputs rounded to bf16 where the processor has faster ones of those."""
    ours = start_medium(sides, initial)
    peer = sides.peer(initial, precision="medium")
    result = Comparison(timed(ours), timed(peer)).run(a.pairs, a.steps)
    rows.add(f"hanji medium {result}  {peer.name}; {ours.products_why}", peer=f"{peer.name}, both medium",
             kernels=ours.kernels, products_seconds=ours.products_seconds, products=ours.products,
             products_why=ours.products_why, **row, **result.row())
    for job in (ours, peer):
        job.close()


def data_parallel(preset, ranks):
    return Sides(lambda initial, **how: start_hanji(initial, ranks, preset, **how),
                 lambda initial, **how: start_peer(initial, ranks, preset, **how))


def compared(description, run):
    """Reads the arguments that the benches of a step have in common, and runs one in a folder."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=8, help="initial values to compare float32 on")
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    if a.smoke:
        a.preset, a.pairs, a.steps, a.seeds = "nano", 2, 3, 4
    with tempfile.TemporaryDirectory(prefix="hanji-bench-") as folder:
        run(pathlib.Path(folder), a, rows)


def run(folder, a, rows):
    sides = data_parallel(a.preset, a.ranks)
    check_float64(folder, sides, rows)
    check_float32(folder, sides, a.seeds, rows)
    for ranks, dtype in ((a.ranks, "float32"), (a.ranks, "bf16"), (1, "float32")):
        compare(folder / f"initial-{ranks}-{dtype}", a, data_parallel(a.preset, ranks),
                {"question": "step", "ranks": ranks, "dtype": dtype}, rows)


if __name__ == "__main__":
    compared(__doc__, run)
