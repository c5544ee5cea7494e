"""What a part of ./dev gpu works with: commands in time, runs of `hanji train`, their losses, the device's memory."""
import importlib.util
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import sysconfig
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20


class Failed(Exception):
    """A part did not show what it is there for."""


class Skipped(Exception):
    """What a part needs is not here."""


def gpu_query(field):
    """What nvidia-smi says of the first GPU, or "" where there is none."""
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"], text=True,
                              capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout.strip() else ""


def living_of_session(leader):
    """The processes of a session that have not ended."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(of) == leader and state != "Z":
            found.append(int(stat.parent.name))
    return found


def kill_session(leader):
    for process in living_of_session(leader):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


def last_words(text):
    """What an output says of its end, for a reason of one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    mistakes = [i for i, line in enumerate(lines) if "nothing was started" in line]
    if mistakes:
        return " ".join(lines[max(0, mistakes[0] - 3):])[-400:]
    told = [line for line in lines if re.search(r"(?i)error|fail|refus|cannot|needs", line)]
    return ((told or lines or ["no output"])[-1])[:400]


def root_mean_square(values):
    return math.sqrt(sum(value * value for value in values) / len(values))


class Bench:
    """One part at work in a folder of its own. `deadline` is of time.monotonic(); what still runs then is killed."""

    def __init__(self, a, scratch, deadline, log):
        self.a, self.scratch, self.deadline, self.log = a, scratch, deadline, log
        self.cache = scratch.parent.parent / "cache"  # measured once for all parts
        self.on_gpu = a.device == "cuda"
        self.rows = []

    def row(self, **values):
        self.rows.append(values)

    def say(self, text):
        self.log.write(text + "\n")
        self.log.flush()

    def program(self, *parts):
        path = self.a.build.joinpath(*parts)
        if not path.exists():
            raise Skipped(f"{path} was not built")
        return str(path)

    def environment(self, **more):
        # Where the CPU stands for the device others may have its cores, and OpenMP's threads would spin for them.
        passive = {} if self.on_gpu else {"OMP_WAIT_POLICY": "passive"}
        return {**os.environ, "HANJI_CACHE_DIR": str(self.cache), **passive, **more}

    def left(self):
        return max(0.0, self.deadline - time.monotonic())

    def start(self, command, **more):
        """A process that leads a session of its own, whose output goes to the log."""
        self.say("$ " + " ".join(map(str, command)))
        return subprocess.Popen(list(map(str, command)), cwd=self.scratch, env=self.environment(**more), text=True,
                                stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)

    def run(self, command, expect=0, **more):
        """The output of a command, which is in the log too."""
        self.say("$ " + " ".join(map(str, command)))
        process = subprocess.Popen(list(map(str, command)), cwd=self.scratch, env=self.environment(**more), text=True,
                                   errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            output, _ = process.communicate(timeout=self.left())
        except subprocess.TimeoutExpired:
            kill_session(process.pid)
            output, _ = process.communicate()
            self.say(output)
            raise Failed(f"still running at its limit: {' '.join(map(str, command[:3]))}; {last_words(output)}") from None
        finally:
            kill_session(process.pid)
        self.say(output)
        if expect is not None and process.returncode != expect:
            raise Failed(f"exit code {process.returncode}: {last_words(output)}")
        return output

    def hanji(self, *arguments, **keywords):
        return self.run([self.program("bin", "hanji"), *arguments], **keywords)

    def python(self, script, *arguments, **keywords):
        return self.run([sys.executable, "-B", ROOT / script, *arguments], **keywords)

    def needs(self, module, why):
        """Skips the part where the runner's Python lacks a module; nothing is installed."""
        if importlib.util.find_spec(module) is None:
            raise Skipped(f"this python3 has no {module}, {why}")

    def needs_headers_of_python(self):
        """Skips a part that compiles code for the runner's Python where that has no headers."""
        if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
            raise Skipped("this python3 has no Python.h, which torch.compile builds with")

    def train(self, name, settings, steps, device=None, resume=False):
        """A run of one rank; its folder."""
        folder = self.scratch / name
        if resume:
            self.hanji("train", "--resume", "--out", folder, "--steps", steps)
            return folder
        device = device or self.a.device
        self.hanji("train", "--out", folder, "--ranks", 1, "--steps", steps, "--device", device,
                   *as_arguments([*PLAIN, *settings]))
        return folder

    def on_device(self, name, settings, steps):
        """The same on the device that is tried."""
        return self.train(name, [*settings, *self.device_settings(), *self.a.set], steps)

    def device_settings(self):
        # Where a CPU stands for the device it takes kernels that the reference does not, so that bounds are tried.
        return [] if self.on_gpu else ["compute.gemm=mkl", "compute.attention=flash"]

    def reference(self, name, settings, steps):
        """The same on the CPU, by kernels that differ from those of device_settings()."""
        if (self.scratch / name / "summary.json").exists():
            return self.scratch / name
        named = not self.on_gpu and "compute.dtype=float64" not in settings
        kernels = ["compute.gemm=onednn", "compute.attention=math"] if named else []
        slow = ["compute.slow_dtype=true"] if "compute.dtype=bf16" in settings else []
        return self.train(name, [*settings, *kernels, *slow], steps, device="cpu")

    def memory_used(self):
        """Bytes of the GPU that are taken, by all processes."""
        used = gpu_query("memory.used")
        if used.isdigit():
            return int(used) * MIB
        free, total = self.run([sys.executable, "-c", "import torch; print(*torch.cuda.mem_get_info())"]).split()[-2:]
        return int(total) - int(free)


# What no part needs: evaluations and checkpoints but the last.
PLAIN = ["train.evaluate_every=0", "train.evaluate_batches=1", "checkpoint.every=0", "train.schedule=constant",
         "train.warmup_steps=2"]


def as_arguments(settings):
    return [word for setting in settings for word in ("--set", setting)]


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def losses_of(folder):
    """By step, from run.jsonl."""
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def losses_bound(own, exact):
    """How far losses may be from those in float64: root mean squares over the steps, in nats.

    Device and CPU round the same values to the same dtype and differ in the order in which a product, a softmax or a
    mean is added up. The error of a sum of K terms grows as sqrt(K) where one accumulator takes them all, and as
    sqrt(K / 16) where the 16 lanes of a vector share them: a factor of 4 between the best and the worst order. The CPU's
    own distance from float64 is one draw, and so is the device's; a step amplifies both, so steps are not independent,
    and with few of them one draw may be small by luck: another factor of 4. A mean over many targets may be nearer than
    that by luck alone, so it is not held below what the worst order gives: sqrt(K) roundings of 2^-24 in a product of
    K = 4096 terms (4 x 768 in gpt2, 9 x 512 in resnet18), and sqrt(16) of that for 16 products one after the other.
    A wrong mask, gradient or initial value is orders beyond both.
    """
    return max(16 * own, 4 * math.sqrt(4096) * 2.0**-24 * root_mean_square(exact))


def compare_losses(bench, name, settings, dtype, steps):
    """Trains on both and holds the device's losses to the bound; (the device's folder, apart, bound)."""
    exact = losses_of(bench.reference(f"{name}-exact", [*settings, "compute.dtype=float64"], steps))
    settings = [*settings, f"compute.dtype={dtype}"]
    if dtype == "bf16" and not bench.on_gpu:
        settings.append("compute.slow_dtype=true")
    host = losses_of(bench.reference(f"{name}-{dtype}-cpu", [s for s in settings if "slow" not in s], steps))
    folder = bench.on_device(f"{name}-{dtype}", settings, steps)
    found = losses_of(folder)
    if not len(found) == len(host) == len(exact) == steps:
        raise Failed(f"{name} {dtype}: {len(found)} losses of {steps} steps")
    own, apart = (root_mean_square([x - y for x, y in zip(side, exact)]) for side in (host, found))
    bound = losses_bound(own, exact)
    bench.row(question="losses", model=name, dtype=dtype, steps=steps, apart=apart, cpu_apart=own, at_most=bound)
    # Where the CPU's own distance is that large, a step is chaotic and the comparison shows nothing.
    if not bound <= 0.05 * root_mean_square(exact):
        raise Failed(f"{name} {dtype}: the bound {bound:.1e} is over a twentieth of the loss: take fewer steps")
    if not apart <= bound:  # not a number, too
        raise Failed(f"{name} {dtype}: losses are {apart:.1e} from float64, the CPU's {own:.1e}; at most {bound:.1e}")
    return folder, settings, apart, bound
