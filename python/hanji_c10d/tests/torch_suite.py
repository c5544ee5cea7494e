#!/usr/bin/env python3
"""PyTorch's own distributed tests, those that torch ships, on a backend: counts and reasons.

    torch_suite.py [--backend hanji] [--asked-of gloo] [--ranks 4] [--json FILE] [TEST...]

The suite decides by a backend's name what to ask of it. "hanji" is asked for all that "gloo" is, or
with --asked-of mpi for all that "mpi" is: the suite believes that it tests that backend, and every
group that it makes there is made on the one under test.
monitored_barrier() is called past torch.distributed's own check of the name. Needs expecttest.

Exit code 1 if a test fails that is not in KNOWN, or one passes that is.
"""

import argparse
import collections
import inspect
import json
import os
import sys
import tempfile
import time
import unittest

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="hanji")
parser.add_argument("--asked-of", default="gloo", choices=("gloo", "mpi"))
parser.add_argument("--ranks", type=int, default=4)
parser.add_argument("--json", help="write the outcome of each test to this file")
parser.add_argument("--limit", type=int, default=60, help="seconds that one test may take")
parser.add_argument("tests", nargs="*", help="names of tests; all by default")
arguments = parser.parse_args()
sys.argv[1:] = []

folder = tempfile.TemporaryDirectory()
os.environ.update(BACKEND=arguments.asked_of, WORLD_SIZE=str(arguments.ranks), TEMP_DIR=folder.name,
                  INIT_METHOD=f"file://{folder.name}/shared_init", OMP_NUM_THREADS="1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.testing._internal.common_distributed as common  # noqa: E402
import torch.testing._internal.distributed.distributed_test as suite  # noqa: E402

# Tests that "hanji" fails, each with the reason why the suite cannot hold for a plugin.
KNOWN = {
    "test_get_backend": "expects that a plugin's groups bear the name of a backend of PyTorch's own",
    "test_ddp_logging_data_cpu": "expects the name of a backend of PyTorch's own in DDP's log",
    "test_monitored_barrier_gloo_rank_0_timeout": "expects Gloo's words for a limit of 0 ms",
}


def on_hanji(make):
    """`make`, a function with a parameter `backend`, where the suite's backend becomes "hanji"."""
    def made(*positional, **named):
        bound = inspect.signature(make).bind(*positional, **named)
        if str(bound.arguments.get("backend")).lower() == arguments.asked_of:
            bound.arguments["backend"] = "hanji"
        return make(*bound.args, **bound.kwargs)
    return made


torch.set_num_threads(1)
common.TIMEOUT_DEFAULT = arguments.limit
if arguments.backend == "hanji":
    import hanji_c10d

    dist.init_process_group = on_hanji(dist.init_process_group)
    dist.new_group = on_hanji(dist.new_group)
    dist.monitored_barrier = hanji_c10d.monitored_barrier
    tables = [*suite.DistTestCases.backend_feature.values(),
              *suite.DistTestCases.skip_collective.values()]
    for table in tables:
        if arguments.asked_of in table:
            table.add("hanji")
    for name in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS",
                 "CUDA_PROFILING_SUPPORTED_BACKENDS"):
        supported = getattr(suite, name, [])
        if arguments.asked_of in supported:
            supported.append("hanji")


class TorchSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Outcomes(unittest.TextTestResult):
    """What became of each test."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.outcomes = {}

    def startTest(self, test):
        super().startTest(test)
        self.begin = time.time()

    def note(self, test, outcome, reason=""):
        name = test.id().split(".")[-1]
        self.outcomes[name] = (outcome, reason)
        print(f"{outcome:8}{time.time() - self.begin:6.1f} s  {name}  {reason}", flush=True)

    def addSuccess(self, test):
        self.note(test, "passed")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addFailure(self, test, error):
        known = KNOWN.get(test.id().split(".")[-1]) if arguments.backend == "hanji" else None
        lines = str(error[1]).strip().split("\n")
        told = next((line for line in reversed(lines) if "Error:" in line), lines[-1])[:200]
        self.note(test, "known" if known else "failed", known or told)

    addError = addFailure


def main():
    loader = unittest.TestLoader()
    names = arguments.tests or loader.getTestCaseNames(TorchSuite)
    tests = unittest.TestSuite(TorchSuite(name) for name in names)
    result = unittest.TextTestRunner(resultclass=Outcomes, stream=open(os.devnull, "w")).run(tests)
    counts = collections.Counter(outcome for outcome, _ in result.outcomes.values())
    print(f"{arguments.backend}, {arguments.ranks} ranks, torch {torch.__version__}: " +
          ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    reasons = collections.Counter(
        reason for outcome, reason in result.outcomes.values() if outcome == "skipped")
    if reasons:
        often = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common(4))
        print(f"SKIPPED {counts['skipped']} tests by the suite itself: {often}; others singly, above")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(result.outcomes, file, indent=1)
    surprises = [name for name, (outcome, _) in result.outcomes.items() if outcome == "failed" or
                 outcome == "passed" and arguments.backend == "hanji" and name in KNOWN]
    if not counts["passed"]:
        sys.exit("not one test passed")
    if surprises:
        sys.exit(f"failed, or passed although KNOWN says otherwise: {', '.join(surprises)}")


if __name__ == "__main__":
    main()
