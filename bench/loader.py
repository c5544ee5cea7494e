"""How many images and token samples per second does a loader give, how soon, in how much memory?

hanji against FFCV (--ffcv PYTHON names an interpreter that has it), PyTorch's DataLoader with torchvision and with
torchcodec (--torch PYTHON names an interpreter that has them), or Pillow where neither loads, and libjpeg-turbo's whole decode
by one thread in the same minute. Tokens: inputs and targets as int64, against nanoGPT's batches of a numpy.memmap,
torch::data, a copy of as many bytes from and to the caches, and one of rows at random places of a file of int64. Whole loaders
on one file, which is in the page cache; their blocks of batches are interleaved, and pixels are compared before.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

from model import ROOT
from pairs import interval
from rows import Rows

BINARIES = ROOT / "build/dev/bin/bench"
HANJI = ROOT / "build/dev/bin/hanji"
RANK = BINARIES / "loader_rank"
BATCH = 64
TOKENS = 1024  # of a sample
AHEAD = 4  # batches: PyTorch's two of each of two workers, FFCV's three
USUAL = "random_resized_crop, flip, normalise"
CIFAR = "center_crop(ratio = 1), flip, translate(pixels = 4), cutout(pixels = 8), normalise"
# Name, how images are stored, width, height, side length of samples, stages of hanji and of the peers, batches of a block.
# "rows" are JPEGs to which `hanji data convert --row-index` has added restart markers and an index; all sides read them.
CASES = (("500 x 375 JPEG", "jpg", 500, 375, 224, (USUAL, "crop"), 8),
         ("500 x 375 JPEG, row index", "rows", 500, 375, 224, (USUAL, "crop"), 8), ("256 x 192 JPEG", "jpg", 256, 192, 224, (USUAL, "crop"), 16),
         ("256 x 192 raw", "raw", 256, 192, 224, (USUAL, "crop"), 32), ("32 x 32 raw, CIFAR's stages", "raw", 32, 32, 32, (CIFAR, "cifar"), 400))
COMPARED = 64  # images whose pixels are compared


class Side:
    """A loader in a process of its own, on as many cores as it may use, which first says `ready`."""

    def __init__(self, command, cores):
        self.process = subprocess.Popen(
            [str(one) for one in command], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.ready = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args[:2]} ended with {self.process.wait()}")
        return json.loads(line)

    def seconds(self, batches, untimed=AHEAD):
        # What was read ahead while others were timed is not counted.
        self.process.stdin.write(json.dumps({"untimed": untimed, "batches": batches}) + "\n")
        self.process.stdin.flush()
        return sum(self.answer()["seconds"])

    def samples_per_second(self, batches):
        return batches * BATCH / self.seconds(batches)

    def own_bytes(self):
        """Anonymous and shared memory of the process and those it has started; not the pages of the file."""
        total, left = 0, [self.process.pid]
        while left:
            folder = pathlib.Path(f"/proc/{left.pop()}")
            lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            total += sum(1024 * int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem"))
            for task in (folder / "task").iterdir():
                left += (task / "children").read_text().split()
        return total

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Peers:
    """Which other loaders this machine has, and how they are started."""

    def __init__(self, torch, ffcv, rows):
        self.torch = torch or sys.executable
        found = subprocess.run([self.torch, ROOT / "bench/loader_peer.py", "--decoders"], capture_output=True, text=True)
        self.decoders = found.stdout.split()
        for name in ("torchvision", "torchcodec"):
            if name not in self.decoders:
                rows.say(f"{name} is left out: it does not load beside the torch of {self.torch}; --torch PYTHON names one")
        if not self.decoders:
            rows.say("PyTorch's DataLoader is left out: no decoder loads")
        self.ffcv = ffcv or sys.executable
        found = subprocess.run([self.ffcv, "-c", "import ffcv"], capture_output=True, text=True)
        self.has_ffcv = found.returncode == 0
        if not self.has_ffcv:
            reason = (found.stderr.strip().splitlines() or ["it ended without a word"])[-1]
            rows.say(f"FFCV is left out: {self.ffcv} does not import it ({reason}); --ffcv PYTHON names one that does")

    def of_images(self, path, size, stages, cores, has_jpegs):
        count = len(cores)
        options = [path, "--size", size, "--stages", stages, "--batch", BATCH]
        sides = {}
        # One side by each decoder that is compiled; by Pillow if there is none.
        compiled = [name for name in self.decoders if name != "Pillow"]
        for name in (compiled or self.decoders)[:None if has_jpegs else 1]:
            sides["torch" if not sides else name] = Side(
                [self.torch, ROOT / "bench/loader_peer.py", *options, "--decoder", name, "--workers", 0 if count == 1 else count],
                cores)
        if self.has_ffcv:
            sides["ffcv"] = Side([self.ffcv, ROOT / "bench/ffcv_peer.py", *options, "--workers", count], cores)
        return sides


def compare(sides, rounds, batches):
    """Rates of each side by round; the order alternates."""
    rates = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[::-1 if number % 2 else 1]:
            rates[name].append(sides[name].samples_per_second(batches))
    return rates


def ratio_of(ours, theirs):
    ratios = [one / other for one, other in zip(ours, theirs)]
    low, high = interval(ratios)
    return {"ratio": statistics.median(ratios), "low": low, "high": high}


def ratio_text(found):
    return f"{found['ratio']:.2f}x ({found['low']:.2f} to {found['high']:.2f})"


def add_rates(rows, about, rates):
    case, cores, decoder, unit = about
    medians = {name: statistics.median(all_) for name, all_ in rates.items()}
    text = f"{case}, {cores} core{'s' if cores > 1 else ''}: hanji {medians['hanji']:,.0f} {unit}/s"
    values = {"question": "loader", unit: case, "cores": cores, "peer_decoder": decoder, f"{unit}_per_second": medians}
    for name in rates:
        if name == "hanji":
            continue
        values[name] = ratio_of(rates["hanji"], rates[name])
        text += f"; {ratio_text(values[name])} of {name}'s {medians[name]:,.0f}"
    rows.add(text, **values)


def add_start(rows, case, cores, sides):
    """First batches and memory, of sides that have run."""
    first = {name: side.ready["first_batch_seconds"] for name, side in sides.items() if "first_batch_seconds" in side.ready}
    memory = {name: side.own_bytes() for name, side in sides.items() if name != "decode"}
    rows.add(f"{case}, {cores} cores: first batch after " + ", ".join(f"{name} {s * 1e3:,.0f} ms" for name, s in first.items())
             + "; own memory " + ", ".join(f"{name} {b / 2**20:,.0f} MiB" for name, b in memory.items()),
             question="loader start", case=case, cores=cores, first_batch_seconds=first, memory_bytes=memory)


def compare_pixels(rows, case, path, size, peers, folder):
    """Central parts of the first images in levels of 0 to 255, against Pillow's filter and FFCV's."""
    if not importlib.util.find_spec("PIL"):
        return
    import numpy
    from PIL import Image
    subprocess.run([RANK, "pixels", path, str(size), str(COMPARED), folder / "own"], check=True)
    ours = numpy.fromfile(folder / "own", numpy.float32).reshape(COMPARED, 3, size, size).transpose(0, 2, 3, 1) * 255
    from loader_peer import Images
    theirs = {"Pillow": numpy.stack([central(image, size) for image in
                                     (opened(*Images(path, lambda x: x)[i][0]) for i in range(COMPARED))])}
    if peers.has_ffcv:
        subprocess.run([peers.ffcv, ROOT / "bench/ffcv_peer.py", path, "--size", str(size), "--batch", str(COMPARED),
                        "--workers", "1", "--pixels", folder / "ffcv"], check=True, stdout=sys.stderr)
        theirs["FFCV"] = numpy.fromfile(folder / "ffcv", numpy.uint8).reshape(COMPARED, size, size, 3)
    for name, levels in theirs.items():
        apart = numpy.abs(ours - levels.astype(numpy.float32))
        mean, most = float(apart.mean()), float(apart.max())
        # Decoders round differently here and there; another filter, or half a pixel, would be off in the mean.
        if name == "Pillow" and mean > 0.1:
            raise SystemExit(f"{case}: pixels are {mean:.2f} levels from Pillow's in the mean; nothing is timed")
        rows.add(f"{case}: pixels are {mean:.2f} levels from {name}'s in the mean, {most:.0f} at most",
                 question="loader pixels", case=case, peer=name, mean_levels=mean, most_levels=most)


def opened(stream, is_jpeg, width, height):
    import io
    from PIL import Image
    return Image.open(io.BytesIO(stream)).convert("RGB") if is_jpeg else Image.frombuffer("RGB", (width, height), stream)


def central(image, size):
    import numpy
    from PIL import Image
    side = round(0.875 * min(image.size))
    x, y = (image.width - side) // 2, (image.height - side) // 2
    return numpy.asarray(image.resize((size, size), Image.BILINEAR, box=(x, y, x + side, y + side)))


def without_checksums(path, to):
    """The same file as FFCV writes it: nothing between the last page and the allocation table."""
    content = path.read_bytes()
    _, fields, page, count, table = struct.unpack_from("<HHIQQ", content)
    samples = -(-(24 + 1041 * fields + 24 * count) // page) * page
    rows = struct.iter_unpack("<3Q", memoryview(content)[table:])
    end = samples + (max(at + size for _, at, size in rows) - samples + page - 1) // page * page
    to.write_bytes(content[:16] + struct.pack("<Q", end) + content[24:end] + content[table:])
    return to


def time_checksums(rows, case, path, size, folder, rounds, cores):
    """Epochs from the opening of the file, as samples are verified when they are first read: with checksums over without."""
    # Both are written in one piece: the kernel maps a file by the pieces in which its cache has it, and small ones cost more
    # than the checksums do.
    files = {"with": folder / "with.beton", "without": without_checksums(path, folder / "bare.beton")}
    files["with"].write_bytes(path.read_bytes())
    sides = {name: Side([RANK, "first_epochs", file, size, USUAL], cores) for name, file in files.items()}
    seconds = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in list(sides)[::-1 if number % 2 else 1]:
            seconds[name].append(sides[name].seconds(1, untimed=0))
    for side in sides.values():
        side.close()
    found = ratio_of(seconds["with"][1:], seconds["without"][1:])
    rows.add(f"{case}: a first epoch with checksums takes {ratio_text(found)} of one without",
             question="loader checksums", case=case, **found)


def bench_case(rows, case, a, peers, folder, all_cores):
    name, stored, width, height, size, stages, batches = case
    path = folder / "images.beton"
    images = 2 * BATCH if a.smoke else a.images * (20 if width == 32 else 1)
    made = subprocess.run([RANK, "make", path, str(images), str(width), str(height), "raw" if stored == "raw" else "jpg"],
                          check=True, text=True, capture_output=True)
    if stored == "rows":
        subprocess.run([HANJI, "data", "convert", path, "--row-index", "--out", folder / "rows.beton"], check=True,
                       capture_output=True)
        (folder / "rows.beton").replace(path)
    rows.say(f"{name}: {json.loads(made.stdout)['image_bytes']:,} bytes per image")
    rounds = 2 if a.smoke else a.rounds
    if width > 32:
        compare_pixels(rows, name, path, size, peers, folder)
        time_checksums(rows, name, path, size, folder, rounds, {all_cores[0]})
    for cores in ({all_cores[0]}, set(all_cores)):
        sides = {"decode": Side([RANK, "decode", path, BATCH], {min(cores)})} if stored != "raw" else {}
        # The number of reading threads or processes is the number of cores; hanji's caller is one of them.
        sides["hanji"] = Side([RANK, "load", path, size, stages[0], BATCH, len(cores) - 1], cores)
        sides |= peers.of_images(path, size, stages[1], cores, stored != "raw")
        compare(sides, 1, 1)  # warm
        decoder = sides["torch"].ready["decoder"] if "torch" in sides else None
        add_rates(rows, (name, len(cores), decoder, "images"), compare(sides, rounds, 1 if a.smoke else batches))
        if len(cores) == len(all_cores):
            add_start(rows, name, len(cores), sides)
        for side in sides.values():
            side.close()


def bench_tokens(rows, a, folder, all_cores):
    path = folder / "tokens"
    subprocess.run([RANK, "make_tokens", path, str(TOKENS * BATCH * (4 if a.smoke else 400))], check=True)
    for cores in ({all_cores[0]}, set(all_cores)):
        count = len(cores)
        sides = {"copy": Side([RANK, "copy", TOKENS, BATCH], {min(cores)}),
                 "copy_rows": Side([RANK, "copy_rows", path, TOKENS, BATCH], {min(cores)}),
                 "hanji": Side([RANK, "tokens", path, TOKENS, BATCH, count - 1], cores),
                 "torch_data": Side([BINARIES / "loader_torch_data", path, TOKENS, BATCH, 0 if count == 1 else count], cores)}
        if importlib.util.find_spec("numpy"):
            sides["numpy"] = Side([sys.executable, ROOT / "bench/loader_peer.py", path, "--tokens", TOKENS,
                                   "--batch", BATCH, "--workers", 0], cores)
        compare(sides, 1, 1)
        add_rates(rows, (f"{TOKENS} tokens", count, None, "samples"),
                  compare(sides, 2 if a.smoke else a.rounds, 2 if a.smoke else 1000))
        for side in sides.values():
            side.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ffcv", default=shutil.which(os.environ.get("HANJI_FFCV_PYTHON", "")), metavar="PYTHON",
                        help="an interpreter that imports ffcv (or HANJI_FFCV_PYTHON)")
    parser.add_argument("--torch", default=shutil.which(os.environ.get("HANJI_TORCH_PYTHON", "")), metavar="PYTHON",
                        help="an interpreter whose torch has torchvision and torchcodec (or HANJI_TORCH_PYTHON)")
    parser.add_argument("--only", nargs="+", choices=["500JPEG", "256JPEG", "256raw", "32raw", "tokens"],
                        help="of the cases these")
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    peers = Peers(a.torch, a.ffcv, rows)
    all_cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory(prefix="hanji-bench-") as folder:
        for case in CASES:
            words = case[0].split()
            if not a.only or words[0] + words[3].strip(",") in a.only:
                bench_case(rows, case, a, peers, pathlib.Path(folder), all_cores)
        if not a.only or "tokens" in a.only:
            bench_tokens(rows, a, pathlib.Path(folder), all_cores)


if __name__ == "__main__":
    main()
