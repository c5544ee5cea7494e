"""`hanji train --resume`: goes on exactly where a run was, whatever ended it, or says why not."""
import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from command import CONSTANT, DOUBLE, HANJI, NANO, STABLE, CommandTest

JOB = ["--ranks", "2", "--seed", "7", "--set", "model.dropout=0.1", "--set", "checkpoint.every=3",
       "--set", "train.evaluate_every=5"]


class Resume(CommandTest):
    def steps(self, out):
        return [line for line in self.read_lines(out, "run.jsonl") if "loss" in line]

    def hashes(self, out):
        summary = self.read_json(out, "summary.json")
        return summary["params_sha256"], summary["state_sha256"]

    def start(self, out, *arguments):
        """A run in the background, as the leader of a process group of its own."""
        return subprocess.Popen([HANJI, "train", "--out", self.folder / out, *NANO,
                                 *map(str, arguments)], env=self.environment(), cwd=self.folder,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                start_new_session=True)

    def resume(self, out, *arguments, **keywords):
        return self.hanji("train", "--resume", "--out", self.folder / out, *arguments, **keywords)

    def test_a_killed_run_ends_as_one_that_was_never_killed(self):
        self.expect_no_trace_of_kills(*JOB)

    def test_a_run_killed_while_its_ranks_save_parts_ends_as_one_that_was_never_killed(self):
        self.expect_no_trace_of_kills(*JOB, "--set", "parallel.data=zero3", "--set",
                                      "checkpoint.every=1")
        checkpoint = self.folder / "killed" / "checkpoints" / "step_00000060"
        self.assertEqual(sorted(path.name for path in checkpoint.iterdir()),
                         ["manifest.json", "model.part_0.safetensors", "model.part_1.safetensors",
                          "optimizer.part_0.safetensors", "optimizer.part_1.safetensors"])
        files = self.read_json(checkpoint, "manifest.json")["files"]
        self.assertEqual([file["writer"]["coordinates"]["fsdp"] for file in files], [0, 0, 1, 1])

    def expect_no_trace_of_kills(self, *job):
        self.train("whole", *job, "--steps", 60)
        chance = random.Random(1)
        process = self.start("killed", *job, "--steps", 60)
        for _ in range(3):
            # From before the first step to after the last one.
            time.sleep(chance.uniform(0.1, 1.2))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process = subprocess.Popen(
                [HANJI, "train", "--resume", "--out", self.folder / "killed",
                 *([] if (self.folder / "killed" / "plan.json").exists()
                   or any((self.folder / "killed" / "checkpoints").glob("step_*"))
                   else [*NANO, *map(str, job), "--steps", "60"])],
                env=self.environment(), cwd=self.folder, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        output, _ = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, output)
        self.assertEqual(self.hashes("killed"), self.hashes("whole"))
        self.assertEqual([line["step"] for line in self.steps("killed")], list(range(1, 61)))
        for ours, theirs in zip(self.steps("killed"), self.steps("whole")):
            for name in ("loss", "learning_rate", "gradient_norm"):
                self.assertEqual(ours[name], theirs[name], (ours["step"], name))
        self.assertEqual(self.read_json("killed", "summary.json")["steps"], 60)

    def test_a_run_killed_as_it_wrote_its_first_plan_begins_again(self):
        unfinished = self.folder / "run" / ".plan.json.123.456789.tmp"
        (self.folder / "run" / "trace").mkdir(parents=True)
        unfinished.write_text('{"pl')
        self.resume("run", *NANO, *JOB, "--steps", 2)
        self.assertEqual(len(self.steps("run")), 2)
        self.assertFalse(unfinished.exists())

    def test_more_steps_go_on_and_the_files_continue(self):
        constant = ["--set", "train.schedule=constant", "--set", "train.warmup_steps=2"]
        self.train("whole", *JOB, *constant, "--steps", 14)
        self.train("run", *JOB, *constant, "--steps", 8)
        done = self.resume("run", "--steps", 14)
        self.assertIn("behind step 8", done.stdout)
        self.assertIn("train.steps 8 -> 14 (--steps)", done.stdout)
        self.assertEqual(self.hashes("run"), self.hashes("whole"))
        lines = self.read_lines("run", "run.jsonl")
        self.assertEqual([line["step"] for line in lines if "loss" in line], list(range(1, 15)))
        self.assertIn({"step": 8, "resumed": True, "ranks": 2}, lines)
        summary = self.read_json("run", "summary.json")
        self.assertEqual(summary["resumed"], [{"step": 8, "ranks": 2}])
        self.assertEqual(summary["checkpoint"]["saves"], 3)  # 9, 12, and the last
        self.assertEqual(len(list((self.folder / "run" / "tensorboard").iterdir())), 2)
        self.assertTrue((self.folder / "run" / "plan.until_00000008.json").is_file())
        self.assertIn("are done", self.resume("run").stdout)

    def test_other_ranks_take_over_and_agree_to_rounding(self):
        self.train("whole", *JOB, *DOUBLE, "--steps", 8)
        self.train("run", *JOB, *DOUBLE, "--steps", 8)
        for step in (6, 8):  # leaves the checkpoint of step 3
            shutil.rmtree(self.folder / "run" / "checkpoints" / f"step_{step:08}")
        done = self.resume("run", "--ranks", 3)
        self.assertIn("run.ranks 2 -> 3", done.stdout)
        self.assertIn("step_00000008 is missing", done.stdout)
        for ours, theirs in zip(self.steps("run"), self.steps("whole")):
            # float64 sums of at most 10^6 terms in another order, through 5 updates.
            self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=1e-10)
        self.assertEqual([line["ranks"] for line in self.steps("run")], [2] * 3 + [3] * 5)

    def test_a_checkpoint_of_any_mesh_is_resumed_by_any_other(self):
        job = ["--seed", 7, "--set", "model.heads=4", "--set", "model.width=48", *DOUBLE,
               "--set", "train.schedule=constant", "--set", "train.warmup_steps=2", "--set", "checkpoint.every=100"]
        meshes = ((3, ["--ranks", 3, "--set", "mesh.tp=3"]), (2, ["--ranks", 4, "--set", "mesh.tp=2"]),
                  (2, ["--ranks", 2, "--set", "parallel.data=zero3", "--set", "mesh.tp=1"]))
        self.train("whole", *job, "--ranks", 1, "--steps", 9)
        expected = [line["loss"] for line in self.steps("whole")]
        for number, (num_parts, mesh) in enumerate(meshes, start=1):
            if number == 1:
                self.train("run", *job, *mesh, "--steps", 3)
            else:
                self.resume("run", *mesh, "--steps", 3 * number)
            checkpoint = self.folder / "run" / "checkpoints" / f"step_{3 * number:08}"
            self.assertEqual(len(list(checkpoint.glob("model*.safetensors"))), num_parts)
            shown = json.loads(self.hanji("ckpt", "show", checkpoint, "--json").stdout)
            self.assertEqual((shown["params_sha256"], shown["state_sha256"]), self.hashes("run"))
        losses = [line["loss"] for line in self.steps("run")]
        self.assertEqual(len(losses), 9)
        for loss, whole in zip(losses, expected):
            # float64 sums in another order; without its moments AdamW goes other ways.
            self.assertAlmostEqual(loss, whole, delta=1e-9 * whole)

    def test_stages_go_on_with_the_bits_of_any_mesh(self):
        job = ["--seed", 7, *STABLE, *CONSTANT, "--set", "model.dropout=0.1", "--set",
               "train.evaluate_every=0"]
        meshes = (["--ranks", 4, "--mesh", "pp=2", "--set", "parallel.data=zero2"],
                  ["--mesh", "pp=3", "--ranks", 3, "--set", "parallel.data=ddp"],
                  ["--ranks", 3, "--mesh", "pp=1", "--set", "parallel.data=zero3"],
                  ["--ranks", 2, "--mesh", "pp=2", "--set", "parallel.data=ddp"])
        self.train("whole", *job, "--ranks", 1, "--steps", 2 * len(meshes) + 2)
        self.train("run", *job, "--mesh", "pp=2", "--steps", 2)
        for number, mesh in enumerate(meshes, start=2):
            self.resume("run", *mesh, "--steps", 2 * number)
        self.assertEqual(self.hashes("run"), self.hashes("whole"))

    def test_a_schedule_of_a_file_is_the_runs_when_the_file_is_gone(self):
        file = self.folder / "mine.csv"
        file.write_text("0F0,0F1,2F0,2B0,0B0,2F1,2B1,0B1\n1F0,1F1,1B0,1B1\n")
        job = ["--mesh", "pp=2", "--set", "pipeline.schedule=mine.csv", "--set",
               "train.schedule=constant"]
        self.train("whole", *job, "--steps", 6)
        done = self.train("run", *job, "--steps", 3)
        self.assertIn("user: 3 stages on 2 ranks, 2 micro-batches", done.stdout)
        file.unlink()
        self.resume("run", "--steps", 6)
        self.assertEqual(self.hashes("run"), self.hashes("whole"))
        done = self.resume("run", "--steps", 9, "--ranks", 3, "--mesh", "pp=3", expect=2)
        self.assertIn("pipeline.schedule has lines of 2 ranks, but mesh.pp is 3", done.stderr)

    def test_options_that_change_the_job_are_refused_with_both_values(self):
        self.train("run", *JOB, "--steps", 4)
        before = (self.folder / "run" / "summary.json").read_text()
        done = self.resume("run", "--seed", 8, "--set", "model.width=64", "--steps", 9, expect=2)
        self.assertIn("train.seed is 8 here and 7 in the saved run", done.stderr)
        self.assertIn("model.width is 64 here and 32 in the saved run", done.stderr)
        (self.folder / "other.txt").write_text("to be or not to be " * 500)
        done = self.resume("run", "--text", "other.txt", "--steps", 9, expect=2)
        self.assertRegex(done.stderr, "data.(text|vocabulary)")
        self.assertIn("train.steps is 2 here, and the saved run has done 4",
                      self.resume("run", "--steps", 2, expect=2).stderr)
        self.assertEqual((self.folder / "run" / "summary.json").read_text(), before)

    def test_a_damaged_checkpoint_is_passed_over_aloud(self):
        self.train("run", *JOB, "--steps", 6)
        expected = self.hashes("run")
        model = self.folder / "run" / "checkpoints" / "step_00000006" / "model.safetensors"
        content = bytearray(model.read_bytes())
        content[-100] ^= 1
        model.write_bytes(content)
        done = self.resume("run")
        self.assertIn("its bytes changed", done.stdout)
        self.assertIn("behind step 3", done.stdout)
        self.assertEqual(self.hashes("run"), expected)

    def test_a_run_goes_on_with_the_vector_instructions_of_its_kernels(self):
        constant = ["--set", "train.schedule=constant", "--set", "train.warmup_steps=2"]
        self.train("whole", *JOB, *constant, "--steps", 8, HANJI_SIMD="baseline")
        self.train("run", *JOB, *constant, "--steps", 4, HANJI_SIMD="baseline")
        self.assertEqual(self.read_json("run", "plan.json")["kernels"]["simd"], "baseline")
        self.resume("run", "--steps", 8)
        self.assertEqual(self.hashes("run"), self.hashes("whole"))
        self.train("better", *JOB, *constant, "--steps", 8)
        level = self.read_json("better", "plan.json")["kernels"]["simd"]
        if level == "baseline":
            self.skipTest("this processor has one level")
        self.assertNotEqual(self.hashes("better"), self.hashes("whole"))
        done = self.resume("better", "--steps", 9, HANJI_SIMD="baseline", expect=2)
        self.assertIn(f"they use {level}, but HANJI_SIMD allows baseline at most", done.stderr)

    def test_an_empty_folder_begins_and_a_foreign_one_is_refused(self):
        done = self.resume("new", *NANO, *JOB, "--steps", 2)
        self.assertIn("begins a new run", done.stdout)
        self.assertEqual(len(self.steps("new")), 2)
        (self.folder / "foreign").mkdir()
        (self.folder / "foreign" / "precious").write_text("x")
        self.assertIn("neither a checkpoint", self.resume("foreign", expect=2).stderr)
        self.assertIn("--out", self.hanji("train", "--resume", expect=2).stderr)
        before = sorted(self.folder.iterdir())
        self.assertIn("there is no run to resume in nowhere; check --out",
                      self.hanji("train", "--resume", "--out", "nowhere", "--steps", 5, expect=2).stderr)
        self.assertEqual(sorted(self.folder.iterdir()), before)
        self.assertIn("--resume", self.train("new", "--steps", 3, expect=2).stderr)

    def test_a_run_whose_folder_is_in_use_is_not_resumed(self):
        process = self.start("run", *JOB, "--steps", 1000000)
        try:
            deadline = time.monotonic() + 60
            while not list((self.folder / "run").glob("checkpoints/step_*")):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            done = self.resume("run", expect=2)
            self.assertIn("another run lives", done.stderr)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def kill_rank_1(self, out, steps):
        """Once `out` has so many steps; returns when it was."""
        log = self.folder / out / "run.jsonl"
        deadline = time.monotonic() + 60
        while not log.exists() or log.read_text().count('"loss"') < steps:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        victim = next(entry["pid"] for entry in self.read_json(out, "ranks.json")["ranks"]
                      if entry["rank"] == 1)
        os.kill(victim, signal.SIGKILL)
        return time.monotonic()

    def test_a_mesh_of_three_axes_restarts_and_goes_on_as_another_with_the_same_bits(self):
        job = [*STABLE, *CONSTANT, "--seed", "7", "--set", "model.heads=2", "--set",
               "train.cuts.features=2", "--set", "train.global_batch=4", "--set",
               "train.evaluate_every=0", "--set", "checkpoint.every=3"]
        self.train("whole", *job, "--ranks", 1, "--steps", 18)
        stages = [*job, "--ranks", 8, "--mesh", "dp=2,pp=2,tp=2"]
        restarted = self.start("run", *stages, "--steps", 12, "--max-restarts", 1)
        self.kill_rank_1("run", 5)
        self.assertEqual(restarted.wait(timeout=120), 0)
        shards = ["mesh.dp=auto", "mesh.pp=1", "mesh.tp=1", "parallel.data=zero3"]
        self.resume("run", "--ranks", 3, *(part for one in shards for part in ("--set", one)), "--steps", 18)
        self.assertEqual(self.hashes("run"), self.hashes("whole"))

    def test_a_killed_rank_is_started_again_within_five_seconds(self):
        self.train("whole", *JOB, "--steps", 100)
        process = self.start("run", *JOB, "--steps", 100, "--max-restarts", 3)
        log = self.folder / "run" / "run.jsonl"
        killed = self.kill_rank_1("run", 20)
        while True:
            lines = log.read_text().split("\n")
            resumed = next((i for i, line in enumerate(lines) if '"resumed"' in line), None)
            if resumed is not None and any('"loss"' in line for line in lines[resumed:]):
                break
            self.assertLess(time.monotonic() - killed, 5, "seconds from kill to the next step")
            time.sleep(0.01)
        self.assertEqual(process.wait(timeout=120), 0)
        self.assertEqual(self.hashes("run"), self.hashes("whole"))


if __name__ == "__main__":
    unittest.main()
