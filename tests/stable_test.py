"""`train.bits = stable` from the outside: one hash, whatever the plan.

A process for each rank; all pairs of axes, strategies and options are rows of hanji/train/test_job_table.cpp, and the long
matrix is `./dev check stable`.
"""
import json
import unittest

from command import CommandTest

JOB = ["--seed", 3, "--set", "train.bits=stable", "--set", "train.global_batch=13",
       "--set", "model.dropout=0.1", "--set", "train.clip=0.5", "--set", "train.evaluate_every=10",
       "--set", "train.learning_rate=1e-2"]

PLANS = {
    "one process": ["--ranks", 1],
    "three, uneven": ["--ranks", 3, "--set", "train.split=[0.5, 0.1, 0.4]", "--set", "comm.bucket_bytes=4096"],
    "three, by messages": ["--ranks", 3, "--set", "comm.engine=gloo", "--set", "train.micro_batch=5"],
}

CUT = ["--set", "train.cuts.features=4", "--set", "train.cuts.tokens=4", "--set", "model.heads=4"]

CUT_PLANS = {
    "one": [1],
    "features": [3, "mesh.tp=3", "parallel.sequence=true", "compute.recompute=true"],
    "tokens and features": [4, "mesh.cp=2", "mesh.tp=2", "parallel.data=zero3"],
}


class Stable(CommandTest):
    def run_job(self, out, *arguments, steps=5):
        self.output = self.train(out, *JOB, "--steps", steps, *arguments).stdout
        summary = self.read_json(out, "summary.json")
        losses = [line["loss"] for line in self.read_lines(out, "run.jsonl") if "loss" in line]
        return summary, losses

    def sample(self):
        return self.output.partition("sample (more: hanji generate")[2].partition("\n")[2]

    def test_every_plan_gives_one_hash_and_one_curve(self):
        results = {name: self.run_job(name, *plan) for name, plan in PLANS.items()}
        one, losses = results["one process"]
        self.assertEqual(len(losses), 5)
        for name, (summary, curve) in results.items():
            self.assertEqual(summary["state_sha256"], one["state_sha256"], name)
            self.assertEqual(summary["params_sha256"], one["params_sha256"], name)
            self.assertEqual(summary["validation_loss"], one["validation_loss"], name)
            self.assertEqual(curve, losses, name)

    def test_layers_cut_among_ranks_give_one_hash(self):
        results, samples = {}, set()
        for name, (ranks, *settings) in CUT_PLANS.items():
            mesh = [part for one in settings for part in ("--set", one)]
            results[name] = self.run_job(name, "--ranks", ranks, *CUT, *mesh, steps=3)
            samples.add(self.sample())
        self.assertEqual(len(samples), 1, samples)
        self.assertGreater(len(samples.pop()), 200)
        one, losses = results["one"]
        for name, (summary, curve) in results.items():
            self.assertEqual(summary["state_sha256"], one["state_sha256"], name)
            self.assertEqual(summary["validation_loss"], one["validation_loss"], name)
            self.assertEqual(curve, losses, name)
            if name == "one":
                continue
            for counted in ("wire_bytes_per_step", "collectives_per_step"):
                told = summary["prediction"][counted]
                self.assertEqual(told["measured"], told["predicted"], f"{name}: {counted}")

    def test_run_bits_would_not(self):
        # Else the test above could not tell anything.
        hashes = {self.run_job(f"run-{ranks}", "--ranks", ranks, "--set", "train.bits=run")[0]
                  ["params_sha256"] for ranks in (1, 3)}
        self.assertEqual(len(hashes), 2)

    def test_a_rank_computes_its_grains_and_moves_what_the_plan_says(self):
        summary, _ = self.run_job("run", "--ranks", 2, "--set", "train.split=[3, 10]")
        for rank, grains in enumerate((3, 10)):
            trace = json.loads((self.folder / "run" / "trace" / f"rank.{rank}.json").read_text())
            names = [event["name"] for event in trace["traceEvents"]
                     if event["ph"] == "X" and event["cat"] != "kernel"]
            self.assertEqual(names.count("forward"), 5 * grains)
        wire = summary["prediction"]["wire_bytes_per_step"]
        self.assertEqual(wire["measured"], wire["predicted"])
        self.assertGreater(wire["predicted"], 0)

    def test_grains_of_several_samples(self):
        grain = ["--set", "train.grain=3", "--set", "train.global_batch=15"]
        hashes = {self.run_job(f"grain-{ranks}", "--ranks", ranks, *grain)[0]["state_sha256"]
                  for ranks in (1, 3)}
        self.assertEqual(len(hashes), 1)


if __name__ == "__main__":
    unittest.main()
