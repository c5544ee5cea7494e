"""Loads what `hanji train` wrote with the libraries that others use: safetensors, TensorBoard, Holistic Trace
Analysis."""
import glob
import json
import logging
import os
import pathlib
import subprocess
import tempfile

import safetensors.torch
import torch
from hta.trace_analysis import TraceAnalysis
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).resolve().parent.parent


def check_parts(folder):
    """What ranks that cut a model have written becomes one file of whole tensors."""
    hanji = ROOT / "build/dev/bin/hanji"
    subprocess.run([hanji, "train", "--out", folder / "cut", "--ranks", "2", "--steps", "2", "--set",
                    "mesh.tp=2", "--set", "model.preset=nano"], check=True, stdout=subprocess.DEVNULL)
    names = ["transformer.h.0.mlp.c_proj.weight", "exp_avg.transformer.h.0.mlp.c_proj.weight"]
    subprocess.run([hanji, "ckpt", "export", folder / "cut", folder / "whole", "--tensor", names[0],
                    "--tensor", names[1]], check=True, stdout=subprocess.DEVNULL)
    whole = safetensors.torch.load_file(folder / "whole")
    [parts] = glob.glob(str(folder / "cut" / "checkpoints" / "step_*"))
    for kind, name in zip(("model", "optimizer"), names):
        columns = []
        for part in range(2):
            tensors = safetensors.torch.load_file(os.path.join(parts, f"{kind}.part_{part}.safetensors"))
            [own] = [value for key, value in tensors.items() if key.startswith(name + "[")]
            columns.append(own)
        assert torch.equal(whole[name], torch.cat(columns, dim=1)), name


def accounts_of(run, rank):
    """Seconds that a rank computed, moved bytes and waited, from its accounts without the last step, which the
    analysis drops."""
    lines = [json.loads(line) for line in (run / "steps" / f"rank.{rank}.jsonl").read_text().splitlines()][1:-1]
    transfer = sum(line["exposed_transfer"] or 0 for line in lines)
    waits = sum(line["data"] + (line["skew"] or 0) for line in lines)
    steps = sum(line["seconds"] for line in lines)
    return {"compute": steps - transfer - waits, "exposed": transfer, "idle": waits}, steps


def check_nesting(run):
    """A row of Perfetto draws spans that nest or follow each other."""
    for path in (run / "trace").iterdir():
        rows = {}
        for event in json.loads(path.read_text())["traceEvents"]:
            if event["ph"] == "X":
                rows.setdefault(event["tid"], []).append((event["ts"], -event["dur"]))
        for row in rows.values():
            open_ends = []
            for start, negative in sorted(row):
                while open_ends and open_ends[-1] <= start:
                    open_ends.pop()
                assert negative <= 0 and (not open_ends or start - negative <= open_ends[-1]), path
                open_ends.append(start - negative)


def check_trace(run, ranks):
    """What the analysis says of the streams is what the run says of itself, within 2 % of its steps."""
    check_nesting(run)
    analysis = TraceAnalysis(trace_dir=str(run / "trace"))
    table = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    assert sorted(table.index) == list(range(ranks))
    worst = 0
    for rank in range(ranks):
        own, steps = accounts_of(run, rank)
        row = table.loc[rank]
        found = {"compute": row["compute_time(us)"], "exposed": row["non_compute_time(us)"],
                 "idle": row["idle_time(us)"] - (row["kernel_time(us)"] - steps * 1e6)}  # between steps
        for part, seconds in own.items():
            worst = max(worst, abs(found[part] * 1e-6 - seconds) / steps)
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    assert overlap["comp_comm_overlap_pctg"].between(0, 100).all(), overlap
    assert worst < 0.02, f"{run.name}: the analysis differs by {worst:.1%} of the steps"
    return worst


def check_traces(folder):
    worst = {}
    for name, ranks, *keys in (("one", 1), ("ddp", 2), ("ddp4", 4), ("zero3", 2, "parallel.data=zero3"),
                               ("server", 2, "parallel.data=server"), ("gloo", 2, "comm.engine=gloo"),
                               ("tp", 2, "mesh.tp=2"), ("cp", 2, "mesh.cp=2"), ("pp", 2, "mesh.pp=2"),
                               ("tp_pp", 4, "mesh.tp=2", "mesh.pp=2"),
                               ("profiled", 2, "train.profile=5-7")):
        settings = [word for key in ("model.preset=nano", *keys) for word in ("--set", key)]
        subprocess.run([ROOT / "build/dev/bin/hanji", "train", "--out", folder / name, "--ranks", str(ranks),
                        "--steps", "12", *settings], check=True, stdout=subprocess.DEVNULL)
        worst[name] = check_trace(folder / name, ranks)
    print("traces:", ", ".join(f"{name} {share:.2%}" for name, share in worst.items()))


def main():
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="hanji-readers-") as folder:
        run = pathlib.Path(folder) / "run"
        subprocess.run([ROOT / "build/dev/bin/hanji", "train", "--out", run, "--ranks", "2",
                        "--steps", "5", "--set", "model.preset=nano"], check=True,
                       stdout=subprocess.DEVNULL)
        [latest] = sorted(glob.glob(str(run / "checkpoints" / "step_*")))[-1:]
        tensors = safetensors.torch.load_file(os.path.join(latest, "model.safetensors"))
        assert tensors["transformer.wte.weight"].isfinite().all()
        board = EventAccumulator(str(run / "tensorboard"))
        board.Reload()
        curve = [event.value for event in board.Scalars("train/loss")]
        logged = [json.loads(line) for line in (run / "run.jsonl").read_text().splitlines()]
        losses = [line["loss"] for line in logged if "loss" in line]
        assert len(curve) == 5
        # TensorBoard keeps float32: 24 bits of a loss below 16 are within 1e-6.
        assert all(abs(a - b) < 1e-6 for a, b in zip(curve, losses))
        check_parts(pathlib.Path(folder))
        check_traces(pathlib.Path(folder))
        print(f"readers: {len(tensors)} tensors, {len(curve)} points")


if __name__ == "__main__":
    main()
