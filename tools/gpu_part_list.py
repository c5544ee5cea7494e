"""The parts of ./dev gpu, in the order of what is most worth knowing if the time does not reach for all.

`seconds` is what a part takes on a machine with one GPU and 16 cores, as estimated before any was seen: a part begins only
if so many are left. `limit` ends it. `shows`: the sentences of docs/gpus.md that it stands for.
"""
import dataclasses
import json
import os
import re
import shutil
import signal
import time
import typing

from gpu_run import (MIB, PLAIN, Failed, as_arguments, compare_losses, kill_session, living_of_session, losses_of,
                     summary_of)


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    seconds: int
    limit: int
    run: typing.Callable  # (Bench) -> the one figure, as text
    shows: str
    gpu_only: str = ""    # why a CPU cannot stand for the device; empty: it can


def model_settings(bench, model):
    """(settings, steps): on a CPU that stands for the device, the same models cut down."""
    sizes = {"nano": (["model.preset=nano", "train.global_batch=12"], 20),
             "char": (["model.preset=char", "train.global_batch=64", "model.dropout=0.1"], 20),
             "baby": (["model.preset=baby", "train.global_batch=8"], 10),
             "gpt2": (["model.preset=gpt2", "train.global_batch=2", "model.block=256"], 5),
             "resnet18": (["model.preset=resnet18", "data.images=generated", "train.global_batch=64",
                           "train.learning_rate=1e-4"], 3),
             "evoformer-demo": (["model.preset=evoformer-demo", "train.global_batch=4"], 4)}
    small = {"char": (["model.preset=char", "train.global_batch=4", "model.dropout=0.1"], 8),
             "baby": (["model.preset=baby", "train.global_batch=1", "model.block=64"], 3),
             "gpt2": (["model.preset=gpt2", "train.global_batch=1", "model.block=64", "model.layers=2"], 3),
             "resnet18": (["model.preset=resnet-tiny", "data.images=generated", "train.global_batch=16"], 3),
             "evoformer-demo": (["model.preset=evoformer-tiny", "train.global_batch=2"], 3)}
    return sizes[model] if bench.on_gpu or model not in small else small[model]


def doctor(bench):
    text = bench.hanji("doctor", expect=None)
    found = [line.strip(" !") for line in text.splitlines() if re.match(r"[ !]*(?i:gpu|nccl|cuda)", line)]
    if bench.on_gpu and any("no libnccl" in line for line in found):
        raise Failed(found[0])
    return re.sub(r"\s{2,}", ": ", found[0]) if found else "no line of a GPU"


def smoke(bench):
    settings, steps = model_settings(bench, "nano")
    _, _, apart, bound = compare_losses(bench, "nano", settings, "float32", steps)
    return f"{apart:.1e} from float64 (at most {bound:.1e})"


def labelled_gpu(bench):
    text = bench.run([shutil.which("ctest") or "ctest", "--test-dir", bench.a.build, "-L", "gpu", "-E", "shared",
                      "--no-tests=error", "--output-on-failure", "--timeout", "60"])
    if "Skipped" in text:
        raise Failed("a test found no GPU: " + ", ".join(re.findall(r"\d+ - (\S+) \(Skipped\)", text)))
    return re.search(r"\d+% tests passed.*", text)[0]


def train_part(model, dtypes=("float32", "bf16")):
    def run(bench):
        said = []
        for dtype in dtypes:
            settings, steps = model_settings(bench, model)
            folder, settings, apart, bound = compare_losses(bench, model, settings, dtype, steps)
            again = bench.on_device(f"{model}-{dtype}-again", settings, steps)
            first, second = (summary_of(one)["state_sha256"] for one in (folder, again))
            if first != second:
                raise Failed(f"{model} {dtype}: run twice, the states are {first[:12]} and {second[:12]}")
            bench.row(question="repeats", model=model, dtype=dtype, steps=steps, state_sha256=first)
            said.append(f"{dtype} {apart:.1e} (at most {bound:.1e})")
        return "from float64: " + ", ".join(said) + "; twice, one hash"
    return run


def resume(bench):
    settings, _ = model_settings(bench, "char")
    whole = bench.on_device("whole", settings, 10)
    parted = bench.on_device("parted", settings, 5)
    bench.train("parted", [], 10, resume=True)
    first, second = (summary_of(one)["state_sha256"] for one in (whole, parted))
    if first != second or losses_of(whole) != losses_of(parted):
        raise Failed(f"10 steps give {first[:12]}, 5 and then 5 {second[:12]}")
    return f"5 and 5 steps end as 10: {first[:12]}"


def memory(bench):
    line = "gpu_peak_bytes_per_rank" if bench.on_gpu else "peak_bytes_per_rank"
    jobs = [("baby", "float32", ["train.global_batch=16"]), ("gpt2", "float32", ["train.global_batch=4"]),
            ("gpt2", "bf16", ["train.global_batch=4"])]
    said = []
    for model, dtype, batch in jobs if bench.on_gpu else jobs[:1]:
        batch = batch if bench.on_gpu else ["train.global_batch=1"]
        settings = [f"model.preset={model}", f"compute.dtype={dtype}", *batch]
        both = summary_of(bench.on_device(f"memory-{model}-{dtype}", settings, 3))["prediction"]
        planned, peak = both[line]["predicted"], both[line]["measured"]
        reserved = both.get("gpu_reserved_bytes", {}).get("measured")
        bench.row(question="memory", model=model, dtype=dtype, planned_bytes=planned, peak_bytes=peak,
                  reserved_bytes=reserved)
        said.append(f"{model} {dtype} {peak / MIB:.0f} MiB, planned {planned / MIB:.0f}")
        # Workspaces of cuBLAS and cuBLASLt, 32 MiB each on Hopper, are in no plan; a tenth is what a plan may be off.
        if not 0 < peak <= 1.1 * planned + 64 * MIB:
            raise Failed(said[-1])
    return "; ".join(said)


def rows_of_bench(bench):
    with open(bench.log.name, errors="replace") as log:
        return [json.loads(line) for line in log if line.startswith('{"question"')]


def step_part(model, pairs, steps, compiled=False):
    def run(bench):
        bench.needs("safetensors", "with which PyTorch's side reads initial values")
        if compiled:
            bench.needs_headers_of_python()
        size = ["--model", model] if bench.on_gpu else ["--model", "nano"]
        try:
            bench.python("bench/gpu_step.py", "--build", bench.a.build, "--device", bench.a.device, "--json", *size,
                         "--pairs", pairs if bench.on_gpu else 3, "--steps", steps if bench.on_gpu else 3,
                         *(["--compile"] if compiled else []))
        finally:  # what was timed before a limit stays
            for row in rows_of_bench(bench):
                bench.row(**row)
        timed = [f"{row['dtype']} {row['ratio']:.2f} of {row['peer']}" for row in bench.rows if "ratio" in row]
        if not timed:
            raise Failed("nothing was timed")
        return "peer's time over hanji's: " + ", ".join(timed)
    return run


def topo(bench):
    text = bench.hanji("topo", "--measure")
    found = [line.strip() for line in text.splitlines() if re.search(r"(?i)gpu|device|host to", line)]
    bench.row(question="topo", lines=found[:40])
    return f"{len(found)} lines of a GPU" if found else "no line of a GPU"


def refusal_of(bench):
    """The line in which libtorch says that it has no kernel whose bits repeat, or nothing."""
    with open(bench.log.name, errors="replace") as log:
        return next((line.strip() for line in log if "determinis" in line), "")


def one_model(model):
    """By bits that repeat where libtorch has such kernels; else its refusal is told, and `fast` is tried."""
    def run(bench):
        settings, steps = model_settings(bench, model)
        try:
            _, _, apart, bound = compare_losses(bench, model, settings, "float32", steps)
            name, how = f"{model}-float32", f"bits run, {apart:.1e} from float64 (at most {bound:.1e})"
        except Failed:
            refused, name = refusal_of(bench), f"{model}-fast"
            if not refused:
                raise
            fast = losses_of(bench.on_device(name, [*settings, "train.bits=fast"], steps))
            how = f"bits run refused ({refused[:200]}); fast, loss {fast[-1]:.4f}"
        seconds = summary_of(bench.scratch / name)["step_seconds_median"]
        bench.row(question="model", model=model, dtype="float32", seconds=seconds)
        return f"{how}, a step {1e3 * seconds:.1f} ms"
    return run


def two_ranks(bench):
    text = bench.run([shutil.which("ctest") or "ctest", "--test-dir", bench.a.build, "-R", "^comm_gpu_shared$",
                      "--no-tests=error", "-V", "--timeout", "90"])
    said = re.search(r"two ranks on one GPU: (.*)", text)
    if not said:
        raise Failed("the test did not say what NCCL answered")
    return said[1][:200]


def await_true(bench, condition, what, seconds):
    until = time.monotonic() + min(seconds, bench.left())
    while not condition():
        if time.monotonic() > until:
            raise Failed(what)
        time.sleep(0.05)


def kill_one(bench, whom, before):
    """Kills a rank or the launcher of a run that saves, and goes on with it."""
    settings, _ = model_settings(bench, "char")
    folder = bench.scratch / f"killed-{whom}"
    process = bench.start([bench.program("bin", "hanji"), "train", "--out", folder, "--ranks", 1, "--steps", 1000000,
                           "--device", bench.a.device, *as_arguments([*PLAIN, *settings, "checkpoint.every=5",
                                                                      *bench.device_settings()])])
    try:
        await_true(bench, lambda: list((folder / "checkpoints").glob("step_*")) or process.poll() is not None,
                   "no checkpoint within 60 s", 60)
        if process.poll() is not None:
            raise Failed("the run ended before it was killed")
        ranks = json.loads((folder / "ranks.json").read_text())
        os.kill(process.pid if whom == "launcher" else ranks["ranks"][0]["pid"], signal.SIGKILL)
        await_true(bench, lambda: process.poll() is not None and not living_of_session(process.pid),
                   f"{whom} killed: processes {living_of_session(process.pid)} live 30 s later", 30)
    finally:
        kill_session(process.pid)
        process.wait()
    if process.returncode == 0:
        raise Failed(f"{whom} killed: the command ended with code 0")
    if bench.on_gpu:
        await_true(bench, lambda: bench.memory_used() <= before + 64 * MIB,
                   f"{whom} killed: the GPU still has {bench.memory_used() / MIB:.0f} MiB, {before / MIB:.0f} before", 20)
    done = len(losses_of(folder)) + 5
    bench.train(folder.name, [], done, resume=True)
    if summary_of(folder)["steps"] != done:
        raise Failed(f"{whom} killed: resumed to {summary_of(folder)['steps']} of {done} steps")
    return done


def kills(bench):
    before = bench.memory_used() if bench.on_gpu else 0
    done = [kill_one(bench, whom, before) for whom in ("rank", "launcher")]
    left = "no process, no memory of the GPU left" if bench.on_gpu else "no process left"
    return f"{left}; resumed to steps {done[0]} and {done[1]}"


PARTS = [
    Part("doctor", 5, 40, doctor, "`hanji doctor` shows the version of NCCL that would be loaded"),
    Part("smoke", 30, 90, smoke, "each rank computes on its GPU; initial values and sample order equal those on CPUs"),
    Part("tests", 30, 90, labelled_gpu,
         "Routines, Bits and Streams with one rank; gradients of a GPT equal the CPU's",
         "tests labelled gpu need one"),
    Part("train-char", 30, 90, train_part("char"), "dropout masks equal those on CPUs; `train.bits = run` repeats its bits"),
    Part("train-baby", 35, 90, train_part("baby"), "the same of `baby`, in float32 and bf16"),
    Part("resume", 20, 60, resume, "a resumed run ends as one that was not stopped"),
    Part("memory", 25, 80, memory, "the plan's memory of a GPU; NCCL's own buffers are not counted"),
    Part("step-baby", 45, 110, step_part("baby", 6, 10), "a step beside PyTorch's same model"),
    Part("train-gpt2", 45, 110, train_part("gpt2"), "the same as train-char of `gpt2`, in float32 and bf16"),
    Part("step-gpt2", 60, 140, step_part("gpt2", 5, 5), "the same of `gpt2`"),
    Part("kill", 30, 100, kills, "after SIGKILL of a rank or the launcher no process and no memory of the GPU is left"),
    Part("topo", 8, 40, topo, "`hanji topo --measure` beside a GPU"),
    Part("resnet18", 20, 60, one_model("resnet18"), "a residual network trains"),
    Part("evoformer-demo", 20, 60, one_model("evoformer-demo"), "an Evoformer trains"),
    Part("two-ranks", 15, 100, two_ranks, "two ranks on one GPU: what NCCL answers", "NCCL needs a GPU"),
    Part("compile", 75, 180, step_part("gpt2", 5, 5, compiled=True), "the same step beside torch.compile"),
]
NEVER = ("several GPUs: messages, pairs, deadlines and errors of NCCL between ranks", "several hosts", "NVLS and SHARP")
