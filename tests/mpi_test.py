"""`hanji train` whose ranks mpirun has started: over MPI on one host, and between two.

The two hosts are one: every rank is told another place in it than mpirun's.
"""
import os
import shlex
import subprocess
import unittest

from command import HANJI, NANO, CommandTest, main

MPIRUN = shlex.split(os.environ.get("HANJI_MPIRUN", ""))
JOB = ["--steps", 6, "--seed", 3]
TWO_HOSTS = ("export OMPI_COMM_WORLD_LOCAL_SIZE=2 "
             "OMPI_COMM_WORLD_LOCAL_RANK=$((OMPI_COMM_WORLD_RANK % 2)); exec \"$0\" \"$@\"")


@unittest.skipUnless(MPIRUN, "no MPI where hanji was built (Debian: openmpi-bin libopenmpi-dev)")
class Mpi(CommandTest):
    def mpirun(self, ranks, *command, expect=0, **extra):
        done = subprocess.run([*MPIRUN, "-n", str(ranks), *map(str, command)], cwd=self.folder,
                              text=True, capture_output=True, timeout=120,
                              env=self.environment(OMP_NUM_THREADS="1",
                                                   OMPI_MCA_mpi_yield_when_idle="1",
                                                   OMPI_MCA_btl_vader_single_copy_mechanism="none",
                                                   **extra))
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def rank(self, out, engine, *more):
        return [HANJI, "train", "--out", self.folder / out, *NANO, *JOB, "--set",
                f"comm.engine={engine}", "--set", "compute.threads=1", *more]

    def params(self, out):
        return self.read_json(out, "summary.json")["params_sha256"]

    def test_mpi_gives_the_parameters_of_shared_memory(self):
        done = self.mpirun(2, *self.rank("mpi", "mpi"))
        self.assertIn("trains over mpi", done.stdout)
        self.train("shm", *JOB, "--ranks", 2, "--set", "compute.threads=1")
        self.assertEqual(self.params("mpi"), self.params("shm"))

    def test_between_two_hosts_it_is_mpi_that_joins_them(self):
        token = self.folder / "token"
        token.touch(mode=0o600)
        token.write_text("ab" * 32)
        stable = ["--set", "train.bits=stable"]
        done = self.mpirun(4, "sh", "-c", TWO_HOSTS, *self.rank("two", "mpi", *stable),
                           HANJI_RENDEZVOUS=f"127.0.0.1:{20000 + os.getpid() % 10000}",
                           HANJI_TOKEN_FILE=str(token))
        self.assertIn("4 ranks on 2 hosts, started by their launcher\n", done.stdout)
        self.assertIn("trains over shm + mpi", done.stdout)
        self.train("one", *JOB, "--ranks", 1, *stable)
        self.assertEqual(self.params("two"), self.params("one"))

    def test_ranks_that_no_mpirun_started_are_told_how(self):
        done = self.train("none", *JOB, "--set", "comm.engine=mpi", expect=2)
        self.assertIn("comm.engine is mpi, but ranks that this command starts are in no MPI world; "
                      "start it as mpirun -n N hanji train", done.stderr)
        done = self.train("none", *JOB, "--set", "comm.engine=hierarchical", expect=2)
        self.assertIn("joins several hosts", done.stderr)


if __name__ == "__main__":
    main()
