"""`model.preset = evoformer-tiny` and its kin: models of pairs through the same command, files and strategies."""
import json
import math
import os
import subprocess
import unittest

from command import DOUBLE, HANJI, KERNELS, MEGABYTE, STABLE, CommandTest, by

SMALL = ["--seed", 5, *KERNELS, "--set", "model.preset=evoformer-tiny", "--set", "model.dropout=0.25",
         "--set", "data.residues=8", "--set", "data.sequences=6", "--set", "data.systems=400",
         "--set", "train.global_batch=8", "--set", "train.evaluate_batches=2"]
BF16 = ["--set", "compute.dtype=bf16", "--set", "compute.slow_dtype=true"]
SAME = ("state_sha256", "params_sha256", "train_loss", "validation_loss", "validation_precision")


class Pairs(CommandTest):
    def small(self, out, *arguments, **keywords):
        self.hanji("train", "--out", self.folder / out, *SMALL, *arguments, **keywords)
        return self.read_json(out, "summary.json")

    def expect_same(self, found, expected, which):
        for name in SAME:
            self.assertEqual(found[name], expected[name], f"{which}: {name}")

    def expect_plan(self, found, which):
        told = found["prediction"]
        for line in ("wire_bytes_per_step", "collectives_per_step"):
            self.assertEqual(told[line]["measured"], told[line]["predicted"], f"{which}: {line}")
        kept = told["memory.activations"]
        self.assertLess(abs(kept["measured"] - kept["predicted"]), 0.03 * kept["predicted"], which)

    def test_it_learns_paths_better_than_by_the_edge_alone(self):
        done = self.hanji("train", "--ranks", 2, "--steps", 120, "--out", self.folder / "run",
                          "--set", "model.preset=pairmixer", "--set", "model.width=32",
                          "--set", "model.width=16", "--set", "data.residues=8",
                          "--set", "train.evaluate_every=0",
                          "--set", "train.learning_rate=5e-3", timeout=500)
        summary = self.read_json("run", "summary.json")
        self.assertGreater(summary["validation_accuracy"], summary["baseline"]["value"])
        self.assertIn("pairs_per_second", summary)
        self.assertRegex(self.words(done.stdout), r"nats per pair, accuracy 0\.\d+; the likeliest length by")
        self.assertIn("pairs.svg", done.stdout)
        self.assertIn("<svg", (self.folder / "run" / "pairs.svg").read_text())

    def test_it_finds_contacts_better_than_their_covariances(self):
        self.hanji("train", "--mesh", "dp=2,axial=2", "--steps", 60, "--out", self.folder / "run",
                   "--set", "model.preset=evoformer-tiny", "--set", "data.residues=12",
                   "--set", "data.sequences=32", "--set", "train.evaluate_every=0",
                   "--set", "train.evaluate_batches=8", timeout=500)
        summary = self.read_json("run", "summary.json")
        self.assertEqual(summary["baseline"]["name"], "covariance with APC")
        self.assertGreater(summary["validation_precision"], summary["baseline"]["value"] + 0.05)

    def test_it_completes_distances_beyond_the_triangle_inequality(self):
        done = self.hanji("train", "--ranks", 2, "--steps", 150, "--out", self.folder / "run",
                          "--set", "model.preset=pairmixer", "--set", "data.pairs=distances",
                          "--set", "model.layers=2", "--set", "model.width=32",
                          "--set", "data.residues=8", "--set", "train.evaluate_every=0",
                          "--set", "train.warmup_steps=0", "--set", "train.learning_rate=5e-3", timeout=500)
        summary = self.read_json("run", "summary.json")
        self.assertEqual(summary["baseline"]["name"], "the middle of the triangle bounds")
        self.assertGreater(summary["validation_accuracy"], summary["baseline"]["value"])
        self.assertRegex(self.words(done.stdout), r"the middle of the triangle bounds has 0\.\d+")

    def test_ranks_have_the_hash_and_the_memory_of_the_plan_in_stable(self):
        expected = self.small("one", *STABLE, "--ranks", 1, "--steps", 2)
        found = self.small("zero3", *STABLE, *by("zero3"), "--steps", 2, "--set", "compute.recompute=true")
        self.expect_same(found, expected, "zero3")
        told = found["prediction"]
        for name in ("wire_bytes_per_step", "collectives_per_step"):
            self.assertEqual(told[name]["measured"], told[name]["predicted"], name)
        peak = told["peak_bytes_per_rank"]
        self.assertLess(abs(peak["measured"] - peak["predicted"]), 0.03 * peak["predicted"] + 16 * MEGABYTE, peak)

    def test_ranks_that_cut_pairs_move_and_keep_what_the_plan_says(self):
        steps = ["--steps", 1, *DOUBLE]
        one = self.small("one", "--ranks", 1, *steps)
        found = self.small("both", "--mesh", "dp=2,axial=2", "--set", "parallel.triangle=ring", *steps, "--set",
                           "model.chunk_bytes=8192")
        self.assertLess(abs(found["validation_loss"] - one["validation_loss"]), 1e-6)
        self.assertEqual(found["validation_precision"], one["validation_precision"])
        self.expect_plan(found, "both")
        self.assertIn("<svg", (self.folder / "both" / "pairs.svg").read_text())
        self.hanji("train", "--resume", "--out", self.folder / "both", "--ranks", 2, "--mesh", "dp=1,axial=2",
                   "--steps", 2)
        done = self.hanji("verify", "--ranks", 2, "--mesh", "axial=2", "--out", self.folder / "v", *SMALL,
                          expect=2)
        self.assertIn("train.cuts.tokens = 2 or more", " ".join(done.stderr.split()))

    def test_stable_bits_are_those_of_any_ranks_that_cut_pairs(self):
        blocks = [*STABLE, "--set", "train.cuts.tokens=3", "--set", "train.global_batch=4", "--set",
                  "train.evaluate_batches=1", "--steps", 2]
        chunks = [*blocks, *BF16, "--set", "model.chunk_bytes=1000"]
        expected = self.small("one", *chunks, "--ranks", 1)
        self.expect_same(self.small("axial", *chunks, "--ranks", 3, "--mesh", "axial=3"), expected, "axial")
        self.hanji("verify", "--mesh", "dp=2,axial=2", "--out", self.folder / "v", *SMALL, *blocks)

    def test_in_bf16_ranks_send_less_and_learn_the_same(self):
        sent, loss, first = {}, {}, {}
        for name, more in {"float32": [], "bf16": BF16}.items():
            found = self.small(name, "--mesh", "axial=2", "--steps", 12, *more)
            self.expect_plan(found, name)
            sent[name] = found["prediction"]["wire_bytes_per_step"]["measured"]
            loss[name] = found["validation_loss"]
            first[name] = [line["loss"] for line in self.read_lines(name, "run.jsonl")[:4]]
        # Most of it are the gradients of a small model's parameters, in float32.
        self.assertLess(sent["bf16"], 0.95 * sent["float32"])
        # A loss is a mean over numbers that were rounded by at most 2^-9 of them, up or down. In Adam a gradient's sign
        # counts, whatever its size: those that are lost in rounding soon part the two, each processor by other ones.
        for one, other in zip(first["float32"], first["bf16"], strict=True):
            self.assertLess(abs(other / one - 1), 2**-8, first)
        learned = math.log(2) - loss["float32"]  # from even odds
        self.assertLess(abs(loss["bf16"] - loss["float32"]), 0.1 * learned, loss)

    def test_3000_residues_are_planned_or_refused_without_their_memory(self):
        large = ["--ranks", 1, "--set", "data.residues=3000"]
        refused, used = self.measured("plan", *large, "--set", "model.preset=evoformer-tiny")
        self.assertEqual(refused.returncode, 4, refused.stderr)
        self.assertIn("the rank needs", refused.stderr)
        self.assertLess(used, 1e9)
        # Two channels, of which a pair tensor has 72 MB; a machine of less memory than all of them refuses too.
        small = ["--set", "model.preset=pairmixer", "--set", "model.layers=1", "--set", "model.width=2",
                 "--set", "model.heads=1"]
        done, used = self.measured("plan", *large, *small)
        self.assertLess(used, 1e9)
        if done.returncode == 0:
            self.assertRegex(" ".join(done.stdout.split()), r"scaled by floating operations and bytes from those of \d+")
        else:
            self.assertIn("the rank needs", done.stderr)

    def measured(self, *arguments):
        """A run of the command, and the most bytes that it had in memory at once."""
        with open(self.folder / "out", "w+") as out, open(self.folder / "err", "w+") as err:
            process = subprocess.Popen([HANJI, *map(str, arguments)], cwd=self.folder, text=True, stdout=out, stderr=err,
                                       env=self.environment())
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            texts = [(file.seek(0), file.read())[1] for file in (out, err)]
        return subprocess.CompletedProcess(arguments, process.returncode, *texts), 1024 * usage.ru_maxrss

    def test_a_run_begins_with_the_parameters_of_a_file(self):
        self.small("first", "--ranks", 1, "--steps", 4)
        self.hanji("ckpt", "export", self.folder / "first", self.folder / "first.safetensors")
        expected = self.read_json("first", "summary.json")["validation_loss"]
        begun = self.small("begun", "--ranks", 2, "--mesh", "axial=2", "--steps", 1, "--set", "train.learning_rate=1e-12",
                           "--set", "train.min_learning_rate=1e-12",
                           "--set", f"model.init={self.folder}/first.safetensors")
        # One update by 1e-12 of the rate, in float32.
        self.assertAlmostEqual(begun["validation_loss"], expected, 5)
        done = self.hanji("train", "--out", self.folder / "bad", *SMALL, "--set", "model.width=16", "--set",
                          f"model.init={self.folder}/first.safetensors", expect=2)
        self.assertIn("the file holds another model", done.stderr)
        self.assertIn("is float32 [64] in the file and float32 [32] here", done.stderr)
        self.assertFalse((self.folder / "bad").exists())

    def test_memory_bytes_and_seconds_of_sizes_that_are_not_here(self):
        asked = ["plan", "--model", "evoformer-af2", "--residues", 512, "--msa", 128, "--device", "h100-80"]
        rows = json.loads(self.hanji(*asked, "--ranks", 6, "--recompute", "--json").stdout)["ranks"]
        self.assertEqual([row["ranks"] for row in rows], [1, 2, 4, 6])
        for less, more in zip(rows, rows[1:]):
            self.assertLess(more["channels"]["memory_bytes"], less["channels"]["memory_bytes"])
            self.assertGreater(more["gather"]["memory_bytes"], more["channels"]["memory_bytes"])
            self.assertGreater(more["channels"]["sent_bytes"], 0)
        self.assertGreater(rows[0]["channels"]["seconds"], rows[-1]["channels"]["seconds"])
        self.assertIn("fits on 1 or more ranks", self.hanji(*asked, "--recompute").stdout)
        wrong = self.hanji(*asked[:3], "--residues", 8, "--msa", 6, "--ranks", 7, "--mesh", "axial=2",
                           "--device", "abacus", expect=2).stderr
        for words in ("--mesh means nothing to --residues", 'no device is called "abacus"', "whole sequences, and there are 6"):
            self.assertIn(words, " ".join(wrong.split()))

    def test_a_models_own_name_is_its_published_size_and_the_device_this_host(self):
        sizes = ["--residues", 24, "--msa", 8, "--ranks", 2, "--json"]
        here = json.loads(self.hanji("plan", "--model", "evoformer", *sizes).stdout)
        self.assertEqual((here["model"], here["device"]), ("evoformer-af2", "this host"))
        given = json.loads(self.hanji("plan", "--model", "evoformer-af2", "--device", "cpu-64GB", *sizes).stdout)
        for one, other in zip(here["ranks"], given["ranks"], strict=True):
            self.assertEqual(one["channels"]["memory_bytes"], other["channels"]["memory_bytes"])
        refused = self.hanji("plan", "--model", "gpt:7B", "--residues", 24, expect=2).stderr
        self.assertIn("--model gpt:7B has no pairs", " ".join(refused.split()))

    def test_verify_finds_every_bit_in_one_process(self):
        self.hanji("verify", "--ranks", 2, "--steps", 2, "--out", self.folder / "proof", *SMALL)

    def test_what_does_not_fit_is_refused_before_anything_starts(self):
        done = self.hanji("train", "--out", self.folder / "run", *SMALL, "--set", "data.pairs=paths",
                          "--set", "model.width=7", "--set", "model.tied=false", expect=2)
        for words in ("reads sequences; set data.pairs = \"contacts\"",
                      "model.width is 7, which is not a multiple of model.heads = 2",
                      "data.sequences is set, but data.pairs, which it describes, is paths",
                      "remove model.tied"):
            self.assertIn(words, " ".join(done.stderr.split()))
        done = self.hanji("train", "--out", self.folder / "run", "--set", "data.pairs=paths", expect=2)
        self.assertIn("learns from tokens, but data.pairs is paths", done.stderr)


if __name__ == "__main__":
    unittest.main()
