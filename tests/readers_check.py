"""Loads what `hanji train` wrote with the libraries that others use: safetensors, TensorBoard."""
import glob
import json
import os
import pathlib
import subprocess
import tempfile

import safetensors.torch
import torch
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


def main():
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
        print(f"readers: {len(tensors)} tensors, {len(curve)} points")


if __name__ == "__main__":
    main()
