"""What does it cost that the threads of a rank wait spinning, or asleep, on a quiet machine and on a busy one?

Steps of one rank of two threads whose OpenMP threads spin, as they do by themselves, against the same rank whose
threads sleep (OMP_WAIT_POLICY=passive), interleaved; then both beside processes that compute, one per core, in
sessions of their own. Each time `hanji run` is asked what it chooses, as it does before it starts ranks: the last
ratio is of what it chose to spinning. Losses and states must be equal, whatever the threads do while they wait.
The model `small` has short operations, between which threads wait often; those of `baby` are long. Two ranks of
one thread each, which wait for each other only in calls, stand beside them.
"""
import argparse
import contextlib
import os
import statistics
import subprocess
import sys

from model import ROOT, start_hanji
from pairs import Comparison, slowest
from rows import Rows

WAYS = {"spin": {}, "sleep": {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}}
SMALL = ["model.layers=4", "model.heads=4", "model.width=128", "model.block=64"]
MODELS = {"small": ("nano", SMALL, 4, 10), "baby": ("baby", [], 8, 1)}  # preset, more keys, samples, steps of a block


@contextlib.contextmanager
def neighbours(count):
    """So many processes that compute, each in a session of its own."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
            for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill(), process.wait()


def chosen_here():
    """What the launcher chooses now for a rank of all cores."""
    done = subprocess.run([ROOT / "build/dev/bin/hanji", "run", "--ranks", "1", "sh", "-c",
                           "echo ${OMP_WAIT_POLICY:-spin}"], check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    return {"passive": "sleep"}.get(done.stdout.split()[-1], "spin")


def start(model, ranks, threads, how=None):
    preset, extra, samples, _ = MODELS[model]
    variables = {"OMP_NUM_THREADS": str(threads), **(how or {})}
    return start_hanji(None, ranks, preset, batch=samples // ranks, environment=variables, pinned=ranks > 1,
                       extra=[*extra, f"compute.threads={threads}"])


def check_bits(model, jobs, rows):
    told = [job.ask(steps=3, hash=True)[0] for job in jobs]
    states = {one["state_sha256"] for one in told}
    losses = {tuple(one["losses"]) for one in told}
    rows.say(f"{model}: after 3 steps the state is {' and '.join(one[:16] for one in states)}")
    assert len(states) == 1 and len(losses) == 1, f"{model}: bits depend on how threads wait"


def compare(model, others, a, rows):
    jobs = {way: start(model, 1, a.threads, how) for way, how in WAYS.items()}
    check_bits(model, jobs.values(), rows)
    steps = a.steps or MODELS[model][3]
    timed = {way: lambda steps, job=job: slowest(job.ask(steps=steps)) for way, job in jobs.items()}
    with neighbours(others):
        chosen = chosen_here()
        result = Comparison(timed["sleep"], timed["spin"]).run(a.pairs, steps)
    row = result.row()
    over_spinning = 1.0 if chosen == "spin" else row["ratio"]
    rows.add(f"{model:5} beside {others} processes: asleep {result} spinning; chosen: {chosen}", question="threads",
             model=model, others=others, threads=a.threads, chosen=chosen, speed_of_chosen=over_spinning, **row)
    for job in jobs.values():
        job.close()


def beside(model, others, a, rows):
    """As many ranks of one thread, for comparison."""
    job = start(model, a.threads, 1)
    steps = a.steps or MODELS[model][3]
    job.ask(steps=2)
    with neighbours(others):
        seconds = [statistics.median(slowest(job.ask(steps=steps))) for _ in range(a.pairs)]
    rows.add(f"{model:5} beside {others} processes: {a.threads} ranks of 1 thread "
             f"{statistics.median(seconds) * 1e3:.1f} ms ({min(seconds) * 1e3:.1f} to {max(seconds) * 1e3:.1f})",
             question="ranks", model=model, others=others, ranks=a.threads, seconds=statistics.median(seconds))
    job.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, help="of a block; by default 10 of `small`, 1 of `baby`")
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    models = list(MODELS)
    if a.smoke:
        a.pairs, a.steps, models = 2, 1, ["small"]
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        os.environ.pop(name, None)
    a.threads = len(os.sched_getaffinity(0))
    if a.threads < 2:
        return rows.skip("the threads of a rank need two cores")
    for model in models:
        for others in (0, a.threads):
            compare(model, others, a, rows)
            beside(model, others, a, rows)


if __name__ == "__main__":
    main()
