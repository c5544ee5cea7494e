"""Runs a function as the ranks of a process group, and returns what each returned."""

import os
import pathlib
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


def _rank_main(rank, size, backend, store, body, arguments, results):
    try:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size)
        value = body(rank, size, *arguments)
        dist.destroy_process_group()
        torch.save(value, f"{results}/{rank}")
    except Exception:
        traceback.print_exc()
        os._exit(1)  # the others learn that this rank is gone


def run_ranks(body, size=2, backend="hanji", arguments=(), start="fork"):
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(
            _rank_main, (size, backend, f"{folder}/store", body, arguments, folder), nprocs=size,
            start_method=start)
        return [torch.load(f"{folder}/{rank}", weights_only=False) for rank in range(size)]
