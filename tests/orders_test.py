"""Orders of samples against the libraries whose they are: numpy's generator, which FFCV's RANDOM uses,
and torch's DistributedSampler, where a Python has them."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv/bin/python"
if not importlib.util.find_spec("torch") and VENV.exists() and "HANJI_TEST_VENV" not in os.environ:
    os.execve(VENV, [VENV, "-B", *sys.argv], {**os.environ, "HANJI_TEST_VENV": "1"})

CASES = [(seed, epoch, samples) for seed in (0, 1, 2, 3, 2**33 + 7) for epoch, samples in
         ((0, 1), (1, 2), (2, 97), (5, 4096), (0, 70001))]


def orders_of(name):
    """The order of each case."""
    numbers = [str(number) for case in CASES for number in case]
    found = subprocess.run([os.environ["HANJI_ORDERS_RANK"], name, *numbers], stdout=subprocess.PIPE, check=True,
                           text=True, timeout=300)
    return [[int(one) for one in line.split()] for line in found.stdout.splitlines()]


class Orders(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("numpy"), "no numpy in this Python")
    def test_ffcvs_is_the_permutation_of_numpys_generator(self):
        import numpy
        for (seed, epoch, samples), order in zip(CASES, orders_of("ffcv"), strict=True):
            expected = numpy.random.default_rng(seed + epoch).permutation(numpy.arange(samples))
            self.assertEqual(order, expected.tolist(), (seed, samples))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no torch in this Python")
    def test_torchs_is_what_the_ranks_of_distributed_samplers_get_in_turn(self):
        from torch.utils.data import DistributedSampler
        for (seed, epoch, samples), order in zip(CASES, orders_of("torch"), strict=True):
            for world in (1, 3):
                for rank in range(world):
                    sampler = DistributedSampler(range(samples), world, rank, seed=seed, drop_last=True)
                    sampler.set_epoch(epoch)
                    whole = samples // world * world
                    self.assertEqual(order[:whole][rank::world], list(sampler), (seed, samples, rank))


if __name__ == "__main__":
    unittest.main(verbosity=2)
