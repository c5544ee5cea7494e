"""`hanji bench`: what it prints for programs and people, and that it notices what is wrong."""
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from command import HANJI, NANO, CommandTest

PEER = pathlib.Path(HANJI).parent / "bench" / "peer_openmpi"

ROUTINES = {"all_reduce": "i", "broadcast": "i", "reduce": "oi", "gather": "oi", "scatter": "oi",
            "all_gather": "oi", "reduce_scatter": "oi", "all_to_all": "oi", "send": "o",
            "barrier": "i"}
KEYS = {"routine", "bytes", "ranks", "engine", "algorithm", "placement", "seconds_median",
        "seconds_p99", "predicted_seconds", "percent_of_limit", "wrong", "peers"}
PAIRS = ("wins", "losses", "ties", "unsteady_pairs")
SHORT = ("--ranks", 2, "--pairs", 2, "-n", 3)


class Bench(CommandTest):
    def setUp(self):
        super().setUp()
        self.fit_costs()

    def lines(self, *arguments, **keywords):
        done = self.hanji("bench", *arguments, "--json", **keywords)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_a_line_per_placement_for_programs(self):
        lines = self.lines("all_reduce", "--bytes", "256KiB", *SHORT)
        self.assertEqual([line["placement"] for line in lines], ["heap", "private"])
        for line in lines:
            self.assertLessEqual(KEYS, set(line))
            self.assertEqual((line["routine"], line["bytes"], line["ranks"], line["engine"]),
                             ("all_reduce", 262144, 2, "shm"))
            self.assertEqual(line["wrong"], 0)
            self.assertGreater(line["seconds_median"], 0)
            self.assertGreaterEqual(line["seconds_p99"], line["seconds_median"])
            self.assertGreater(line["predicted_seconds"], 0)
            self.assertGreater(line["percent_of_limit"], 0)
            self.assertEqual(line["calls"], 6)
            for name in ("openmpi", "mpich", "gloo", "pytorch"):
                self.assertIsNone(line["peers"][name]["seconds_median"])
                self.assertIn("--peer " + name, line["peers"][name]["reason"])

    def test_every_routine_in_the_forms_that_it_has(self):
        lines = self.lines(*ROUTINES, "--bytes", "24KiB", "--placement", "heap", *SHORT)
        found = {}
        for line in lines:
            self.assertEqual(line["wrong"], 0, line)
            self.assertGreater(line["seconds_median"], 0)
            found[line["routine"]] = found.get(line["routine"], "") + "oi"[line["in_place"]]
        self.assertEqual(found, ROUTINES)

    def test_more_ranks_than_two_types_ops_and_roots(self):
        lines = self.lines("reduce", "reduce_scatter", "-b", "1000", "-e", "4K", "-f", "4", "-d",
                           "bf16,int32", "-o", "sum,avg,max", "-r", "all", "--placement",
                           "private", "--ranks", 3, "--pairs", 1, "-n", 1)
        self.assertEqual({line["wrong"] for line in lines}, {0})
        self.assertEqual(len(lines), 2 * 2 * 3 * 2 * (3 + 1))
        self.assertEqual({line["root"] for line in lines}, {0, 1, 2, None})

    def test_a_wrong_result_is_noticed_and_not_timed(self):
        for routine in ("all_reduce", "all_gather"):
            lines = self.lines(routine, "--bytes", "4KiB", "--corrupt", 1, *SHORT, expect=7)
            for line in lines:
                self.assertEqual(line["wrong"], 1)
                self.assertIsNone(line["seconds_median"])

    def test_caches_and_gloo_as_engine_and_peer(self):
        for mode in ("--hot", "--cold"):
            line, = self.lines("all_reduce", "--bytes", "4KiB", "--placement", "heap", mode, *SHORT)
            self.assertEqual(line["wrong"], 0)
        line, = self.lines("all_reduce", "--bytes", "4KiB", "--engine", "gloo", "--peer", "gloo",
                           *SHORT)
        self.assertEqual((line["engine"], line["placement"]), ("gloo", "private"))
        gloo = line["peers"]["gloo"]
        self.assertGreater(gloo["seconds_median"], 0)
        self.assertEqual(sum(gloo[each] for each in PAIRS), 2)

    def peer(self, name, **keywords):
        line, = self.lines("all_gather", "--bytes", "4KiB", "--placement", "private", "--peer",
                           name, *SHORT, **keywords)[:1]
        self.assertEqual(line["wrong"], 0)
        self.assertGreater(line["seconds_median"], 0)
        return line["peers"][name]

    def test_a_peer_that_is_not_there_has_a_reason(self):
        for name, words in (("openmpi", "mpirun was not found"), ("mpich", "was not found")):
            peer = self.peer(name, PATH="/nowhere")
            self.assertIsNone(peer["seconds_median"])
            self.assertIn(words, peer["reason"])
        peer = self.lines("barrier", "--peer", "pytorch", "--python", "/nowhere/python",
                          *SHORT)[0]["peers"]["pytorch"]
        self.assertIsNone(peer["seconds_median"])
        self.assertIn("/nowhere/python", peer["reason"])

    @unittest.skipUnless(PEER.exists(), "no mpicc.openmpi where hanji was built")
    def test_a_peer_that_fails_is_quoted(self):
        launcher = self.folder / "mpirun.openmpi"
        launcher.write_text("#!/bin/sh\necho there are not enough slots\nexit 1\n")
        launcher.chmod(0o755)
        peer = self.peer("openmpi", PATH=f"{self.folder}:{os.environ['PATH']}")
        self.assertIsNone(peer["seconds_median"])
        self.assertIn("there are not enough slots", peer["reason"])

    @unittest.skipUnless(PEER.exists() and shutil.which("mpirun"), "no Open MPI here")
    def test_open_mpi_beside_ours_in_every_routine(self):
        lines = self.lines(*ROUTINES, "--bytes", "24KiB", "--placement", "private", "--peer",
                           "openmpi", "--ranks", 2, "--pairs", 1, "-n", 1)
        self.assertEqual(len(lines), sum(map(len, ROUTINES.values())))
        for line in lines:
            peer = line["peers"]["openmpi"]
            self.assertGreater(peer["seconds_median"] or 0, 0, line)
            self.assertEqual(sum(peer[each] for each in PAIRS), 1, line)

    def test_a_table_for_people(self):
        page = self.hanji("bench", "reduce", "barrier", "--bytes", "4KiB", *SHORT).stdout
        self.assertRegex(page, r"(?s)# out of place\n#  +time.*# in place\n#  +time")
        self.assertLess(max(map(len, page.splitlines())), 81)
        self.assertRegex(page, r"size +count +type +redop +root +place\n")
        self.assertRegex(page, r"time +p99 +algbw +busbw +%lim +#wrong +alg +pred +err%\n")
        self.assertRegex(page, r"(?m)^ +4096 +1024 +float32 +sum +0 +private$")
        self.assertNotIn("openmpi", page)

    def test_scaling_runs_a_job_on_several_numbers_of_ranks_interleaved(self):
        short = ["bench", "scaling", "--rounds", 2, *NANO]
        done = self.hanji(*short, "--ranks", "1,2", "--steps", 14, "--json", "--out", "runs", "--svg", "drawing.svg")
        study = json.loads(done.stdout)
        self.assertEqual([(size["ranks"], size["runs"], size["steps"]) for size in study["sizes"]],
                         [(1, 2, 26), (2, 2, 26)])
        self.assertEqual(study["curve"][-1]["ranks"], 4)
        self.assertTrue((self.folder / "drawing.svg").read_text().startswith("<svg"))
        self.assertEqual(done.stderr.splitlines(), [f"run {i} of 4: {ranks}" for i, ranks in
                                                    enumerate(("2 ranks", "1 rank", "1 rank", "2 ranks"), 1)])
        runs = sorted((self.folder / "runs").iterdir())
        page = self.hanji("report", "--scaling", *runs).stdout
        self.assertRegex(page, r"(?s)law +a step of p ranks = .*speed-up: # measured")
        self.assertLess(max(map(len, page.splitlines())), 81)
        refused = self.hanji("report", "--scaling", runs[0], runs[1], expect=2).stderr
        self.assertIn("name runs of the same job on two or more numbers of ranks", refused)
        for wrong, words in ((["--ranks", "1,x"], "'x' is no number of ranks"), ([], "scaling needs --ranks"),
                             (["--ranks", "1,2", "--steps", "9"], "2 runs of 9 steps have 16 after their first"),
                             (["--ranks", "1,2", "--set", "model.layers=-4"], "model.layers is -4")):
            self.assertIn(words, self.hanji(*short, *wrong, expect=2).stderr)

    def test_a_signal_ends_a_bench_without_leaving_its_folder(self):
        (self.folder / "tmp").mkdir()
        for ending in (signal.SIGINT, signal.SIGTERM):
            bench = subprocess.Popen([HANJI, "bench", *ROUTINES, "--ranks", "2"],
                                     cwd=self.folder, stdout=subprocess.DEVNULL,
                                     env=self.environment(TMPDIR=str(self.folder / "tmp")))
            deadline = time.monotonic() + 100
            while not list((self.folder / "tmp").glob("*/hanji/logs/rank.1")):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            bench.send_signal(ending)
            self.assertEqual(bench.wait(30), -ending)
            self.assertEqual(list((self.folder / "tmp").iterdir()), [])

    def test_what_a_killed_bench_left_goes_with_the_next_one(self):
        (self.folder / "tmp").mkdir()
        left, held, other = (self.folder / "tmp" / name for name in
                             ("hanji-bench-run-killed", "hanji-bench-run-alive", "of-somebody"))
        for folder in (left, held, other):
            folder.mkdir()
            (folder / "table").write_text("1")
            os.utime(folder, (1, 1))
        lock = os.open(held, os.O_RDONLY)
        self.addCleanup(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.hanji("bench", "barrier", *SHORT, TMPDIR=str(self.folder / "tmp"))
        self.assertEqual({one.name for one in (self.folder / "tmp").iterdir()},
                         {held.name, other.name})

    def test_mistakes_are_told_all_at_once(self):
        done = self.hanji("bench", "all_rduce", "-b", "1XB", "--peer", "opnmpi", "-m", "5",
                          "--ranks", 99, expect=2)
        self.assertEqual(done.stdout, "")
        for words in ("did you mean all_reduce?", "-b is '1XB'", "did you mean openmpi?",
                      "calls are timed one by one", "--ranks is '99'"):
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
