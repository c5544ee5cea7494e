"""A rank of torch.distributed over Gloo that `hanji bench --peer pytorch` times beside ours.

It answers the requests that come to FOLDER/request.RANK; hanji/report/bench_request.h says what
their words mean.
"""
import os
import pathlib
import sys
import time

import numpy
import torch
import torch.distributed as dist

PERIOD = 997
FIELDS = ("routine count dtype op root in_place refill slots scrub calls warmup check engine "
          "placement corrupt table").split()
OPS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
       "prod": dist.ReduceOp.PRODUCT}


class Request:
    def __init__(self, line):
        verb, *words = line.split()
        if verb != "measure" or len(words) != len(FIELDS):
            raise ValueError("no request of a bench")
        for name, word in zip(FIELDS, words):
            setattr(self, name, int(word) if word.lstrip("-").isdigit() else word)


class Rank:
    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks

    def shape(self, r):
        """Elements of input and output, and where the shorter one lies in the longer one."""
        all_, mine, root = r.count * self.ranks, self.rank * r.count, self.rank == r.root
        return {"all_reduce": (r.count, r.count, 0), "broadcast": (r.count, r.count, 0),
                "reduce": (r.count, r.count if root else 0, 0),
                "all_gather": (r.count, all_, mine),
                "gather": (r.count, all_, mine) if root else (r.count, 0, 0),
                "reduce_scatter": (all_, r.count, mine),
                "scatter": (all_, r.count, mine) if root else (0, r.count, 0),
                "all_to_all": (all_, all_, 0), "barrier": (0, 0, 0),
                "send": (r.count if root else 0,
                         r.count if self.rank == (r.root + 1) % self.ranks else 0, 0)}[r.routine]

    def call(self, r):
        if r.routine in ("all_reduce", "reduce", "reduce_scatter") and r.op not in OPS:
            raise ValueError(f"Gloo is not asked for {r.op}")
        root, ranks, op = r.root, self.ranks, OPS.get(r.op)
        is_root, to = self.rank == root, (root + 1) % ranks

        def reduce(i, o):
            if is_root and not r.in_place:
                o.copy_(i)
            dist.reduce(o if is_root else i, root, op)

        def send(i, o):
            if is_root:
                dist.send(i, to)
            elif self.rank == to:
                dist.recv(o, root)

        if r.routine == "all_to_all" and r.in_place:
            raise ValueError("Gloo has no all_to_all in place")
        return {"all_reduce": lambda i, o: dist.all_reduce(o, op),
                "broadcast": lambda i, o: dist.broadcast(o, root), "reduce": reduce,
                "all_gather": lambda i, o: dist.all_gather_into_tensor(o, i),
                "gather": lambda i, o: dist.gather(i, list(o.chunk(ranks)) if is_root else None,
                                                   root),
                "reduce_scatter": lambda i, o: dist.reduce_scatter_tensor(o, i, op),
                "scatter": lambda i, o: dist.scatter(o, list(i.chunk(ranks)) if is_root else None,
                                                     root),
                "all_to_all": lambda i, o: dist.all_to_all_single(o, i), "send": send,
                "barrier": lambda i, o: dist.barrier()}[r.routine]

    def row(self, r, row, count, phase=0):
        table = numpy.fromfile(r.table, numpy.float64).reshape(-1, PERIOD)
        values = torch.from_numpy(table[row]).to(getattr(torch, r.dtype))
        return values.repeat((count + phase) // PERIOD + 1)[phase:phase + count]

    def wrong(self, r, out):
        n, mine = r.count, self.rank * r.count
        if out.numel() == 0:
            return 0
        parts = {"all_reduce": [(self.ranks, 0)], "reduce": [(self.ranks, 0)],
                 "reduce_scatter": [(self.ranks, mine)], "broadcast": [(r.root, 0)],
                 "send": [(r.root, 0)], "scatter": [(r.root, mine)]}
        phase = mine if r.routine == "all_to_all" else 0
        due = parts.get(r.routine, [(source, phase) for source in range(self.ranks)])
        return sum(int((out[i * n:(i + 1) * n] != self.row(r, row, n, phase % PERIOD)).sum())
                   for i, (row, phase) in enumerate(due))

    def measure(self, r):
        call = self.call(r)
        num_in, num_out, offset = self.shape(r)
        values = self.row(r, self.rank, num_in)
        dtype = getattr(torch, r.dtype)
        slots = []
        for _ in range(r.slots):
            # Filled, not zeros(): those pages would be made in the first call.
            whole = torch.empty(num_in + num_out, dtype=dtype).fill_(1)
            if not r.in_place:
                slots.append((whole[:num_in], whole[num_in:]))
            elif num_in < num_out:
                slots.append((whole[offset:offset + num_in], whole[:num_out]))
            else:
                slots.append((whole[:num_in], whole[offset:offset + num_out]))
            slots[-1][0].copy_(values)
        if r.scrub:
            torch.empty(r.scrub, dtype=torch.uint8).fill_(1)
        seconds = []
        for i in range(r.warmup + r.calls):
            into, out = slots[i % r.slots]
            if r.refill:
                into.copy_(values)
            dist.barrier()
            start = time.perf_counter()
            call(into, out)
            if i >= r.warmup:
                seconds.append(time.perf_counter() - start)
        return seconds, self.wrong(r, out) if r.check else 0

    def answer(self, line):
        try:
            seconds, wrong = self.measure(Request(line))
        except Exception as error:  # it is an answer too
            return "error " + " ".join(str(error).split())
        return "".join(f"{one:.9f} " for one in seconds) + f"wrong {wrong}"


def main():
    folder = pathlib.Path(sys.argv[1])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank,
                            world_size=ranks)
    server = Rank(rank, ranks)
    with open(folder / f"request.{rank}") as requests, open(folder / f"answer.{rank}", "w") as out:
        for line in requests:
            print(server.answer(line), file=out, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
