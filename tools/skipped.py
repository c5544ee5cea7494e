#!/usr/bin/env python3
"""What ctest could not run, with reasons, from its log: whole tests, and cases within tests.

    tools/skipped.py build/dev/Testing/Temporary/LastTest.log
"""
import re
import sys

TEST = re.compile(r"^\d+/\d+ Test: (.+)$", re.M)
GOOGLE = re.compile(r"^(?:.*/)?([\w.]+):\d+: Skipped\n(.*)$", re.M)
PYTHON = re.compile(r"^(?:setUpClass \(__main__\.)?(\w+)\)?(?: \(.*\))?(?:\n.*)? \.\.\. skipped (['\"])(.*)\2$",
                    re.M)


def cases(output):
    """(what, reason) in one test's output, each once."""
    found = GOOGLE.findall(output) + [(what, reason) for what, _, reason in PYTHON.findall(output)]
    return list(dict.fromkeys(found))


def main():
    with open(sys.argv[1], errors="replace") as file:
        parts = TEST.split(file.read())
    tests = list(zip(parts[1::2], parts[2::2]))
    skipped = [(test, what, reason) for test, output in tests for what, reason in cases(output)]
    not_run = sum("Test Pass Reason:\nSkip" in output for _, output in tests)
    passed = sum(bool(re.search(r"^Test Passed\.$", output, re.M)) for _, output in tests)
    if skipped:
        print(f"\n{passed} tests passed, {not_run} did not run. SKIPPED, not counted as passed:")
    for test, what, reason in skipped:
        print(f"  {test}: {what}: {reason}")


if __name__ == "__main__":
    main()
