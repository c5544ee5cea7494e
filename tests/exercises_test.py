"""The exercises: ours pass, and a wrong answer of each kind is named. What is judged of numbers alone is in
hanji/cli/exercises/judges_test.cpp."""
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

from command import HANJI, CommandTest

NOT_PASSED = 7


class Exercises(CommandTest):
    def environment(self, **extra):
        # Programs are compiled in a new folder each time; a compiler's cache knows them by their place in it.
        cached = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_BASEDIR": str(self.folder), "CCACHE_NOHASHDIR": "1"}
        return super().environment(**(cached if shutil.which("ccache") else {}), **extra)

    def ours(self, number):
        """Our solution, written into exercise-N: its first file."""
        done = self.hanji("exercise", number, "--solution", "--out", f"exercise-{number}")
        return self.folder / done.stdout.splitlines()[0].removeprefix("written: ")

    def check(self, number, expect=0, **extra):
        return self.words(self.hanji("exercise", number, "--check", expect=expect, timeout=400, **extra).stdout)

    def change(self, file, *changes):
        text = file.read_text()
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        file.write_text(text)

    def wrong(self, number, file, *changes, **extra):
        """What the check says of ours with changes, which are undone."""
        before = file.read_text()
        self.change(file, *changes)
        said = self.check(number, expect=NOT_PASSED, **extra)
        self.assertIn(f"exercise {number}: not passed yet", said)
        file.write_text(before)
        return said

    @staticmethod
    def living(group):
        """The processes of a group that have not ended."""
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(of) == group and state != "Z":
                yield stat.parent.name

    def test_the_list_has_a_line_for_each(self):
        listed = self.hanji("exercise").stdout
        for number in range(1, 7):
            self.assertRegex(listed, rf"(?m)^  {number}  \w")
        self.assertEqual(1, listed.count("--solution"))
        self.hanji("exercise", 7, expect=2)
        self.hanji("exercise", "--check", expect=2)
        self.hanji("exercise", 1, "--check", "--solution", expect=2)

    def test_what_is_written_has_gaps_that_the_check_names(self):
        for number in range(1, 7):
            task = self.hanji("exercise", number).stdout
            self.assertIn(f"Exercise {number}: ", task)
            self.assertIn(f"check: hanji exercise {number} --check", task)
            self.assertNotIn("{prefix}", task)
            self.assertIn("a gap is left", self.check(number, expect=NOT_PASSED))
        missing = self.hanji("exercise", 4, "--check", "--out", "nowhere", expect=2).stderr
        self.assertIn("write it by: hanji exercise 4 --out nowhere", missing)

    def test_a_file_that_was_edited_stays(self):
        self.hanji("exercise", 4, "--out", "mine")
        mine = self.folder / "mine" / "overhead.sh"
        mine.write_text("edited\n")
        self.assertIn("mine/overhead.sh stays as it is", self.hanji("exercise", 4, "--out", "mine").stdout)
        refused = self.hanji("exercise", 4, "--solution", "--out", "mine", expect=2).stderr
        self.assertIn("mine/overhead.sh: it has been edited", refused)
        self.assertEqual(mine.read_text(), "edited\n")
        shown = self.hanji("exercise", 4, "--solution").stdout
        self.assertEqual(shown, self.ours(4).read_text())

    def test_1_links(self):
        script = self.ours(1)
        self.assertIn("exercise 1: passed", self.check(1))
        self.change(script, ("rate 200mbit", "rate 200nothing"))
        said = self.check(1, expect=NOT_PASSED)
        if (script.parent / "why_not.txt").stat().st_size == 0:  # a namespace can be made
            self.assertIn("sh links.sh ended with code", said)
        self.change(script, ("rate 200nothing", "rate 200mbit"))
        # As where namespaces are not permitted.
        refuses = self.folder / "refuses"
        refuses.mkdir()
        (refuses / "unshare").write_text("#!/bin/sh\nexit 1\n")
        (refuses / "unshare").chmod(0o755)
        said = self.wrong(1, script, ("predicted_ms=$(awk", "predicted_ms=21 # $(awk"),
                          ("loopback_is_like=$(like", "loopback_is_like=warp; true $(like"),
                          PATH=f"{refuses}:{os.environ['PATH']}")
        self.assertIn("NO predicted_ms=21 is not right", said)
        self.assertIn('NO loopback_is_like="warp" is no link of the table', said)
        self.assertIn("yes measured_ms=167.772; measured again in the simulator, as no network namespace", said)

    def test_3_hybrid_sharding(self):
        script = self.ours(3)
        self.assertIn("exercise 3: passed", self.check(3))
        said = self.wrong(3, script, ("2 * 4 * parameters / fsdp", "2 * 4 * parameters"),
                          ("scatter_bytes=$((bytes * (fsdp - 1) / fsdp))", "scatter_bytes=$((bytes))"))
        self.assertRegex(said, "NO optimizer_bytes=237600 is not right: the run counted 241664 bytes of moments in a group of 2")
        self.assertRegex(said, r"NO wire_bytes=\d+ is not right: the run counted 934224 bytes a step")
        shutil.rmtree(script.parent / "run")
        said = self.wrong(3, script, ("dp=2\nfsdp=2", "dp=1\nfsdp=4"))
        self.assertIn("fsdp=2 fits as well and sends 8 instead of 9 times", said)
        self.assertIn("exercise 3: not passed yet NO run/ was trained with dp=1, fsdp=4, but hybrid.sh says dp=2, "
                      "fsdp=2 hint: rm -r run, and run the script again read docs/learn", self.check(3, expect=NOT_PASSED))
        shutil.rmtree(script.parent / "run")
        said = self.wrong(3, script, ("dp=2\nfsdp=2", "dp=3\nfsdp=2"))
        self.assertRegex(said, "NO sh hybrid.sh ended with code 2: .*mesh")

    def test_4_overhead_of_an_all_reduce(self):
        script = self.ours(4)
        self.assertIn("exercise 4: passed", self.check(4))
        said = self.wrong(4, script, ("echo \"exposed_ms=$exposed_ms", "echo \"exposed_ms=0.001"),
                          ("echo \"share_percent=$share_percent", "echo \"share_percent=200"),
                          ("echo \"speed_up_at_most=$speed_up_at_most", "echo \"speed_up_at_most=1"))
        self.assertRegex(said, "NO exposed_ms=0.001 is not right: the ranks recorded .* ms of exposed all_reduce")
        self.assertIn("NO share_percent=200 is not right", said)
        self.assertIn("NO speed_up_at_most=1 is not right", said)
        shutil.rmtree(script.parent / "after")
        said = self.wrong(4, script, ("change=comm.engine=shm", "change=comm.check_every=100"))
        self.assertIn("NO the folder before has comm.check_every=100 already: nothing was changed", said)
        said = self.wrong(4, script, ("change=comm.engine=shm", "change=comm.bucket_bytes=64KiB"))
        self.assertIn("exercise 4: not passed yet NO after/ was trained with comm.bucket_bytes=26214400, but "
                      "overhead.sh says comm.bucket_bytes=64KiB hint: rm -r after, and run the script again read docs/learn", said)
        shutil.rmtree(script.parent / "after")
        said = self.wrong(4, script, ("change=comm.engine=shm", "change=comm.check_every=100"),
                          ("--set comm.engine=gloo --set $change", "--set $change"))
        self.assertIn("these keys differ: comm.engine; the script changes comm.check_every", said)

    def test_5_a_file_of_images(self):
        script = self.ours(5)
        self.assertIn("exercise 5: passed", self.check(5))
        said = self.wrong(5, script, ("classes=$(ls photos | wc -l)", "classes=10"), ("240 * 0.9 / 32", "240 / 32"))
        self.assertIn("NO classes=10 is not right", said)
        self.assertIn("NO steps_per_epoch=7.5 is not right: 216 training samples", said)
        said = self.wrong(5, script, ("source=data.files", "source=data.text"))
        self.assertRegex(said, r"NO run/ was trained with \S*photos.beton, but images.sh says data.text=photos.beton")
        (next(script.parent.glob("photos/0/*.png"))).unlink()
        said = self.check(5, expect=NOT_PASSED)
        self.assertIn("NO photos.beton has 240 samples, the folder photos 239 images", said)
        shutil.rmtree(script.parent / "run")
        said = self.wrong(5, script, ("data.files=photos", "data.files=shapes"), ("--steps 60", "--steps 1"))
        self.assertRegex(said, "NO the run has learned .*shapes.beton, not photos.beton")
        self.assertRegex(self.check(5, expect=NOT_PASSED),
                         r"NO run/ was trained with \S*shapes.beton, but images.sh says data.files=photos.beton "
                         r"hint: rm -r run, and run the script again read docs/learn")
        self.change(script, ("--folder photos", "--text photos"))
        (script.parent / "photos.beton").unlink()
        self.assertIn("sh images.sh ended with code", self.check(5, expect=NOT_PASSED))

    def test_2_accumulation(self):
        program = self.ours(2)
        self.assertIn("exercise 2: passed", self.check(2))
        said = self.wrong(2, program, ("Average::kMean", "Average::kSum"), ("(micro + 1 < kMicroBatches)", "(false)"))
        self.assertIn("gradients of 2 ranks are summed after every micro-batch, the earlier ones again and again", said)
        self.assertIn("gradients are averaged 3 times a step, not once", said)
        said = self.wrong(2, program, ("#include <hanji/hanji.h>", "#error nothing\n"))
        self.assertRegex(said, "NO accumulate does not compile: .*error: #error nothing")
        self.assertIn('section "Gradient accumulation" names the call', said)
        said = self.wrong(2, program, ("micro + 1 < kMicroBatches", "micro + 1 == kMicroBatches"))
        self.assertIn("16 collectives in 4 steps of 3 micro-batches: gradients are averaged 2 times a step", said)

    def test_6_a_job_that_hangs(self):
        program = self.ours(6)
        self.assertIn("exercise 6: passed", self.check(6))
        self.hanji("exercise", 6, "--out", "given")
        given = (self.folder / "given" / "hang.cpp").read_text()
        program.write_text(given.replace("absent_rank=____", "absent_rank=0").replace("call=____", "call=barrier"))
        said = self.check(6, expect=NOT_PASSED)
        self.assertIn("absent_rank=0 is not right: rank 1 was absent", said)
        self.assertIn("absent_call=barrier is not right: the others waited in all_reduce", said)
        self.assertRegex(said, "NO the program still hangs: .*absent rank 1")

    def test_without_a_compiler_nothing_starts(self):
        program = self.ours(2)
        refused = self.hanji("exercise", 2, "--check", expect=2, PATH=str(self.folder)).stderr
        self.assertIn("exercise 2 compiles a program: there is no `cmake` on PATH", refused)
        (self.folder / "cmake").symlink_to(shutil.which("true"))
        refused = self.hanji("exercise", 2, "--check", expect=2, PATH=str(self.folder)).stderr
        self.assertIn("there is no C++ compiler on PATH", refused)
        self.assertEqual(sorted(one.name for one in program.parent.iterdir()), ["CMakeLists.txt", "accumulate.cpp"])

    def test_a_signal_ends_what_the_check_runs(self):
        script = self.ours(4)
        script.write_text("echo $$ > shell\nsleep 100 & sleep 100\n")
        check = subprocess.Popen([HANJI, "exercise", "4", "--check"], cwd=self.folder, env=self.environment(),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shell = script.parent / "shell"
        end = time.monotonic() + 30
        while time.monotonic() < end and not (shell.exists() and shell.read_text().strip()):
            time.sleep(0.05)
        group = int(shell.read_text())
        check.send_signal(signal.SIGINT)
        self.assertEqual(check.wait(30), 130)
        self.assertEqual([], list(self.living(group)))


if __name__ == "__main__":
    unittest.main()
