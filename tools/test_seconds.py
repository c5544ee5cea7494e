#!/usr/bin/env python3
"""CPU seconds of each test that ctest knows, and of the costliest cases within them.

    tools/test_seconds.py BUILD [REGEX]     runs them, two at a time, and prints both tables and what was skipped; 1 if one fails

A test's seconds are those of all its processes that ended; a case's, those since the case before it. A
hundredth of a second is below what the host counts.
"""
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import threading

import skipped

END = re.compile(r"^\[ +(?:OK|FAILED|SKIPPED) +\] (\S+) \(\d+ ms\)|^test_\w+ \((?:__main__\.)?([\w.]+)\)")
TICKS = os.sysconf("SC_CLK_TCK")
NUM_CASES = 60


def seconds_so_far(process):
    """User and system, its own and of its children that ended."""
    with open(f"/proc/{process}/stat") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:15])) / TICKS


class Test:
    def __init__(self, told):
        properties = {one["name"]: one["value"] for one in told["properties"]}
        self.name, self.command = told["name"], told.get("command", [])
        self.folder, self.limit = properties["WORKING_DIRECTORY"], properties.get("TIMEOUT", 1500)
        self.cost = properties.get("COST", 0)
        self.skip_code = properties.get("SKIP_RETURN_CODE")
        self.passes_with = properties.get("PASS_REGULAR_EXPRESSION")
        self.environment = {**os.environ, "OMP_WAIT_POLICY": "passive",
                            **dict(one.split("=", 1) for one in properties.get("ENVIRONMENT", []))}
        self.cases, self.output, self.skipped, self.seconds, self.passed = [], [], [], 0.0, False

    def run(self):
        read, write = os.pipe()
        process = subprocess.Popen(self.command, cwd=self.folder, env=self.environment, stdout=write,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        os.close(write)
        limit = threading.Timer(self.limit, os.killpg, (process.pid, signal.SIGKILL))
        limit.start()
        with os.fdopen(read, errors="replace") as lines:
            self._follow(lines, process.pid)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        limit.cancel()
        self.seconds = used.ru_utime + used.ru_stime
        text = "".join(self.output)
        self.skipped = skipped.cases(text)
        self.passed = (re.search("|".join(self.passes_with), text) is not None if self.passes_with
                       else process.returncode in (0, self.skip_code))

    def _follow(self, lines, process):
        before = 0.0
        for line in lines:
            self.output.append(line)
            if end := END.match(line):
                now = seconds_so_far(process)
                self.cases.append([end[1] or end[2], now - before])
                before = now


def tests_of(build, pattern):
    told = subprocess.run(["ctest", "--show-only=json-v1", *(["-R", pattern] if pattern else [])],
                          cwd=build, check=True, capture_output=True, text=True).stdout
    return sorted(map(Test, json.loads(told)["tests"]), key=lambda test: -test.cost)


def main():
    tests = tests_of(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
    with concurrent.futures.ThreadPoolExecutor(2) as two:
        for test in two.map(lambda test: test.run() or test, tests):
            if not test.passed:
                print("".join(test.output[-60:]) + f"FAILED: {test.name}", flush=True)
    print("CPU s  test")
    for test in sorted(tests, key=lambda test: -test.seconds):
        print(f"{test.seconds:5.1f}  {test.name}")
    print(f"{sum(test.seconds for test in tests):5.0f}  all of them\n\nCPU s  case")
    cases = [(seconds, test.name, name) for test in tests for name, seconds in test.cases]
    for seconds, test, name in sorted(cases, reverse=True)[:NUM_CASES]:
        print(f"{seconds:5.2f}  {test}  {name}")
    print("\nSKIPPED, not counted as passed:")
    for test in tests:
        for what, reason in test.skipped:
            print(f"  {test.name}: {what}: {reason}")
    return 0 if all(test.passed for test in tests) else 1


if __name__ == "__main__":
    sys.exit(main())
