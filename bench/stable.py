"""What do bits that no plan changes cost?

A step of train.bits = stable against one of train.bits = run on the same ranks with the same
micro-batch, interleaved. Before anything is timed, stable must end in one state on one rank and on
all, after steps with clipping and dropout. The last line asks what the grain costs: stable with
grains of one sample against run with the micro-batch that the plan likes best.
"""
import argparse

from model import start_hanji
from pairs import Comparison, slowest
from rows import Rows

BAR = 1.3


def start(a, ranks, bits, micro_batch, extra=()):
    size = "train.grain" if bits == "stable" else "train.micro_batch"
    return start_hanji(None, ranks, a.preset, extra=[
        f"train.bits={bits}", f"train.global_batch={a.batch * a.ranks}", f"{size}={micro_batch}",
        *extra])


def state(a, ranks, bits):
    job = start(a, ranks, bits, 1, ["model.dropout=0.1"])
    hashes = {answer["state_sha256"] for answer in job.ask(steps=3, hash=True)}
    job.close()
    assert len(hashes) == 1, f"{bits}: the replicas differ: {hashes}"
    return hashes.pop()


def check_states(a, rows):
    stable = {ranks: state(a, ranks, "stable") for ranks in (1, a.ranks)}
    rows.say(f"stable, 3 steps: {stable[1][:16]} on 1 rank, {stable[a.ranks][:16]} on {a.ranks}")
    assert len(set(stable.values())) == 1
    run = {state(a, ranks, "run") for ranks in (1, a.ranks)}
    rows.say(f"run, for comparison: {len(run)} states")


def compare(a, grain, micro_batch, rows):
    run, stable = start(a, a.ranks, "run", micro_batch), start(a, a.ranks, "stable", grain)
    timed = [lambda steps, job=job: slowest(job.ask(steps=steps)) for job in (run, stable)]
    for side in timed:
        side(2)
    result = Comparison(*timed).run(a.pairs, a.steps)
    rows.add(f"grain {grain}, micro-batch {micro_batch}: run {result} stable", question="stable",
             grain=grain, micro_batch=micro_batch, **result.row())
    run.close(), stable.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=6, help="samples of a rank and step")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    if a.smoke:
        a.preset, a.pairs, a.steps = "nano", 2, 3
    rows.say(f"{a.preset}, {a.ranks} ranks, {a.batch} samples each; bar: {BAR}x")
    check_states(a, rows)
    for micro_batch in (1, 2, a.batch):
        compare(a, micro_batch, micro_batch, rows)
    compare(a, 1, a.batch, rows)


if __name__ == "__main__":
    main()
