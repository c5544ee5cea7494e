"""What does training together cost over training alone?

The step of 2 connected ranks against the slower of 2 unconnected one-rank runs side by side on the
same two cores, interleaved; the same for PyTorch.
"""
import argparse
import pathlib
import tempfile

from model import start_hanji, start_peer
from pairs import Comparison, slowest
from rows import Rows


class SideBySide:
    """Jobs that do not know each other, working at the same time."""

    def __init__(self, jobs):
        self.jobs = jobs

    def seconds(self, steps):
        for job in self.jobs:
            job.send(steps=steps)
        return slowest([answer for job in self.jobs for answer in job.receive()])


def measure(name, together, apart, a, rows):
    alone = SideBySide(apart)
    together.ask(steps=3), alone.seconds(3)
    result = Comparison(alone.seconds, lambda steps: slowest(together.ask(steps=steps)))
    result.run(a.pairs, a.steps)
    rows.add(f"{name:8} alone {result} together", question="overlap", side=name, **result.row())
    for job in (together, *apart):
        job.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    if a.smoke:
        a.preset, a.pairs, a.steps = "nano", 2, 3
    with tempfile.TemporaryDirectory(prefix="hanji-bench-") as folder:
        initial = pathlib.Path(folder) / "initial"
        measure("hanji", start_hanji(initial, 2, a.preset),
                [start_hanji(None, 1, a.preset, cores=[core, core]) for core in (0, 1)], a,
                rows)
        measure("PyTorch", start_peer(initial, 2, a.preset),
                [start_peer(initial, 1, a.preset, cores=[core, core]) for core in (0, 1)], a, rows)


if __name__ == "__main__":
    main()
