"""Real runs of two pinned ranks with one fault or none: `hanji report` names the fault and its rank.

The fault that is put into a rank is 12 or 25 percent of its computing, or a reader that sleeps. A verdict counts as
wrong where it names another cause or rank; where another process took CPUs meanwhile (stolen time), the run is done
again, up to twice, since two cores attribute nothing then."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HANJI, RANK = (os.environ[name] for name in ("HANJI_BINARY", "HANJI_SLOW_RANK"))
STRATEGIES = {"ddp": [], "zero3": ["parallel.data=zero3"], "server": ["parallel.data=server"],
              "zero1": ["parallel.data=zero1"], "zero2": ["parallel.data=zero2"]}
# share of the computing, milliseconds of each sample
FAULTS = {"none": (0, 0), "slow by 12 %": (0.12, 0), "slow by 25 %": (0.25, 0), "reader": (0, 1.0)}
JOB = ["train.steps=60", "train.global_batch=256", "train.grain=64", "train.evaluate_every=1000", "train.evaluate_batches=1",
       "train.schedule=constant", "train.warmup_steps=0", "data.workers=0", "run.ranks=2"]
NAMED = 0.95


def verdict_of(folder, strategy, rank, fault):
    share, reading = FAULTS[fault]
    command = [HANJI, "run", "--ranks", "2", RANK, str(rank), str(share), str(reading), *JOB,
               f"run.out={folder}", *STRATEGIES[strategy]]
    done = subprocess.run(command, cwd=folder.parent, text=True, capture_output=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{command}\n{done.stdout}\n{done.stderr}")
    report = subprocess.run([HANJI, "report", str(folder), "--json"], text=True, capture_output=True, check=True)
    return json.loads(report.stdout)["verdict"]


def is_right(verdict, rank, fault):
    if fault == "none":
        blamed = {cause["cause"] for cause in verdict["causes"]}
        return not blamed & {"slow_rank", "data", "uneven_shares", "uneven_stages"}
    cause = "data" if fault == "reader" else "slow_rank"
    return verdict["cause"] == cause and verdict["rank"] == rank


def main():
    wrong, runs = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        for strategy in STRATEGIES:
            for fault in FAULTS:
                for rank in (0, 1):
                    for attempt in range(3):
                        folder = Path(scratch) / f"run{runs}-{attempt}"
                        verdict = verdict_of(folder, strategy, rank, fault)
                        if verdict["cause"] != "stolen_time":
                            break
                    runs += 1
                    right = is_right(verdict, rank, fault)
                    what = f"{strategy}, {fault}, rank {rank}: {verdict['sentence']}"
                    print("right" if right else "WRONG", what, flush=True)
                    wrong += [] if right else [what]
    print(f"{runs - len(wrong)} of {runs} verdicts are right")
    if len(wrong) > (1 - NAMED) * runs:
        sys.exit("less than {:.0%} are; the wrong ones are above".format(NAMED))


if __name__ == "__main__":
    main()
