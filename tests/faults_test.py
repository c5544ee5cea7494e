"""`hanji train` when things break: who says what, and what goes on."""
import os
import shutil
import signal
import subprocess
import time
import unittest

from command import HANJI, NANO, CommandTest

JOB = ["--ranks", "2", "--seed", "7", "--set", "checkpoint.every=5"]


class Faults(CommandTest):
    def start(self, out, *arguments, **pipes):
        return subprocess.Popen([HANJI, "train", "--out", self.folder / out, *NANO, *JOB,
                                 *map(str, arguments)], env=self.environment(), cwd=self.folder,
                                text=True, **pipes)

    def log(self, out):
        path = self.folder / out / "run.jsonl"
        return path.read_text().split("\n") if path.exists() else []

    def wait_for_steps(self, out, count, process):
        deadline = time.monotonic() + 60
        while sum('"loss"' in line for line in self.log(out)) < count:
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(process.poll(), "the run ended")
            time.sleep(0.01)

    def pid_of(self, out, rank):
        return next(entry["pid"] for entry in self.read_json(out, "ranks.json")["ranks"]
                    if entry["rank"] == rank)

    def test_a_crashed_rank_is_shown_with_its_stack(self):
        process = self.start("run", "--steps", 1000000, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE)
        self.wait_for_steps("run", 10, process)
        os.kill(self.pid_of("run", 1), signal.SIGSEGV)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGSEGV, errors)
        self.assertRegex(errors, r"rank 1 \(process \d+\): SIGSEGV.*stack of thread \d+:")
        self.assertIn("\n  #0 ", errors)
        self.assertRegex(errors.rstrip().split("\n")[-1],
                         r"cause: rank 1 \(host .*step \d+.*\) was killed by SIGSEGV; its last call")
        survivor = (self.folder / "run" / "logs" / "rank.0").read_text()
        self.assertRegex(survivor, r"rank 1 \(host .*(was killed by SIGSEGV|died)")

    def test_a_killed_rank_goes_on_from_the_last_checkpoint_within_five_seconds(self):
        process = self.start("run", "--steps", 300, "--max-restarts", 1,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.wait_for_steps("run", 20, process)
        os.kill(self.pid_of("run", 0), signal.SIGKILL)
        killed = time.monotonic()
        while True:
            lines = self.log("run")
            resumed = next((i for i, line in enumerate(lines) if '"resumed"' in line), None)
            if resumed is not None and any('"loss"' in line for line in lines[resumed:]):
                break
            self.assertLess(time.monotonic() - killed, 5, "seconds from kill to the next step")
            time.sleep(0.01)
        print(f"kill to next step: {time.monotonic() - killed:.2f} s")
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("restart 1 of 1", errors)
        steps = [line["step"] for line in self.read_lines("run", "run.jsonl") if "loss" in line]
        self.assertEqual(steps, list(range(1, 301)))

    def test_the_same_error_at_the_same_place_ends_the_restarts(self):
        process = self.start("run", "--steps", 1000000, "--max-restarts", 10,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.wait_for_steps("run", 10, process)
        board = self.folder / "run" / "tensorboard"
        shutil.rmtree(board)
        board.write_text("no folder any more: nobody can begin again")
        os.kill(self.pid_of("run", 1), signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
        self.assertNotIn(process.returncode, (0, 128 + signal.SIGKILL), errors)
        self.assertIn("restart 3 of 10", errors)
        self.assertNotIn("restart 4 of 10", errors)
        self.assertRegex(errors, "not restarted: the same failure came 3 times in a row .*tensorb")

    def test_a_reader_who_goes_away_stops_nobody(self):
        process = self.start("run", "--steps", 30, "--set", "train.log_every=1",
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=120), 0)
        self.assertEqual(self.read_json("run", "summary.json")["steps"], 30)

    def test_a_limit_on_files_is_told_and_not_a_signal(self):
        done = subprocess.run(["bash", "-c", 'ulimit -f 1000; exec "$0" "$@"', HANJI, "run", "-n",
                               "2", "true"], text=True, capture_output=True, timeout=60,
                              env=self.environment(), cwd=self.folder)
        self.assertGreater(done.returncode, 0, done.stderr)
        self.assertLess(done.returncode, 128, done.stderr)
        self.assertIn("ulimit -f", done.stderr)


if __name__ == "__main__":
    unittest.main()
