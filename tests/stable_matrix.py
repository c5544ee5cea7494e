"""Bits `stable` over many plans: one state per job, grains and bytes as planned (`dev check`)."""
import itertools
import json
import unittest

from command import CommandTest

JOB = ["--steps", 20, "--seed", 5, "--set", "train.bits=stable", "--set", "model.dropout=0.1",
       "--set", "train.clip=0.5", "--set", "train.learning_rate=1e-2"]
RANKS = (1, 2, 3, 4)
BUCKETS = (4096, 50000, 1 << 20)
SPLITS = {2: [3, 1], 3: [1, 5, 1], 4: [0.25, 0.25, 0.10, 0.40]}
FEW = {2: [6, 1], 3: [1, 5, 1], 4: [1, 1, 1, 4]}  # of 7 grains, no rank without one


class StableMatrix(CommandTest):
    def run_plan(self, name, ranks, *arguments):
        self.train(name, *JOB, "--ranks", ranks, *arguments)
        summary = self.read_json(name, "summary.json")
        wire = summary["prediction"]["wire_bytes_per_step"]
        self.assertEqual(wire["measured"], wire["predicted"], name)
        self.check_forwards(name)
        return summary["state_sha256"]

    def check_forwards(self, name):
        """A rank computes its own grains and nothing else."""
        plan = self.read_json(name, "plan.json")
        grain = plan["config"]["train"]["grain"]
        for rank, share in enumerate(plan["shares"]):
            trace = json.loads((self.folder / name / "trace" / f"rank.{rank}.json").read_text())
            names = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
            begin, end = share["samples"]
            self.assertEqual(names.count("forward"), 20 * (end - begin) // grain, f"{name} {rank}")

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

    def test_every_plan_has_a_certificate(self):
        for ranks, batch in itertools.product(RANKS, (7, 12)):
            for bits in ("run", "stable"):
                self.hanji("verify", "--out", self.folder / f"{bits}-{ranks}-{batch}", *JOB,
                           "--ranks", ranks, "--set", "model.preset=nano",
                           "--set", f"train.bits={bits}", "--set", f"train.global_batch={batch}")


if __name__ == "__main__":
    unittest.main()
