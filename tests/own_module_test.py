"""A random module of a program, trained by `hanji::train_model` with every strategy of `hanji train`."""
import json
import os
import signal
import subprocess
import time
import unittest

from command import HANJI, KERNELS, STRATEGIES, CommandTest

RANK = os.environ["HANJI_OWN_MODULE_RANK"]
SMALL = ["train.steps=4", "train.global_batch=24", "train.grain=4", "train.evaluate_batches=1",
         "comm.bucket_bytes=16384", "train.schedule=constant", "train.warmup_steps=2",
         *(one for one in KERNELS if one != "--set")]
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
        return done if expect or "--verify" in arguments else self.read_json(out, "summary.json")

    def expect_same(self, found, expected, which):
        for name in SAME:
            self.assertEqual(found[name], expected[name], f"{which}: {name}")

    def test_dropout_and_statistics_have_one_hash_on_any_ranks_by_any_strategy(self):
        expected = self.train_own("one", 1, *SMALL, STABLE)
        for data in ("server", "hsdp"):  # the others: hanji/train/train_model_test.cpp
            ranks = STRATEGIES[data]
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
        whole = self.train_own("whole", 1, *SMALL, STABLE)
        self.train_own("run", 3, *SMALL, "train.steps=2", STABLE, "parallel.data=zero2")
        self.expect_same(self.train_own("run", 2, *SMALL, STABLE, "--resume"), whole, "resumed")

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
        # 2100 wide it has more than 200 MB, and tensors above 32 MiB, which are found in freed memory.
        for width, ranks, data, *more in (
                (2100, 1, "ddp"),
                (1000, 2, "server", "train.global_batch=24", "train.micro_batch=4")):
            found = self.train_own(f"large-{data}-{ranks}{len(more)}", ranks, *large,
                                   f"parallel.data={data}", *more, seed=5, width=width)
            self.assertGreater(4 * sum(size for size, _ in found["plan"]["model"]["parameters"]),
                               46 * width**2)
            peak = found["prediction"]["peak_bytes_per_rank"]
            self.assertLess(abs(peak["measured"] - peak["predicted"]), 0.01 * peak["predicted"],
                            f"{data}: {peak}")

    def plan(self, model, *arguments, expect=0):
        done = self.hanji("plan", "--model", model, "--states", "fp32", "--json", *arguments,
                          expect=expect)
        return done.stderr if expect else json.loads(done.stdout)

    def test_the_plan_of_its_description_has_the_memory_of_the_plan_that_trains_it(self):
        subprocess.run(self.command(1, "--describe", "own.json", width=300), cwd=self.folder, check=True,
                       env=self.environment())
        found = self.train_own("run", 1, *SMALL, "train.global_batch=8", "train.micro_batch=8",
                               width=300)["plan"]
        lines = {line["category"]: line["bytes"] for line in found["memory"]}
        planned = self.plan("own.json", "--device", "cpu-8GB", "--micro-batch", 8)
        self.assertEqual(planned["parameters"], sum(n for n, _ in found["model"]["parameters"]))
        self.assertEqual(planned["strategies"]["ddp"]["rank"]["activations"],
                         sum(lines[name] for name in ("activations", "workspace", "data", "buffers")))
        many = ["own.json", "--device", "cpu-8GB", "--micro-batch", 4096]
        kept, recomputed = (self.plan(*many, *more)["strategies"]["ddp"]["rank"]["activations"]
                            for more in ([], ["--recompute"]))
        self.assertLess(recomputed, 0.8 * kept)
        self.assertTrue(planned["strategies"]["ddp"]["fits"])
        text = self.hanji("plan", "--model", "own.json", "--device", "24GB", "--ranks", 4).stdout
        self.assertIn("counted in float32, bytes of activations x 2/4 for bf16", text)
        self.assertIn("it fits with ddp", text)

    def test_a_description_that_was_damaged_is_refused_with_all_that_is_wrong(self):
        subprocess.run(self.command(1, "--describe", "own.json"), cwd=self.folder, check=True,
                       env=self.environment())
        facts = self.read_json("own.json")
        facts["facts"]["layers"][0]["kept"] = [1]
        facts["facts"]["parameters"][0] = [3, 99]
        del facts["recomputed"]
        (self.folder / "own.json").write_text(json.dumps(facts))
        why = self.plan("own.json", "--device", "24GB", expect=3)
        for word in ("own.json is not what hanji::describe() writes", "layers[0].kept", "layer 99",
                     "model.recomputed is missing"):
            self.assertIn(word, why)
        (self.folder / "own.json").write_text("{")
        self.assertIn("own.json", self.plan("own.json", "--device", "24GB", expect=3))
        why = self.plan("absent.json", "--device", "h99", "--set", "model.width=3", expect=2)
        for word in ("--set", "h99"):
            self.assertIn(word, why)

    def test_every_preset_of_every_family_has_a_plan_on_devices_that_are_not_here(self):
        for preset in ("nano", "char", "baby", "gpt2", "evoformer-tiny", "evoformer-demo", "pairmixer", "resnet-tiny",
                       "resnet18", "resnet50"):
            small = ["--set", "data.image_size=32"] if preset in ("resnet18", "resnet50") else []
            found = self.plan(preset, "--device", "200GB", *small)
            self.assertTrue(found["strategies"]["zero3"]["fits"], preset)
            self.assertGreater(found["flops_per_sample"], 0, preset)
        self.assertEqual(found["parameters"], 25557032)  # as in torchvision: of 1000 classes
        told = self.hanji("plan", "--model", "evoformer", "--device", "80GB").stdout
        self.assertIn("256 residues by 128 sequences", told)
        large, small = (self.plan("resnet-tiny", "--device", "80GB", "--micro-batch", 256, *size)
                        ["strategies"]["ddp"]["rank"]["activations"]
                        for size in ([], ["--set", "data.image_size=16"]))
        self.assertAlmostEqual(large / small, 4, delta=0.3)
        self.assertIn("hanji::describe", self.plan("module", "--device", "80GB", expect=2))

    def test_ranks_of_every_strategy_are_verified_against_one_process(self):
        for bits, data in ((STABLE, "ddp"), ("train.bits=run", "zero3")):
            self.train_own(data, 2, *SMALL, bits, f"parallel.data={data}", "--verify")
            found = self.read_json(data, "certificate.json")
            self.assertEqual(found["verdict"], "equal")
            self.assertEqual(len(found["steps"]), 4 + 1)
        trained = self.train_own("trained", 3, *SMALL, STABLE)
        proved = self.read_json("ddp", "certificate.json")
        self.assertEqual(trained["state_sha256"], proved["state_sha256"])

    def test_verification_names_the_first_tensor_and_grain_of_a_faulty_rank(self):
        self.train_own("faulty", 2, *SMALL, STABLE, "--verify", "--faulty", expect=7)
        found = self.read_json("faulty", "certificate.json")
        self.assertEqual(found["verdict"], "differs")
        first = found["first_difference"]
        self.assertEqual((first["step"], first["quantity"], first["ranks"]), (1, "gradient", [0, 1]))
        self.assertEqual((first["backward"]["rank"], first["axes"]), (1, ["dp"]))
        self.assertTrue((self.folder / "faulty" / "observed" / "without_dp" / "rank.0.json").exists())
        self.assertGreater(first["distance"]["largest"], 0)

    def test_what_cannot_be_verified_is_refused_before_a_folder_is_made(self):
        for arguments, word in ((["train.bits=fast"], "promises no bits"), (["--resume"], "resume")):
            done = self.train_own("refused", 1, *SMALL, *arguments, "--verify", expect=1)
            self.assertIn(word, done.stderr)
            self.assertFalse((self.folder / "refused").exists())

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
