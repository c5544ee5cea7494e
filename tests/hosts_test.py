"""Computers with devices each, as network namespaces joined at 1 Gbit/s.

The classic set-up end to end: initial weights from rank 0 to all, 20 steps of data-parallel training,
equal replicas at the end, compared with the same ranks on one host.
"""
import array
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from command import KERNELS, NANO
from network import Network, Run

HANJI = os.environ["HANJI_BINARY"]
RANK = os.environ["HANJI_HOSTS_RANK"]
TIMEOUT = 60
HASHES = ("params_sha256", "state_sha256", "train_loss", "validation_loss")
MANY_RANKS_TIMEOUT = 300  # libtorch starts 17 times on the cores of one machine


def weights(path):
    values = array.array("d")
    values.frombytes(path.read_bytes())
    return values


def losses(text):
    return [float(loss) for loss in re.findall(r"step \d+ loss (\S+)", text)]


def train_where_hosts_differ(folder, name, arguments):
    """Codes and run of `hanji train` on two hosts. One file system serves both, so host i has NAMEi bound to NAME."""
    script = (f"mount --bind $0/{name}$GROUP_RANK $0/{name} && "
              f"exec $1 train --steps 1 --out $0/out {arguments} " + " ".join(NANO))
    with Network(2) as network:
        run = Run(HANJI, network, [1, 1], folder, ["unshare", "-m", "sh", "-c", script, folder, HANJI])
        return [code for code, _ in run.wait(TIMEOUT)], run


class OnNetwork(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = Network.missing()
        if missing:
            raise unittest.SkipTest(missing)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="hanji-hosts-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def here(self, job, out, *more):
        """Runs on this host what is in `job`; its summary."""
        command = [*job, "--out", self.folder / out, *more]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                              timeout=TIMEOUT, env={**os.environ, "HANJI_CACHE_DIR":
                                                    str(self.folder / "cache")})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads((self.folder / out / "summary.json").read_text())

    def on_hosts(self, ranks, job, out, *more):
        """The same with ranks[h] of its ranks on host h."""
        with Network(len(ranks)) as network:
            run = Run(HANJI, network, ranks, self.folder, [*job, "--out", self.folder / out, *more],
                      environment={"HANJI_CACHE_DIR": str(self.folder / "cache")})
            for code, output in run.wait(TIMEOUT):
                self.assertEqual(code, 0, output)
        return json.loads((self.folder / out / "summary.json").read_text())

    def process_of(self, rank):
        """The process of a rank of this job."""
        for folder in pathlib.Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"RANK={rank}".encode() in variables and bytes(self.folder / "out") in words:
                return int(folder.name)
        self.fail(f"rank {rank} has no process")

    def run_until_killed(self, rank, job, ranks=(2, 2), before=lambda run: None):
        """The run of an endless job with ranks[h] of its ranks on host h, one of which is killed after two steps."""
        with Network(len(ranks)) as network:
            run = Run(HANJI, network, ranks, self.folder, job,
                      environment={"HANJI_CACHE_DIR": str(self.folder / "cache")})
            self.addCleanup(run.kill)
            log, end = self.folder / "out" / "run.jsonl", time.monotonic() + TIMEOUT
            while not log.exists() or log.read_text().count('"step"') < 2:
                self.assertLess(time.monotonic(), end, run.log(0))
                time.sleep(0.05)
            before(run)
            os.kill(self.process_of(rank), signal.SIGKILL)
            done = run.wait(TIMEOUT)
        self.assertEqual([code for code, _ in done], [128 + 9] * len(ranks), done)
        return run

    def assert_counts(self, summary):
        """Calls, and bytes between hosts, are those of the plan."""
        for name in ("network_bytes_per_step", "collectives_per_step"):
            told = summary["prediction"][name]
            self.assertEqual(told["measured"], told["predicted"], name)

    def assert_as_planned(self, summary):
        self.assert_counts(summary)
        for name, line in summary["prediction"].items():
            if name.startswith("memory."):
                if line["measured"] is None:
                    continue  # no rank has any
                # What messages bring waits in private memory, which where little is computed is not hidden.
                room = 16e6 if name == "memory.workspace" else 1e6
                self.assertAlmostEqual(line["measured"], line["predicted"], delta=0.03 * line["predicted"] + room,
                                       msg=name)

    def assert_same(self, one, other, what):
        for name in HASHES:
            self.assertEqual(one[name], other[name], f"{what}: {name}")


class Hosts(OnNetwork):
    def train(self, ranks, name="hosts", victim=-1, six=False, timeout=TIMEOUT):
        """A finished run on len(ranks) hosts: (launchers' codes and outputs, its folder, itself)."""
        folder = self.folder / name
        folder.mkdir()
        with Network(len(ranks)) as network:
            run = Run(HANJI, network, ranks, folder, [RANK, folder, victim], six=six)
            return run.wait(timeout), folder, run

    def train_here(self, ranks):
        folder = self.folder / "one_host"
        folder.mkdir()
        done = subprocess.run([HANJI, "run", "-n", str(ranks), RANK, folder, "-1"], text=True,
                              capture_output=True, timeout=TIMEOUT,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return folder, losses(done.stdout)

    def check_replicas(self, done, folder, run, size):
        for code, text in done:
            self.assertEqual(code, 0, text)
        for rank in range(size):
            self.assertIn(f"rank {rank} of {size} over shm + gloo", run.log(rank))
            for moment in ("before", "after"):
                self.assertEqual((folder / f"{rank}.{moment}").read_bytes(),
                                 (folder / f"0.{moment}").read_bytes(), f"rank {rank} {moment}")
        self.assertNotEqual((folder / "0.before").read_bytes(), (folder / "0.after").read_bytes())

    def test_two_computers_with_two_devices_each(self):
        done, folder, run = self.train([2, 2])
        self.check_replicas(done, folder, run, 4)
        alone, expected = self.train_here(4)
        self.assertEqual((folder / "0.before").read_bytes(), (alone / "0.before").read_bytes())
        # Two hosts of two: the tree of sums is that of one host, so are the bits.
        self.assertEqual((folder / "0.after").read_bytes(), (alone / "0.after").read_bytes())
        self.assertEqual(len(expected), 20)
        self.assertEqual(losses(run.log(0)), expected)

    def test_three_computers_of_different_sizes_over_ipv6(self):
        done, folder, run = self.train([2, 1, 1], six=True)
        self.check_replicas(done, folder, run, 4)
        _, expected = self.train_here(4)
        # Sums of 48 float64 terms in another order: errors of 2^-53 grow over 20 steps.
        for seen, loss in zip(losses(run.log(0)), expected, strict=True):
            self.assertAlmostEqual(seen, loss, delta=1e-11)

    def test_hanji_train_is_the_same_job_on_two_hosts(self):
        text = self.folder / "text"
        text.write_text("a rank sends what the next rank receives, and all ranks agree. " * 400)
        job = [HANJI, "train", "--text", text, "--seed", 3, *NANO, "--set", "compute.threads=1"]
        cache = {"HANJI_CACHE_DIR": str(self.folder / "cache")}  # both take the same kernels
        with Network(2) as network:
            two = self.folder / "two"
            for steps, more in ((4, []), (6, ["--resume"])):
                run = Run(HANJI, network, [1, 1], self.folder,
                          [*job, "--out", two, "--steps", steps, *more], environment=cache)
                for code, output in run.wait(TIMEOUT):
                    self.assertEqual(code, 0, output)
        self.assertEqual(run.log(0).count("plan of job"), 2, "told once by each run")
        self.assertNotIn("plan of job", run.log(1))
        for rank in (0, 1):  # libtorch's, if one is freed that its observer has not seen
            self.assertNotIn("Memory block of unknown size", run.log(rank))
        self.assertIn("2 ranks on 2 hosts, started by their launcher\n", run.log(0))
        one = self.folder / "one"
        for steps, more in ((4, ["--ranks", 2]), (6, ["--resume"])):
            done = subprocess.run(list(map(str, [*job, "--out", one, "--steps", steps, *more])),
                                  capture_output=True, text=True, timeout=TIMEOUT,
                                  env={**os.environ, **cache})
            self.assertEqual(done.returncode, 0, done.stderr)
        first, second = (json.loads((out / "summary.json").read_text()) for out in (two, one))
        self.assertEqual((first["ranks"], first["steps"]), (2, 6))
        self.assertRegex(run.log(0), r"2 hosts with 1, 1 ranks, joined at [\d.]+ [MG]B/s and "
                         r"\S+ \S+ \(measured\s+when the\s+ranks\s+met,\s+by\s+all_reduce\)")
        clock = json.loads((two / "trace" / "rank.1.json").read_text())["clock"]
        self.assertEqual(clock["of"], "rank 0")
        # Both have one clock, and 10 ms would be a long way.
        self.assertLessEqual(abs(clock["offset_ns"]), clock["error_ns"])
        self.assertLess(clock["error_ns"], 10_000_000)
        sent = first["prediction"]["network_bytes_per_step"]
        self.assertEqual(sent["measured"], sent["predicted"])
        plan = first["plan"]
        # 1 Gbit/s and what its bucket holds back, or less on busy cores.
        self.assertTrue(0.2 < plan["hosts"]["bytes_per_second"] / 125e6 < 1.6, plan["hosts"])
        self.assertGreater(plan["predicted"]["network_seconds"], 0)
        # One rank per host: the sum over two ranks is the same on every engine.
        for name in ("params_sha256", "train_loss", "validation_loss"):
            self.assertEqual(first[name], second[name], name)

    def test_states_and_layers_that_each_host_cuts_are_the_same_job_on_one(self):
        job = [HANJI, "train", "--seed", 3, *NANO, "--set", "compute.threads=1", "--set", "parallel.data=hsdp",
               "--set", "train.schedule=constant", "--set", "train.warmup_steps=2"]
        self.on_hosts([2, 2], job, "hosts", "--mesh", "dp=2,tp=2", "--steps", 2)
        hosts = self.on_hosts([2, 2], job, "hosts", "--mesh", "dp=2,tp=2", "--resume", "--steps", 3)
        # Sums over a host, then over hosts, are the tree of four ranks on one host.
        one = self.here(job, "one", "--ranks", 4, "--mesh", "dp=2,tp=2", "--steps", 3)
        self.assertEqual([axis["degree"] for axis in hosts["plan"]["mesh"] if axis["name"] in ("dp", "tp")], [2, 2])
        self.assert_same(hosts, one, "hsdp")
        self.assert_counts(hosts)
        for name in ("wire_bytes_per_step", "collectives_per_step"):
            told = one["prediction"][name]
            self.assertEqual(told["measured"], told["predicted"], name)

    def test_stages_on_several_hosts_have_the_bits_of_one_process(self):
        job = [HANJI, "train", "--seed", 3, *NANO, "--set", "train.bits=stable", "--set",
               "model.dropout=0.1", "--set", "train.schedule=constant", "--set",
               "train.warmup_steps=1", "--set", "train.global_batch=8"]
        one = self.here(job, "one", "--ranks", 1, "--steps", 4)
        # A host has two stages, or two replicas of one; a checkpoint goes on with another mesh.
        self.assert_counts(self.on_hosts([2, 1], job, "hosts", "--mesh", "pp=3", "--steps", 2))
        self.assertRegex((self.folder / "logs" / "rank.0").read_text(),
                         r"stage 1 .* to another host(.|\n)*between hosts .* a step; over the busiest "
                         r"link, of host 0, ")
        hosts = self.on_hosts([2, 2], job, "hosts", "--mesh", "pp=2,fsdp=2", "--set", "parallel.data=hsdp", "--set",
                              "pipeline.schedule=gpipe", "--resume", "--steps", 4)
        self.assert_counts(hosts)
        self.assert_same(hosts, one, "stages")

    def ask_why_it_hangs(self, run):
        """Rank 3, on host 1, is stopped: each host says what it sees."""
        def debug(host):
            return subprocess.run([HANJI, "debug", str(run.launchers[host].pid)], text=True, capture_output=True,
                                  timeout=TIMEOUT).stdout

        os.kill(self.process_of(3), signal.SIGSTOP)
        end = time.monotonic() + TIMEOUT
        while "is not known here" not in (text := debug(0)):
            self.assertLess(time.monotonic(), end, text)
        self.assertRegex(text, r"^ranks? [01].* waits? in (message|operation) \d+ .*ranks 2-3 on host \S+\(10.77.0.2\)")
        self.assertRegex(debug(1), r"^rank 3 \(process \d+, .*is stopped")
        page = subprocess.run([HANJI, "top", str(run.launchers[0].pid)], text=True, capture_output=True,
                              timeout=TIMEOUT).stdout
        self.assertRegex(" ".join(page.split()), r"2 ranks on \S+ not seen from here .* verdict ranks? [01].* waits? in ")

    def test_a_stage_that_dies_is_named_by_its_place_on_the_other_host(self):
        job = [HANJI, "train", "--steps", 100000, "--seed", 3, *NANO, "--mesh", "pp=2,dp=2",
               "--set", "train.evaluate_every=0", "--out", self.folder / "out"]
        run = self.run_until_killed(3, job, before=self.ask_why_it_hangs)
        for rank in range(2):
            self.assertRegex(run.log(rank), r"rank \d.* error: .*rank 3 \([^)]*pp=1,dp=1,", rank)

    def test_a_folder_that_hosts_do_not_share_is_refused_to_stages(self):
        for host in range(2):
            (self.folder / f"out{host}").mkdir()
        (self.folder / "out").mkdir()
        codes, run = train_where_hosts_differ(self.folder, "out", "--mesh pp=2")
        self.assertEqual(codes, [2, 2], run.log(0))
        for rank in range(2):
            self.assertRegex(run.log(rank), r"ranks 1 do not see \S+/plan.json of rank 0; give --out "
                             "a folder that all hosts share")

    def test_three_hosts_have_more_ranks_together_than_one_may_have(self):
        ranks = [6, 6, 5]
        job = [HANJI, "train", "--steps", 2, "--seed", 3, *NANO, "--set", "train.bits=stable",
               "--set", "train.global_batch=17", "--set", "train.evaluate_batches=1"]
        cache = {"HANJI_CACHE_DIR": str(self.folder / "cache")}
        one, out = self.folder / "one", self.folder / "seventeen"
        alone = subprocess.run(list(map(str, [*job, "--ranks", 1, "--out", one])), text=True,
                               capture_output=True, timeout=TIMEOUT, env={**os.environ, **cache})
        self.assertEqual(alone.returncode, 0, alone.stderr)
        with Network(3) as network:
            run = Run(HANJI, network, ranks, self.folder, [*job, "--out", out], environment=cache)
            for code, output in run.wait(MANY_RANKS_TIMEOUT):
                self.assertEqual(code, 0, output)
        one, hosts = (json.loads((at / "summary.json").read_text()) for at in (one, out))
        self.assertEqual((hosts["ranks"], hosts["plan"]["hosts"]["ranks"]), (17, ranks))
        self.assertEqual(hosts["params_sha256"], one["params_sha256"])
        told = hosts["prediction"]["collectives_per_step"]
        self.assertEqual(told["measured"], told["predicted"])
        # Of two steps the smaller one of each rank is told, and a rail's last few bytes may be
        # counted in the next: at most the 112 of the smallest call.
        told = hosts["prediction"]["network_bytes_per_step"]
        self.assertAlmostEqual(told["measured"], told["predicted"], delta=112)

    def test_every_rank_goes_on_with_the_buffers_of_the_first(self):
        job = [HANJI, "train", "--seed", 3, *KERNELS, "--set", "model.preset=resnet-tiny", "--set",
               "model.width=4", "--set", "data.image_size=12", "--set", "data.image_count=500",
               "--set", "train.evaluate_batches=1", "--set", "train.schedule=constant", "--set",
               "train.warmup_steps=2", "--set", "train.bits=stable"]
        cache = {"HANJI_CACHE_DIR": str(self.folder / "cache")}
        alone, out = self.folder / "alone", self.folder / "hosts"
        done = subprocess.run(list(map(str, [*job, "--ranks", 1, "--steps", 5, "--out", alone])),
                              capture_output=True, text=True, timeout=TIMEOUT,
                              env={**os.environ, **cache})
        self.assertEqual(done.returncode, 0, done.stderr)
        for steps, more in ((3, ["--set", "parallel.data=hsdp"]), (5, ["--resume"])):
            with Network(2) as network:
                run = Run(HANJI, network, [2, 2], self.folder,
                          [*job, *more, "--out", out, "--steps", steps], environment=cache)
                for code, output in run.wait(TIMEOUT):
                    self.assertEqual(code, 0, output)
        hosts, one = (json.loads((at / "summary.json").read_text()) for at in (out, alone))
        # All four ranks evaluate, each with its own buffers.
        for name in ("state_sha256", "validation_loss", "validation_accuracy"):
            self.assertEqual(hosts[name], one[name], name)

    def test_each_host_has_a_page_cache_of_its_own(self):
        file = self.folder / "x.beton"
        subprocess.run([HANJI, "data", "make", "--generated", "2000", "--size", "96", "--out", file], check=True,
                       capture_output=True, timeout=TIMEOUT)
        job = [HANJI, "train", "--seed", 3, "--steps", 36, *KERNELS, "--set", "model.preset=resnet-tiny",
               "--set", "model.width=4", "--set", "data.image_size=12", "--set", f"data.files={file}", "--set", "data.order=quasi", "--set",
               "data.pages=4", "--set", "train.evaluate_every=0", "--set", "train.evaluate_batches=1", "--set",
               "train.global_batch=64", "--set", "data.stage=random_resized_crop, flip, normalise, mixup",
               "--set", "train.bits=stable"]
        cached = ["--set", "data.cache=process", "--set", "data.workers=1"]
        cache = {"HANJI_CACHE_DIR": str(self.folder / "cache")}
        alone, out = self.folder / "alone", self.folder / "hosts"
        done = subprocess.run(list(map(str, [*job, "--ranks", 1, "--out", alone])), capture_output=True, text=True,
                              timeout=TIMEOUT, env={**os.environ, **cache})
        self.assertEqual(done.returncode, 0, done.stderr)
        with Network(2) as network:
            run = Run(HANJI, network, [2, 1], self.folder, [*job, *cached, "--out", out], environment=cache)
            done = run.wait(TIMEOUT)
        if any("io_uring" in output or "O_DIRECT" in output for code, output in done if code != 0):
            self.skipTest("no O_DIRECT or io_uring here")
        self.assertEqual([code for code, _ in done], [0, 0], done)
        hosts, one = (json.loads((at / "summary.json").read_text()) for at in (out, alone))
        for name in ("state_sha256", "train_loss"):
            self.assertEqual(hosts[name], one[name], name)

    def test_what_each_step_took_on_another_host_lies_beside_the_first_ranks(self):
        for host in range(2):
            (self.folder / f"out{host}").mkdir()
        (self.folder / "out").mkdir()
        codes, run = train_where_hosts_differ(self.folder, "out", "")
        self.assertEqual(codes, [0, 0], run.log(0))
        of_rank = [(self.folder / folder / "steps" / "rank.1.jsonl").read_text() for folder in ("out0", "out1")]
        self.assertEqual(len(of_rank[0].splitlines()), 2, of_rank[0])
        self.assertEqual(*of_rank)

    def test_hanji_train_refuses_a_host_with_other_data(self):
        for host in range(2):
            (self.folder / f"text{host}").write_text(f"host {host} has this text. " * 300)
        (self.folder / "text").touch()
        codes, run = train_where_hosts_differ(self.folder, "text", "--text $0/text")
        self.assertEqual(codes, [6, 6], run.log(0))
        for rank in range(2):
            self.assertRegex(run.log(rank), r"rank 1 has read data with checksum \w+ and rank 0")

    def test_a_rank_that_dies_is_named_on_the_other_host(self):
        start = time.monotonic()
        done, folder, run = self.train([2, 1], victim=2)
        self.assertEqual([code for code, _ in done], [128 + 9] * 2, done)
        died = float(re.search(r"dies at (\S+)", run.log(2)).group(1))
        for rank in range(2):
            line = re.search(r"^(\S+)Z rank \d+ error: .*rank 2 \(", run.log(rank), re.MULTILINE)
            self.assertIsNotNone(line, run.log(rank))
            told = datetime.datetime.fromisoformat(line.group(1) + "+00:00").timestamp()
            print(f"rank 2 died on host 1 and was named by rank {rank} on host 0 after "
                  f"{(told - died) * 1e3:.0f} ms")
            self.assertLess(told - died, 1)
        self.assertLess(time.monotonic() - start, 30)  # the deadline is 300 s


class Links(OnNetwork):
    """Tensors on their way while the link between their hosts is slow, or cut."""

    ROUND = re.compile(r"round (\d+) right after (\S+) s")

    def start(self, network, ranks, rounds, elements, deadline=60, silence=15):
        run = Run(HANJI, network, ranks, self.folder, [RANK, "sums", rounds, elements, deadline],
                  options=("--silence", silence))
        self.addCleanup(run.kill)
        return run

    def rounds(self, run, rank=0):
        return [(int(number), float(seconds)) for number, seconds in self.ROUND.findall(run.log(rank))]

    def wait_for_round(self, run, number):
        end = time.monotonic() + TIMEOUT
        while not self.rounds(run) or self.rounds(run)[-1][0] < number:
            self.assertLess(time.monotonic(), end, run.log(0))
            time.sleep(0.02)

    def check_all_right(self, done, run, ranks, rounds):
        for code, text in done:
            self.assertEqual(code, 0, text)
        for rank in range(ranks):
            self.assertEqual([number for number, _ in self.rounds(run, rank)], list(range(1, rounds + 1)))

    def test_sums_are_right_at_the_speed_of_a_slow_link(self):
        rounds, elements, bits_per_second = 3, 1 << 18, 8e6
        with Network(2, rate="8mbit") as network:
            run = self.start(network, [2, 1], rounds, elements)
            self.check_all_right(run.wait(TIMEOUT), run, 3, rounds)
            sent = network.sent_bytes(1)
        # Each of the two hosts sends the tensor's bytes once; a full bucket lets 256 KiB of them through at once.
        self.assertGreaterEqual(sent, rounds * 4 * elements)
        for _, seconds in self.rounds(run):
            self.assertGreaterEqual(seconds, 8 * (4 * elements - (256 << 10)) / bits_per_second)

    def test_a_sum_that_is_under_way_outlives_a_cut_of_four_seconds(self):
        rounds = 40
        with Network(2, rate="400mbit") as network:
            run = self.start(network, [1, 1], rounds, 1 << 20)
            self.wait_for_round(run, 2)
            network.cut(1)
            time.sleep(0.5)
            during = len(self.rounds(run))
            time.sleep(3.5)
            self.assertEqual(len(self.rounds(run)), during, "sums went on without a link")
            self.assertLess(during, rounds, "the job was over before the link was cut")
            network.join(1)
            self.check_all_right(run.wait(TIMEOUT), run, 2, rounds)
        self.assertGreater(max(seconds for _, seconds in self.rounds(run)), 3.4)

    def test_a_cut_for_good_is_named_by_both_launchers(self):
        with Network(2, rate="400mbit") as network:
            run = self.start(network, [1, 1], 10**6, 1 << 20, silence=2)
            self.wait_for_round(run, 2)
            network.cut(1)
            (first, told_first), (second, told_second) = run.wait(TIMEOUT)
        self.assertEqual((first, second), (6, 6), told_first + told_second)
        self.assertRegex(told_first, r"node 1 \(host .*10\.77\.0\.2.* is lost")
        self.assertIn("node 0 is lost", told_second)

    def test_a_cut_for_good_is_named_by_a_calls_own_deadline(self):
        with Network(2, rate="400mbit") as network:
            run = self.start(network, [1, 1], 10**6, 1 << 20, deadline=3, silence=50)
            self.wait_for_round(run, 2)
            network.cut(1)
            # As the cut met the call: while hosts compared it, or while its bytes were on their way.
            names = [rf"all_reduce.* at .*hosts_rank\.cpp:\d+: .*(not on every other host within .*waits for one of "
                     rf"ranks {1 - rank}\b|not all bytes came within .*waits for rank {1 - rank};)"
                     for rank in range(2)]
            end = time.monotonic() + 20  # far from the 50 s of the launchers
            while not all(re.search(name, run.log(rank)) for rank, name in enumerate(names)):
                self.assertLess(time.monotonic(), end, run.log(0) + run.log(1))
                time.sleep(0.05)
            network.join(1)
            self.assertEqual([code for code, _ in run.wait(TIMEOUT)], [6, 6])


class OneHost(unittest.TestCase):
    def plan(self, verb, *arguments):
        with tempfile.TemporaryDirectory(prefix="hanji-hosts-") as cache:
            done = subprocess.run([HANJI, verb, *map(str, arguments)], text=True, cwd=cache,
                                  capture_output=True, timeout=TIMEOUT,
                                  env={**os.environ, "HANJI_CACHE_DIR": cache})
        return done.returncode, done.stdout, done.stderr

    def test_a_plan_of_hosts_that_are_not_there_holds_each_to_the_limit(self):
        code, text, note = self.plan("plan", "--hosts", 128, "--ranks", 1024)
        self.assertEqual(code, 0, note)
        self.assertRegex(text, r"128 hosts with 8 \(128 times\) ranks")
        self.assertIn("note: train.global_batch=1024", note)
        code, text, _ = self.plan("plan", "--hosts", 128, "--ranks", 1024, "--json", *NANO, "--set",
                                  "train.global_batch=2048")
        plan = json.loads(text)
        self.assertEqual((plan["ranks"], plan["hosts"]["ranks"]), (1024, [8] * 128))
        self.assertEqual(sum(end - begin for begin, end in
                             (share["samples"] for share in plan["shares"])), 2048)
        batch = ("--set", "train.global_batch=64")
        for verb in ("plan", "train"):
            code, text, why = self.plan(verb, "--ranks", 17, *batch)
            self.assertEqual((code, text), (2, ""))
            self.assertIn("host 0 has 17 of 17 ranks, but at most 16 run on one host", why)
        code, _, why = self.plan("plan", "--hosts", 2, "--ranks", 33, *batch)
        self.assertEqual(code, 2)
        self.assertIn("host 0 has 17 of 33 ranks", why)
        self.assertIn("3 hosts", why)

    def test_two_of_three_ranks_go_on_without_a_dead_one(self):
        with tempfile.TemporaryDirectory(prefix="hanji-hosts-") as name:
            folder = pathlib.Path(name)
            done = subprocess.run(
                [HANJI, "run", "-n", "3", "--on-death", "continue", "--logs", folder / "logs", RANK,
                 folder, "1", "rebuild"], text=True, capture_output=True, timeout=TIMEOUT)
            self.assertEqual(done.returncode, 128 + 9, done.stdout + done.stderr)
            self.assertRegex(done.stderr, r"cause: rank 1 .*; 2 of 3 ranks ended as they should")
            self.assertIn("rank 0 of 2 over shm", (folder / "logs" / "rank.0").read_text())
            self.assertIn("rank 1 of 2 over shm", (folder / "logs" / "rank.2").read_text())
            self.assertEqual((folder / "0.after").read_bytes(), (folder / "1.after").read_bytes())


if __name__ == "__main__":
    unittest.main()
