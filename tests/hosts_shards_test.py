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
        # Hosts of different sizes too, and checkpoints that one host goes on with, or other hosts.
        cases = (("zero1", [2, 1], lambda out: self.here(job, out, "--ranks", 1, *by("ddp"), "--resume", "--steps", 5)),
                 ("zero2", [2, 2], lambda out: self.here(job, out, "--ranks", 3, *by("zero3"), "--resume", "--steps", 5)),
                 ("zero3", [1, 2], lambda out: self.on_hosts([2, 2], job, out, *by("zero1"), "--resume", "--steps", 5)))
        for data, ranks, resume in cases:
            hosts = self.on_hosts(ranks, job, data, *by(data), "--steps", 3)
            self.assert_as_planned(hosts)
            self.assert_same(resume(data), one, data)
        longer = self.here(job, "one", "--ranks", 1, "--resume", "--steps", 7)
        # What one process saved is sharded over hosts.
        for number, (data, ranks) in enumerate((("zero3", [2, 2]), ("zero2", [1, 1]))):
            out = f"again{number}"
            self.here(job, out, "--ranks", 1, "--steps", 5)
            self.assert_same(self.on_hosts(ranks, job, out, *by(data), "--resume", "--steps", 7), longer, out)

    def test_sums_of_hosts_of_two_are_those_of_four_ranks_on_one(self):
        # Sums over a host, then over hosts, are the tree of four ranks; two micro-batches gather layers twice.
        job = [HANJI, "train", "--seed", 3, *NANO, *CONSTANT, *KEYS, "--steps", 4, "--set", "train.micro_batch=2"]
        one = self.here(job, "one", "--ranks", 4)
        for data, more in (("zero1", ()), ("zero2", ()), ("zero3", ()), ("zero3", ("--set", "parallel.reshard=step")),
                           ("hsdp", ("--set", "mesh.fsdp=4"))):
            out = "-".join([data, *more[1:]])
            hosts = self.on_hosts([2, 2], job, out, *by(data), *more)
            self.assert_as_planned(hosts)
            self.assert_same(hosts, one, out)
            self.assertRegex((self.folder / "logs" / "rank.0").read_text().replace("\n", " "),
                             r"each\s+has\s+its\s+own\s+shards\s+and\s+their\s+moments;\s+of\s+\S+\s+\S+\s+between\s+"
                             r"hosts\s+a\s+step")

    def test_memory_of_large_layers_is_the_plans(self):
        # Layers of 28 MB: one more that is whole, or a buffer that the plan forgot, is more than 16 MB.
        job = [HANJI, "train", "--seed", 3, *NANO, "--steps", 2, "--set", "model.layers=3", "--set", "model.width=768",
               "--set", "train.evaluate_every=0", "--set", "train.evaluate_batches=1"]
        for data in ("zero1", "zero3"):
            hosts = self.on_hosts([2, 2], job, data, *by(data))
            self.assert_as_planned(hosts)
            peak = hosts["prediction"]["peak_bytes_per_rank"]
            print(f"{data}: peak {peak['measured'] / 1e6:.1f} MB, {peak['predicted'] / 1e6:.1f} planned")
            self.assertAlmostEqual(peak["measured"], peak["predicted"], delta=max(16e6, 0.03 * peak["predicted"]))

    def test_groups_that_span_hosts_are_replicas(self):
        job = [HANJI, "train", "--seed", 3, *NANO, *STABLE, *CONSTANT, "--set", "train.bits=stable"]
        one = self.here(job, "one", "--ranks", 1, "--steps", 4)
        groups = ("--mesh", "dp=2,fsdp=2", *by("hsdp"))
        hosts = self.on_hosts([1, 2, 1], job, "hosts", *groups, "--steps", 2)
        self.assert_as_planned(hosts)
        self.assert_same(self.on_hosts([1, 2, 1], job, "hosts", *groups, "--resume", "--steps", 4), one, "groups")

    def test_a_model_that_each_host_cuts_is_sharded_over_hosts(self):
        job = [HANJI, "train", "--seed", 3, *NANO, *CONSTANT, "--set", "compute.threads=1"]
        for data in ("zero3", "zero1"):
            here = self.here(job, f"{data}.one", "--ranks", 4, "--mesh", "tp=2", *by(data), "--steps", 5)
            hosts = self.on_hosts([2, 2], job, data, "--mesh", "tp=2", *by(data), "--steps", 3)
            self.assert_as_planned(hosts)
            hosts = self.on_hosts([2, 2], job, data, "--mesh", "tp=2", "--resume", "--steps", 5)
            self.assert_same(hosts, here, data)

    def test_stages_shard_their_state_within_a_host(self):
        job = [HANJI, "train", "--seed", 3, *NANO, *STABLE, *CONSTANT]
        one = self.here(job, "one", "--ranks", 1, "--steps", 4)
        mesh = ("--mesh", "pp=2", *by("zero3"))
        hosts = self.on_hosts([2, 2], job, "hosts", *mesh, "--steps", 2)
        self.assert_counts(hosts)
        self.assert_same(self.on_hosts([2, 2], job, "hosts", *mesh, "--resume", "--steps", 4), one, "stages")

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
