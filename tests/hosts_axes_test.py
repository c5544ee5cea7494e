"""Axes along which layers call, tp, cp and axial, on hosts that are network namespaces joined at 1 Gbit/s.

Hashes, counted calls and bytes, memory, checkpoints that other meshes go on with, and faults.
"""
import unittest

import hosts_test
from command import CONSTANT, NANO, STABLE
from hosts_test import HANJI

TRAIN = [HANJI, "train", "--seed", 3, *CONSTANT, "--set", "comm.bucket_bytes=65536"]
GPT = [*TRAIN, *NANO, "--set", "model.heads=4", "--set", "model.dropout=0.1"]
PAIRS = [*TRAIN, "--set", "model.preset=evoformer-tiny", "--set", "model.dropout=0.25", "--set", "data.residues=8",
         "--set", "data.sequences=6", "--set", "data.systems=400", "--set", "train.global_batch=8",
         "--set", "train.evaluate_batches=2"]
CUTS = [*STABLE, "--set", "train.cuts.features=4", "--set", "train.cuts.tokens=4"]


def by(data):
    return ("--set", f"parallel.data={data}")


class Axes(hosts_test.OnNetwork):
    def assert_stable(self, job, cases):
        """Each case, (ranks of each host, mesh), has the bits of one process, which goes on with the last."""
        one = self.here(job, "one", "--ranks", 1, "--steps", 3)
        for number, (ranks, mesh) in enumerate(cases):
            out = f"hosts{number}"
            hosts = self.on_hosts(ranks, job, out, *mesh, "--steps", 3)
            self.assert_as_planned(hosts)
            self.assert_same(hosts, one, f"{ranks} {mesh}")
        self.assert_same(self.here(job, out, "--ranks", 1, *by("ddp"), "--resume", "--steps", 5),
                         self.here(job, "one", "--ranks", 1, "--resume", "--steps", 5), "resumed by one process")

    def test_tokens_that_each_host_shares_out_are_those_of_one_process(self):
        self.assert_stable([*GPT, *CUTS], (([2, 2], ("--mesh", "pp=2,cp=2")), ([2, 2], ("--mesh", "cp=2", *by("zero3")))))

    def test_pairs_on_several_hosts_are_those_of_one_process(self):
        self.assert_stable([*PAIRS, *STABLE, "--set", "train.cuts.tokens=4"],
                           (([2, 2], ("--mesh", "axial=2")),))


if __name__ == "__main__":
    unittest.main()
