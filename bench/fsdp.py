"""What does a step cost when every rank keeps a share, against our DDP and PyTorch's fully_shard?

Parts: `train`, the GPT of `hanji train` by parallel.data, which is shard_optimizer() on hanji's own GPT;
`plain`, a GPT of torch::nn modules by the library's data_parallel(), shard_optimizer() and
fully_shard(); `peers`, that same GPT by our fully_shard() and by PyTorch's. Each has the same parameters
and tokens. Losses are compared before anything is timed: those of our strategies to the bit, the peer's
to 1e-4 of them over 3 steps in float32. Then both sides run in interleaved blocks of steps; so does what is
added to data_parallel: loss scaling, communication hooks, blocks that are recomputed in backward. The peer `medium` is
`tuned` against ours with products that compute.products = medium would choose.
"""
import argparse
import pathlib
import sys
import tempfile

from model import ROOT, SIZES, VOCABULARY, start_hanji
from pairs import Comparison, Ranks, slowest
from rows import Rows

TRAINED = ("server", "zero1", "zero2", "zero3")
# How far losses, which begin near 22, may lie from ours: "tuned" multiplies in bfloat16 where the
# processor has it, and then has 8 bits: 22 * 2^-8.
PEERS = {"peer": 1e-4, "tuned": 0.09, "medium": 0.09}
OURS = ("zero1", "zero2", "fully", "lens", "gathered")
# What is added to data_parallel, and how far 3 losses may lie from those without it: what a hook keeps
# back comes later, so the first steps learn less. mixed: fully_shard() that computes in bfloat16.
ADDED = {"scaled": 0, "checkpointed": 0, "fp16": 1e-4, "bf16": 1e-3, "power_sgd": 0.2, "top_k": 3,
         "mixed": 0.02}


def timed(job):
    return lambda steps: slowest(job.ask(steps=steps))


def start(name, program, a, initial, *extra):
    command = [*program, "--initial", str(initial), "--vocabulary", str(VOCABULARY), "--batch",
               str(a.batch), *extra]
    for size, value in SIZES[a.preset].items():
        command += [f"--{size}", str(value)]
    return Ranks(name, command, a.ranks)


def start_peer(a, initial, name):
    words = {"peer": "", "tuned": ", tuned", "medium": ", tuned, both medium"}[name]
    return start(f"PyTorch fully_shard{words}", [sys.executable, str(ROOT / "bench/fsdp_peer.py")], a, initial,
                 *([] if name == "peer" else ["--tuned"]))


def start_trained(a, data):
    job = start_hanji(None, a.ranks, a.preset, a.batch, extra=[f"parallel.data={data}"])
    job.name = data
    return job


def compare(part, base, job, expected, allowed, a, rows):
    """Losses first, then both, interleaved."""
    losses = job.ask(steps=3)[0]["losses"]
    apart = max(abs(x - y) / abs(y) for x, y in zip(losses, expected))
    assert apart <= allowed, (job.name, losses, expected)
    result = Comparison(timed(base), timed(job)).run(a.pairs, a.steps)
    rows.add(f"{base.name} {result}  {job.name}; losses differ by {apart:.1e}", question="fsdp", part=part,
             base=base.name, strategy=job.name, apart=apart, **result.row())
    job.close()


def compare_started_anew(part, a, first, second, allowed, rows):
    """Both sides start afresh `starts` times: where a process gets its memory moves its steps by more
    than strategies differ. Losses first, each time."""
    result, apart = Comparison(), 0
    for start_number in range(a.starts):
        if start_number % 2 == 0:
            base, job = first(), second()
        else:
            job, base = second(), first()
        expected, losses = (each.ask(steps=3)[0]["losses"] for each in (base, job))
        apart = max(apart, *(abs(x - y) for x, y in zip(losses, expected)))
        assert apart <= allowed, (job.name, losses, expected)
        result.between(timed(base), timed(job)).run(a.pairs, a.steps)
        base.close(), job.close()
    rows.add(f"{base.name} {result}  {job.name}; {a.starts} starts, losses differ by {apart:.1e}",
             question="fsdp", part=part, base=base.name, strategy=job.name,
             apart=apart, starts=a.starts, products=base.products, **result.row())


def wanted(a, names):
    return [name for name in names if not a.only or name in a.only]


def compare_train(a, _initial, rows):
    rows.say("the GPT of hanji train: shard_optimizer() by parallel.data")
    for data in wanted(a, TRAINED):
        compare_started_anew("train", a, lambda: start_trained(a, "ddp"), lambda: start_trained(a, data), 0, rows)


def start_plain(a, initial, strategy, medium=False):
    job = start(strategy, [str(ROOT / "build/dev/bin/bench/fsdp_rank")], a, initial, "--strategy", strategy,
                *(["--medium"] if medium else []))
    job.products = job.receive()[0]["products"]
    return job


def compare_plain(a, initial, rows):
    rows.say("a GPT of torch::nn modules, against data_parallel()")
    base = start_plain(a, initial, "ddp")  # which writes `initial`
    expected = base.ask(steps=3)[0]["losses"]
    for name in wanted(a, (*OURS, *ADDED)):
        compare("plain", base, start_plain(a, initial, name), expected, ADDED.get(name, 0), a, rows)
    base.close()


def compare_peers(a, initial, rows):
    rows.say("the same GPT by our fully_shard(), against PyTorch's")
    start_plain(a, initial, "ddp").close()
    for name in wanted(a, PEERS):
        compare_started_anew("peers", a, lambda: start_plain(a, initial, "fully", name == "medium"),
                             lambda: start_peer(a, initial, name), PEERS[name], rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="baby")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="of ours, what is added, 'peer' and 'tuned'")
    parser.add_argument("--starts", type=int, default=4, help="of both sides, in the parts train and peers")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--smoke", action="store_true")
    rows = Rows(parser)
    a = rows.parsed(parser.parse_args())
    if a.smoke:
        a.preset, a.pairs, a.steps, a.starts = "nano", 2, 3, 2
    with tempfile.TemporaryDirectory(prefix="hanji-bench-") as folder:
        for part in a.parts:
            PARTS[part](a, pathlib.Path(folder) / f"{part}.safetensors", rows)


PARTS = {"train": compare_train, "plain": compare_plain, "peers": compare_peers}


if __name__ == "__main__":
    main()
