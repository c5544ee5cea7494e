"""How many images and token samples per second does a loader give? Images: JPEG, random resized crop, flip, normalise.

hanji against PyTorch's DataLoader with torchvision, or Pillow where torchvision does not load, and against libjpeg-turbo's whole decode by one thread in the
same minute. Tokens: inputs and targets as int64, against nanoGPT's batches of a numpy.memmap and a copy of as many bytes.
Whole loaders on one file, which is in the page cache; their blocks of batches are interleaved.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from model import ROOT
from pairs import interval
from rows import Rows

RANK = ROOT / "build/dev/bin/bench/loader_rank"
BATCH = 64
TOKENS = 1024  # of a sample
AHEAD = 4  # batches: PyTorch's two of each of two workers
# Name, width and height of the images, side length of samples.
CASES = (("500 x 375", 500, 375, 224), ("256 x 192", 256, 192, 224))


class Side:
    """A loader in a process of its own, on as many cores as it may use."""

    def __init__(self, command, cores):
        self.process = subprocess.Popen(
            [str(one) for one in command], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def images_per_second(self, batches):
        # What was read ahead while others were timed is not counted.
        self.process.stdin.write(json.dumps({"untimed": AHEAD, "batches": batches}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.process.args[:2]} ended with {self.process.wait()}")
        return batches * BATCH / sum(json.loads(answer)["seconds"])

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Peer(Side):
    """Says first by what it decodes."""

    def __init__(self, command, cores):
        super().__init__(command, cores)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"bench/loader_peer.py ended with {self.process.wait()}")
        self.decoder = json.loads(answer)["decoder"]


def sides_of(path, size, cores, has_peer):
    """The number of reading threads or processes is the number of cores; hanji's caller is one of them."""
    count = len(cores)
    sides = {"decode": Side([RANK, "decode", path, BATCH], {min(cores)}),
             "hanji": Side([RANK, "load", path, size, BATCH, count - 1], cores)}
    if has_peer:
        sides["torch"] = Peer([sys.executable, ROOT / "bench/loader_peer.py", path, "--size", size, "--batch", BATCH,
                               "--workers", 0 if count == 1 else count], cores)
    return sides


def token_sides(path, cores):
    count, has_numpy = len(cores), importlib.util.find_spec("numpy")
    sides = {"copy": Side([RANK, "copy", TOKENS, BATCH], {min(cores)}),
             "hanji": Side([RANK, "tokens", path, TOKENS, BATCH, count - 1], cores)}
    if has_numpy:
        sides["numpy"] = Peer([sys.executable, ROOT / "bench/loader_peer.py", path, "--tokens", TOKENS, "--batch", BATCH,
                               "--workers", 0], cores)
    return sides


def compare(sides, rounds, batches):
    """Rates of each side by round; the order alternates."""
    rates = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[::-1 if number % 2 else 1]:
            rates[name].append(sides[name].images_per_second(batches))
    return rates


def add_row(rows, about, rates):
    case, cores, decoder, unit = about
    medians = {name: statistics.median(all_) for name, all_ in rates.items()}
    text = f"{case}, {cores} core{'s' if cores > 1 else ''}: hanji {medians['hanji']:,.0f} {unit}/s"
    values = {"question": "loader", unit: case, "cores": cores, "peer_decoder": decoder,
              f"{unit}_per_second": medians}
    for name in rates:
        if name == "hanji":
            continue
        ratios = [ours / theirs for ours, theirs in zip(rates["hanji"], rates[name])]
        low, high = interval(ratios)
        values[name] = {"ratio": statistics.median(ratios), "low": low, "high": high}
        text += f"; {statistics.median(ratios):.2f}x ({low:.2f} to {high:.2f}) of {name}'s {medians[name]:,.0f}"
    rows.add(text, **values)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    has_peer = any(importlib.util.find_spec(name) for name in ("torchvision", "PIL"))
    if not has_peer:
        rows.say("PyTorch's DataLoader is left out: neither torchvision nor pillow is in .venv")
    all_cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory(prefix="hanji-bench-") as folder:
        for case, width, height, size in CASES:
            path = pathlib.Path(folder) / f"{width}.beton"
            made = subprocess.run([RANK, "make", path, str(2 * BATCH if a.smoke else a.images), str(width), str(height)],
                                  check=True, text=True, capture_output=True)
            rows.say(f"{case}: {json.loads(made.stdout)['image_bytes']:,} bytes per image")
            for cores in ({all_cores[0]}, set(all_cores)):
                sides = sides_of(path, size, cores, has_peer)
                compare(sides, 1, 1)  # warm
                decoder = sides["torch"].decoder if has_peer else None
                add_row(rows, (case, len(cores), decoder, "images"),
                        compare(sides, 2 if a.smoke else a.rounds, 1 if a.smoke else 8))
                for side in sides.values():
                    side.close()
        path = pathlib.Path(folder) / "tokens"
        subprocess.run([RANK, "make_tokens", path, str(TOKENS * BATCH * (4 if a.smoke else 400))], check=True)
        for cores in ({all_cores[0]}, set(all_cores)):
            sides = token_sides(path, cores)
            compare(sides, 1, 1)
            add_row(rows, (f"{TOKENS} tokens", len(cores), None, "samples"),
                    compare(sides, 2 if a.smoke else a.rounds, 2 if a.smoke else 200))
            for side in sides.values():
                side.close()


if __name__ == "__main__":
    main()
