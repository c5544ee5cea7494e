"""A step of a pipeline beside the simulator: its computations in order, each as long as it took in the mean."""
import collections
import json
import statistics
import subprocess

from model import ROOT

HANJI = str(ROOT / "build/dev/bin/hanji")
PARTS = {"forward": "forward", "backward": "input", "backward_input": "input", "backward_weight": "weight"}


def computations(out, ranks):
    """[(step, part, begin, seconds)] of each rank, without the first step."""
    found = []
    for rank in range(ranks):
        events = json.loads((out / "trace" / f"rank.{rank}.json").read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X" and event["name"] in PARTS]
        found.append([(event["args"]["step"], PARTS[event["name"]], event["ts"] * 1e-6, event["dur"] * 1e-6)
                      for event in spans])
        first = min(step for step, *_ in found[-1])
        found[-1] = [one for one in found[-1] if one[0] > first]
    return found


def seconds_of_step(by_rank):
    """The median of steps: from the first computation of any rank to the end of the last."""
    spans = collections.defaultdict(list)
    for rank in by_rank:
        for step, _, begin, seconds in rank:
            spans[step].append((begin, begin + seconds))
    return statistics.median(max(end for _, end in step) - min(begin for begin, _ in step) for step in spans.values())


def mean_times(rank):
    """"F/I/W" of a micro-batch, as `hanji simulate --times` takes it."""
    parts = collections.defaultdict(list)
    for _, part, _, seconds in rank:
        parts[part].append(seconds)
    return "/".join(f"{statistics.mean(parts[part]) * 1e6 if parts[part] else 0:.3f}us"
                    for part in ("forward", "input", "weight"))


def against_simulator(folder, a, schedule, micro_batches, rows):
    out = folder / f"{schedule}-{micro_batches}"
    settings = [f"model.preset={a.preset}", f"train.global_batch={4 * micro_batches}", f"pipeline.schedule={schedule}",
                f"pipeline.micro_batches={micro_batches}", "compute.threads=1", "train.evaluate_batches=1"]
    subprocess.run([HANJI, "train", "--out", str(out), "--mesh", f"pp={a.ranks}", "--steps", str(1 + 3 * a.steps),
                    *(word for setting in settings for word in ("--set", setting))],
                   check=True, stdout=subprocess.DEVNULL)
    by_rank = computations(out, a.ranks)
    times = ",".join(mean_times(rank) for rank in by_rank)
    told = subprocess.run([HANJI, "simulate", "--schedule", schedule, "-p", str(a.ranks), "-m", str(micro_batches),
                           "--times", times, "--json"], check=True, text=True, capture_output=True).stdout
    simulated = json.loads(told)["schedules"][0]
    measured = seconds_of_step(by_rank)
    rows.add(f"{schedule}, {micro_batches} micro-batches: computations end after {measured * 1e3:.1f} ms, simulated "
             f"with their mean times {simulated['seconds'] * 1e3:.1f} ms (bubble {simulated['bubble']:.3f})",
             question="zero bubble", schedule=schedule, micro_batches=micro_batches, ranks=a.ranks, times=times,
             seconds=measured, simulated_seconds=simulated["seconds"], bubble=simulated["bubble"])
