"""`hanji doctor`: one page on the machine, true to what it finds."""
import json
import os
import subprocess
import sys
import unittest

from command import HANJI, CommandTest


class Doctor(CommandTest):
    def test_one_page_and_the_same_as_json(self):
        page = self.hanji("doctor").stdout
        for section in ("versions", "cores", "kernels", "gpu", "ranks", "shared memory", "limits", "disk",
                        "launchers", "engines", "environment"):
            self.assertRegex(page, f"(?m)^{section}$")
        findings = [line for line in page.splitlines() if not line.startswith(" " * 25)]
        self.assertLessEqual(len(findings), 80)
        self.assertLessEqual(max(map(len, page.splitlines())), 80)
        self.assertRegex(page, r"all_reduce, 2 ranks +right on both; 4 MiB in \d+ us")
        self.assertEqual(list(self.folder.iterdir()), [], "its file on the disk is gone")

    def test_the_age_of_kept_choices_is_told(self):
        cache = {"HANJI_CACHE_DIR": str(self.folder / "cache")}
        self.assertRegex(self.hanji("doctor", **cache).stdout, r"kept choices +none yet")
        self.train("run", "--ranks", 1, "--steps", 1, **cache)
        self.assertRegex(self.hanji("doctor", **cache).stdout, r"kept choices +1, measured \d")
        (file,) = (self.folder / "cache").glob("kernels-*.json")
        kept = json.loads(file.read_text())
        for change, words in (({"measured_at": kept["measured_at"] - 40 * 24 * 3600, "load": 0},
                               "it is 40 days old"),
                              ({"load": 0.38}, "other processes used 38 % of the CPUs")):
            file.write_text(json.dumps({**kept, **change}))
            page = self.hanji("doctor", **cache).stdout
            self.assertRegex(page, r"(?m)^! kept choices")
            self.assertIn(words, self.words(page))

    def test_a_plan_says_that_others_disturbed_what_it_timed(self):
        spin = [sys.executable, "-c", "while True: pass"]
        busy = [subprocess.Popen(spin) for _ in range(2 * os.cpu_count())]
        try:
            page = self.hanji("plan", "--ranks", 1, "--set", "model.preset=nano",
                              HANJI_CACHE_DIR=str(self.folder / "cache")).stdout
        finally:
            for process in busy:
                process.kill()
                process.wait()
        self.assertRegex(" ".join(page.split()),
                         r" load of what was timed here: other processes used \d+ % of the CPUs")

    def test_a_cache_that_cannot_be_written_is_noted_once_and_stops_nothing(self):
        cache = {"HANJI_CACHE_DIR": "/dev/null/cache"}
        self.assertRegex(self.hanji("doctor", **cache).stdout, r"(?m)^! measurements kept in +nowhere: make folder")
        said = self.train("run", "--ranks", 1, "--steps", 1, **cache).stderr
        self.assertEqual(said.count("is not kept for the next command"), 1, said)
        self.assertIn("HANJI_CACHE_DIR can name another folder", said)

    def test_what_is_broken_is_said_and_gives_its_code(self):
        done = self.hanji("doctor", "--json", "--folder", "missing", expect=2, OMP_NUM_THREADS="two")
        report = json.loads(done.stdout)
        broken = {one["name"]: one for one in report["findings"] if one["verdict"] == "broken"}
        self.assertEqual(set(broken), {"missing", "OMP_NUM_THREADS is no count"})
        self.assertEqual(report["broken"], 2)
        self.assertTrue(all(one["advice"] for one in broken.values()))

    def test_a_small_limit_is_found(self):
        done = subprocess.run(["bash", "-c", f"ulimit -n 64; exec {HANJI} doctor --json"], text=True,
                              cwd=self.folder, capture_output=True, env=self.environment())
        self.assertEqual(done.returncode, 2)
        names = [one["name"] for one in json.loads(done.stdout)["findings"]
                 if one["verdict"] == "broken"]
        self.assertIn("open files", names)

    def test_a_shell_within_another_job_is_told_so(self):
        torchrun = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
                    "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
        self.assertRegex(self.hanji("doctor", **torchrun).stdout,
                         r"(?m)^! started by +torchrun, rank 1 of 2$")
        self.assertRegex(self.hanji("doctor", RANK="1", expect=2).stdout, "(?m)^X started by")


if __name__ == "__main__":
    unittest.main()
