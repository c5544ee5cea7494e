"""What the tools of the project say: parts of ./dev check, whose libtorch is built against, how packages are carried
to a machine with a GPU, sources that torch_versions.py checks."""
import io
import os
import pathlib
import subprocess
import sys
import tarfile
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


def write_deb(path, members):
    """A .deb file with the members, of which those that begin with -> are links; none of what dpkg needs besides."""
    tarred = io.BytesIO()
    with tarfile.open(fileobj=tarred, mode="w:xz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo("./" + name)
            member.mode = 0o755
            if content.startswith("->"):
                member.type, member.linkname = tarfile.SYMTYPE, content[2:]
            member.size = 0 if member.issym() else len(content)
            tar.addfile(member, io.BytesIO(content.encode()))
    data = tarred.getvalue()
    head = "{:16}{:12}{:6}{:6}{:8}{:<10}`\n".format
    path.write_bytes(b"!<arch>\n" + head("debian-binary", 0, 0, 0, 100644, 4).encode() + b"2.0\n" +
                     head("data.tar.xz", 0, 0, 0, 100644, len(data)).encode() + data + b"\n" * (len(data) % 2))


class Gpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def unpack(self):
        return subprocess.run([sys.executable, "-B", ROOT / "tools" / "unpack_debs.py", self.folder, self.folder / "root"],
                              text=True, capture_output=True)

    def test_what_is_unpacked_names_itself_and_not_the_system(self):
        write_deb(self.folder / "one.deb", {
            "usr/include/x86_64-linux-gnu/part/here.h": "a header of one processor",
            "lib/x86_64-linux-gnu/libone.so.1.2": "a library",
            "usr/lib/x86_64-linux-gnu/libone.so": "->/lib/x86_64-linux-gnu/libone.so.1.2",
            "usr/lib/x86_64-linux-gnu/libsame.so": "->libone.so",
            "usr/lib/x86_64-linux-gnu/pkgconfig/one.pc": "prefix=/usr\nlibdir=${prefix}/lib\nCflags: -I/usr/include\n",
            "usr/bin/say": "#!/bin/sh\necho $1 $LD_LIBRARY_PATH\n",
            "usr/bin/speak": "->say",
            "usr/share/doc/one": "not needed",
            "../../outside.so": "never above the root"})
        done = self.unpack()
        self.assertEqual(done.returncode, 0, done.stderr)
        root = self.folder / "root"
        libraries = root / "usr/lib/x86_64-linux-gnu"
        self.assertTrue((root / "usr/include/part/here.h").is_file())
        for link in ("libone.so", "libsame.so"):
            self.assertEqual((libraries / link).resolve(), libraries / "libone.so.1.2")
        self.assertEqual((libraries / "pkgconfig/one.pc").read_text(),
                         f"prefix={root}/usr\nlibdir=${{prefix}}/lib\nCflags: -I{root}/usr/include\n")
        said = subprocess.run([root / "usr/bin/speak", "yes"], check=True, text=True, stdout=subprocess.PIPE).stdout
        self.assertEqual(said, f"yes {libraries}\n")
        self.assertFalse((root / "usr/share").exists())
        self.assertEqual(list(self.folder.parent.glob("outside.so")), [])

    def test_a_file_that_was_cut_is_named(self):
        write_deb(self.folder / "whole.deb", {"usr/lib/a": "x" * 1000})
        for size in (0, 150, 170):
            (self.folder / "cut.deb").write_bytes((self.folder / "whole.deb").read_bytes()[:size])
            done = self.unpack()
            self.assertEqual(done.returncode, 1, size)
            self.assertIn("cut.deb: ", done.stderr)

    def test_packages_are_those_that_libraries_need_without_compilers(self):
        needs = {"liba-dev": "  Depends: liba1\n  Depends: <libc-dev>\n    libc6-dev\n |Depends: first\n  Depends: second\n",
                 "liba1": "  Depends: libc6\n  PreDepends: libdeep\n", "libc6-dev": "  Depends: libc6\n",
                 "first": "  Depends: python3\n"}
        for name, text in needs.items():
            (self.folder / name).write_text(f"{name}\n{text}")
        functions = (ROOT / "tools" / "gpu.sh").read_text().split("\ngpu_arguments=()")[0]
        script = ('ROOT=.\nDEBIAN_TOOLS="g++ python3" DEBIAN_LIBRARIES=liba-dev\n' + functions +
                  '\napt-cache() { for name in "$@"; do [ ! -e "$name" ] || cat "$name"; done; }\npackages_to_carry\n')
        listed = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, check=True, text=True,
                                stdout=subprocess.PIPE).stdout
        self.assertEqual(sorted(listed.split()), ["first", "liba-dev", "liba1", "libdeep"])

    def test_a_machine_is_refused_with_all_that_it_lacks(self):
        (self.folder / "tools").mkdir()
        for name in ("dev", "dependencies.conf", "tools/gpu.sh"):
            (self.folder / name).write_text((ROOT / name).read_text())
        programs = self.folder / "programs"
        programs.mkdir()
        for name, code in ("python3", 0), ("pkg-config", 1):
            (programs / name).write_text(f"#!/bin/sh\necho\nexit {code}\n")
            (programs / name).chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if name != "HANJI_TORCH"}
        environment["PATH"] = f"{programs}:{environment['PATH']}"
        run = subprocess.run(["bash", "dev", "gpu"], cwd=self.folder, env=environment, text=True, capture_output=True)
        self.assertEqual(run.returncode, 1)
        for text in ("no torch in " + str(programs), "./dev gpu --pack on a Debian 12"):
            self.assertIn(text, run.stderr)
        self.assertEqual(subprocess.run(["bash", "dev", "gpu", "--nothing"], cwd=self.folder, text=True,
                                        capture_output=True).stderr,
                         "dev: gpu has no option --nothing: ./dev gpu --pack, or ./dev gpu [--out FOLDER] [--device cpu] [PART...]\n")


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
