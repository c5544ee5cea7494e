"""What the tools of the project say: parts of ./dev check, whose libtorch is built against, sources that torch_versions.py checks."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The functions of dev that tools/check.sh uses; a part is then run by $ROOT/dev.
DEV = """set -euo pipefail
ROOT=$PWD
say() { printf 'dev: %s\\n' "$*" >&2; }
die() { say "$*"; exit 1; }
setup() { :; }
packages_for_tests() { :; }
python_check() { :; }
source """ + str(ROOT / "tools" / "check.sh")


class Check(unittest.TestCase):
    def check(self, *arguments):
        """./dev check in a folder of its own, where every part passes at once, but `avx2`, which fails."""
        return subprocess.run(["bash", "-c", DEV, "dev", *arguments], cwd=self.folder, text=True, capture_output=True,
                              timeout=60)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "dev").write_text('[ "$3" != avx2 ]\n')

    def test_a_part_keeps_what_it_took_and_the_sum_is_expected(self):
        first = self.check("docs", "avx2")
        self.assertEqual(first.returncode, 1, first.stderr)
        self.assertIn("dev: expected by the last times: 0 min for 0 of 2 parts; not run in this build/: docs avx2\n", first.stderr)
        listed = self.check("--list").stdout
        self.assertRegex(listed, r"(?m)^docs +0 s passed +unknown +every command of docs/$")
        self.assertRegex(listed, r"(?m)^avx2 +0 s failed +unknown +what a processor")
        self.assertRegex(listed, r"(?m)^fuzz +not run in this build/ +a million")
        times = self.folder / "build" / "check_seconds"
        times.write_text(times.read_text().replace("docs 0", "docs 600").replace("avx2 0", "avx2 300"))
        second = self.check("docs", "avx2", "fuzz")
        self.assertIn("dev: expected by the last times: 15 min for 2 of 3 parts; not run in this build/: fuzz\n", second.stderr)
        self.assertEqual(sorted(line.split()[0] for line in times.read_text().splitlines()), ["avx2", "docs", "fuzz"])

    def test_from_a_part_runs_it_and_those_after_it(self):
        parts = [line.split()[0] for line in self.check("--list").stdout.splitlines()]
        run = self.check("--from", parts[-3])
        table = [line.split()[0] for line in run.stdout.splitlines() if line]
        self.assertEqual(table[:4], ["part", *parts[-3:]], run.stderr)

    def test_a_wrong_name_is_refused_with_the_list(self):
        for arguments in (["--from", "nothing"], ["--from"], ["--from", "docs", "fuzz"], ["nothing"]):
            refused = subprocess.run(["bash", ROOT / "dev", "check", *arguments], text=True, capture_output=True)
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stderr, "(?s)^dev: (no part of the check is called nothing|--from takes one part).*\nfuzz ")


class OwnTorch(unittest.TestCase):
    def test_a_build_folder_follows_hanji_torch(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            build = folder / "build" / "dev"
            build.mkdir(parents=True)
            (build / "build.ninja").touch()
            (build / "CMakeCache.txt").write_text(f"HANJI_TORCH:PATH={folder}/one\n")
            (folder / "dependencies.conf").touch()
            functions = (ROOT / "dev").read_text().split("\ncommand=")[0]
            (folder / "dev").write_text(functions + '\nquietly() { echo "$@"; }\nconfigure dev\n')
            for torch, configured in ({"HANJI_TORCH": "one"}, False), ({"HANJI_TORCH": "other"}, True), ({}, False):
                environment = {name: value for name, value in os.environ.items() if name != "HANJI_TORCH"}
                run = subprocess.run(["bash", "dev"], cwd=folder, env={**environment, **torch}, check=True, text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                self.assertEqual(f"-DHANJI_TORCH={folder}/other" in run.stdout, configured, torch)

    def test_a_folder_without_libtorch_is_refused(self):
        refused = subprocess.run(["cmake", f"-DHANJI_TORCH={ROOT}/docs", "-P", ROOT / "cmake" / "FindLibtorch.cmake"],
                                 text=True, capture_output=True)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("docs, which is no folder of libtorch", " ".join(refused.stderr.split()))


class TorchVersions(unittest.TestCase):
    def test_every_source_that_reaches_a_header_of_torch_is_named(self):
        build = pathlib.Path(os.environ["HANJI_BINARY"]).parent.parent
        tool = [sys.executable, "-B", ROOT / "tools" / "torch_versions.py", "--build", build]
        sources = subprocess.run([*tool, "--list"], check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
        # Alone, of a group, of the command; one that reads torch by a header of ours alone.
        for one in ("comm/mpi/available.cpp", "models/gpt.cpp", "cli/bench/calls.cpp", "train/check_job.cpp"):
            self.assertIn(f"hanji/{one}", sources)
        self.assertGreater(len(sources), 200)
        self.assertEqual([], [one for one in sources if "/generated/" in one or one.endswith("_test.cpp")])
        refused = subprocess.run([*tool, ROOT / "docs"], text=True, capture_output=True)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("docs is no folder of libtorch", refused.stderr)


if __name__ == "__main__":
    unittest.main()
