"""Runs the built command in a folder of its own; what all end-to-end tests share."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

HANJI = os.environ["HANJI_BINARY"]
# Runs whose bits are compared name their kernels: a choice that was made under load is made again. Where a processor has
# tiles for bf16, oneDNN rounds float32 to it, which is refused.
HAS_TILES = " amx_tile" in pathlib.Path("/proc/cpuinfo").read_text()
KERNELS = ["--set", f"compute.gemm={'mkl' if HAS_TILES else 'onednn'}", "--set", "compute.attention=math"]
NANO = [*KERNELS, "--set", "model.preset=nano", "--set", "train.global_batch=12",
        "--set", "train.evaluate_batches=2"]
DOUBLE = ["--set", "compute.dtype=float64", "--set", "compute.gemm=auto"]  # which oneDNN has not
STABLE = ["--set", "train.bits=stable"]
CONSTANT = ["--set", "train.schedule=constant", "--set", "train.warmup_steps=2"]
STRATEGIES = {
    "ddp": ["--ranks", 2],
    "server": ["--ranks", 3],
    "zero1": ["--ranks", 3],
    "zero2": ["--ranks", 2],
    "zero3": ["--ranks", 4],
    "hsdp": ["--ranks", 4, "--set", "mesh.dp=2", "--set", "mesh.fsdp=2"],
}
MEGABYTE = 1e6

# A shell starts what runs in the background with INT ignored, and so would be what a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
# nohup and some terminals start it with HUP ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def by(data):
    return [*STRATEGIES[data], "--set", f"parallel.data={data}"]


class CommandTest(unittest.TestCase):
    """A fresh folder per test; measurements are shared by all tests through one cache."""

    cache = None

    @classmethod
    def setUpClass(cls):
        if CommandTest.cache is None:
            CommandTest.cache = tempfile.TemporaryDirectory(prefix="hanji-cache-")

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="hanji-test-")
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)

    def environment(self, **extra):
        return {**os.environ, "HANJI_CACHE_DIR": self.cache.name, **extra}

    def fit_costs(self, ranks=2):
        """Costs of so many ranks, fitted once and kept as if nothing else had run meanwhile, or all would fit again."""
        file = pathlib.Path(self.cache.name) / f"costs-{ranks}-ranks.json"
        if not file.exists():
            self.hanji("explain", "all_reduce", "--ranks", ranks)
            self.change_json(file, load=0)
        return file

    @staticmethod
    def change_json(file, **changes):
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    def hanji(self, *arguments, expect=0, timeout=120, **extra):
        done = subprocess.run([HANJI, *map(str, arguments)], cwd=self.folder, text=True,
                              errors="surrogateescape", capture_output=True, timeout=timeout,
                              env=self.environment(**extra))
        self.assertEqual(done.returncode, expect, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    @staticmethod
    def words(text):
        """Without the line breaks of a terminal's width."""
        return " ".join(text.split())

    @staticmethod
    def catches(process, number):
        """Whether a process has a handler for a signal by now."""
        status = pathlib.Path(f"/proc/{process}/status").read_text()
        return int(re.search(r"SigCgt:\s(\w+)", status)[1], 16) >> number - 1 & 1

    @staticmethod
    def session(leader):
        """The living processes of a session."""
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(of) == leader and state != "Z":
                found.append(int(stat.parent.name))
        return found

    def train(self, out, *arguments, **keywords):
        return self.hanji("train", "--out", self.folder / out, *NANO, *arguments, **keywords)

    def read_json(self, *parts):
        return json.loads(self.folder.joinpath(*parts).read_text())

    def read_lines(self, *parts):
        return [json.loads(line) for line in self.folder.joinpath(*parts).read_text().splitlines()]


def main():
    """unittest.main(); exit code 77, "skipped" to ctest, where not one test can run here."""
    result = unittest.main(verbosity=2, exit=False).result
    ran = result.testsRun - len(result.skipped)
    sys.exit(77 if result.skipped and ran <= 0 else 0 if result.wasSuccessful() else 1)
