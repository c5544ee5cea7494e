"""`parallel.data` from the outside: one hash, counted bytes and calls, and files that any reads.

All pairs of strategies, meshes, models and options are rows of hanji/train/test_job_table.cpp.
"""
import unittest

from command import CONSTANT, MEGABYTE, STABLE, STRATEGIES, CommandTest, by

JOB = ["--seed", 5, "--set", "train.global_batch=8", "--set", "model.dropout=0.1", "--set",
       "train.clip=0.5", "--set", "train.learning_rate=1e-2", "--set", "comm.bucket_bytes=65536"]


class Strategies(CommandTest):
    def summary(self, out):
        return self.read_json(out, "summary.json")

    def resume(self, out, *arguments):
        self.hanji("train", "--resume", "--out", self.folder / out, *arguments)
        return self.summary(out)

    def expect_counted_as_planned(self, out):
        told = self.summary(out)["prediction"]
        for name in ("wire_bytes_per_step", "collectives_per_step"):
            self.assertEqual(told[name]["measured"], told[name]["predicted"], f"{out}: {name}")
        for name, line in told.items():
            if not name.startswith("memory."):
                continue
            apart = abs(line["measured"] - line["predicted"])
            self.assertLess(apart, 0.03 * line["predicted"] + 0.1 * MEGABYTE,
                            f"{out}: {name} {line}")
        peak = told["peak_bytes_per_rank"]
        self.assertLess(abs(peak["measured"] - peak["predicted"]),
                        0.03 * peak["predicted"] + 0.5 * MEGABYTE, f"{out}: {peak}")

    def test_a_run_goes_on_under_every_strategy_to_the_bits_of_one_process(self):
        steps = 2 * len(STRATEGIES)
        self.train("whole", *JOB, *STABLE, *CONSTANT, "--ranks", 1, "--steps", steps)
        for done, data in enumerate(STRATEGIES, start=1):
            if done == 1:
                self.train("run", *JOB, *STABLE, *CONSTANT, *by(data), "--steps", 2)
            else:
                self.resume("run", *by(data), "--steps", 2 * done)
            self.expect_counted_as_planned("run")
        found, expected = self.summary("run"), self.summary("whole")
        for name in ("state_sha256", "params_sha256", "validation_loss", "train_loss"):
            self.assertEqual(found[name], expected[name], name)

    def test_an_optimizer_in_a_file_leaves_memory_and_keeps_the_bits(self):
        scratch = self.folder / "scratch"
        scratch.mkdir()
        two = [*JOB, *STABLE, *CONSTANT, "--ranks", 2, "--set", "model.preset=char"]
        in_file = ["--set", "offload.optimizer=file", "--set", f"offload.folder={scratch}"]
        self.train("memory", *two, "--steps", 6)
        self.train("file", *two, *in_file, "--steps", 2)
        self.expect_counted_as_planned("file")
        lines = self.summary("file")["prediction"]
        # Three windows of 2^18 elements, of two moments in float32.
        self.assertEqual(lines["memory.optimizer"]["measured"], 3 * 2 * (1 << 18) * 4)
        self.resume("file", "--steps", 4)
        in_memory = ["--set", "offload.optimizer=memory", "--set", "offload.folder="]
        self.assertEqual(self.resume("file", *in_memory, "--steps", 6)["state_sha256"],
                         self.summary("memory")["state_sha256"])
        self.assertEqual(list(scratch.iterdir()), [])
        gone = scratch / "gone"
        failed = self.train("no", *two, *in_file, "--set", f"offload.folder={gone}", "--steps", 2,
                            expect=2)
        self.assertIn(f"'{gone}' is no folder that this user may write", failed.stderr)

    def test_a_cut_model_moves_and_holds_what_the_plan_says(self):
        ways = {"server": [4, "parallel.data=server"], "zero1": [2, "parallel.data=zero1"],
                "weights3": [4, "parallel.moves=weights", "parallel.sequence=true",
                             "parallel.data=zero3", "compute.recompute=true"]}
        for name, (ranks, *settings) in ways.items():
            cut = [part for one in ("mesh.tp=2", "train.micro_batch=2", *settings)
                   for part in ("--set", one)]
            done = self.train(name, *JOB, "--ranks", ranks, *cut, "--steps", 4)
            self.assertIn("sample (more: hanji generate", done.stdout)
            self.expect_counted_as_planned(name)

    def test_a_mesh_of_the_table_runs_with_its_flags(self):
        job = ["--ranks", 4, "--set", "model.preset=nano", "--set", "train.global_batch=8"]
        table = self.hanji("plan", *job, "--meshes").stdout
        rows = [line.split("--mesh ")[1] for line in table.splitlines() if "  --mesh " in line]
        cut = [row for row in rows if "parallel.data=" in row and "tp=" not in row]
        self.assertEqual(sum("pp=2" in row for row in cut), 6, table)  # zero1, zero2, zero3, with dp and with cp
        ways = [next(row for row in cut if axis in row) for axis in ("pp=2", "cp=2")]
        for number, row in enumerate(ways):
            self.hanji("train", *job, "--steps", 1, "--out", self.folder / str(number), "--mesh",
                       *row.split())
            plan = self.summary(str(number))["plan"]
            self.assertIn(f"--set parallel.data={plan['config']['parallel']['data']}", row)
            if "cp=" in row:  # the way that was priced, whatever times say now
                self.assertIn(f"--set parallel.context={plan['config']['parallel']['context']}", row)

    def test_ranks_of_cp_move_and_hold_what_the_plan_says(self):
        undropped = ["--set", "model.dropout=0"]
        ways = {"zero3": [4, "parallel.data=zero3", "parallel.context=ring"],
                "stable": [2, "train.bits=stable", "train.cuts.tokens=4", "compute.recompute=true"]}
        for name, (ranks, *settings) in ways.items():
            cut = [part for one in ("mesh.cp=2", "train.micro_batch=2", *settings)
                   for part in ("--set", one)]
            done = self.train(name, *JOB, *undropped, "--ranks", ranks, *cut, "--steps", 4)
            self.assertIn("sample (more: hanji generate", done.stdout)
            self.assertRegex(done.stdout, r"attention by (ulysses|ring)")
            self.expect_counted_as_planned(name)


if __name__ == "__main__":
    unittest.main()
