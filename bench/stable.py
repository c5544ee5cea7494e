"""What do bits that no plan changes cost?

A step of train.bits = stable against one of train.bits = run on the same ranks with the same
micro-batch, interleaved. Before anything is timed, stable must end in one state on one rank and on
all, after steps with clipping and dropout. Then what the grain costs: stable with grains of one
sample against run with the micro-batch that the plan likes best. The last lines ask what blocks of
features cost, on one rank and on ranks that cut the model: stable with train.cuts.features against
run, which computes whole products.
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


def compare_cuts(a, ranks, rows):
    mesh = [f"mesh.tp={ranks}", f"train.global_batch={a.batch}"]
    jobs = [start_hanji(None, ranks, a.preset, extra=[f"train.bits={bits}", *mesh, *more])
            for bits, more in (("run", [f"train.micro_batch={a.batch}"]),
                               ("stable", [f"train.grain={a.batch}",
                                           f"train.cuts.features={a.cuts}"]))]
    timed = [lambda steps, job=job: slowest(job.ask(steps=steps)) for job in jobs]
    for side in timed:
        side(2)
    result = Comparison(*timed).run(a.pairs, a.steps)
    rows.add(f"{a.cuts} blocks of features, {ranks} ranks of tp: run {result} stable",
             question="cuts", cuts=a.cuts, ranks=ranks, **result.row())
    for job in jobs:
        job.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=6, help="samples of a rank and step")
    parser.add_argument("--cuts", type=int, default=4, help="blocks of features")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    if a.smoke:
        a.preset, a.pairs, a.steps, a.cuts = "nano", 2, 3, 2
    rows.say(f"{a.preset}, {a.ranks} ranks, {a.batch} samples each; bar: {BAR}x")
    check_states(a, rows)
    for micro_batch in (1, 2, a.batch):
        compare(a, micro_batch, micro_batch, rows)
    compare(a, 1, a.batch, rows)
    for ranks in (1, a.ranks):
        compare_cuts(a, ranks, rows)


if __name__ == "__main__":
    main()
