"""One state sharded over the ranks of several hosts, which are network namespaces joined at 1 Gbit/s.

zero1, zero2, zero3, and hsdp with groups that span hosts: hashes, counted calls and bytes, memory, checkpoints
that other meshes go on with, and faults.
"""
import unittest

import hosts_test
from command import CONSTANT, NANO, STABLE
from hosts_test import HANJI, train_where_hosts_differ

KEYS = ["--set", "model.dropout=0.1", "--set", "comm.bucket_bytes=65536"]


def by(data):
    return ("--set", f"parallel.data={data}")


class Shards(hosts_test.OnNetwork):
    def test_stable_bits_are_those_of_one_process_and_any_mesh_goes_on(self):
        job = [HANJI, "train", "--seed", 3, *NANO, *STABLE, *CONSTANT, *KEYS]
        one = self.here(job, "one", "--ranks", 1, "--steps", 5)
        # Hosts of different sizes, which go on with what one process saved; ranks of one host, and others, with theirs.
        self.here(job, "out", "--ranks", 1, "--steps", 2)
        for ranks, data, steps in (([1, 2], "zero3", 3), ([2, 2], "zero1", 4)):
            self.assert_as_planned(self.on_hosts(ranks, job, "out", *by(data), "--resume", "--steps", steps))
            self.assertRegex((self.folder / "logs" / "rank.0").read_text().replace("\n", " "),
                             r"each\s+has\s+its\s+own\s+shards\s+and\s+their\s+moments;\s+of\s+\S+\s+\S+\s+between\s+"
                             r"hosts\s+a\s+step")
        self.assert_same(self.here(job, "out", "--ranks", 3, *by("zero2"), "--resume", "--steps", 5), one, "resumed")

    def test_memory_of_large_layers_is_the_plans(self):
        # Layers of 28 MB: one more that is whole, or a buffer that the plan forgot, is more than 16 MB.
        job = [HANJI, "train", "--seed", 3, *NANO, "--steps", 2, "--set", "model.layers=2", "--set", "model.width=768",
               "--set", "train.evaluate_every=0", "--set", "train.evaluate_batches=1"]
        hosts = self.on_hosts([1, 1], job, "zero3", *by("zero3"))
        self.assert_as_planned(hosts)
        peak = hosts["prediction"]["peak_bytes_per_rank"]
        print(f"peak {peak['measured'] / 1e6:.1f} MB, {peak['predicted'] / 1e6:.1f} planned")
        self.assertAlmostEqual(peak["measured"], peak["predicted"], delta=max(16e6, 0.03 * peak["predicted"]))

    def test_a_folder_that_hosts_do_not_share_is_refused(self):
        for host in range(2):
            (self.folder / f"out{host}").mkdir()
        (self.folder / "out").mkdir()
        codes, run = train_where_hosts_differ(self.folder, "out", "--set parallel.data=zero3")
        self.assertEqual(codes, [2, 2], run.log(0))
        for rank in range(2):
            self.assertRegex(run.log(rank), r"parallel.data = zero3: shards on 2 hosts share one checkpoint, "
                             r"but ranks 1 do not see \S+/plan.json of rank 0; give --out a folder that all hosts share")

    def test_a_rank_that_dies_while_others_gather_is_named_on_the_other_host(self):
        job = [HANJI, "train", "--steps", 100000, "--seed", 3, *NANO, *by("zero3"), "--set", "train.evaluate_every=0",
               "--out", self.folder / "out"]
        run = self.run_until_killed(3, job)
        for rank in range(2):
            self.assertRegex(run.log(rank), r"rank 3 \([^)]*process \d+", rank)


if __name__ == "__main__":
    unittest.main()
