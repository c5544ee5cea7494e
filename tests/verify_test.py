"""`hanji verify` from the outside: N ranks are one process, and the certificate says so."""
import os
import pathlib
import signal
import subprocess
import time
import unittest

from command import DOUBLE, HANJI, NANO, CommandTest

JOB = [*NANO, "--seed", 3, "--set", "model.dropout=0.1",
       "--set", "train.global_batch=13", "--set", "train.clip=0.5"]
THREE = ["--steps", 3]


class Verify(CommandTest):
    def verify(self, out, *arguments, **keywords):
        done = self.hanji("verify", "--out", self.folder / out, *JOB, *THREE, *arguments, **keywords)
        return done, (self.read_json(out, "certificate.json") if done.returncode == 0 else None)

    def test_a_certificate_of_three_ranks_holds_for_train_with_two(self):
        stable = ["--set", "train.bits=stable"]
        done, certificate = self.verify("verified", "--ranks", 3, *stable,
                                        "--set", "train.split=[0.5, 0.1, 0.4]")
        self.assertEqual(certificate["verdict"], "equal")
        self.assertEqual([step["step"] for step in certificate["steps"]], list(range(4)))
        self.assertTrue(all(step["equal"] for step in certificate["steps"]))
        self.assertEqual(len({step["parameters_sha256"] for step in certificate["steps"]}), 4)
        self.assertIsNone(certificate["first_difference"])
        self.assertEqual(certificate["plan"]["ranks"], 3)
        self.assertIn(f"EQUAL: {certificate['state_sha256']}", done.stdout)
        for name in ("one_process", "rank.0", "rank.1", "rank.2"):
            seen = self.read_json("verified", "observed", f"{name}.json")
            self.assertEqual(seen["state_sha256"], certificate["state_sha256"])
        self.hanji("train", "--out", self.folder / "run", *JOB, *THREE, *stable, "--ranks", 2)
        summary = self.read_json("run", "summary.json")
        self.assertEqual(summary["state_sha256"], certificate["state_sha256"])

    def test_bits_run_are_verified_for_their_own_plan(self):
        _, certificate = self.verify("verified", "--ranks", 2, "--set", "train.micro_batch=4")
        self.assertEqual((certificate["verdict"], certificate["bits"]), ("equal", "run"))
        self.hanji("train", "--out", self.folder / "run", *JOB, *THREE, "--ranks", 2,
                   "--set", "train.micro_batch=4")
        summary = self.read_json("run", "summary.json")
        self.assertEqual(summary["state_sha256"], certificate["state_sha256"])

    def test_heads_that_share_keys_and_values_are_verified(self):
        _, certificate = self.verify("grouped", "--ranks", 2, "--set", "model.kv_heads=1",
                                     "--set", "train.bits=stable")
        self.assertEqual(certificate["verdict"], "equal")
        self.assertEqual(self.read_json("grouped", "plan.json")["config"]["model"]["kv_heads"], 1)

    def test_stages_of_a_pipeline_are_verified_in_stable(self):
        staged = ["--mesh", "pp=2,dp=2", "--set", "pipeline.schedule=zbv", "--set", "model.layers=4"]
        _, certificate = self.verify("staged", *staged, "--set", "train.bits=stable")
        self.assertEqual(certificate["verdict"], "equal")
        done, _ = self.verify("run", *staged, expect=2)
        self.assertIn("train.bits = stable", done.stderr)

    def test_layers_cut_among_ranks_are_verified_in_blocks(self):
        cut = ["--ranks", 3, "--set", "model.heads=4", "--set", "mesh.tp=3"]
        staged = ["--mesh", "pp=2,tp=2", "--set", "parallel.sequence=true", "--set", "model.heads=4",
                  "--set", "train.cuts.tokens=2"]
        _, certificate = self.verify("staged parts", *staged, "--set", "train.bits=stable",
                                     "--set", "train.cuts.features=4")
        self.assertEqual(certificate["verdict"], "equal")
        # Of three parts or more the sum has nodes that no rank computes alone.
        _, certificate = self.verify("cut bf16", *cut, "--set", "train.bits=stable",
                                     "--set", "train.cuts.features=4",
                                     "--set", "compute.dtype=bf16", "--set", "compute.slow_dtype=true")
        self.assertEqual(certificate["verdict"], "equal")
        done, _ = self.verify("whole", *cut, expect=2)
        self.assertIn("train.cuts.features = 3 or more", done.stderr)

    def test_ranks_that_sum_in_another_order_are_verified_within_a_bound_in_float64(self):
        meshes = {"ring": ["--mesh", "cp=2", "--set", "parallel.context=ring"],
                  "both": ["--mesh", "cp=2,tp=2", "--set", "parallel.sequence=true",
                           "--set", "model.heads=4", "--set", "parallel.context=ulysses"]}
        job = [*NANO, "--steps", 3, "--set", "train.global_batch=4", *DOUBLE]
        for name, mesh in meshes.items():
            done = self.hanji("verify", "--out", self.folder / name, *job, *mesh,
                              "--set", "train.epsilon=1")
            self.assertIn("EQUAL within 1e-12", done.stdout)
            certificate = self.read_json(name, "certificate.json")
            self.assertEqual((certificate["verdict"], certificate["within"]), ("equal", 1e-12))
            self.assertTrue(0 < certificate["farthest"] < 1e-13, certificate["farthest"])
        done = self.hanji("verify", "--out", self.folder / "no", *job, *meshes["ring"], expect=2)
        self.assertIn("or set compute.dtype = float64 and train.epsilon = 1", done.stderr)
        self.assertFalse((self.folder / "no").exists())

    def test_both_sides_take_the_vector_instructions_of_the_plan(self):
        _, certificate = self.verify("verified", "--ranks", 2, HANJI_SIMD="baseline")
        self.assertEqual(certificate["verdict"], "equal")
        self.assertEqual(self.read_json("verified", "plan.json")["kernels"]["simd"], "baseline")
        done, _ = self.verify("wrong", "--ranks", 2, expect=2, HANJI_SIMD="sse")
        self.assertIn("HANJI_SIMD: 'sse'", done.stderr)

    def test_what_cannot_be_verified_is_refused(self):
        done, _ = self.verify("fast", "--set", "train.bits=fast", expect=2)
        self.assertIn("promises no bits", done.stderr)
        self.assertFalse((self.folder / "fast").exists())
        done, _ = self.verify("wrong", "--set", "train.bits=stabel", expect=2)
        self.assertIn("stable", done.stderr)
        self.verify("taken", "--ranks", 1)
        done, _ = self.verify("taken", "--ranks", 1, expect=2)
        self.assertIn("not an empty folder", done.stderr)

    def test_a_rank_that_dies_leaves_no_certificate(self):
        command = [HANJI, "verify", "--out", str(self.folder / "run"), *map(str, JOB),
                   "--ranks", "2", "--steps", "300"]
        with subprocess.Popen(command, env=self.environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as verify:
            os.kill(self.wait_for_rank(verify), signal.SIGKILL)
            _, errors = verify.communicate(timeout=60)
        self.assertEqual(verify.returncode, 6, errors)
        self.assertIn("the ranks did not come to their end", errors)
        self.assertFalse((self.folder / "run" / "certificate.json").exists())

    def test_a_signal_that_stops_the_ranks_is_named(self):
        command = [HANJI, "verify", "--out", str(self.folder / "run"), *map(str, JOB),
                   "--ranks", "2", "--steps", "300"]
        with subprocess.Popen(command, env=self.environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as verify:
            self.wait_for_rank(verify)
            verify.send_signal(signal.SIGTERM)
            _, errors = verify.communicate(timeout=60)
        self.assertNotEqual(verify.returncode, 0, errors)
        self.assertIn("did not come to their end: ", errors)
        self.assertNotIn("did not come to their end: \n", errors)
        self.assertFalse((self.folder / "run" / "certificate.json").exists())

    def wait_for_rank(self, verify):
        """The process of one of the ranks that `verify` has started."""
        children = pathlib.Path(f"/proc/{verify.pid}/task/{verify.pid}/children")
        while verify.poll() is None:
            if ranks := children.read_text().split():
                return int(ranks[0])
            time.sleep(0.02)
        self.fail(f"verify ended by itself\n{verify.stderr.read()}")


if __name__ == "__main__":
    unittest.main()
