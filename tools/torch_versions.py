#!/usr/bin/env python3
"""Whether the sources that read torch compile against the headers of other libtorch folders.

tools/torch_versions.py [--only TEXT] FOLDER...   each with include/, as site-packages/torch has

Checks the syntax of every source of the library that build/dev compiles against the libtorch of
.venv, without linking: what a build against another one would say about our code. Prints each that fails; exit code 1 if any.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WITH_ARGUMENT = {"-o", "-MF", "-MT", "-MQ", "-include"}


def reads_torch(path):
    floor = path.relative_to(ROOT).parts[1]
    return floor not in ("base", "trace", "topology", "layout", "schedule", "cost", "shm", "launch",
                         "plan", "report", "cli") and not path.name.endswith("_test.cpp")


def command_for(entry, folder):
    words, skip = [], False
    for word in shlex.split(entry["command"]):
        if skip or word in WITH_ARGUMENT:
            skip = not skip
        elif word not in ("-c", "-MD", "-Winvalid-pch") and not word.endswith("ccache"):
            words.append(word)
    torch = re.compile(r"[^ ]*/site-packages/torch/include")
    return [torch.sub(f"{folder}/include", word) for word in words] + ["-fsyntax-only"]


def check(entry, folder):
    done = subprocess.run(command_for(entry, folder), cwd=entry["directory"], text=True, capture_output=True)
    return entry["file"], done.returncode, done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="sources whose path holds this")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    entries = [entry for entry in json.loads((ROOT / "build/dev/compile_commands.json").read_text())
               if (ROOT / "hanji") in pathlib.Path(entry["file"]).parents
               and reads_torch(pathlib.Path(entry["file"])) and arguments.only in entry["file"]]
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for folder in arguments.folders:
            for file, code, errors in pool.map(lambda entry: check(entry, folder.resolve()), entries):
                if code:
                    failures += 1
                    print(f"{folder}: {file}\n{errors}")
            print(f"{folder}: {len(entries)} sources")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
