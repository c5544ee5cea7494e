#!/usr/bin/env python3
"""Compares hanji's pipeline schedules with PyTorch's of the same name.

    tools/pipelines.py HANJI_PIPELINE_LISTS [RANKS MICRO_BATCHES STAGES_PER_RANK]

For every size up to 8 ranks, 32 micro-batches and 4 stages per rank that PyTorch accepts: the
computations of every rank are PyTorch's, in its order. Of every schedule of hanji, with or without a
class there: `_validate_schedule` accepts the computations, and `_simulate_comms_compute` runs them
with hanji's sends and receives. `gpipe` and `1f1b` are compared with what PyTorch's executor runs:
the list that its 1F1B class returns numbers the forwards of the last rank from 1. `zbh1` is compared
with the interleaved zero-bubble class at one stage per rank: it has no class of its own.
"""
import collections
import contextlib
import io
import itertools
import subprocess
import sys
import time
from unittest import mock

from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.stage import PipelineStage

CLASSES = {
    "gpipe": schedules.ScheduleGPipe,
    "1f1b": schedules.Schedule1F1B,
    "interleaved": schedules.ScheduleInterleaved1F1B,
    "bfs": schedules.ScheduleLoopedBFS,
    "zbh1": schedules.ScheduleInterleavedZeroBubble,
    "interleaved_zb": schedules.ScheduleInterleavedZeroBubble,
    "zbv": schedules.ScheduleZBVZeroBubble,
    "dualpipev": schedules.ScheduleDualPipeV,
}
ONE_STAGE = ("gpipe", "1f1b", "zbh1")
STAGE = mock.create_autospec(PipelineStage, instance=True)
for messages in ("fwd_recv", "fwd_send", "bwd_recv", "bwd_send"):
    getattr(STAGE, f"get_{messages}_ops").return_value = []


def executed(schedule, rank, micro_batches):
    """What the executor of a schedule of one stage per rank computes, in order."""
    codes = []
    STAGE.stage_index = rank
    STAGE.forward_one_chunk.side_effect = lambda i, *_, **__: codes.append(f"{rank}F{i}")
    STAGE.backward_one_chunk.side_effect = lambda i, **_: codes.append(f"{rank}B{i}")
    nothing = [None] * micro_batches
    for name in ("_initialize_stage", "_maybe_compute_loss", "_maybe_get_loss", "_update_losses"):
        setattr(schedule, name, mock.Mock())
    schedule._check_inputs = mock.Mock(return_value=(nothing, nothing))
    schedule._has_backward = True
    schedule._step_microbatches()
    return codes


def theirs(name, ranks, micro_batches, stages):
    """The computations of each rank, as codes; None where PyTorch refuses the size."""
    STAGE.group_rank, STAGE.group_size = 0, ranks
    STAGE.num_stages, STAGE.submod = ranks * stages, None
    if name not in CLASSES or (name in ONE_STAGE and stages > 1):
        return None
    single = issubclass(CLASSES[name], schedules.PipelineScheduleSingle)
    try:
        made = CLASSES[name](STAGE if single else [STAGE] * stages, micro_batches)
    except ValueError:
        return None
    if single:
        return [executed(made, rank, micro_batches) for rank in range(ranks)]
    order = made.pipeline_order
    return [[str(part) for action in order[rank] if action is not None
             for part in (action.sub_actions or (action,)) if part.is_compute_op]
            for rank in range(ranks)]


def parsed(line):
    actions = [schedules._Action.from_str(code) for code in line.split(",")]
    return [a for a in actions if a.computation_type != schedules._ComputationType.REDUCE_GRAD]


def check_by_pytorch(lists, ranks, micro_batches, stages):
    computations = {rank: [a for a in actions if a.is_compute_op] for rank, actions in lists.items()}
    placement = schedules._validate_schedule(computations, ranks, ranks * stages, micro_batches)
    with contextlib.redirect_stdout(io.StringIO()):
        schedules._simulate_comms_compute(lists, placement.__getitem__, ranks * stages)
    return [[str(action) for action in computations[rank]] for rank in range(ranks)]


def main():
    sizes = sys.argv[2:] or ["8", "32", "4"]
    begin = time.monotonic()
    lines = iter(subprocess.run([sys.argv[1], *sizes], check=True, text=True,
                                stdout=subprocess.PIPE).stdout.splitlines())
    counts = collections.Counter()
    differ = []
    made = set()
    for line in lines:
        name, *numbers = line.split()
        ranks, micro_batches, stages = map(int, numbers)
        made.add((name, ranks, micro_batches, stages))
        lists = {rank: parsed(next(lines)) for rank in range(ranks)}
        ours = check_by_pytorch(lists, ranks, micro_batches, stages)
        expected = theirs(name, ranks, micro_batches, stages)
        counts[name, expected is not None] += 1
        if expected not in (None, ours):
            differ.append(line)
    every = itertools.product(CLASSES, *(range(1, int(most) + 1) for most in sizes))
    differ += [f"{size}: only PyTorch makes it" for size in every
               if size not in made and theirs(*size) is not None]
    for name in dict.fromkeys(name for name, _ in counts):
        print(f"{name:15}{counts[name, True]:6} equal PyTorch's list, {counts[name, False]:6} more that"
              " it does not make; all accepted and run")
    print(f"{time.monotonic() - begin:.0f} s")
    print("\n".join(f"differs: {line}" for line in differ), end="")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
