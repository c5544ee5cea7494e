"""Bits `stable` over many plans: one state per job, grains and bytes as planned (`dev check`)."""
import itertools
import json
import shutil
import unittest

from command import CONSTANT, CommandTest

JOB = ["--seed", 5, "--set", "train.bits=stable", "--set", "model.dropout=0.1",
       "--set", "train.clip=0.5", "--set", "train.learning_rate=1e-2"]
RANKS = (1, 2, 3, 4)
BUCKETS = (4096, 50000, 1 << 20)
SPLITS = {2: [3, 1], 3: [1, 5, 1], 4: [0.25, 0.25, 0.10, 0.40]}
FEW = {2: [6, 1], 3: [1, 5, 1], 4: [1, 1, 1, 4]}  # of 7 grains, no rank without one

CUT = ["--set", "train.cuts.features=4", "--set", "train.cuts.tokens=4", "--set", "model.heads=4"]
GROUPS = ["parallel.data=hsdp", "mesh.dp=2", "mesh.fsdp=2"]
# Ranks, then settings: every way to train a model in blocks.
MESHES = {
    "one": [1],
    "accumulation": [1, "train.micro_batch=1"],
    "recompute": [1, "compute.recompute=true"],
    "dp": [3],
    "zero1": [3, "parallel.data=zero1"],
    "zero2": [2, "parallel.data=zero2"],
    "zero3": [4, "parallel.data=zero3"],
    "hsdp": [4, *GROUPS],
    "server": [3, "parallel.data=server"],
    "tp2": [2, "mesh.tp=2"],
    "tp3": [3, "mesh.tp=3"],
    "tp4": [4, "mesh.tp=4"],
    "sequence2": [2, "mesh.tp=2", "parallel.sequence=true"],
    "sequence3": [3, "mesh.tp=3", "parallel.sequence=true", "compute.recompute=true"],
    "sequence4": [4, "mesh.tp=4", "parallel.sequence=true"],
    "dp_tp": [4, "mesh.tp=2"],
    "dp_sequence": [6, "mesh.tp=3", "parallel.sequence=true"],
    "fsdp_tp": [4, "mesh.tp=2", "parallel.data=zero3"],
    "zero1_tp": [6, "mesh.tp=3", "parallel.data=zero1"],
    "hsdp_tp": [8, "mesh.tp=2", *GROUPS],
    "server_tp": [4, "mesh.tp=2", "parallel.data=server"],
    "fsdp_sequence": [4, "mesh.tp=2", "parallel.data=zero2", "parallel.sequence=true"],
    "cp2": [2, "mesh.cp=2", "compute.recompute=true"],
    "cp3": [3, "mesh.cp=3"],
    "cp4": [4, "mesh.cp=4"],
    "dp_cp": [4, "mesh.cp=2"],
    "zero1_cp": [6, "mesh.cp=3", "parallel.data=zero1"],
    "zero2_cp": [4, "mesh.cp=2", "parallel.data=zero2"],
    "fsdp_cp": [4, "mesh.cp=2", "parallel.data=zero3"],
    "hsdp_cp": [8, "mesh.cp=2", *GROUPS],
    "cp_tp": [4, "mesh.cp=2", "mesh.tp=2"],
    "fsdp_cp_tp": [8, "mesh.cp=2", "mesh.tp=2", "parallel.data=zero3"],
    "stages": [4, "mesh.pp=2", "mesh.tp=2"],
    "stages_shards": [8, "mesh.pp=2", "mesh.tp=2", "parallel.data=zero3"],
    "stages_sequence": [8, "mesh.pp=2", "mesh.tp=2", "mesh.dp=2", "parallel.sequence=true"],
}

# Of those, the ways of sums over blocks: not all, as many processors compute bf16 slowly.
IN_BF16 = ("one", "tp2", "tp3", "tp4", "sequence2", "sequence4", "zero1_tp", "cp3", "cp4",
           "fsdp_cp_tp", "stages_sequence")


def staged(schedule, *settings):
    return [f"pipeline.schedule={schedule}", *settings]


def both(schedule, *settings):
    return ["mesh.pp=2", "mesh.tp=2", *staged(schedule, *settings)]


# Stages of a pipeline: every schedule, on two to four ranks.
TWO_STAGES = "pipeline.virtual_stages=2"
STAGES = {
    "one": [1],
    "accumulation": [1, "train.micro_batch=1"],
    "dp": [3],
    "zero3": [2, "parallel.data=zero3"],
    "server": [3, "parallel.data=server"],
    "naive": [2, "mesh.pp=2", *staged("naive")],
    "gpipe": [3, "mesh.pp=3", *staged("gpipe")],
    "1f1b": [4, "mesh.pp=4", *staged("1f1b")],
    "1f1b_recompute": [2, "mesh.pp=2", *staged("1f1b", "compute.recompute=true")],
    "cut": [2, "mesh.pp=2", *staged("1f1b", "pipeline.cut=[1]")],
    "interleaved": [2, "mesh.pp=2", *staged("interleaved", TWO_STAGES)],
    "bfs": [2, "mesh.pp=2", *staged("bfs", TWO_STAGES)],
    "bfs_dp": [4, "mesh.pp=2", *staged("bfs", TWO_STAGES, "compute.recompute=true")],
    "zbh1": [3, "mesh.pp=3", *staged("zbh1")],
    "interleaved_zb": [2, "mesh.pp=2", *staged("interleaved_zb", TWO_STAGES)],
    "zbv": [3, "mesh.pp=3", *staged("zbv")],
    "zbv_dp": [6, "mesh.pp=2", *staged("zbv")],
    "dualpipev": [2, "mesh.pp=2", *staged("dualpipev")],
    "1f1b_dp": [6, "mesh.pp=3", *staged("1f1b")],
    "1f1b_zero1": [4, "mesh.pp=2", *staged("1f1b", "parallel.data=zero1")],
    "gpipe_zero2": [6, "mesh.pp=2", *staged("gpipe", "parallel.data=zero2")],
    "gathered": [3, "parallel.data=zero3", "parallel.share_memory=false"],
    "1f1b_gathered": [4, "mesh.pp=2", *staged("1f1b", "parallel.data=zero3",
                                              "parallel.share_memory=false")],
    "bfs_gathered": [4, "mesh.pp=2", *staged("bfs", TWO_STAGES, "parallel.data=zero3",
                                             "parallel.share_memory=false",
                                             "parallel.reshard=micro_batch")],
    "1f1b_hsdp": [8, "mesh.pp=2", *staged("1f1b", *GROUPS)],
    **{f"{schedule}_zero3": [4, "mesh.pp=2", *staged(schedule, "parallel.data=zero3")]
       for schedule in ("naive", "gpipe", "1f1b", "zbh1", "zbv", "dualpipev")},
    **{f"{schedule}_zero3": [4, "mesh.pp=2", *staged(schedule, TWO_STAGES, "parallel.data=zero3")]
       for schedule in ("interleaved", "bfs", "interleaved_zb")},
}
STAGED = ["--set", "model.layers=5"]

# Stages of a pipeline whose layers ranks cut too.
SEQUENCE = "parallel.sequence=true"
CUT_STAGES = {
    "one": [1],
    "accumulation": [1, "train.micro_batch=1"],
    "tp": [2, "mesh.tp=2"],
    "pp": [2, "mesh.pp=2"],
    **{kind: [4, *both(kind)]
       for kind in ("naive", "gpipe", "1f1b", "zbh1", "zbv", "dualpipev")},
    **{kind: [4, *both(kind, TWO_STAGES)] for kind in ("interleaved", "bfs", "interleaved_zb")},
    "recompute": [4, *both("1f1b", "compute.recompute=true")],
    "sequence": [4, *both("1f1b", SEQUENCE)],
    "pp3": [6, "mesh.pp=3", "mesh.tp=2", *staged("zbv", SEQUENCE)],
    "tp3": [6, "mesh.pp=2", "mesh.tp=3", *staged("gpipe", SEQUENCE)],
    "dp": [8, *both("bfs", TWO_STAGES, SEQUENCE, "compute.recompute=true")],
}


def by_mesh(name, meshes=MESHES):
    ranks, *settings = meshes[name]
    return ["--ranks", ranks, *(part for one in settings for part in ("--set", one))]


class StableMatrix(CommandTest):
    def run_plan(self, name, ranks, *arguments):
        self.train(name, *JOB, "--steps", 20, "--ranks", ranks, *arguments)
        summary = self.read_json(name, "summary.json")
        for counted in ("wire_bytes_per_step", "collectives_per_step"):
            if ranks == 1 and counted == "collectives_per_step":
                continue
            told = summary["prediction"][counted]
            self.assertEqual(told["measured"], told["predicted"], f"{name}: {counted}")
        self.check_forwards(name)
        return summary["state_sha256"]

    def check_forwards(self, name):
        """A rank computes its own grains and nothing else."""
        plan = self.read_json(name, "plan.json")
        grain = plan["config"]["train"]["grain"]
        peers = plan["ranks"] // len(plan["shares"])
        pp = plan["config"]["mesh"].get("pp", 1)
        stages = len(plan["config"]["pipeline"]["cut"]) + 1 if pp > 1 else 1
        for coordinate, share in enumerate(plan["shares"]):
            rank = coordinate if pp > 1 else coordinate * peers
            trace = json.loads((self.folder / name / "trace" / f"rank.{rank}.json").read_text())
            names = [event["name"] for event in trace["traceEvents"]
                     if event["ph"] == "X" and event["cat"] != "kernel"]
            begin, end = share["samples"]
            self.assertEqual(names.count("forward"), 20 * (end - begin) // grain * stages // pp,
                             f"{name} {rank}")

    def test_ranks_and_buckets(self):
        states = {self.run_plan(f"{ranks}-{bucket}", ranks, "--set", f"comm.bucket_bytes={bucket}")
                  for ranks, bucket in itertools.product(RANKS, BUCKETS)}
        self.assertEqual(len(states), 1)

    def test_micro_batch_caps(self):
        states = {self.run_plan(f"{ranks}-{cap}", ranks, "--set", f"train.micro_batch={cap}")
                  for ranks, cap in itertools.product((1, 3), (1, 2, 7))}
        self.assertEqual(len(states), 1)

    def test_global_batches_and_splits(self):
        for batch in (7, 12, 31, 100):
            setting = ["--set", f"train.global_batch={batch}"]
            states = {self.run_plan(f"{batch}-even-{ranks}", ranks, *setting) for ranks in RANKS}
            for ranks, split in (FEW if batch == 7 else SPLITS).items():
                states.add(self.run_plan(f"{batch}-split-{ranks}", ranks, *setting,
                                         "--set", f"train.split={split}"))
            self.assertEqual(len(states), 1, f"global batch {batch}")
        shares = self.read_json("100-split-4", "plan.json")["shares"]
        sizes = [share["samples"][1] - share["samples"][0] for share in shares]
        self.assertEqual(sizes, [25, 25, 10, 40])

    def test_meshes_that_cut_the_model(self):
        states = {name: self.run_plan(name, *by_mesh(name)[1:], *CUT) for name in MESHES}
        self.assertEqual(len(set(states.values())), 1, states)

    def test_meshes_that_cut_the_model_in_bf16(self):
        bf16 = ["--set", "compute.dtype=bf16", "--set", "compute.slow_dtype=true",
                "--set", "model.dropout=0"]
        states = {name: self.run_plan(f"bf16-{name}", *by_mesh(name)[1:], *CUT, *bf16)
                  for name in IN_BF16}
        self.assertEqual(len(set(states.values())), 1, states)

    def test_stages_of_pipelines(self):
        for tied in ("true", "false"):
            job = [*STAGED, "--set", f"model.tied={tied}", "--set", "train.global_batch=24"]
            states = {name: self.run_plan(f"{name}-{tied}", *by_mesh(name, STAGES)[1:], *job)
                      for name in STAGES}
            self.assertEqual(len(set(states.values())), 1, states)

    def test_stages_whose_layers_are_cut(self):
        for tied in ("true", "false"):
            job = [*CUT, *STAGED, "--set", f"model.tied={tied}", "--set", "train.global_batch=24"]
            states = {name: self.run_plan(f"cut-{name}-{tied}", *by_mesh(name, CUT_STAGES)[1:],
                                          *job)
                      for name in CUT_STAGES}
            self.assertEqual(len(set(states.values())), 1, states)

    def test_every_mesh_goes_on_from_five_others(self):
        """Each file is read by five meshes, and each mesh reads those of five: all pairs take four times as long."""
        job = [*JOB, *CUT, *CONSTANT, "--set", "train.evaluate_every=0"]
        self.train("whole", *job, *by_mesh("one"), "--steps", 6)
        expected = self.read_json("whole", "summary.json")["state_sha256"]
        names = list(MESHES)
        for place, saved_by in enumerate(names):
            self.train(f"by-{saved_by}", *job, *by_mesh(saved_by), "--steps", 3)
            for mesh in (names[(place + offset) % len(names)] for offset in (1, 4, 9, 13, 16)):
                out = f"{saved_by}-{mesh}"
                shutil.copytree(self.folder / f"by-{saved_by}", self.folder / out)
                reset = ["--set", "parallel.data=ddp", "--set", "mesh.tp=1", "--set",
                         "parallel.sequence=false", "--set", "compute.recompute=false", "--set",
                         "mesh.dp=auto", "--set", "mesh.fsdp=auto", "--set", "mesh.pp=1", "--set", "mesh.cp=1", "--set",
                         "train.micro_batch=auto"]
                self.hanji("train", "--resume", "--out", self.folder / out, *reset, *by_mesh(mesh),
                           "--steps", 6)
                found = self.read_json(out, "summary.json")["state_sha256"]
                self.assertEqual(found, expected, out)
                shutil.rmtree(self.folder / out)

    def test_every_plan_has_a_certificate(self):
        for ranks, batch in itertools.product(RANKS, (7, 12)):
            for bits in ("run", "stable"):
                self.hanji("verify", "--out", self.folder / f"{bits}-{ranks}-{batch}", *JOB,
                           "--steps", 20, "--ranks", ranks, "--set", "model.preset=nano",
                           "--set", f"train.bits={bits}", "--set", f"train.global_batch={batch}")


if __name__ == "__main__":
    unittest.main()
