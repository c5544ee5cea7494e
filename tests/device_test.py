"""`--device cuda` from the outside: refused in time where there is no GPU, a whole run where there is, and here on
a stand-in for one: tensors of cuda:0 in the host's memory, computed by libtorch's kernels for CPUs."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

from command import HANJI, CommandTest

# Without kernels of CPUs, which NANO names.
JOB = ["--set", "model.preset=nano", "--set", "train.global_batch=12", "--set", "train.evaluate_batches=2"]
CUDA = ["--device", "cuda", "--ranks", 1]
STAND_IN = os.environ.get("HANJI_FAKE_GPU")


def refusal_of(test):
    asked = subprocess.run([HANJI, "plan", *JOB, "--device", "cuda"], cwd=test.folder, text=True, capture_output=True,
                           timeout=60, env=test.environment())
    return asked.stderr if asked.returncode else None


class Device(CommandTest):
    def test_without_a_gpu_it_is_refused_before_any_rank_starts(self):
        refusal = refusal_of(self)
        if not refusal:
            self.skipTest("there is a GPU here")
        self.assertRegex(refusal, "--device: compute.device = cuda needs a GPU, and there is "
                                  "none here: .*; set compute.device = ")
        out = self.folder / "run"
        done = self.hanji("train", *JOB, "--device", "cuda", "--out", out, expect=2)
        self.assertIn("nothing was started", done.stderr)
        self.assertFalse(out.exists())

    def test_other_devices_are_refused_with_what_is_meant(self):
        done = self.hanji("plan", *JOB, "--device", "gpu", expect=2)
        self.assertIn("it is spelt cuda here", done.stderr)


class OnAGpu(CommandTest):
    """What holds on a GPU and on the stand-in for one."""

    def setUp(self):
        super().setUp()
        if refusal := refusal_of(self):
            self.skipTest(f"no GPU here: {refusal}")

    def train(self, out, *arguments, **keywords):
        return self.hanji("train", "--out", self.folder / out, *arguments, **keywords)

    def losses(self, out):
        return [line["loss"] for line in self.read_lines(out, "run.jsonl") if "loss" in line]

    def assert_as_on_a_cpu(self, bound, *job):
        with tempfile.TemporaryDirectory(dir=self.folder) as runs:
            self.train(f"{runs}/cpu", "--ranks", 1, *job)
            self.train(f"{runs}/cuda", *CUDA, *job)
            pairs = list(zip(self.losses(f"{runs}/cpu"), self.losses(f"{runs}/cuda"), strict=True))
        self.assertGreaterEqual(len(pairs), 2)
        for on_cpu, on_cuda in pairs:
            self.assertLess(abs(on_cpu - on_cuda), bound * on_cpu, (job, pairs))

    def test_a_gpu_trains_saves_and_goes_on(self):
        job = (*JOB, *CUDA, "--set", "checkpoint.every=5")
        done = self.train("run", *job, "--steps", 10)
        self.assertRegex(done.stdout, r"NCCL 2\.\d+\.\d+: NVLS (on|off), SHARP (on|off); its log")
        self.assertTrue((self.folder / "run" / "logs" / "nccl.rank.0").exists())
        first = self.read_json("run", "summary.json")
        self.train("again", *job, "--steps", 10)
        again = self.read_json("again", "summary.json")
        self.assertEqual(first["params_sha256"], again["params_sha256"], "train.bits = run")
        self.hanji("train", "--resume", "--out", self.folder / "run", "--steps", 15)
        self.assertEqual(self.read_json("run", "summary.json")["steps"], 15)

    def test_losses_are_those_of_a_cpu_in_each_dtype(self):
        # A loss is a sum of 384 targets, each from sums of at most 128 products: in float32 their roundings add to
        # below 2^-24 * (384 + 128) = 3e-5 of it, in float64 to 2^-53 * 512. bf16 rounds some ten times to 2^-9 on the way
        # of each logit, at random, and the loss averages 384 of them.
        for dtype, dropout, bound in ("float32", 0, 3e-5), ("float64", 0.1, 6e-14), ("bf16", 0.1, 10 ** 0.5 * 2 ** -9):
            with self.subTest(dtype=dtype):
                self.assert_as_on_a_cpu(bound, *JOB, "--steps", 6, "--set", f"compute.dtype={dtype}", "--set",
                                        f"model.dropout={dropout}", "--set", "compute.slow_dtype=true")

    def test_images_and_pairs_train_as_on_a_cpu(self):
        # Convolutions sum up to 64 * 9 products, and batch norms 16 images: as in float32 above, 2^-24 of each term,
        # over some twenty layers.
        for preset, batch in ("resnet-tiny", 16), ("evoformer-tiny", 2):
            with self.subTest(preset=preset):
                self.assert_as_on_a_cpu(20 * 2 ** -24 * 64 * 9, "--steps", 3, "--set", f"model.preset={preset}", "--set",
                                        f"train.global_batch={batch}", "--set", "train.evaluate_batches=1")

    def test_a_killed_run_goes_on_to_the_same_parameters(self):
        job = (*JOB, *CUDA, "--set", "checkpoint.every=2", "--steps", 40)
        self.train("whole", *job)
        run = subprocess.Popen([HANJI, "train", "--out", self.folder / "run", *map(str, job)], cwd=self.folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment(),
                               start_new_session=True)
        saved = self.folder / "run" / "checkpoints"
        deadline = time.monotonic() + 60
        while not list(saved.glob("*/manifest.json")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        self.assertTrue(list(saved.glob("*")), "no checkpoint was written in time")
        self.hanji("train", "--resume", "--out", self.folder / "run")
        self.assertEqual(self.read_json("run", "summary.json")["params_sha256"],
                         self.read_json("whole", "summary.json")["params_sha256"])

    def test_memory_is_what_was_planned(self):
        for dtype in "float32", "bf16":
            done = self.train(dtype, *CUDA, *JOB, "--steps", 3, "--set", f"compute.dtype={dtype}")
            for line in "memory.activations", "peak_bytes_per_rank":
                error = re.search(rf"^{line} .* ([+-][\d.]+) %$", done.stdout, re.M)
                # Of a job so small that blocks of 512 bytes show.
                self.assertLess(abs(float(error[1])), 8, (dtype, error[0]))

    def test_a_checkpoint_of_a_gpu_generates_text_on_a_cpu(self):
        self.train("run", *JOB, *CUDA, "--steps", 3)
        done = self.hanji("generate", "--checkpoint", self.folder / "run", "--tokens", 5)
        self.assertTrue(done.stdout.strip())


@unittest.skipUnless(STAND_IN, "there is no stand-in for a GPU beside libtorch for CUDA, or under a sanitizer")
class OnTheStandIn(OnAGpu):
    def environment(self, **extra):
        libraries = self.folder / "libraries"
        if not libraries.exists():
            libraries.mkdir()
            (libraries / "libnccl.so.2").symlink_to(os.environ["HANJI_FAKE_NCCL"])
        return super().environment(**{"LD_PRELOAD": STAND_IN, "LD_LIBRARY_PATH": str(libraries),
                                      "FAKE_GPU_COUNTS": str(self.folder / "counts"), **extra})

    def counts(self, steps, *job):
        """Of the rank, the last process that uses the device: what times the job ends before it starts."""
        for old in self.folder.glob("counts.*"):
            old.unlink()
        self.train(f"run-{len(list(self.folder.iterdir()))}", *CUDA, *job, "--steps", steps)
        last = max(self.folder.glob("counts.*"), key=lambda file: file.stat().st_mtime_ns)
        return json.loads(last.read_text())

    def test_a_step_waits_for_the_device_only_where_a_number_is_read(self):
        images = ["--set", "model.preset=resnet-tiny", "--set", "train.global_batch=16", "--set", "train.evaluate_batches=1"]
        # The losses of all micro-batches, the norm of gradients, and the copies of the next batches; statistics of all
        # batch norms after a forward, and their means over ranks.
        parts = [*JOB, "--set", "train.micro_batch=4"]
        for job, most in (JOB, 3), (parts, 3), (images, 5):
            few, many = self.counts(2, *job), self.counts(6, *job)
            waits = {name: (many[name] - few.get(name, 0)) / 4 for name in many if name.startswith("synchronizations ")}
            self.assertLessEqual(sum(waits.values()), most, waits)

    def test_a_device_that_is_too_small_says_what_to_do(self):
        done = self.train("run", *JOB, *CUDA, "--steps", 3, expect=4, FAKE_GPU_BYTES="2000000")
        self.assertRegex(done.stderr, r"cause: rank 0 .*CUDA out of memory\. Tried to allocate \d+ bytes")
        self.assertIn("train.micro_batch", done.stderr)


if __name__ == "__main__":
    unittest.main()
