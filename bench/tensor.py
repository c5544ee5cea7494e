"""How long is a training step of a GPT that ranks cut among themselves, against PyTorch's DTensor?

Tensor parallelism of every MLP, and of every block, by PyTorch; of everything by hanji. Both sides start from the
same parameters and all ranks see the same 4 samples; losses are compared first, as by step.py.
"""
from model import start_hanji, start_peer
from step import Sides, check_float32, check_float64, compare, compared

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


def run(folder, a, rows):
    for cut in ("mlp", "blocks"):
        (folder / cut).mkdir()
        check_float64(folder / cut, tensor_parallel(a, cut), rows)
    check_float32(folder, tensor_parallel(a, "blocks"), a.seeds, rows)
    for cut in ("mlp", "blocks"):
        compare(folder / f"initial-{cut}", a, tensor_parallel(a, cut),
                {"question": "tensor", "ranks": a.ranks, "dtype": "float32", "peer_cuts": cut}, rows)


if __name__ == "__main__":
    compared(__doc__, run)
