"""Every launcher that docs/ names starts the command and a program of one's own."""
import os
import shlex
import shutil
import signal
import subprocess
import time
import unittest

from command import HANJI, NANO, CommandTest, main
from slurm import Slurm, enter_a_host

EXAMPLES = os.environ["HANJI_EXAMPLES"]
THEIRS = os.fsdecode(b"th\xe9irs")  # no UTF-8
JOB = ["--steps", 4, "--seed", 3, "--set", "compute.threads=1"]


class Launchers:
    """What each launcher is asked; `launch(ranks, command...)` is the launcher's."""

    def started(self, *command, expect=0):
        done = self.launch(2, *map(str, command))
        self.assertEqual(done.returncode == 0, expect == 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_the_command_ends_in_the_parameters_of_its_own_ranks(self):
        text = self.started(HANJI, "train", "--out", self.folder / THEIRS, *NANO, *JOB)
        self.assertIn("2 ranks", text)
        self.assertIn("started by their launcher", text)
        self.train("ours", *JOB, "--ranks", 2)
        theirs, ours = (self.read_json(out, "summary.json")["params_sha256"]
                        for out in (THEIRS, "ours"))
        self.assertEqual(theirs, ours)

    def test_a_program_of_ones_own_is_data_parallel(self):
        self.assertRegex(self.started(f"{EXAMPLES}/02_data_parallel"), r"epoch 60: \d+")

    def test_a_rank_that_stays_away_is_named(self):
        self.assertIn("absent rank 1", self.started(f"{EXAMPLES}/04_hangs_on_purpose", 2, expect=1))


class HanjiRun(CommandTest):
    def test_the_first_failure_gives_the_code_and_is_told_once(self):
        for way, code, told in (("exit 7", 7, "exited with code 7"),
                                ("kill -9 $$", 137, "was killed by SIGKILL")):
            done = self.hanji("run", "--ranks", 2, "sh", "-c", f"test $RANK = 0 || {way}; sleep 30",
                              expect=code)
            self.assertEqual(done.stderr.count(told), 1, done.stderr)
            self.assertRegex(done.stderr.rstrip().split("\n")[-1], rf"cause: rank 1 \(host .*\) {told}")

    def test_as_process_1_it_reaps_what_ranks_leave_behind(self):
        unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
        if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("no PID namespaces here (unshare --pid needs root)")
        script = ("for i in 1 2 3; do sh -c 'sleep 0.1 &'; done; sleep 2; "
                  "! grep -l '^State:.*zombie' /proc/[0-9]*/status && test $PPID = 1")
        done = subprocess.run([*unshare, HANJI, "run", "--ranks", "1", "sh", "-c", script], text=True,
                              capture_output=True, timeout=60, env=self.environment())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Torchrun(Launchers, CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.torchrun = next(filter(None, (os.environ.get("HANJI_TORCHRUN"), shutil.which("torchrun"))),
                            None)
        if cls.torchrun is None:
            raise unittest.SkipTest("no torchrun beside libtorch or on PATH")

    # One task of srun per host, as clusters start torchrun: its numbers are not those of the ranks.
    WITHIN_SRUN = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "0",
                   "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1",
                   "SLURM_STEP_NODELIST": "n[1-2]"}
    outer = {}

    def test_a_rank_that_stays_away_is_named(self):
        self.outer = self.WITHIN_SRUN
        text = self.started(f"{EXAMPLES}/04_hangs_on_purpose", 2, expect=1)
        self.assertIn("absent rank 1", text)
        self.assertEqual(text.count("started by torchrun (RANK=0 WORLD_SIZE=2"), 1, text)
        self.assertIn("not followed, as outer launchers or left over: srun (SLURM_PROCID=1", text)

    def launch(self, ranks, *command):
        return subprocess.run(
            [self.torchrun, "--no-python", "--standalone", "--nproc-per-node", str(ranks), *command],
            cwd=self.folder, text=True, errors="surrogateescape", capture_output=True, timeout=120,
            env=self.environment(OMP_NUM_THREADS="1", **self.outer))


class Orphans(CommandTest):
    def test_ranks_whose_agent_dies_save_and_end(self):
        job = [HANJI, "train", "--out", self.folder / "run", *NANO, *JOB[2:], "--steps", 1000000]
        script = f"for r in 0 1; do RANK=$r LOCAL_RANK=$r {shlex.join(map(str, job))} & done; wait"
        agent = subprocess.Popen(
            ["sh", "-c", script], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, env=self.environment(
                TORCHELASTIC_RUN_ID=self.folder.name, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", GROUP_RANK="0",
                GROUP_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29555", OMP_NUM_THREADS="1"))
        while "loss" not in (line := agent.stdout.readline()):
            self.assertTrue(line, "ended before its first step")
        agent.send_signal(signal.SIGUSR2)
        agent.wait(timeout=60)
        text = agent.stdout.read()  # until the last rank has closed it
        agent.stdout.close()
        end = time.monotonic() + 60
        while (left := self.session(agent.pid)) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(left, [])
        self.assertIn("the launcher of this rank, died; this rank gets TERM", text)
        self.assertTrue(list((self.folder / "run" / "checkpoints").glob("step_*/manifest.json")), text)


class Mpirun(Launchers, CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mpirun = shlex.split(os.environ.get("HANJI_MPIRUN", ""))
        if not cls.mpirun:
            raise unittest.SkipTest("no MPI where hanji was built (Debian: openmpi-bin libopenmpi-dev)")

    def launch(self, ranks, *command):
        return subprocess.run([*self.mpirun, "-n", str(ranks), *command], cwd=self.folder, text=True,
                              errors="surrogateescape", capture_output=True, timeout=120,
                              env=self.environment(OMP_NUM_THREADS="1",
                                                   OMPI_MCA_btl_vader_single_copy_mechanism="none"))


class Srun(Launchers, CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if why := Slurm.missing():
            raise unittest.SkipTest(why)
        cls.slurm = Slurm()
        cls.addClassCleanup(cls.slurm.stop)
        cls.slurm.start()

    def launch(self, ranks, *command, mpi="none"):
        return self.slurm.run("srun", f"--mpi={mpi}", "--time=2", "--wait=20", "-n", ranks,
                              "env", f"HANJI_CACHE_DIR={self.cache.name}", "OMP_NUM_THREADS=1", *command,
                              cwd=self.folder, timeout=150)

    def test_mpi_joins_ranks_of_srun(self):
        listed = self.slurm.run("srun", "--mpi=list")
        if "pmix" not in listed.stdout + listed.stderr:
            self.skipTest("this Slurm has no PMIx (Debian: libpmix-dev)")
        program = f"{EXAMPLES}/05_over_mpi"
        if not os.path.exists(program):
            self.skipTest("no MPI where hanji was built")
        done = self.launch(2, program, mpi="pmix")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("2 ranks by mpi", done.stdout)


if __name__ == "__main__":
    enter_a_host()
    main()
