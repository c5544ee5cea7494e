"""The parts of ./dev gpu with the CPU in the place of a GPU: bounds, time, failures, the table, what is merged."""
import contextlib
import io
import json
import os
import pathlib
import signal
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench")]
os.environ.setdefault("HANJI_BINARY", str(ROOT / "build/dev/bin/hanji"))
import gpu_merge
import gpu_parts
import gpu_run
import machine
import page
from gpu_part_list import PARTS, Part

BUILD = pathlib.Path(os.environ["HANJI_BINARY"]).parent.parent
ABOUT = {"commit": "0123456789", "date": "2026-01-02", "torch": "2.11.0", "load_before": 0.0}


class FakeClock:
    now = 0.0

    def __call__(self):
        return self.now


class Gpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hanji-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # The distribution of torch need not be installed where hanji was built with another libtorch.
        self.addCleanup(setattr, machine, "provenance", machine.provenance)
        machine.provenance = lambda: {**ABOUT, "processor": machine.processor()}

    def run_parts(self, parts, *arguments, clock=None):
        """(exit code, results by part, the table)."""
        out = self.folder / "out"
        with contextlib.redirect_stdout(io.StringIO()):
            if clock is None:
                code = gpu_parts.main(["--build", str(BUILD), "--out", str(out), "--device", "cpu", *arguments], parts)
            else:
                a = gpu_parts.arguments(["--build", str(BUILD), "--out", str(out), "--device", "cpu", *arguments])
                out.mkdir()
                code = int(gpu_parts.Runner(a, self.folder / "scratch", clock).run(parts))
        parts = json.loads((out / "results.json").read_text())["parts"]
        return code, {one["part"]: one for one in parts}, (out / "table.txt").read_text()

    def test_a_failure_and_an_exception_are_told_and_the_others_go_on(self):
        def refused(bench):
            bench.row(question="part", value=1)
            bench.run([sys.executable, "-c", "import sys; print('error: planted'); sys.exit(3)"])

        code, results, table = self.run_parts([
            Part("refused", 1, 20, refused, ""), Part("broken", 1, 9, lambda bench: {}["absent"], ""),
            Part("absent", 1, 9, lambda bench: bench.program("bin", "no_such"), ""),
            Part("module", 1, 9, lambda bench: bench.needs("no_such_module", "for nothing"), ""),
            Part("gpu", 1, 9, lambda bench: "", "", "needs a GPU"), Part("good", 1, 9, lambda bench: "7 ms", "")])
        self.assertEqual(code, 1)
        self.assertEqual({name: one["result"] for name, one in results.items()},
                         {"refused": "failed", "broken": "failed", "absent": "skipped", "module": "skipped", "gpu": "skipped",
                          "good": "ok"})
        self.assertEqual(results["refused"]["figure"], "exit code 3: error: planted")
        self.assertRegex(table, r"(?m)^broken +failed +[\d.]+ s  KeyError: 'absent'$")
        self.assertRegex(table, r"(?m)^good +ok +[\d.]+ s  7 ms$")
        with tarfile.open(self.folder / "out" / "logs.tar.gz") as packed:
            self.assertIn(b"error: planted", packed.extractfile("logs/refused.log").read())
        self.assertEqual(sorted(path.name for path in (self.folder / "out").iterdir()),
                         ["logs.tar.gz", "results.json", "table.txt"])

    def test_what_does_not_fit_is_not_run_and_shorter_parts_still_are(self):
        clock = FakeClock()

        def takes(seconds):
            return lambda bench: setattr(clock, "now", clock.now + seconds) or "done"

        code, results, table = self.run_parts(
            [Part("first", 60, 90, takes(80), ""), Part("long", 30, 90, takes(1), ""), Part("short", 15, 20, takes(18), ""),
             Part("last", 5, 9, takes(1), "")], "--seconds", "100", clock=clock)
        self.assertEqual(code, 0)
        self.assertEqual([one["result"] for one in results.values()], ["ok", "not run", "ok", "not run"])
        self.assertEqual(results["long"]["figure"], "20 s were left, and it takes about 30")
        self.assertEqual(results["short"]["seconds"], 18.0)

    def test_a_part_ends_at_its_limit_with_all_that_it_has_started(self):
        held = self.folder / "pid"
        script = f"sh -c 'echo $$ > {held}; sleep 100' & wait"
        code, results, _ = self.run_parts([Part("hangs", 1, 1, lambda bench: bench.run(["sh", "-c", script]), "")])
        self.assertEqual((code, results["hangs"]["result"]), (1, "failed"))
        self.assertIn("still running at its limit", results["hangs"]["figure"])
        stat = pathlib.Path("/proc", held.read_text().strip(), "stat")
        self.assertTrue(not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")

    def test_a_signal_leaves_what_was_found_and_names_the_rest(self):
        def killed(bench):
            os.kill(os.getpid(), signal.SIGTERM)

        before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        self.addCleanup(signal.signal, signal.SIGTERM, before[0])
        self.addCleanup(signal.signal, signal.SIGINT, before[1])
        code, results, _ = self.run_parts([Part("good", 1, 9, lambda bench: "1", ""), Part("under way", 1, 9, killed, ""),
                                           Part("waits", 1, 9, lambda bench: "", "")])
        self.assertEqual(code, 1)
        self.assertEqual([one["result"] for one in results.values()], ["ok", "failed", "not run"])

    def test_a_fault_is_beyond_the_bound_of_losses_and_none_is_within(self):
        parts = [part for part in PARTS if part.name in ("smoke", "resume")]
        code, results, table = self.run_parts(parts)
        self.assertEqual(code, 0, table)
        losses, = (row for row in results["smoke"]["rows"] if row["question"] == "losses")
        self.assertLess(losses["apart"], losses["at_most"])
        code, results, table = self.run_parts(parts[:1], "--set", "train.learning_rate=1.01e-3")
        self.assertEqual(code, 1, table)
        self.assertIn("nano float32: losses are", results["smoke"]["figure"])

    def rows_of_a_gpu(self, **changes):
        parts = [{"part": "smoke", "result": "ok", "seconds": 9.0, "figure": "1e-7", "rows": []},
                 {"part": "step-baby", "result": "ok", "seconds": 9.0, "figure": "", "rows": [
                     {"question": "step", "model": "baby", "dtype": "bf16", "tokens": 16384, "peer": "PyTorch", "ratio": 2.0,
                      "low": 1.9, "high": 2.1, "pairs": 6, "first_seconds": 0.01, "second_seconds": 0.02}]},
                 {"part": "memory", "result": "failed", "seconds": 1.0, "figure": "a | b", "rows": []}]
        device = {"kind": "cuda", "name": "NVIDIA H200", "driver": "580"}
        return {**ABOUT, "processor": machine.processor(), "device": device, "parts": parts, **changes}

    def test_rows_that_no_gpu_gave_are_refused(self):
        for change, words in (({"device": {"kind": "cpu", "name": ""}}, "only those of a GPU"),
                              ({"device": {"kind": "cuda", "name": ""}}, "named no GPU"),
                              ({"commit": "unknown"}, "give --commit")):
            mistakes = list(gpu_merge.mistakes_of(self.rows_of_a_gpu(**change), None))
            self.assertEqual(len(mistakes), 1)
            self.assertIn(words, mistakes[0])
        self.assertEqual(list(gpu_merge.mistakes_of(self.rows_of_a_gpu(), None)), [])

    def test_rows_of_a_gpu_are_shown_on_both_pages_and_stay_until_their_part_runs_again(self):
        entry = gpu_merge.entry_of(self.rows_of_a_gpu(), {}, None)
        shown = page.render({"tables": {"gpu": {"a": entry}}})
        self.assertIn("NVIDIA H200, driver 580, beside ", shown)
        self.assertIn("| baby, bf16, 16384 tokens | PyTorch | 10 ms | 2.00 (1.90 to 2.10, 6 pairs) | 1.64e+06 |", shown)
        seen = gpu_merge.seen_table({"tables": {"gpu": {"a": entry}}})
        self.assertRegex(seen, r"(?m)^\| `smoke` \| .* \| NVIDIA H200, 2026-01-02, `0123456789` \|$")
        self.assertRegex(seen, r"(?m)^\| `memory` \| .* \| failed on NVIDIA H200, ")
        self.assertRegex(seen, r"(?m)^\| `resume` \| .* \| not yet \|$")
        later = self.rows_of_a_gpu(commit="fedcba9876", parts=[
            {"part": "memory", "result": "ok", "seconds": 1.0, "figure": "", "rows": []}])
        merged = gpu_merge.entry_of(later, entry, None)
        self.assertEqual({row["part"]: row["commit"] for row in merged["rows"] if row["question"] == "part"},
                         {"smoke": "0123456789", "step-baby": "0123456789", "memory": "fedcba9876"})

    def test_the_table_of_the_page_is_that_of_the_rows(self):
        text = gpu_merge.GPUS.read_text()
        self.assertEqual(text, gpu_merge.with_table(text, page.load(gpu_merge.STORE)))
        self.assertEqual(gpu_merge.BEGIN.count("render"), text.count(gpu_merge.BEGIN))

    def test_the_bound_is_sixteen_times_the_cpus_own_distance_or_the_worst_order_of_a_sum(self):
        self.assertEqual(gpu_run.losses_bound(1e-3, [4.0, 4.0]), 16e-3)
        self.assertEqual(gpu_run.losses_bound(0.0, [4.0, 4.0]), 256 * 4 * 2.0**-24)


if __name__ == "__main__":
    unittest.main()
