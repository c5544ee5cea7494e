"""`hanji train` when things break: who says what, and what goes on."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from command import HANJI, NANO, CommandTest

FAULTS = os.environ["HANJI_FAULTS"]
JOB = ["--ranks", "2", "--seed", "7", "--set", "checkpoint.every=5"]
# Few tokens, so that the optimizer takes its part of a step; no rate that depends on train.steps.
ENDLESS = ["--ranks", "2", "--seed", "7", "--set", "model.preset=nano",
           "--set", "train.global_batch=2", "--set", "train.evaluate_batches=2",
           "--set", "checkpoint.every=20", "--set", "train.schedule=constant",
           "--set", "train.warmup_steps=2"]
DEATH_SECONDS = 0.1  # docs/checkpoints_and_failures.md


class TrainTest(CommandTest):
    job = [*NANO, *JOB]

    def start(self, out, *arguments, before=(), **pipes):
        process = subprocess.Popen([*map(str, before), HANJI, "train", "--out", self.folder / out,
                                    *self.job, *map(str, arguments)], env=self.environment(),
                                   cwd=self.folder, text=True, start_new_session=True, **pipes)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """Where a test has failed: its ranks die with the launcher."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            pass

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

    def check_bits(self):
        """`run`, which broke, goes on to the bits of a run that was never disturbed."""
        done = max(line["step"] for line in self.read_lines("run", "run.jsonl") if "loss" in line)
        for out, more in (("run", ["--resume"]), ("whole", [])):
            process = self.start(out, "--steps", done + 20, *more, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT)
            text, _ = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, text)
        one, two = (self.read_json(out, "summary.json") for out in ("run", "whole"))
        for name in ("steps", "params_sha256", "state_sha256", "train_loss"):
            self.assertEqual(one[name], two[name], name)

    def check_cause(self, process, code, cause):
        """The run ends with `code`, and the last line of its launcher, all of which is returned, tells the cause."""
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, errors)
        self.assertRegex(errors.rstrip().split("\n")[-1], f"cause: {cause}")
        return errors

    def check_nothing_runs(self):
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                there = os.readlink(process / "cwd") == str(self.folder)
            except OSError:  # it has ended, or is not ours
                continue
            self.assertFalse(there, f"process {process.name} is left")


class Faults(TrainTest):
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


class OnAMesh(TrainTest):
    """Four ranks, dp=2 by tp=2: rank 3 is dp=1,tp=1."""

    job = [*NANO, "--mesh", "dp=2,tp=2", "--seed", "7"]
    CALL = r"operation \d+.*\w+\(.*elements.*\) at \w+\.cpp:\d+"

    def test_a_killed_rank_is_named_with_coordinates_and_call(self):
        process = self.start("run", "--steps", 1000000, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE)
        self.wait_for_steps("run", 5, process)
        os.kill(self.pid_of("run", 3), signal.SIGKILL)
        name = r"rank 3 \(host .*dp=1,tp=1, step \d+.*\)"
        self.check_cause(process, 128 + signal.SIGKILL,
                         rf"{name} was killed by SIGKILL; its last call was operation \d+, "
                         r"\w+\(.*\) at \w+\.cpp:\d+")
        for survivor in range(3):
            log = (self.folder / "run" / "logs" / f"rank.{survivor}").read_text()
            self.assertRegex(log, f"{name} (was killed by SIGKILL|died)")

    def test_a_rank_that_hangs_is_named_with_coordinates_and_call(self):
        process = self.start("run", "--steps", 1000000, "--set", "comm.deadline=10s",
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.wait_for_steps("run", 5, process)
        stopped = self.pid_of("run", 1)
        os.kill(stopped, signal.SIGSTOP)
        self.addCleanup(lambda: os.path.exists(f"/proc/{stopped}") and os.kill(stopped, signal.SIGKILL))
        time.sleep(2)
        seen = self.hanji("debug", self.folder / "run")
        self.assertRegex(seen.stdout, rf"rank 1 \(process {stopped}, dp=0,tp=1, step \d+.*\) is stopped")
        # The first deadline is that of a rank that waits for rank 1, or for one that does.
        self.check_cause(process, 5,
                         r".*waited \S+ s in .*at \w+\.cpp:\d+.*(absent|for) rank 1 \(dp=0,tp=1\): "
                         rf"its last call here was {self.CALL}")

    @unittest.skipUnless(os.geteuid() == 0, "mounts need root")
    def test_calls_that_differ_are_named_with_coordinates(self):
        # Rank 3 reads another text at the same path: it evaluates fewer samples than its peer.
        for rank in range(4):
            (self.folder / f"text{rank}").write_text("a rank in a row of ranks. " * (200 if rank == 3 else 800))
        (self.folder / "text").touch()
        script = 'mount --bind text$RANK text && exec "$0" "$@"'
        done = self.hanji("run", "-n", 4, "--logs", self.folder / "logs", "unshare", "-m", "sh", "-c", script,
                          HANJI, "train", "--text", self.folder / "text", "--out", self.folder / "run", "--steps", 2,
                          *self.job, expect=6)
        log = (self.folder / "logs" / "rank.2").read_text()
        for text in (done.stderr, log):
            self.assertRegex(text, rf"rank 2 \(dp=1,tp=0\) calls all_reduce\(.*\) at \w+\.cpp:\d+.*; "
                                   rf"rank 3 \(dp=1,tp=1\) calls \w+\(.*\) at \w+\.cpp:\d+.*: .* there and .* here")

    def test_traces_name_ranks_with_their_coordinates(self):
        self.hanji("train", "--out", self.folder / "run", *self.job, "--steps", 2)
        for rank, coordinates in enumerate(("dp=0,tp=0", "dp=0,tp=1", "dp=1,tp=0", "dp=1,tp=1")):
            first = self.read_json("run", "trace", f"rank.{rank}.json")["traceEvents"][0]
            self.assertEqual(first["args"]["name"], f"rank {rank} ({coordinates})")


class PhaseTest(TrainTest):
    """A rank of a real training is struck where it stands: in forward, in a collective, ..."""

    VICTIMS = {"forward": 1, "collective": 0, "optimizer": 1, "save": 0}  # rank 0 saves
    job = ENDLESS

    def start_alone(self, *arguments):
        """With a /dev/shm of its own, if we may: what is left in it is listed at the end."""
        before = []
        if os.geteuid() == 0:
            script = 'mount -t tmpfs none /dev/shm && "$@"; code=$?; ls -A /dev/shm >left; exit $code'
            before = ["unshare", "-m", "sh", "-c", script, "sh"]
        return self.start("run", "--steps", 1000000, *arguments, before=before,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def strike(self, phase, how):
        """What hanji_faults tells of it."""
        done = subprocess.run([FAULTS, "strike", self.folder / "run", str(self.VICTIMS[phase]),
                               phase, how], text=True, capture_output=True, timeout=150)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        struck = json.loads(done.stdout)
        if phase != "collective":  # those run in any span
            self.assertIn({"save": "checkpoint write"}.get(phase, phase), struck["in"])
        return struck

    def name_of(self, phase, struck):
        return (rf"rank {self.VICTIMS[phase]} \(host .*process {struck['pid']}.*"
                rf"step {struck['step']}, in {re.escape(struck['in'])}\)")

    def survivor(self, phase):
        return 1 - self.VICTIMS[phase]

    def survivors_log(self, phase):
        return (self.folder / "run" / "logs" / f"rank.{self.survivor(phase)}").read_text()

    def check_end(self, phase, struck, process):
        """Of a run whose rank was killed."""
        errors = self.check_cause(process, 128 + signal.SIGKILL,
                                  f"{self.name_of(phase, struck)} was killed by SIGKILL")
        self.assertRegex(errors, rf"rank {self.survivor(phase)} \(.*exited with code 6.*\(secondary\)")
        self.check_nothing_runs()
        if os.geteuid() == 0:
            self.assertEqual((self.folder / "left").read_text(), "", "in /dev/shm")


class KilledInEveryPhase(PhaseTest):
    def test_is_named_and_the_run_goes_on_to_the_same_bits(self):
        seconds = []
        for number, phase in enumerate(self.VICTIMS):
            process = self.start_alone(*(["--resume"] if number else []))
            struck = self.strike(phase, "KILL")
            print(f"killed in {phase}: named after {max(struck['seconds']) * 1e3:.1f} ms")
            seconds += struck["seconds"]
            self.check_end(phase, struck, process)
            self.assertRegex(self.survivors_log(phase), self.name_of(phase, struck))
        # Of so few, one may be late where other tests keep the cores busy.
        self.assertLess(sorted(seconds)[len(seconds) // 2], DEATH_SECONDS)
        self.check_bits()


class Promises(CommandTest):
    """A few trials each; `./dev check` makes a thousand kills."""

    def faults(self, *arguments):
        return subprocess.run([FAULTS, *map(str, arguments)], text=True, capture_output=True,
                              timeout=120)

    def test_survivors_name_a_rank_in_time(self):
        for verb, number in (("kills", 20), ("stops", 2), ("hosts", 4)):
            for _ in range(3):  # of so few, one may be late where other tests keep the cores busy
                done = self.faults(verb, number)
                print(done.stdout, end="")
                self.assertIn(" 0 not named by all", done.stdout)
                if done.returncode == 0:
                    break
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn(": kept", done.stdout)

    def test_watchdogs_three_times_as_late_as_promised_are_noticed(self):
        for verb, milliseconds in (("kills", 300), ("stops", 900), ("hosts", 3000)):
            done = self.faults(verb, 1, 1, milliseconds)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("NOT KEPT", done.stdout)
            self.assertIn(" 0 not named by all", done.stdout)


if __name__ == "__main__":
    unittest.main()
