#!/usr/bin/env python3
"""Runs the parts of ./dev gpu on a machine with one GPU, in an order of worth, within a time.

    tools/gpu_parts.py --build build/gpu --out OUT [--device cuda] [--seconds 480] [PART...]
    tools/gpu_parts.py --list                    parts with their estimates and limits
    tools/gpu_parts.py --merge OUT/results.json [--commit HASH]   into docs/benchmarks.json, benchmarks.md and gpus.md
    tools/gpu_parts.py --render                  docs/gpus.md's table again

A part has a limit and a log of its own, and the next one begins whatever has become of it. OUT has table.txt, results.json
and logs.tar.gz, written after every part: the command may be killed at any time. Exit code 1: a part failed.
--device cpu lets the CPU stand for the GPU, which tries the parts themselves; such rows are not merged.
"""
import argparse
import json
import pathlib
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
import gpu_merge
import machine
from gpu_part_list import PARTS
from gpu_run import Bench, Failed, Skipped, gpu_query


class Stopped(Exception):
    """SIGTERM or SIGINT."""


def described(device):
    """The device whose rows these are."""
    if device != "cuda":
        return {"kind": device, "name": ""}
    return {"kind": device, "name": gpu_query("name"), "driver": gpu_query("driver_version"),
            "memory_mib": gpu_query("memory.total")}


class Runner:
    """Parts in their order, each within its limit and all within `a.seconds` of `clock`."""

    def __init__(self, a, scratch, clock=time.monotonic):
        self.a, self.scratch, self.clock = a, scratch, clock
        self.began = clock()
        self.results = []
        (scratch / "logs").mkdir(parents=True)
        self.about = {**machine.provenance(), "device": described(a.device), "seconds": a.seconds}

    def run(self, parts):
        waiting = list(parts)
        try:
            while waiting:
                self.results.append(self.run_one(waiting.pop(0)))
                self.write(waiting)
        except Stopped:
            pass  # the part under way is told by run_one(), those that wait by write()
        self.write(waiting)
        return any(one["result"] == "failed" for one in self.results)

    def run_one(self, part):
        left = self.a.seconds - (self.clock() - self.began)
        told = {"part": part.name, "result": "not run", "seconds": 0.0, "figure": "", "rows": []}
        if part.gpu_only and self.a.device != "cuda":
            return self.shown({**told, "result": "skipped", "figure": part.gpu_only})
        if left < part.seconds:
            return self.shown({**told, "figure": f"{left:.0f} s were left, and it takes about {part.seconds}"})
        begin = self.clock()
        with open(self.scratch / "logs" / f"{part.name}.log", "w", errors="replace") as log:
            work = self.scratch / "work"
            work.mkdir(exist_ok=True)
            (work / part.name).mkdir()
            bench = Bench(self.a, work / part.name, time.monotonic() + min(part.limit, left), log)
            told |= self.outcome(part, bench)
            shutil.rmtree(work, ignore_errors=True)
        return self.shown({**told, "seconds": round(self.clock() - begin, 1), "rows": bench.rows})

    def shown(self, told):
        print(line_of(told), flush=True)
        return told

    def outcome(self, part, bench):
        try:
            return {"result": "ok", "figure": part.run(bench)}
        except Skipped as why:
            return {"result": "skipped", "figure": str(why)}
        except Stopped:
            self.results.append({"part": part.name, "result": "failed", "seconds": 0.0, "figure": "stopped by a signal",
                                 "rows": bench.rows})
            raise
        except Exception as why:  # the others go on whatever this one met
            bench.say(traceback.format_exc())
            return {"result": "failed", "figure": f"{'' if isinstance(why, Failed) else type(why).__name__ + ': '}{why}"}

    def write(self, waiting):
        out = self.a.out
        rest = [{"part": part.name, "result": "not run", "seconds": 0.0, "figure": "the command ended before", "rows": []}
                for part in waiting]
        parts = self.results + rest
        (out / "table.txt").write_text(table(parts))
        (out / "results.json").write_text(json.dumps({**self.about, "parts": parts}, indent=1) + "\n")
        with tarfile.open(out / "logs.tar.gz", "w:gz") as packed:
            packed.add(self.scratch / "logs", "logs")


def line_of(one):
    figure = " ".join(one["figure"].split())
    return f"{one['part']:15} {one['result']:8} {one['seconds']:6.1f} s  {figure}"


def table(parts):
    return "\n".join([f"{'part':15} {'result':8} {'seconds':>8}  figure, or the reason", *map(line_of, parts)]) + "\n"


def stop(*_):
    raise Stopped


def chosen(names):
    known = [part.name for part in PARTS]
    for name in names:
        if name not in known:
            sys.exit(f"no part is called {name}: {', '.join(known)}")
    return [part for part in PARTS if not names or part.name in names]


def arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), default=machine.ROOT / "build/gpu")
    parser.add_argument("--out", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--set", action="append", default=[], help="a key of every run on the device")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--merge", type=pathlib.Path, metavar="RESULTS")
    parser.add_argument("--commit", help="that the rows are of, where the machine had no git")
    parser.add_argument("--render", action="store_true")
    return parser.parse_args(argv)


def main(argv=None, parts=None):
    a = arguments(argv)
    if a.merge or a.render:
        return gpu_merge.merge(a.merge, a.commit) if a.merge else gpu_merge.render()
    if a.list:
        for part in PARTS:
            print(f"{part.name:15} about {part.seconds:3} s, at most {part.limit:3}  {part.shows}")
        return 0
    if a.out is None:
        sys.exit("--out FOLDER is missing: where table.txt, results.json and logs.tar.gz go")
    todo = parts or chosen(a.parts)
    a.out.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    with tempfile.TemporaryDirectory(prefix="hanji-gpu-") as folder:
        failed = Runner(a, pathlib.Path(folder)).run(todo)
    print("\n" + (a.out / "table.txt").read_text(), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
