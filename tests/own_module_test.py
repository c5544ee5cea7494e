"""A random module of a program, trained by `hanji::train_model` with every strategy of `hanji train`."""
import os
import signal
import subprocess
import time
import unittest

from command import HANJI, MEGABYTE, STRATEGIES, CommandTest

RANK = os.environ["HANJI_OWN_MODULE_RANK"]
SMALL = ["train.steps=4", "train.global_batch=24", "train.grain=4", "train.evaluate_batches=1",
         "comm.bucket_bytes=16384", "train.schedule=constant", "train.warmup_steps=2"]
STABLE = "train.bits=stable"
SAME = ("state_sha256", "params_sha256", "train_loss", "validation_loss")


class OwnModule(CommandTest):
    def command(self, ranks, *arguments, seed=3, width=13):
        launcher = [] if ranks == 1 else [HANJI, "run", "--ranks", str(ranks)]
        return [*launcher, RANK, str(seed), str(width), *arguments]

    def train_own(self, out, ranks, *arguments, expect=0, **keywords):
        command = self.command(ranks, f"run.out={self.folder / out}", *arguments, **keywords)
        done = subprocess.run(command, cwd=self.folder, text=True, capture_output=True, timeout=200,
                              env=self.environment())
        self.assertEqual(done.returncode, expect, f"{command}\n{done.stdout}\n{done.stderr}")
        return done if expect else self.read_json(out, "summary.json")

    def expect_same(self, found, expected, which):
        for name in SAME:
            self.assertEqual(found[name], expected[name], f"{which}: {name}")

    def test_dropout_and_statistics_have_one_hash_on_any_ranks_by_any_strategy(self):
        expected = self.train_own("one", 1, *SMALL, STABLE)
        for data, ranks in STRATEGIES.items():
            mesh = [one for one in ranks[2:] if one != "--set"]
            found = self.train_own(data, ranks[1], *SMALL, STABLE, f"parallel.data={data}", *mesh)
            self.expect_same(found, expected, data)
            told = found["prediction"]
            for name in ("wire_bytes_per_step", "collectives_per_step"):
                self.assertEqual(told[name]["measured"], told[name]["predicted"], f"{data} {name}")
        recomputed = self.train_own("again", 3, *SMALL, STABLE, "compute.recompute=true")
        self.expect_same(recomputed, expected, "recompute")

    def test_the_bits_of_a_run_do_not_change_by_recomputation(self):
        runs = [self.train_own(f"run{recompute}", 2, *SMALL, f"compute.recompute={recompute}")
                for recompute in ("false", "true")]
        self.expect_same(runs[1], runs[0], "recompute")

    def test_a_saved_run_goes_on_to_the_same_bits_by_another_strategy(self):
        for bits in (STABLE, "train.bits=run"):
            ranks = (1, 3, 2) if bits == STABLE else (2, 2, 2)
            whole = self.train_own(f"whole-{bits}", ranks[0], *SMALL, bits)
            other = ["parallel.data=zero2"] if bits == STABLE else []
            self.train_own(f"run-{bits}", ranks[1], *SMALL, "train.steps=2", bits, *other)
            found = self.train_own(f"run-{bits}", ranks[2], *SMALL, bits, "--resume")
            self.expect_same(found, whole, bits)

    def test_it_leaves_the_files_of_a_run_and_prints_the_plan(self):
        self.train_own("run", 1, *SMALL)
        files = {path.name for path in (self.folder / "run").iterdir()}
        self.assertLessEqual({"plan.json", "run.jsonl", "summary.json", "trace", "checkpoints"}, files)
        plan = self.read_json("run", "plan.json")
        self.assertEqual(len(plan["model"]["layers"]), 1 + 5 + 1)
        self.assertEqual(len(self.read_lines("run", "run.jsonl")), 4 + 1)
        self.hanji("ckpt", "verify", "run")

    def test_memory_of_a_large_module_is_that_of_the_plan(self):
        large = [*SMALL, "train.steps=3", "train.global_batch=8", "comm.bucket_bytes=4194304"]
        for ranks, data in ((1, "ddp"), (2, "ddp"), (2, "zero1"), (2, "zero3"), (2, "server")):
            found = self.train_own(f"large-{data}-{ranks}", ranks, *large, f"parallel.data={data}",
                                   seed=5, width=2100)
            self.assertGreater(4 * sum(size for size, _ in found["plan"]["model"]["parameters"]),
                               200 * MEGABYTE)
            peak = found["prediction"]["peak_bytes_per_rank"]
            self.assertLess(abs(peak["measured"] - peak["predicted"]),
                            0.03 * peak["predicted"] + 16 * MEGABYTE, f"{data}: {peak}")

    def test_a_signal_ends_all_ranks_after_a_checkpoint(self):
        command = self.command(2, f"run.out={self.folder / 'run'}", *SMALL, "train.steps=100000",
                               "train.evaluate_every=0")
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL,
                              env=self.environment()) as ranks:
            log = self.folder / "run" / "run.jsonl"
            for _ in range(600):
                if log.exists() and log.stat().st_size > 1000:
                    break
                time.sleep(0.1)
            ranks.send_signal(signal.SIGTERM)
            self.assertEqual(ranks.wait(60), 75)
        self.hanji("ckpt", "verify", "run")

    def test_the_command_refuses_what_only_the_program_has(self):
        self.train_own("run", 1, *SMALL)
        for verb in (["train", "--out", "new", "--set", "model.preset=module"],
                     ["train", "--resume", "--out", "run", "--steps", 8]):
            self.assertIn("hanji::train_model", self.hanji(*verb, expect=2).stderr)


if __name__ == "__main__":
    unittest.main()
