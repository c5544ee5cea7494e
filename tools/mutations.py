#!/usr/bin/env python3
"""Plants the faults of tests/mutations.toml, one at a time, and runs the test that must find each.

    tools/mutations.py [TEXT...]     those whose name contains a TEXT; all without one
    tools/mutations.py --list        the faults, then the tests that plant faults of their own

Works in build/mutations/tree, a copy of the tracked and new files as they are; the user's tree stays as it
is. Fails if a fault's test passes, if its text is not in the source exactly once, if it does not compile, or
if its test does not pass without it. A run that reaches its limit is a fault found: ctest would end it so.
"""
import argparse
import dataclasses
import fcntl
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/mutations"
TREE = FOLDER / "tree"
TABLE = "tests/mutations.toml"
LIMIT_SECONDS = 60  # of a test; each takes a few
BUILD_SECONDS = 1800
BEGUN = re.compile(r"^\[ RUN      \] (\S+)", re.M)
FAILED = re.compile(r"^\[  FAILED  \] ([^\s,]+)", re.M)
SKIPPED = re.compile(r"^\[  SKIPPED \] (\S+)", re.M)


class Mistake(Exception):
    """What is wrong with one fault of the table, or with its test."""


@dataclasses.dataclass
class Mutation:
    name: str
    file: str
    old: str
    new: str
    test: str = ""  # a filter of GoogleTest
    case: str = ""  # FILE.py CLASS.METHOD below tests/, end to end
    program: str = ""

    def __post_init__(self):
        self.floor = str(pathlib.PurePath(self.file).parent.relative_to("hanji")).removesuffix("/internal")
        first = "launch_control_plane" if self.floor == "launch/control_plane" else self.floor.split("/")[0]
        self.program = self.program or ("hanji_cli" if self.case else f"hanji_{first}_test")

    def find_in(self, text):
        count = text.count(self.old)
        if count != 1 or self.old == self.new:
            raise Mistake(f"its text is {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)


def read_table():
    table = tomllib.loads((ROOT / TABLE).read_text())
    mutations = [Mutation(**one) for one in table["mutation"]]
    names = [one.name for one in mutations]
    if len(set(names)) != len(names):
        sys.exit(f"{TABLE}: two faults have one name")
    return mutations, table["made_by_test"]


def copy_tree():
    """Makes the copy equal to the user's tree: what an interrupted run planted goes with it."""
    listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    files = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    kept = FOLDER / "files"
    former = set(kept.read_text().split("\0")) if kept.exists() else set()
    for name in former - files:
        (TREE / name).unlink(missing_ok=True)
    for name in files:
        source, copy = ROOT / name, TREE / name
        if copy.is_file() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    kept.write_text("\0".join(sorted(files)))
    copy_environment()


def copy_environment():
    """Links of .venv's files at the same place below the copy, so that the compiler's cache serves both trees."""
    copy = TREE / ".venv"
    if copy.is_symlink():
        copy.unlink()
    shutil.rmtree(copy, ignore_errors=True)
    if not (ROOT / ".venv").exists():
        return  # HANJI_TORCH names a libtorch
    made = subprocess.run(["cp", "-al", ROOT / ".venv", copy], stderr=subprocess.DEVNULL).returncode == 0
    if not made:  # another disk
        shutil.rmtree(copy, ignore_errors=True)
        copy.symlink_to(ROOT / ".venv")


def run(command, limit, **environment):
    """Exit code (None: ended at the limit) and output; no process of the group stays."""
    child = subprocess.Popen(command, cwd=TREE, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = child.communicate(timeout=limit)
        return child.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return None, child.communicate()[0].decode(errors="replace")
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)


def build(programs):
    code, output = run(["bash", "dev", "build", *sorted(programs)], BUILD_SECONDS)
    if code != 0:
        raise Mistake("does not compile:\n" + "\n".join(output.splitlines()[-30:]))


def run_test(program, test, case, limit=LIMIT_SECONDS):
    if case:
        file, method = case.split()
        return run([sys.executable, "-B", f"tests/{file}", "-v", method], limit,
                   HANJI_BINARY=str(TREE / "build/dev/bin/hanji"))
    found = list((TREE / "build/dev/hanji").rglob(program))
    if len(found) != 1:
        raise Mistake(f"{program} is no program of the build")
    return run([found[0], f"--gtest_filter={test}"], limit, GTEST_FAIL_FAST="1", OMP_WAIT_POLICY="passive")


def check_unmutated(mutations):
    """Programs in which a test of the table does not pass as it should, each with the reason."""
    wrong = {}
    by_run = {}
    for one in mutations:
        by_run.setdefault((one.program, one.case), []).append(one.test)
    for (program, case), tests in by_run.items():
        code, output = run_test(program, ":".join(sorted(set(tests))), case, LIMIT_SECONDS * len(tests))
        ran = set(BEGUN.findall(output)) - set(SKIPPED.findall(output))
        for test in tests:
            pattern = re.escape(test).replace(r"\*", ".*").replace(":", "|")
            if code != 0:
                reason = "does not pass without the fault:\n" + "\n".join(output.splitlines()[-30:])
                wrong[program, case, test] = f"its test {reason}"
            elif case and " ... skipped " in output:
                wrong[program, case, test] = "its test is skipped here"
            elif not case and not any(re.fullmatch(pattern, name) for name in ran):
                wrong[program, case, test] = f"{program} runs no test {test} here"
    return wrong


def name_of_failed(mutation, code, output):
    """The case that failed or did not end."""
    if mutation.case:
        name = mutation.case
    else:
        failed, begun = FAILED.findall(output), BEGUN.findall(output)
        name = failed[0] if failed else begun[-1] if begun else mutation.program
    return name + (" (by its limit)" if code is None else "")


def judge(mutation):
    """Plants one fault and returns the name of the test that found it."""
    path = TREE / mutation.file
    original = path.read_text()
    try:
        path.write_text(mutation.find_in(original))
        build([mutation.program])
        code, output = run_test(mutation.program, mutation.test, mutation.case)
    finally:
        path.write_text(original)
    if code == 0:
        raise Mistake(f"SURVIVES {mutation.test or mutation.case}")
    return name_of_failed(mutation, code, output)


def list_all(mutations, made_by_test):
    for one in mutations:
        print(f"{one.floor:22} {one.name:66} {one.test or one.case}")
    print("\nFaults that tests plant themselves:")
    missing = []
    for one in made_by_test:
        path = ROOT / one["file"]
        cases = re.findall(one["cases"], path.read_text() if path.exists() else "", re.M)
        print(f"{one['file']}: {one['what']} ({len(cases)} tests)")
        missing += [] if cases else [one["file"]]
    if missing:
        sys.exit(f"{TABLE}: no such tests in {', '.join(missing)}")


def line_of(outcome, mutation, test, seconds):
    return f"{outcome:8} {mutation.floor:22} {mutation.name:66} {test:70} {seconds:4.0f} s"


def judge_all(mutations, wrong):
    """Prints a line for each fault; what is wrong with those that were not found."""
    failures = []
    for one in mutations:
        begin = time.monotonic()
        try:
            if (reason := wrong.get((one.program, one.case, one.test))):
                raise Mistake(reason)
            outcome, test = "found", judge(one)
        except Mistake as error:
            outcome, test = "FAILED", str(error).splitlines()[0]
            failures.append(f"{one.name}: {error}")
        print(line_of(outcome, one, test, time.monotonic() - begin), flush=True)
    return failures


def run_all(mutations):
    FOLDER.mkdir(parents=True, exist_ok=True)
    lock = open(FOLDER / "lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    start = time.monotonic()
    copy_tree()
    try:
        build({one.program for one in mutations})
    except Mistake as error:
        sys.exit(f"the tree without a fault {error}")
    wrong = check_unmutated(mutations)
    print(f"built, and tests passed without a fault, in {time.monotonic() - start:.0f} s", flush=True)
    failures = judge_all(mutations, wrong)
    for failure in failures:
        print(f"\n{failure}")
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len(mutations) - len(failures)} of {len(mutations)} faults found in {time.monotonic() - start:.0f} s,"
          f" {children.ru_utime + children.ru_stime:.0f} s of them on a processor")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the faults and what plants others")
    parser.add_argument("text", nargs="*", help="only those whose name contains it")
    arguments = parser.parse_args()
    mutations, made_by_test = read_table()
    if arguments.list:
        return list_all(mutations, made_by_test)
    chosen = [one for one in mutations
              if not arguments.text or any(text in one.name for text in arguments.text)]
    if not chosen:
        sys.exit(f"{TABLE}: no fault has {' or '.join(arguments.text)} in its name; --list prints them")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return run_all(chosen)


if __name__ == "__main__":
    sys.exit(main())
