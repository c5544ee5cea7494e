"""`parallel.data` from the outside: one hash, counted bytes and calls, and files that any reads."""
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

    def test_one_hash_in_stable(self):
        self.train("one", *JOB, *STABLE, "--ranks", 1, "--steps", 8)
        expected = self.summary("one")
        for data in STRATEGIES:
            self.train(data, *JOB, *STABLE, *by(data), "--steps", 8)
            self.expect_counted_as_planned(data)
            found = self.summary(data)
            for name in ("state_sha256", "params_sha256", "validation_loss", "train_loss"):
                self.assertEqual(found[name], expected[name], f"{data}: {name}")

    def test_a_run_goes_on_under_every_other_strategy_on_other_ranks(self):
        order = [*STRATEGIES, "ddp"]
        steps = 3 * len(order)
        self.train("whole", *JOB, *STABLE, *CONSTANT, *by("ddp"), "--steps", steps)
        self.train("run", *JOB, *STABLE, *CONSTANT, *by(order[0]), "--steps", 3)
        for done, data in enumerate(order[1:], start=2):
            self.resume("run", *by(data), "--steps", 3 * done)
        self.assertEqual(self.summary("run")["state_sha256"],
                         self.summary("whole")["state_sha256"])

    def test_counted_bytes_and_calls_are_the_plans_in_run(self):
        for data in STRATEGIES:
            self.train(data, *JOB, *by(data), "--steps", 4)
            self.expect_counted_as_planned(data)
            self.assertGreater(self.summary(data)["transfer_seconds"], 0, data)

    def test_replicas_of_the_same_sums_train_alike(self):
        losses = set()
        for data in ("ddp", "server", "zero1", "zero2", "zero3"):
            self.train(data, *JOB, "--ranks", 2, "--steps", 4, "--set", f"parallel.data={data}",
                       "--set", "train.micro_batch=2")
            losses.add(self.summary(data)["state_sha256"])
        self.assertEqual(len(losses), 1)

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
        ways = {"alone": [2], "replicas": [4], "server": [4, "parallel.data=server"],
                "zero1": [2, "parallel.data=zero1"], "zero2": [4, "parallel.data=zero2"],
                "zero3": [4, "parallel.data=zero3"], "sequence": [4, "parallel.sequence=true"],
                "recompute": [2, "parallel.sequence=true", "compute.recompute=true"],
                "weights": [2, "parallel.moves=weights"],
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
        for number, row in enumerate(cut):
            self.hanji("train", *job, "--steps", 1, "--out", self.folder / str(number), "--mesh",
                       *row.split())
            plan = self.summary(str(number))["plan"]
            self.assertIn(f"--set parallel.data={plan['config']['parallel']['data']}", row)
            if "cp=" in row:  # the way that was priced, whatever times say now
                self.assertIn(f"--set parallel.context={plan['config']['parallel']['context']}", row)

    def test_ranks_of_cp_move_and_hold_what_the_plan_says(self):
        undropped = ["--set", "model.dropout=0"]
        ways = {"chosen": [2], "ulysses": [4, "parallel.context=ulysses"], "ring": [4, "parallel.context=ring"],
                "zero1": [4, "parallel.data=zero1"], "zero3": [4, "parallel.data=zero3", "parallel.context=ring"],
                "stable": [2, "train.bits=stable", "train.cuts.tokens=4"],
                "stable_zero3": [4, "train.bits=stable", "train.cuts.tokens=4", "parallel.data=zero3"],
                "recompute": [2, "compute.recompute=true"], "with_tp": [4, "mesh.tp=2", "parallel.context=ring"]}
        for name, (ranks, *settings) in ways.items():
            cut = [part for one in ("mesh.cp=2", "train.micro_batch=2", *settings)
                   for part in ("--set", one)]
            done = self.train(name, *JOB, *undropped, "--ranks", ranks, *cut, "--steps", 4)
            self.assertIn("sample (more: hanji generate", done.stdout)
            self.assertRegex(done.stdout, r"attention by (ulysses|ring)")
            self.expect_counted_as_planned(name)

    def test_parts_of_samples_train_as_one_rank_does_and_go_on_as_any_mesh(self):
        sizes = ["--set", "model.heads=6", "--set", "model.width=48", "--set", "model.block=33", "--set",
                 "compute.dtype=float64", "--set", "train.log_every=1", "--set", "model.dropout=0", *CONSTANT]
        self.train("whole", *JOB, *sizes, "--ranks", 1, "--steps", 6)
        expected = self.read_lines("whole", "run.jsonl")
        for way, ranks, more in (("ulysses", 3, ()), ("ring", 3, ()), ("ring", 6, ("parallel.data=zero2",))):
            out = f"{way}{ranks}"
            cut = [part for one in ("mesh.cp=3", f"parallel.context={way}", *more) for part in ("--set", one)]
            self.train(out, *JOB, *sizes, "--ranks", ranks, *cut, "--steps", 4)
            self.resume(out, "--ranks", 1, "--steps", 6, "--set", "parallel.data=ddp")
            for line, whole in zip(self.read_lines(out, "run.jsonl"), expected):
                for name in ("loss", "gradient_norm"):
                    if name in whole and line["step"] == whole["step"]:
                        self.assertAlmostEqual(line[name], whole[name], delta=1e-9 * whole[name])

    def test_uneven_parts_train_as_one_rank_does(self):
        sizes = ["--set", "model.heads=4", "--set", "model.width=48", "--set",
                 "compute.dtype=float64", "--set", "train.log_every=1", "--steps", 6]
        self.train("whole", *JOB, *sizes, "--ranks", 1)
        expected = self.read_lines("whole", "run.jsonl")
        for ranks, *settings in ((3,), (6, "parallel.data=zero1"), (3, "parallel.sequence=true")):
            out = "uneven" + "".join(settings[:1]) + str(ranks)
            cut = [part for one in ("mesh.tp=3", *settings) for part in ("--set", one)]
            self.train(out, *JOB, *sizes, "--ranks", ranks, *cut)
            told = self.summary(out)["prediction"]
            for name in ("wire_bytes_per_step", "collectives_per_step"):
                self.assertEqual(told[name]["measured"], told[name]["predicted"], f"{out}: {name}")
            for line, whole in zip(self.read_lines(out, "run.jsonl"), expected):
                for name in ("loss", "gradient_norm", "validation_loss"):
                    if name in whole:
                        self.assertAlmostEqual(line[name], whole[name], delta=1e-9 * whole[name])

    def test_ranks_of_hsdp_are_verified_against_one_process(self):
        self.hanji("verify", "--out", self.folder / "v", "--steps", 3, "--set",
                   "model.preset=nano", *JOB, *by("hsdp"))


if __name__ == "__main__":
    unittest.main()
