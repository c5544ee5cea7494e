"""How long is an all-reduce in shared memory, against the memory's limit, Open MPI and Gloo?

Columns as nccl-tests, and %lim: the share of the limit kernel's speed in the same minute. Every
result is verified; sides take turns call block by call block.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

from model import ROOT
from pairs import Ranks, slowest

SIZES = [8, 256, 8 << 10, 64 << 10, 1 << 20, 4 << 20, 64 << 20]


class OurSide:
    def __init__(self, ranks):
        self.job = Ranks("hanji", [str(ROOT / "build/dev/bin/bench/all_reduce_rank")], ranks)

    def seconds(self, engine, size, calls):
        answers = self.job.ask(engine=engine, bytes=size, calls=calls)
        assert all(answer["wrong"] == 0 for answer in answers), f"{engine}: wrong results"
        return slowest(answers)

    def close(self):
        self.job.close()


class OpenMpi:
    """Ranks under mpirun, each with a pipe of its own for requests and answers."""

    def __init__(self, ranks, folder):
        for rank in range(ranks):
            os.mkfifo(folder / f"request.{rank}")
            os.mkfifo(folder / f"answer.{rank}")
        options = ["--allow-run-as-root", "-np", str(ranks), "--mca", "btl", "self,vader"]
        if ranks > os.cpu_count():
            options += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
        else:
            options += ["--bind-to", "core"]
        self.process = subprocess.Popen(
            ["mpirun", *options, str(ROOT / "build/dev/bin/bench/all_reduce_mpi"), str(folder)])
        self.requests = [open(folder / f"request.{rank}", "w") for rank in range(ranks)]
        self.answers = [open(folder / f"answer.{rank}") for rank in range(ranks)]

    def seconds(self, size, calls):
        for request in self.requests:
            request.write(f"{size} {calls}\n")
            request.flush()
        rows = []
        for answer in self.answers:
            times, wrong = answer.readline().split("wrong")
            assert int(wrong) == 0, "Open MPI: wrong results"
            rows.append([float(time) for time in times.split()])
        return [max(column) for column in zip(*rows)]

    def close(self):
        for request in self.requests:
            request.close()
        self.process.wait(timeout=30)


def calls_for(size):
    return 2000 if size <= 1024 else 300 if size <= 1 << 20 else 20 if size <= 4 << 20 else 5


def measure(ranks, pairs, sizes, folder):
    ours = OurSide(ranks)
    peers = {"gloo": lambda size, calls: ours.seconds("gloo", size, max(2, calls // 10))}
    mpi = None
    if shutil.which("mpirun"):
        mpi = OpenMpi(ranks, folder)
        peers["openmpi"] = mpi.seconds
    print(f"\n{ranks} ranks, float32 sum in place; times in us, the slowest rank's, medians")
    print(f"{'size':>9} {'count':>9} {'heap':>9} {'p99':>9} {'algbw':>6} {'busbw':>6} {'%lim':>5} "
          f"{'private':>9}" + "".join(f" {name:>9} {'ratio':>6} {'spread':>13}" for name in peers))
    for size in sizes:
        print_row(ours, peers, ranks, size, pairs)
    ours.close()
    if mpi:
        mpi.close()


def print_row(ours, peers, ranks, size, pairs):
    calls = calls_for(size)
    ours.seconds("heap", size, 5), ours.seconds("private", size, 5)
    heap, every, private, shares = [], [], [], []
    theirs = {name: [] for name in peers}
    for _ in range(pairs):
        times = ours.seconds("heap", size, calls)
        limit = statistics.median(ours.seconds("limit", size, calls))
        every += times
        heap.append(statistics.median(times))
        shares.append(100 * limit / heap[-1])
        private.append(statistics.median(ours.seconds("private", size, calls)))
        for name, peer in peers.items():
            theirs[name].append(statistics.median(peer(size, calls)) / heap[-1])
    time = statistics.median(heap)
    algbw = size / time / 1e9
    row = (f"{size:9} {size // 4:9} {time * 1e6:9.2f} {sorted(every)[int(.99 * len(every))] * 1e6:9.2f} "
           f"{algbw:6.2f} {algbw * 2 * (ranks - 1) / ranks:6.2f} "
           + (f"{statistics.median(shares):5.0f}" if size >= 1 << 20 else f"{'-':>5}")
           + f" {statistics.median(private) * 1e6:9.2f}")
    for name, ratios in theirs.items():
        ratio = statistics.median(ratios)
        row += (f" {ratio * time * 1e6:9.2f} {ratio:6.2f} "
                f"{f'{min(ratios):.2f}-{max(ratios):.2f}':>13}")
    print(row, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--smoke", action="store_true")
    a = parser.parse_args()
    for ranks in a.ranks:
        with tempfile.TemporaryDirectory(prefix="hanji-bench-") as folder:
            sizes = SIZES[:4] if a.smoke else SIZES
            measure(ranks, 1 if a.smoke else a.pairs, sizes, pathlib.Path(folder))


if __name__ == "__main__":
    main()
