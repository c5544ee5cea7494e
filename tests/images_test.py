"""`model.preset = resnet-tiny`: a second model through the same command, files and strategies."""
import json
import struct
import time
import unittest

from command import CONSTANT, KERNELS, MEGABYTE, STABLE, CommandTest, by

SMALL = ["--seed", 5, "--set", "model.preset=resnet-tiny", "--set", "model.width=8",
         "--set", "data.image_size=16", "--set", "data.image_count=2000",
         "--set", "train.evaluate_batches=2", "--set", "comm.bucket_bytes=65536", *KERNELS]
SAME = ("state_sha256", "params_sha256", "train_loss", "validation_loss", "validation_accuracy")


def tensor_names(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return set(json.loads(file.read(length)))


class Images(CommandTest):
    def small(self, out, *arguments, **keywords):
        self.hanji("train", "--out", self.folder / out, *SMALL, *arguments, **keywords)
        return self.read_json(out, "summary.json")

    def expect_same(self, found, expected, which):
        for name in SAME:
            self.assertEqual(found[name], expected[name], f"{which}: {name}")

    def expect_counted_as_planned(self, summary, which):
        told = summary["prediction"]
        for name in ("wire_bytes_per_step", "collectives_per_step"):
            self.assertEqual(told[name]["measured"], told[name]["predicted"], f"{which}: {name}")
        peak = told["peak_bytes_per_rank"]
        self.assertLess(abs(peak["measured"] - peak["predicted"]),
                        0.03 * peak["predicted"] + 16 * MEGABYTE, f"{which}: {peak}")

    def test_it_learns_to_tell_shapes_and_colours_apart(self):
        begin = time.monotonic()
        done = self.hanji("train", "--ranks", 2, "--steps", 60, "--out", self.folder / "run",
                          "--set", "model.preset=resnet-tiny", "--set", "data.images=generated",
                          "--set", "train.evaluate_every=0", timeout=500)
        print(f"60 steps of 64 images: {time.monotonic() - begin:.1f} s ", end="", flush=True)
        summary = self.read_json("run", "summary.json")
        self.assertGreater(summary["validation_accuracy"], 0.75)
        for rates in (summary, summary["prediction"], self.read_lines("run", "run.jsonl")[0]):
            self.assertIn("images_per_second", rates)
            self.assertNotIn("tokens_per_second", rates)
        self.assertIn("images/s", done.stdout)
        told = f"accuracy {summary['validation_accuracy']:.4f}"
        self.assertRegex(done.stdout, rf"step 60  validation loss \S+ nats  {told}\n")
        self.assertIn(f"nats per image, {told}", done.stdout)
        last = self.read_lines("run", "run.jsonl")[-1]
        self.assertEqual(last["validation_accuracy"], summary["validation_accuracy"])
        names = tensor_names(next((self.folder / "run" / "checkpoints").glob("step_*"))
                             / "model.safetensors")
        self.assertIn("layer3.0.bn2.running_var", names)

    def test_ranks_have_one_hash_and_the_memory_of_the_plan_in_stable(self):
        expected = self.small("one", *STABLE, "--ranks", 1, "--steps", 2)
        for data in ("server", "hsdp"):
            found = self.small(data, *STABLE, *by(data), "--steps", 2)
            self.expect_same(found, expected, data)
            self.expect_counted_as_planned(found, data)

    def test_recomputation_has_the_same_bits_and_buffers(self):
        runs = [self.small(recompute, "--ranks", 2, "--steps", 3, "--set", f"compute.recompute={recompute}")
                for recompute in ("false", "true")]
        self.expect_same(runs[1], runs[0], "recompute")
        self.expect_counted_as_planned(runs[1], "recompute")

    def test_verify_finds_every_bit_in_one_process(self):
        self.hanji("verify", "--ranks", 3, "--steps", 2, "--out", self.folder / "run", *SMALL, "--set",
                   "train.micro_batch=16")

    def test_what_the_model_cannot_have_is_refused_before_anything_starts(self):
        done = self.hanji("train", "--out", self.folder / "run", *SMALL, "--set", "train.grain=1",
                          "--set", "model.heads=2", "--set", "compute.dtype=bf16", expect=2)
        for words in ("set train.grain = 16", "remove model.heads", "does not compute"):
            self.assertIn(words, done.stderr)
        done = self.hanji("train", "--out", self.folder / "run", "--set", "data.images=generated",
                          expect=2)
        self.assertIn("learns from tokens, but data.images is generated", done.stderr)

    def test_a_model_learns_from_a_file_of_images_whose_stages_are_printed(self):
        self.hanji("data", "make", "--generated", 1200, "--size", 40, "--out", "x.beton")
        done = self.hanji("train", "--ranks", 2, "--steps", 50, "--seed", 5, "--out", "run", "--set",
                          "model.preset=resnet-tiny", "--set", "data.files=x.beton", "--set",
                          "data.stage=random_resized_crop(min_area=0.5), flip, normalise",
                          "--set", "data.workers=1", "--set", "train.evaluate_every=0", timeout=500)
        self.assertIn("x.beton as 32 x 32, random_resized_crop(min_area=0.5), flip, normalise: 1.08 k to "
                      "train on and 120 to validate", " ".join(done.stdout.split()))
        told = " ".join(done.stdout.split())
        self.assertRegex(told, r"samples a rank reads per second [\d.]+ ?k? read \d+ %.* random_resized_crop \d+ %.*"
                               r" flip \d+ %.* normalise \d+ %.* bottleneck of reading (read|random_resized_crop|normalise)")
        self.assertRegex(told, r"thread_reads_per_second [\d.]+( k)? [\d.]+( k)? [-+x]")
        self.assertIn("reading 1 thread of each rank beside its own", told)
        self.assertIn("samples: 1 thread of each rank read", told)
        summary = self.read_json("run", "summary.json")
        self.assertGreater(summary["validation_accuracy"], 0.7)
        self.expect_counted_as_planned(summary, "a file")

    def test_a_plan_is_of_what_the_file_has_now(self):
        file = ["--ranks", 1, *KERNELS, "--set", "model.preset=resnet-tiny", "--set", "model.width=4", "--set",
                "data.files=x.beton", "--set", "data.image_size=16", "--set", "train.global_batch=16"]
        parameters = {}
        for classes in (3, 40):
            (self.folder / "x.beton").unlink(missing_ok=True)
            self.hanji("data", "make", "--generated", 80, "--size", 16, "--classes", classes,
                       "--out", "x.beton")
            told = " ".join(self.hanji("plan", *file).stdout.split())
            self.assertIn(f"{classes} classes", told)
            counted = json.loads(self.hanji("plan", "--json", *file).stdout)["model"]["parameters"]
            parameters[classes] = sum(one[0] for one in counted)
        # Each class has a weight for each of the last of three stages' 4 * 4 channels, and a bias.
        self.assertEqual(parameters[40] - parameters[3], 37 * (4 * 4 + 1))

    def test_one_hash_from_a_file_for_any_ranks_workers_and_strategies(self):
        self.hanji("data", "make", "--generated", 300, "--size", 24, "--out", "x.beton")
        file = ["--seed", 5, *KERNELS, "--set", "model.preset=resnet-tiny", "--set", "model.width=8", "--set",
                "data.files=x.beton", "--set", "data.image_size=16", "--set", "train.evaluate_batches=2",
                "--set", "comm.bucket_bytes=65536", *STABLE, *CONSTANT]
        runs = {"one": ["--ranks", 1],
                "two": ["--ranks", 2, "--set", "data.workers=2", "--set", "data.prefetch=3"]}
        found = {}
        for name, more in runs.items():
            self.hanji("train", "--out", name, *file, *more, "--steps", 4)
            found[name] = self.read_json(name, "summary.json")
            self.expect_same(found[name], found["one"], name)
            if name != "one":
                self.expect_counted_as_planned(found[name], name)
        chosen = found["one"]["plan"]["config"]["data"]
        self.assertGreaterEqual(min(chosen["workers"], chosen["prefetch"]), 0, "decided by the plan")
        self.hanji("train", "--out", "half", *file, *by("zero3"), "--set", "data.workers=1", "--set", "data.prefetch=0",
                   "--steps", 2)
        self.hanji("train", "--resume", "--out", "half", *runs["two"], "--set", "parallel.data=ddp", "--steps", 4)
        self.expect_same(self.read_json("half", "summary.json"), found["one"], "resumed")

    def test_tokens_of_a_file_train_as_the_text_that_they_are_of(self):
        (self.folder / "text").write_text("".join(f"line {i * i % 97} of a text\n" for i in range(400)))
        self.hanji("data", "make", "--text", "text", "--vocabulary", "char", "--length", 16, "--out", "x.beton")
        job = ["--seed", 5, "--steps", 6, "--set", "model.preset=nano", "--set", "model.block=16", "--set",
               "data.validation_fraction=0", *STABLE, *CONSTANT]
        self.hanji("train", "--out", "text-run", "--text", "text", "--ranks", 1, *job)
        found = self.read_json("text-run", "summary.json")
        for name, more in {"one": ["--ranks", 1], "two": ["--ranks", 2]}.items():
            self.hanji("train", "--out", name, "--set", "data.files=x.beton", *more, *job)
            self.assertEqual(self.read_json(name, "summary.json")["state_sha256"], found["state_sha256"], name)
        try:
            self.hanji("train", "--out", "cached", "--set", "data.files=x.beton", "--ranks", 2, "--set",
                       "data.cache=process", "--set", "data.pages=4", "--set", "data.workers=1", *job)
            summary = self.read_json("cached", "summary.json")
            self.assertEqual(summary["state_sha256"], found["state_sha256"], "from a cache of pages")
        except AssertionError as error:
            if not any(word in str(error) for word in ("O_DIRECT", "io_uring")):
                raise
        for more, words in ((["--set", "model.block=32"], "set model.block = 16"),
                            (["--set", "model.vocabulary=9"], "lies outside a vocabulary of 9"),
                            (["--set", "data.stage=center_crop"], "data.stage is of images")):
            done = self.hanji("train", "--out", "no", "--set", "data.files=x.beton", *job, *more, expect=2)
            self.assertIn(words, done.stderr)

    def test_mixed_samples_train_to_one_hash_for_any_ranks_and_workers(self):
        self.hanji("data", "make", "--generated", 300, "--size", 24, "--out", "x.beton")
        file = ["--seed", 5, *KERNELS, "--set", "model.preset=resnet-tiny", "--set", "model.width=8", "--set",
                "data.files=x.beton", "--set", "data.image_size=16", "--set", "train.evaluate_batches=2",
                "--set", "data.stage=center_crop, flip, brightness, contrast, saturation, normalise, "
                "mixup(probability = 0.5), cutmix(probability = 0.5)", *STABLE, *CONSTANT]
        found = {}
        for name, more in {"one": ["--ranks", 1], "three": ["--ranks", 3, "--set", "data.workers=1"]}.items():
            self.hanji("train", "--out", name, *file, *more, "--steps", 3)
            found[name] = self.read_json(name, "summary.json")
            self.expect_same(found[name], found["one"], name)
            if name != "one":
                self.expect_counted_as_planned(found[name], name)
        self.hanji("train", "--out", "wrong", *file, "--set", "data.stage=center_crop, mixup, cutmix",
                   expect=2)

    def test_a_cache_of_few_pages_has_the_bits_of_the_kernels_for_any_ranks(self):
        self.hanji("data", "make", "--generated", 900, "--size", 100, "--out", "x.beton")  # 4 pages
        file = ["--seed", 5, *KERNELS, "--set", "model.preset=resnet-tiny", "--set", "model.width=4", "--set",
                "data.files=x.beton", "--set", "data.image_size=16", "--set", "train.evaluate_batches=1",
                "--set", "data.order=quasi", "--set", "data.pages=3", *STABLE, *CONSTANT]
        cached = ["--set", "data.cache=process"]
        try:
            self.hanji("train", "--out", "one", *file, *cached, "--ranks", 1, "--steps", 30)
        except AssertionError as error:
            if any(word in str(error) for word in ("O_DIRECT", "io_uring")):
                self.skipTest("no O_DIRECT or io_uring here")
            raise
        found = self.read_json("one", "summary.json")
        for name, more in {"os": ["--ranks", 1], "two": [*cached, "--ranks", 2],
                           "threads": [*cached, *by("zero3"), "--set", "data.workers=2"]}.items():
            done = self.hanji("train", "--out", name, *file, *more, "--steps", 30)
            summary = self.read_json(name, "summary.json")
            self.expect_same(summary, found, name)
            if name != "os":
                self.expect_counted_as_planned(summary, name)
            told = " ".join(done.stdout.split())
            self.assertIn("order quasi", told)
            self.assertIn("longest part of the step", told)
            self.assertEqual("3 pages of 8" in told, name != "os", told)
        done = self.hanji("train", "--out", "small", *file, *cached, "--set", "data.pages=2", "--set",
                          "data.order=random", "--ranks", 1, expect=2)
        self.assertIn("need 4 together", done.stderr)

    def test_orders_and_weights_train_to_one_hash_for_any_ranks(self):
        self.hanji("data", "make", "--generated", 150, "--size", 24, "--out", "x.beton")
        file = ["--seed", 5, *KERNELS, "--set", "model.preset=resnet-tiny", "--set", "model.width=4", "--set",
                "data.files=x.beton", "--set", "data.image_size=16", "--set", "train.evaluate_batches=1",
                *STABLE, *CONSTANT, "--steps", 4]
        hashes = set()
        for order in ("data.order=ffcv", "data.weights=balanced"):
            summaries = []
            for ranks in (1, 3):
                out = f"{order}-{ranks}"
                self.hanji("train", "--out", out, *file, "--set", order, "--ranks", ranks)
                summaries.append(self.read_json(out, "summary.json"))
            self.expect_same(summaries[1], summaries[0], order)
            hashes.add(summaries[0]["state_sha256"])
        self.assertEqual(len(hashes), 2)

    def test_a_damaged_image_stops_the_run_with_its_number_or_is_skipped(self):
        self.hanji("data", "make", "--generated", 80, "--size", 16, "--out", "x.beton")
        content = bytearray((self.folder / "x.beton").read_bytes())
        info = json.loads(self.hanji("data", "info", "--json", "x.beton").stdout)
        content[info["heap"]["begin"] + 768 * 33 + 5] ^= 1
        (self.folder / "x.beton").write_bytes(content)
        file = ["--ranks", 1, "--steps", 2, "--set", "model.preset=resnet-tiny", "--set",
                "data.files=x.beton", "--set", "model.width=4", "--set", "data.image_size=16"]
        for workers in (0, 2):
            done = self.hanji("train", "--out", f"stop{workers}", *file, "--set",
                              f"data.workers={workers}", expect=3)
            self.assertIn("sample 33, field 'image'", done.stderr)
        done = self.hanji("train", "--out", "skip", *file, "--set", "data.corrupt=skip")
        logs = "".join(log.read_text() for log in (self.folder / "skip" / "logs").glob("*"))
        self.assertIn("sample 33, field 'image'", done.stderr + logs)

    def test_images_have_no_text_to_continue(self):
        self.small("run", "--ranks", 1, "--steps", 1)
        done = self.hanji("generate", "--checkpoint", self.folder / "run", expect=2)
        self.assertIn("no text", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
