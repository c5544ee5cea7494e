#!/usr/bin/env python3
"""Two builds of the command on one machine: the same jobs must end in the same bits, and at the same speed.

    tests/same_hashes.py BEFORE AFTER [--only TEXT] [--pairs 10]

Every job runs by both on one text, with the kernels that the first one measured. Final states, losses and
what bytes and calls are off the plan by must be equal; a job that one of them refuses, the other must
refuse too. Then `--pairs` pairs of jobs run interleaved, and the ratio of their median steps is printed (below 1:
AFTER is faster).
"""
import argparse
import itertools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
RANKS = (1, 2, 3, 4)
SHARDED = ("ddp", "server", "zero1", "zero2", "zero3", "hsdp")
VARIANTS = {
    "plain": {},
    "dropout": {"model.dropout": 0.1},
    "recompute": {"compute.recompute": "true", "model.dropout": 0.1},
    "accumulate": {"train.micro_batch": 2, "comm.bucket_bytes": 65536},
}
TIMED = {"step": {"parallel.data": "ddp"}, "fsdp": {"parallel.data": "zero3"}}


def settings_of(preset, bits, ranks, data, variant):
    settings = {"model.preset": preset, "train.bits": bits, "parallel.data": data,
                "train.global_batch": 12, "train.evaluate_batches": 2, **VARIANTS[variant]}
    if data == "hsdp":
        settings["mesh.fsdp"] = 2
    return {**settings, "run.ranks": ranks, "train.steps": 20, "train.seed": 5}


def jobs():
    for preset, bits, ranks, data in itertools.product(
            ("nano", "char"), ("run", "stable"), RANKS, SHARDED):
        if data == "hsdp" and ranks % 2 != 0:
            continue
        variants = VARIANTS if preset == "nano" and ranks == 2 else ("plain",)
        for variant in variants:
            yield f"{preset} {bits} {ranks} {data} {variant}", settings_of(
                preset, bits, ranks, data, variant)


def train(binary, settings, folder, cache):
    command = [binary, "train", "--out", folder]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "HANJI_CACHE_DIR": str(cache)})
    if done.returncode != 0:
        return {"refused": done.returncode, "why": done.stderr.strip().splitlines()[-1:]}
    return json.loads((folder / "summary.json").read_text())


def common_settings(binary, root):
    """A text that is in neither build, and kernels measured once, by the build before."""
    text = root / "text.txt"
    text.write_text("".join(path.read_text() for path in sorted(DOCS.glob("*.md"))))
    settings = {"data.text": text}
    told = train(binary, {**settings_of("nano", "run", 1, "ddp", "plain"), **settings},
                 root / "kernels", root / "cache")
    kernels = told["plan"]["kernels"]
    return {**settings, **{f"compute.{name}": kernels[name] for name in ("gemm", "attention")}}


def facts(summary):
    if "refused" in summary:
        return {"exit": summary["refused"]}
    told = summary["prediction"]
    same = ("state_sha256", "params_sha256", "train_loss", "validation_loss")
    return {**{name: summary[name] for name in same},
            # Off the plan, which chooses algorithms by rates of the minute; one rank has none.
            **{name: told[name]["measured"] - told[name]["predicted"]
               for name in ("wire_bytes_per_step", "collectives_per_step") if name in told}}


def compare_bits(a, root, common):
    apart, count, refused = [], 0, 0
    for number, (name, settings) in enumerate(jobs()):
        if a.only not in name:
            continue
        found = [facts(train(binary, {**settings, **common}, root / f"{side}{number}", root / "cache"))
                 for side, binary in (("before", a.before), ("after", a.after))]
        count += 1
        refused += "exit" in found[0]
        if found[0] != found[1]:
            apart.append(name)
            print(f"DIFFERS {name}\n  before {found[0]}\n  after  {found[1]}", flush=True)
    print(f"{count} jobs, {refused} of them refused by both, {len(apart)} differ")
    return not apart


def compare_speed(a, root, common):
    """Who goes first changes with every pair."""
    for name, which in TIMED.items():
        settings = {**settings_of("char", "run", 2, "ddp", "plain"), **which, **common,
                    "train.steps": 60}
        ratios = []
        for pair in range(a.pairs):
            sides = [("before", a.before), ("after", a.after)]
            seconds = {side: train(binary, settings, root / f"{name}{pair}{side}", root / "cache")
                       ["step_seconds_median"] for side, binary in sides[::1 if pair % 2 else -1]}
            ratios.append(seconds["after"] / seconds["before"])
        ratio = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{name}: after / before {ratio:.3f}, {a.pairs} pairs from {min(ratios):.3f} to "
              f"{max(ratios):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--only", default="", help="jobs whose name contains this, as 'nano run 2'")
    parser.add_argument("--pairs", type=int, default=10, help="of timed jobs; 0: none")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hanji-same-") as folder:
        root = pathlib.Path(folder)
        common = common_settings(a.before, root)
        same = compare_bits(a, root, common)
        if a.pairs > 0:
            compare_speed(a, root, common)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
