"""How long is a training step of a GPT that ranks cut among themselves, against PyTorch's DTensor?

Tensor parallelism of every MLP, and of every block, by PyTorch; of everything by hanji. Both sides start from the
same parameters and all ranks see the same 4 samples; losses are compared first, as by step.py. Last, what the plan
chooses to move for each MLP against the other choice, with few samples and many.
"""
from model import start_hanji, start_peer
from pairs import Comparison
from step import Sides, check_float32, check_float64, compare, compared, timed

BATCH = 4


def tensor_parallel(a, cut):
    def ours(initial, extra=(), **how):
        start_hanji(initial, 1, a.preset, batch=BATCH, extra=extra, **how).close()  # writes whole parameters
        return start_hanji(None, a.ranks, a.preset, batch=BATCH // a.ranks,
                           extra=[f"mesh.tp={a.ranks}", *extra], **how)

    def peer(initial, **how):
        return start_peer(initial, a.ranks, a.preset, batch=BATCH, script="tensor_peer.py",
                          extra=["--cut", cut], **how)
    return Sides(ours, peer)


def compare_moves(a, batch, sequence, rows):
    def start(moves):
        return start_hanji(None, a.ranks, a.preset, batch=batch // a.ranks,
                           extra=[f"mesh.tp={a.ranks}", f"parallel.moves={moves}",
                                  f"parallel.sequence={str(sequence).lower()}"])
    chosen = start("auto")
    other = start("weights" if chosen.moves == "activations" else "activations")
    result = Comparison(timed(chosen), timed(other)).run(a.pairs, a.steps)
    rows.add(f"batch {batch}{', sequence' if sequence else ''}: {chosen.moves} {result}  {other.moves}",
             question="moves", batch=batch, sequence=sequence, moves=chosen.moves, **result.row())
    chosen.close(), other.close()


def run(folder, a, rows):
    for cut in ("mlp", "blocks"):
        (folder / cut).mkdir()
        check_float64(folder / cut, tensor_parallel(a, cut), rows)
    check_float32(folder, tensor_parallel(a, "blocks"), a.seeds, rows)
    for cut in ("mlp", "blocks"):
        compare(folder / f"initial-{cut}", a, tensor_parallel(a, cut),
                {"question": "tensor", "ranks": a.ranks, "dtype": "float32", "peer_cuts": cut}, rows)
    for batch in (BATCH, 4 * BATCH):
        for sequence in (False, True):
            compare_moves(a, batch, sequence, rows)


if __name__ == "__main__":
    compared(__doc__, run)
