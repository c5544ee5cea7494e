"""How much memory of the host does a training take, by our strategies and by PyTorch's?

An MLP of equal units, AdamW, float32. Memory is the proportional set size (PSS) of all ranks added
up, so that a page which several ranks map counts once; its peak is looked for while the ranks work.
What stands beside it: 16 bytes per parameter, once on the host, and the gradients of two units on
every rank. Losses are compared with those of our data_parallel before anything is printed.
"""
import argparse
import contextlib
import pathlib
import re
import sys
import threading

from model import ROOT
from pairs import Ranks
from rows import Rows

OURS = ("zero3", "zero3:spawned", "deferred", "gathered", "zero1", "ddp")
PEERS = ("fully_shard", "ddp")


def proportional_bytes(job):
    """Of all processes of the job, the one that ranks are copies of too."""
    total = 0
    for process in job.processes:
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        for pid in [process.pid, *children.split()]:
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(re.search(r"^Pss:\s+(\d+) kB", text, re.M)[1]) * 1024
    return total


class Peak:
    """The most that was seen while the block ran; a look takes some milliseconds."""

    def __init__(self, job):
        self._job, self._over, self.bytes = job, threading.Event(), 0

    def __enter__(self):
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._over.wait(0.02):
            with contextlib.suppress(FileNotFoundError):
                self.bytes = max(self.bytes, proportional_bytes(self._job))

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
        self.bytes = max(self.bytes, proportional_bytes(self._job))


def measure(name, command, a):
    """(bytes before the module, peak until it is wrapped, peak of steps, losses)"""
    spawned = name.endswith(":spawned")
    if spawned:
        command = [*command, "--spawn", str(a.ranks)]
    job = Ranks(name, [*command, "--layers", str(a.layers), "--width", str(a.width)],
                1 if spawned else a.ranks)
    job.receive()
    start = proportional_bytes(job)
    with Peak(job) as wrapping:
        job.receive()
    with Peak(job) as steps:
        losses = job.ask(steps=a.steps)[0]["losses"]
    job.close()
    return start, wrapping.bytes, steps.bytes, losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--only", nargs="*", help="of ours, and of the peer's as peer:NAME")
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    if a.smoke:
        a.ranks, a.layers, a.width = 2, 4, 256
    unit = a.width * a.width + a.width
    parameters = a.layers * unit
    bound = 16 * parameters + 2 * 4 * unit * a.ranks
    rows.say(f"{parameters / 1e6:.1f} M parameters in {a.layers} units, {a.ranks} ranks; 16 bytes each "
             f"and gradients of 2 units per rank: {bound / 1e9:.3f} GB (10^9 bytes)")
    wanted = a.only or [*OURS, *(f"peer:{name}" for name in PEERS)]
    expected = None
    for name in wanted:
        if name.startswith("peer:"):
            command = [sys.executable, str(ROOT / "bench/memory_peer.py"), "--strategy", name[5:]]
        else:
            command = [str(ROOT / "build/dev/bin/bench/memory_rank"), "--strategy",
                       name.split(":")[0]]
        start, wrapping, steps, losses = measure(name, command, a)
        expected = expected or losses
        apart = max(abs(x - y) / abs(y) for x, y in zip(losses, expected, strict=True))
        assert apart < 1e-4, (name, losses, expected)
        rows.add(f"{name:18} start {start / 1e9:6.3f}, until wrapped {wrapping / 1e9:6.3f}, "
                 f"steps {steps / 1e9:6.3f} GB: {steps / bound:.2f} of the bound, "
                 f"{(steps - start) / bound:.2f} without the start",
                 question="memory", strategy=name, ranks=a.ranks, units=a.layers, parameters=parameters,
                 bound_bytes=bound, start_bytes=start, wrapping_bytes=wrapping, peak_bytes=steps)


if __name__ == "__main__":
    main()
