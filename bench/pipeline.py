"""How long is a training step of a GPT on a pipeline of ranks, against PyTorch's GPipe and 1F1B?

Both sides cut the model into a stage per rank, start from the same parameters and take 16 samples in 4 micro-batches.
Losses are compared first, as by step.py. Then schedules with a whole and a split backward beside the simulator, which
is given the mean times of their forwards, backward_inputs and backward_weights.
"""
from model import start_hanji, start_peer
from step import Sides, check_float32, check_float64, compare, compared
from zero_bubble import against_simulator

BATCH, MICRO_BATCHES = 16, 4


def pipelined(a, schedule):
    def ours(initial, extra=(), **how):
        start_hanji(initial, 1, a.preset, batch=BATCH, extra=extra, **how).close()  # writes whole parameters
        return start_hanji(None, a.ranks, a.preset, batch=BATCH // a.ranks,
                           extra=[f"mesh.pp={a.ranks}", f"pipeline.schedule={schedule}",
                                  f"pipeline.micro_batches={MICRO_BATCHES}", *extra], **how)

    def peer(initial, **how):
        return start_peer(initial, a.ranks, a.preset, batch=BATCH, script="pipeline_peer.py",
                          extra=["--schedule", schedule, "--micro-batches", str(MICRO_BATCHES)], **how)
    return Sides(ours, peer)


def run(folder, a, rows):
    for schedule in ("gpipe", "1f1b"):
        (folder / schedule).mkdir()
        check_float64(folder / schedule, pipelined(a, schedule), rows)
    check_float32(folder, pipelined(a, "1f1b"), a.seeds, rows)
    for schedule in ("gpipe", "1f1b"):
        compare(folder / f"initial-{schedule}", a, pipelined(a, schedule),
                {"question": "pipeline", "ranks": a.ranks, "dtype": "float32", "schedule": schedule,
                 "micro_batches": MICRO_BATCHES}, rows)
    for schedule in ("1f1b", "zbh1"):
        against_simulator(folder, a, schedule, MICRO_BATCHES, rows)


if __name__ == "__main__":
    compared(__doc__, run)
