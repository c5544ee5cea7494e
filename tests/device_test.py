"""`--device cuda` from the outside: refused in time where there is no GPU, a whole run where there is."""
import subprocess
import unittest

from command import HANJI, NANO, CommandTest


class Device(CommandTest):
    def setUp(self):
        super().setUp()
        asked = subprocess.run([HANJI, "plan", *NANO, "--device", "cuda"], cwd=self.folder, text=True,
                               capture_output=True, timeout=60, env=self.environment())
        self.refusal = asked.stderr if asked.returncode else None

    def test_without_a_gpu_it_is_refused_before_any_rank_starts(self):
        if not self.refusal:
            self.skipTest("there is a GPU here")
        self.assertRegex(self.refusal, "--device: compute.device = cuda needs a GPU, and there is "
                                       "none here: .*; set compute.device = ")
        out = self.folder / "run"
        done = self.hanji("train", *NANO, "--device", "cuda", "--out", out, expect=2)
        self.assertIn("nothing was started", done.stderr)
        self.assertFalse(out.exists())

    def test_other_devices_are_refused_with_what_is_meant(self):
        done = self.hanji("plan", *NANO, "--device", "gpu", expect=2)
        self.assertIn("it is spelt cuda here", done.stderr)

    def test_a_gpu_trains_saves_and_goes_on(self):
        if self.refusal:
            self.skipTest("no GPU here")
        job = ("--device", "cuda", "--ranks", 1, "--set", "checkpoint.every=5")
        done = self.train("run", *job, "--steps", 10)
        self.assertRegex(done.stdout, r"NCCL 2\.\d+\.\d+: NVLS (on|off), SHARP (on|off); its log")
        self.assertTrue((self.folder / "run" / "logs" / "nccl.rank.0").exists())
        first = self.read_json("run", "summary.json")
        self.train("again", *job, "--steps", 10)
        again = self.read_json("again", "summary.json")
        self.assertEqual(first["params_sha256"], again["params_sha256"], "train.bits = run")
        self.hanji("train", "--resume", "--out", self.folder / "run", "--steps", 15)
        self.assertEqual(self.read_json("run", "summary.json")["steps"], 15)


if __name__ == "__main__":
    unittest.main()
