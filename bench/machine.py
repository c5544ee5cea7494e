"""What stands beside every figure: the processor, the commit, the date."""
import datetime
import importlib.metadata
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Instructions that decide which library's matmuls are fast, the most capable first.
INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")


def processor():
    """Model, instructions that matter here, and the cores that this process may use."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    field = {name.strip(): value.strip() for name, _, value in
             (line.partition(":") for line in text.split("\n\n")[0].splitlines())}
    flags = set(field.get("flags", field.get("Features", "")).split())
    return {"model": field.get("model name", "unknown"),
            "family": "-".join(field.get(name, "?") for name in ("cpu family", "model", "stepping")),
            "instructions": [name for name in INSTRUCTIONS if name in flags],
            "cores": len(os.sched_getaffinity(0))}


def key_of(processor):
    return f"{processor['model']} {processor['family']}, {processor['cores']} cores"


def commit():
    """The commit, with "+" where tracked files other than the page itself differ from it."""
    def git(*arguments):
        try:
            return subprocess.run(["git", *arguments], cwd=ROOT, text=True, capture_output=True).stdout.strip()
        except FileNotFoundError:  # a machine that has a copy of the tree alone
            return ""
    changed = [path for path in git("diff", "--name-only", "HEAD").splitlines()
               if not re.fullmatch(r"docs/benchmarks\.(md|json)", path)]
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if changed else "")


def torch_version():
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:  # hanji was built with another libtorch than this Python's
        return "unknown"


def provenance():
    return {"commit": commit(), "date": datetime.date.today().isoformat(), "processor": processor(),
            "torch": torch_version(), "load_before": round(os.getloadavg()[0], 2)}
