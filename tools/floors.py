#!/usr/bin/env python3
"""Checks the house: an arrow goes only downwards, every source is built, and prints the budgets.

Fails on an include that the table of floors does not allow, on a private header of another
folder, on one that an installed header includes, on torch in the core, on a source or test that no CMakeLists names, on a wait that could
follow a clock that jumps, on a way from verify's one process to a Group or a reducer, on one from
the command to torch outside of its benchmarks and its doctor, and on a second source that sees its
parser.
"""
import collections
import pathlib
import re
import sys

FLOORS = {
    "base": "", "trace": "", "topology": "", "layout": "", "schedule": "layout",
    "cost": "schedule layout topology", "shm": "schedule trace", "launch": "shm topology trace",
    "plan": "cost schedule layout topology", "report": "plan cost schedule layout trace",
    "layers": "layout trace", "data": "layers plan layout trace", "compute": "cost topology trace", "lens": "plan layout trace",
    "comm": "shm cost schedule topology layout trace", "mesh": "comm layout",
    "checkpoint": "mesh comm layout trace", "world": "mesh comm launch shm cost topology trace",
    "parallel": "layers mesh comm lens compute schedule layout trace",
    "models": "layers parallel compute mesh plan layout",
    "train": "layers models parallel world checkpoint data lens compute mesh comm report plan launch cost "
             "schedule layout trace topology",
}
CORE = {"base", "trace", "topology", "layout", "schedule", "cost", "shm", "launch", "plan", "report"}
EVERYTHING = {"cli", "test"}
# A strategy whose tensors have the placements of another.
PLACED_BY = {"axial": "tensor", "context": "tensor"}
# The one process that ranks are compared with must not use their sums, directly or indirectly.
ALONE = ("hanji/train/one_process.cpp", "hanji/train/observe.cpp")
TOGETHER = re.compile(r"hanji/(comm|shm|mesh|world|parallel/(ddp|fsdp|gradients|server))/")
INCLUDE = re.compile(r'^\s*#include\s+["<]([^">]+)[">]', re.M)
FORBIDDEN_IN_HEADERS = re.compile(r"torch/(torch|extension)\.h|.*c10d/")
C10D_DOOR = re.compile(r"hanji/comm/(c10d|gloo)/internal/")
WALL_CLOCK = re.compile(r"system_clock|CLOCK_REALTIME|gettimeofday|wait_until|sleep_until")
WALL_CLOCK_DOORS = {"hanji/base/clock.cpp", "hanji/test/clock_jump.cpp"}
TORCH = re.compile(r"^(torch|ATen|c10)/")
KNOWS_TORCH = re.compile(r"hanji/cli/(bench|doctor)")  # of the command's sources
PARSER_DOOR = "hanji/cli/command_line.cpp"


def check_includes(path, floor, text):
    is_test = path.name.endswith("_test.cpp") or path.name.startswith("test_")
    allowed = {"base", floor, *FLOORS.get(floor, "").split()}
    for include in INCLUDE.findall(text):
        if TORCH.match(include):
            if floor in CORE:
                yield f"{path}: torch in the core ({include})"
            if path.suffix == ".h" and FORBIDDEN_IN_HEADERS.match(include) and not C10D_DOOR.match(str(path)):
                yield f"{path}: a header includes {include}"
        if not include.startswith("hanji/"):
            continue
        parts = include.split("/")
        target = parts[1]
        if len(parts) == 2 or floor in EVERYTHING or (is_test and target == "test"):
            continue
        if target not in allowed:
            yield f"{path}: floor {floor} may not include {include}"
        if "internal" in parts and not str(path).startswith("/".join(parts[: parts.index("internal")])):
            yield f"{path}: {include} is private to its folder"
        if floor == "parallel" == target and len(parts) > 3 and len(path.parts) > 3 and parts[2] not in (path.parts[2], "gradients", PLACED_BY.get(path.parts[2])):
            yield f"{path}: strategies do not include each other ({include})"


def reached_from(path, seen):
    """Our headers that a file includes, and those that they include; with the way to each."""
    for include in INCLUDE.findall(pathlib.Path(path).read_text()):
        if include.startswith("hanji/") and include not in seen:
            seen[include] = path
            reached_from(include, seen)
    return seen


def check_alone(path):
    seen = reached_from(path, {})
    for include in filter(TOGETHER.match, seen):
        yield f"{path}: reaches {include} by {seen[include]}; the one process must not know groups"


def check_command(path):
    if KNOWS_TORCH.match(str(path)):
        return
    for file in (str(path), *reached_from(path, {})):
        for include in filter(TORCH.match, INCLUDE.findall(pathlib.Path(file).read_text())):
            yield f"{path}: reaches {include} by {file}; the command knows torch in bench and doctor alone"
            return


def listed_headers(kind):
    """Headers that the CMakeLists of floors name as HEADERS or PRIVATE_HEADERS."""
    for listing in pathlib.Path("hanji").rglob("CMakeLists.txt"):
        for call in re.findall(r"^hanji_floor\((.*?)\)$", re.sub(r"#.*", "", listing.read_text()), re.M | re.S):
            for words in re.findall(rf"\b{kind} ([^A-Z]*)", call):
                yield from (str(listing.parent / word) for word in words.split())


def check_installed():
    installed = set(listed_headers("(?<!_)HEADERS")) | {"hanji/hanji.h"}
    for path in sorted(installed):
        for include in INCLUDE.findall(pathlib.Path(path).read_text()):
            if include.startswith("hanji/") and include not in installed:
                yield f"{path}: is installed, and {include}, which it includes, is not"


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0


def main():
    files = [p for p in pathlib.Path("hanji").rglob("*") if p.suffix in (".h", ".cpp")]
    mistakes = []
    lines = collections.defaultdict(list)
    for path in sorted(files):
        text = path.read_text()
        floor = path.parts[1] if len(path.parts) > 2 else None
        if floor:
            if floor not in FLOORS and floor not in EVERYTHING:
                mistakes.append(f"{path}: {floor} is not a floor of the table")
            mistakes += check_includes(path, floor, text)
        if floor == "cli" and path.suffix == ".cpp":
            mistakes += check_command(path)
        if str(path) != PARSER_DOOR and any(i.startswith("CLI/") for i in INCLUDE.findall(text)):
            mistakes.append(f"{path}: only {PARSER_DOOR} includes the parser")
        if str(path) not in WALL_CLOCK_DOORS and WALL_CLOCK.search(text):
            mistakes.append(f"{path}: a clock that jumps; use base/clock.h")
        lines["test" if path.name.endswith("_test.cpp") else path.suffix].append(text.count("\n"))
        if text.count("\n") > 600:
            mistakes.append(f"{path}: more than 600 lines")
        if path.suffix == ".cpp":
            listing = next((d / "CMakeLists.txt" for d in path.parents if (d / "CMakeLists.txt").exists()), None)
            name = str(path.relative_to(listing.parent)) if listing else ""
            if not listing or not re.search(rf"(^|[\s(]){re.escape(name)}([\s)]|$)", listing.read_text()):
                mistakes.append(f"{path}: no CMakeLists names it")
    mistakes += check_installed()
    for path in ALONE:
        mistakes += check_alone(path)
    for kind in (".h", ".cpp", "test"):
        sizes = lines[kind]
        print(f"{kind:5} {len(sizes):4} files, lines median {percentile(sizes, .5)}, "
              f"p90 {percentile(sizes, .9)}, max {max(sizes, default=0)}, all {sum(sizes)}")
    print("\n".join(mistakes), file=sys.stderr)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
