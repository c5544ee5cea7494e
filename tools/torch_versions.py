#!/usr/bin/env python3
"""Checks that the sources that read torch compile against the headers of other libtorch folders.

    tools/torch_versions.py [--only TEXT] [--tests] [--alone] [--list] FOLDER...   each with include/, as site-packages/torch has

Takes the sources and their options from the compile commands of a build folder (--build, build/dev if
not given), and of those the ones that include a header of torch, directly or through headers of ours.
Sources that the build compiles together are checked together, and one by one where that fails: what is
proved is that the declarations that each source uses exist and accept its calls. A missing include that
a neighbour hides is found by --alone, which checks each by itself, and for the libtorch of the build by
`./dev check release`. Nothing is linked or run. Prints each source that fails and the number of
sources; exit code 1 if any fails.
"""
import argparse
import concurrent.futures
import functools
import json
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WITH_ARGUMENT = {"-o", "-MF", "-MT", "-MQ", "-include"}
INCLUDE = re.compile(r'^\s*#include\s+["<]([^">]+)[">]', re.M)
TORCH = re.compile(r"(torch|ATen|c10)/")


@functools.lru_cache(maxsize=None)
def includes(path):
    return INCLUDE.findall(path.read_text())


def reads_torch(path, seen):
    """Whether a file, or a file of the source tree that it reaches, includes a header of torch."""
    seen.add(path)
    for name in includes(path):
        if TORCH.match(name):
            return True
        ours = next((place for place in (ROOT / name, path.parent / name) if place.is_file()), None)
        if ours and ours not in seen and reads_torch(ours, seen):
            return True
    return False


def of_the_library(source):
    parts = source.relative_to(ROOT).parts
    return parts[0] == "hanji" and parts[1] != "test" and not re.search(r"_test(_rank)?$|_cases$|^fake_", source.stem)


def members(entry):
    """The sources that one command compiles: those that a group includes, or its own."""
    file = pathlib.Path(entry["directory"], entry["file"])
    return [ROOT / name for name in includes(file)] if "together" in file.parts else [file]


def sources_by_entry(build, only, tests):
    """(entry, sources) of all commands that compile sources to be checked."""
    found = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        sources = [source for source in members(entry)
                   if ROOT in source.parents and build not in source.parents and only in str(source.relative_to(ROOT))
                   and (tests or of_the_library(source)) and reads_torch(source, set())]
        if sources:
            found.append((entry, sources))
    return found


def command_for(entry, folder):
    """The entry's compiler and options, for the syntax of what it reads from its standard input."""
    words, skip = [], False
    for word in shlex.split(entry["command"]):
        if skip or word in WITH_ARGUMENT:
            skip = not skip
        elif word not in ("-c", "-MD", "-Winvalid-pch", entry["file"]) and not word.endswith(("ccache", "timed.sh", ";")):
            words.append(word)
    theirs = next(word for word in words if pathlib.Path(word.removeprefix("-I"), "ATen/core/Tensor.h").is_file())
    other = f"{folder}/include"
    return [word.replace(theirs.removeprefix("-I"), other) for word in words] + ["-fsyntax-only", "-x", "c++", "-"]


def errors_of(entry, sources, folder):
    """What the compiler says of the sources, compiled as one; empty if nothing."""
    text = "".join(f'#include "{source.relative_to(ROOT)}"\n' for source in sources)
    done = subprocess.run(command_for(entry, folder), cwd=entry["directory"], input=text, text=True,
                          capture_output=True)
    return done.stderr if done.returncode else ""


def check(entry, sources, folder, alone):
    """(name, errors) of all that fails of one entry."""
    name = ", ".join(str(source.relative_to(ROOT)) for source in sources)
    if len(sources) > 1 and not alone:
        together = errors_of(entry, sources, folder)
        if not together:
            return []
    failed = [(str(source.relative_to(ROOT)), errors) for source in sources
              if (errors := errors_of(entry, [source], folder))]
    return failed if failed or alone or len(sources) == 1 else [(f"together, though each passes alone: {name}", together)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="sources whose path holds this")
    parser.add_argument("--tests", action="store_true", help="tests, examples and benchmarks that the build compiles, too")
    parser.add_argument("--alone", action="store_true", help="each source by itself: takes some times as long")
    parser.add_argument("--list", action="store_true", help="print the sources and check nothing")
    parser.add_argument("--build", default=ROOT / "build/dev", type=pathlib.Path, help="a configured build folder")
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    if not (build / "compile_commands.json").is_file():
        parser.error(f"{build} has no compile_commands.json: run ./dev build first")
    if bool(arguments.folders) == arguments.list:
        parser.error("give folders of libtorch to check against, or --list")
    for folder in arguments.folders:
        if not (folder / "include/ATen/core/Tensor.h").is_file():
            parser.error(f"{folder} is no folder of libtorch: it has no include/ATen/core/Tensor.h")
    entries = sources_by_entry(build, arguments.only, arguments.tests)
    names = sorted({str(source.relative_to(ROOT)) for _, sources in entries for source in sources})
    if not names:
        parser.error(f"no source that reads torch has {arguments.only!r} in its path")
    if arguments.list:
        print("\n".join(names))
        return 0
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for folder in arguments.folders:
            checked = pool.map(lambda entry: check(*entry, folder.resolve(), arguments.alone), entries)
            failed = [failure for failures_of_entry in checked for failure in failures_of_entry]
            for name, errors in failed:
                print(f"{folder}: {name}\n{errors}")
            failures += len(failed)
            print(f"{folder}: {len(names)} sources, {len(failed)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
