"""A rank of `hanji train` that the kernel kills for memory, in a cgroup that this test makes."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

from command import HANJI
from faults_test import ENDLESS, TrainTest

SKIPPED = 77  # For ctest.


class MemoryGroup:
    """A memory cgroup of either version below our own, gone at the end."""

    def __init__(self):
        paths = dict((line.split(":")[1], line.strip().split(":")[2])
                     for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines())
        self.is_v1 = any("memory" in names.split(",") for names in paths)
        top = pathlib.Path("/sys/fs/cgroup") / ("memory" if self.is_v1 else "")
        path = next((path for names, path in paths.items() if "memory" in names.split(",")),
                    paths.get("", "/"))
        own = top / path.lstrip("/")
        self.folder = (own if own.is_dir() else top) / f"hanji-test-{os.getpid()}"
        self.limit = "memory.limit_in_bytes" if self.is_v1 else "memory.max"
        self.events = "memory.oom_control" if self.is_v1 else "memory.events"

    @classmethod
    def missing(cls):
        """Why there can be none here; empty if there can."""
        try:
            with cls() as group:
                if not (group.folder / group.limit).exists():
                    return f"{group.folder} has no {group.limit}: no memory controller for it"
                return ""
        except OSError as error:
            return f"no memory cgroup can be made: {error}"

    def __enter__(self):
        self.folder.mkdir()
        return self

    def __exit__(self, *_):
        deadline = time.monotonic() + 10
        while True:
            try:
                return self.folder.rmdir()
            except OSError:  # the kernel still lets its last process go
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def set_limit(self, size):
        (self.folder / self.limit).write_text(str(size))

    def take(self, pid):
        """What the process has stays charged elsewhere."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def with_all(self, *command):
        """The command in this group, and what it starts."""
        return ["sh", "-c", f'echo $$ >{self.folder}/cgroup.procs && exec "$@"', "sh",
                *map(str, command)]


class KilledForMemory(TrainTest):
    job = ENDLESS

    def test_memory_is_named_as_the_cause_and_the_run_goes_on(self):
        process = self.start("run", "--steps", 1000000, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE)
        self.wait_for_steps("run", 20, process)
        victim = self.pid_of("run", 1)
        with MemoryGroup() as group:
            group.set_limit(16 << 10)
            group.take(victim)
            _, errors = process.communicate(timeout=60)
            events = (group.folder / group.events).read_text()
        self.assertRegex(events, r"(?m)^oom_kill 1$")
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, errors)
        # Version 2 counts for the groups above too, the launcher's among them; version 1 does not.
        where = "on this machine .*vmstat" if group.is_v1 else "of this process's cgroup .*events"
        told = (rf"rank 1 \(host .*process {victim}.*was killed by SIGKILL: out_of_memory: the "
                rf"kernel's OOM killer ended a process {where}: oom_kill \d+ -> \d+")
        self.assertRegex(errors.rstrip().split("\n")[-1], "cause: " + told)
        self.assertRegex((self.folder / "run" / "logs" / "rank.0").read_text(), told)
        self.check_nothing_runs()
        self.check_bits()

    def process(self):
        """Bytes of a process that loads this libtorch: private ones, and those of pages of its files."""
        return json.loads(self.hanji("plan", "--json", *self.job).stdout)["process"]

    def test_a_job_of_which_a_cgroup_cannot_hold_the_processes_is_refused_before_any_rank(self):
        process = self.process()
        self.assertGreater(process["private_bytes"], 16 << 20)
        # What the launcher needs itself, and half of what two ranks do; pages of files may be counted elsewhere.
        with MemoryGroup() as group:
            group.set_limit(2 * process["private_bytes"] + process["library_bytes"])
            done = subprocess.run(
                group.with_all(HANJI, "train", *self.job, "--out", "run", "--steps", 2),
                text=True, capture_output=True, timeout=60, cwd=self.folder, env=self.environment())
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn(str(group.folder / group.limit), done.stderr)
        self.assertRegex(done.stderr, "2 ranks of [0-9.]+ MB each, program and libtorch")
        self.assertFalse((self.folder / "run" / "logs").exists())
        self.check_nothing_runs()

    def test_the_cgroup_of_a_whole_job_tells_its_count_and_its_limit(self):
        grows = 'test $RANK = 0 && exec sleep 60; exec "$0" -c "all = b\'x\' * (4 << 30)"'
        # MiB: when they are full, the rank is larger than the launcher, or the kernel would end the latter.
        limit = 2 * sum(self.process().values()) // 2**20 + 100
        with MemoryGroup() as group:
            group.set_limit(limit << 20)
            done = subprocess.run(
                group.with_all(HANJI, "run", "--ranks", 2, "sh", "-c", grows, sys.executable),
                text=True, capture_output=True, timeout=60, cwd=self.folder,
                env=self.environment())
        self.assertEqual(done.returncode, 128 + signal.SIGKILL, done.stderr)
        self.assertRegex(
            done.stderr.rstrip().split("\n")[-1],
            r"cause: rank 1 \(.*out_of_memory: the kernel's OOM killer ended a process of this "
            rf"process's cgroup \({re.escape(str(group.folder / group.events))}: "
            rf"oom_kill 0 -> 1, limit {limit * 2**20 / 1e6:.0f} MB\); the rank's peak was")


if __name__ == "__main__":
    reason = MemoryGroup.missing()
    if reason:
        print(f"SKIPPED: {reason}")
        sys.exit(SKIPPED)
    unittest.main()
