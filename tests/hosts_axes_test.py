"""Axes along which layers call, tp, cp and axial, on hosts that are network namespaces joined at 1 Gbit/s.

Hashes, counted calls and bytes, memory, checkpoints that other meshes go on with, and faults: one job of each kind.
All pairs of axes, strategies and hosts are rows of hanji/train/test_job_table.cpp.
"""
import unittest

import hosts_test
from command import CONSTANT, KERNELS, NANO, STABLE
from hosts_test import HANJI

TRAIN = [HANJI, "train", "--seed", 3, *CONSTANT, "--set", "comm.bucket_bytes=65536"]
GPT = [*TRAIN, *NANO, "--set", "model.heads=4", "--set", "model.dropout=0.1"]
PAIRS = [*TRAIN, *KERNELS, "--set", "model.preset=evoformer-tiny", "--set", "model.dropout=0.25", "--set", "model.width=16", "--set", "data.residues=8",
         "--set", "data.sequences=6", "--set", "data.systems=400", "--set", "train.global_batch=4",
         "--set", "train.evaluate_batches=2"]
CUTS = [*STABLE, "--set", "train.cuts.features=4", "--set", "train.cuts.tokens=4"]


def by(data):
    return ("--set", f"parallel.data={data}")


class Axes(hosts_test.OnNetwork):
    def assert_stable(self, job, ranks, *mesh):
        """Ranks of each host have the bits of one process, which goes on with what they save."""
        self.assert_as_planned(self.on_hosts(ranks, job, "hosts", *mesh, "--steps", 2))
        one = self.here(job, "one", "--ranks", 1, "--steps", 3)
        self.assert_same(self.here(job, "hosts", "--ranks", 1, *by("ddp"), "--resume", "--steps", 3), one, mesh)

    def test_tokens_on_several_hosts_are_those_of_one_process(self):
        self.assert_stable([*GPT, *CUTS], [2, 1], "--mesh", "cp=3")
        self.assertRegex((self.folder / "logs" / "rank.0").read_text().replace("\n", " "),
                         r"groups\s+of\s+cp\s+lie\s+on\s+several\s+hosts:\s+layers\s+send\s+\S+\s+\S+\s+between")

    def test_pairs_on_several_hosts_are_those_of_one_process(self):
        self.assert_stable([*PAIRS, *STABLE, "--set", "train.cuts.tokens=4"], [1, 1], "--mesh", "axial=2", *by("zero1"))

    def test_memory_of_large_layers_is_the_plans(self):
        # What layers exchange is 1.2 MB each: staging that the plan forgot is more than the 1 MB that a line may differ.
        job = [*TRAIN, *NANO, "--steps", 2, "--set", "model.layers=1", "--set", "model.width=768", "--set",
               "train.evaluate_every=0", "--set", "train.evaluate_batches=1"]
        hosts = self.on_hosts([1, 1], job, "tp", "--mesh", "tp=2", "--set", "parallel.sequence=true")
        self.assert_as_planned(hosts)
        peak = hosts["prediction"]["peak_bytes_per_rank"]
        print(f"peak {peak['measured'] / 1e6:.1f} MB, {peak['predicted'] / 1e6:.1f} planned")
        self.assertAlmostEqual(peak["measured"], peak["predicted"], delta=max(16e6, 0.03 * peak["predicted"]))

    def test_a_folder_that_hosts_of_a_group_do_not_share_is_refused(self):
        for host in range(2):
            (self.folder / f"out{host}").mkdir()
        (self.folder / "out").mkdir()
        codes, run = hosts_test.train_where_hosts_differ(self.folder, "out", "--mesh tp=2")
        self.assertEqual(codes, [2, 2], run.log(0))
        for rank in range(2):
            self.assertRegex(run.log(rank), r"mesh.tp = 2: its ranks on 2 hosts share one checkpoint, but ranks 1 do not see")

    def test_a_rank_that_dies_in_a_group_over_hosts_is_named_with_coordinates(self):
        job = [*GPT, "--steps", 100000, "--mesh", "cp=2,tp=2", "--set", "train.evaluate_every=0", "--out",
               self.folder / "out"]
        run = self.run_until_killed(3, job)
        for rank in range(3):
            self.assertRegex(run.log(rank), r"rank 3 \([^)]*process \d+, [^)]*cp=1,tp=1")


if __name__ == "__main__":
    unittest.main()
