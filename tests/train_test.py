"""`hanji train` from the outside: the files it leaves, what they say, and what it refuses."""
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import time
import unittest
import unittest.mock

from command import HANJI, MEGABYTE, NANO, CommandTest

SUMMARY_NAMES = """steps ranks train_loss validation_loss params_sha256 tokens_per_second
    step_seconds_median step_seconds_p90 compute_seconds transfer_seconds
    exposed_transfer_seconds hidden_transfer_seconds skew_seconds skew_seconds_by_rank
    data_seconds first_step_seconds peak_bytes_per_rank plan
    prediction""".split()


class Train(CommandTest):
    def test_the_first_timing_is_announced_on_a_terminal_and_not_to_programs(self):
        for more in ([], ["--json"]):
            terminal, stderr = pty.openpty()
            done = subprocess.run([HANJI, "plan", "--ranks", "1", *NANO, *more], cwd=self.folder,
                                  env=self.environment(HANJI_CACHE_DIR=str(self.folder / f"cache{len(more)}")),
                                  stdout=subprocess.PIPE, stderr=stderr, timeout=120)
            os.write(stderr, b".")  # so that there is something to read
            os.close(stderr)
            shown = os.read(terminal, 1 << 16).decode()
            os.close(terminal)
            self.assertEqual(done.returncode, 0, shown)
            if more:
                self.assertEqual(shown, ".")
            else:
                self.assertIn("timing operations of this machine, once: ~1 s, 0 % done", shown)

    def test_a_run_leaves_every_file_and_every_name(self):
        done = self.train("run", "--ranks", 2, "--steps", 12, "--seed", 7)
        summary = self.read_json("run", "summary.json")
        self.assertEqual([name for name in SUMMARY_NAMES if name not in summary], [])
        self.assertEqual((summary["steps"], summary["ranks"]), (12, 2))
        steps = [line for line in self.read_lines("run", "run.jsonl") if "loss" in line]
        self.assertEqual([line["step"] for line in steps], list(range(1, 13)))
        for name in ("step_seconds", "tokens_per_second"):
            self.assertTrue(all(line[name] > 0 for line in steps))
        run = self.folder / "run"
        self.assertTrue((run / "plan.json").is_file())
        self.assertFalse((run / "ranks.json").exists(), "only while ranks are alive")
        self.assertEqual(len(list((run / "trace").iterdir())), 2)
        self.assertEqual(len(list((run / "tensorboard").glob("*tfevents*"))), 1)
        self.assertTrue((run / "checkpoints" / "latest").exists())
        self.assertRegex(done.stdout, r"(?s)predicted.*step +1/12.*measured")

    def test_waiting_for_a_slower_rank_is_skew_and_not_transfer(self):
        done = self.train("run", "--ranks", 2, "--steps", 10,
                          "--set", "train.split=[1, 7]", "--set", "train.global_batch=64",
                          "--set", "train.micro_batch=1", "--set", "train.log_every=1")
        summary = self.read_json("run", "summary.json")
        # Rank 1 computes seven times as much, and rank 0 waits for it in every step.
        least, most = sorted(summary["skew_seconds_by_rank"])
        self.assertEqual(most, summary["skew_seconds_by_rank"][0])
        self.assertGreater(most, least)
        self.assertGreater(summary["skew_seconds"], summary["transfer_seconds"])
        self.assertEqual(summary["hidden_transfer_seconds"], 0)
        parts = (summary[f"{name}_seconds"]
                 for name in ("compute", "data", "exposed_transfer", "skew"))
        self.assertLessEqual(max(parts), summary["step_seconds_p90"])
        for name in ("transfer", "exposed_transfer", "hidden_transfer"):
            self.assertIsNotNone(summary["prediction"][f"{name}_seconds"]["predicted"])
        self.assertIsNone(summary["prediction"]["skew_seconds"]["predicted"])
        steps = [line for line in self.read_lines("run", "run.jsonl") if "loss" in line]
        for name in ("transfer_seconds", "exposed_transfer_seconds", "skew_seconds"):
            self.assertTrue(all(line[name] >= 0 for line in steps))
        self.assertRegex(done.stdout, r"% transfer +[0-9.]+% skew")
        self.assertRegex(done.stdout, r"a step waits .* for slower ranks on rank 0, ")
        self.assertNotIn("communication", done.stdout)
        trace = json.loads(sorted((self.folder / "run" / "trace").iterdir())[0].read_text())
        names = {event["name"] for event in trace["traceEvents"] if event["ph"] == "X"}
        self.assertIn("waiting for rank 1", names)

    def test_a_report_names_the_rank_that_the_others_wait_for(self):
        done = self.train("run", "--ranks", 2, "--steps", 25, "--set", "train.split=[1, 7]",
                          "--set", "train.global_batch=64", "--set", "train.micro_batch=1")
        self.assertIn(f"more: hanji report {self.folder / 'run'}", done.stdout)
        report = json.loads(self.hanji("report", self.folder / "run", "--json").stdout)
        for rank in report["by_rank"]:
            parts = sum(rank[name] for name in ("compute", "data", "exposed_transfer", "skew"))
            self.assertAlmostEqual(parts, rank["seconds"], delta=0.01 * rank["seconds"])
        # Where others use the CPUs, what they take of a rank is the larger cause.
        self.assertIn(report["verdict"]["cause"], ("uneven_shares", "stolen_time", "nothing"))
        if report["verdict"]["cause"] == "uneven_shares":
            self.assertEqual(report["verdict"]["rank"], 1)
            self.assertIn("has 56 samples of a step where others have 8", report["verdict"]["sentence"])
        waits = [rank["skew"] for rank in report["by_rank"]]
        self.assertGreater(waits[0], waits[1])
        self.assertLess(max(len(line) for line in self.hanji("report", self.folder / "run").stdout.splitlines()), 81)
        page = self.words(self.hanji("report", self.folder / "run").stdout)
        command = f"hanji bench scaling --ranks 1,2 --like {self.folder / 'run'}"
        self.assertIn(f"efficiency not known without a run on one rank: {command}", page)
        self.assertIn(f"efficiency: {command}", self.words(done.stdout))
        parts = self.hanji("report", self.folder / "run", "--steps", "1-12", "--against", "13-25").stdout
        self.assertIn("cannot be told, because 11 steps of A", self.words(parts))
        both = json.loads(self.hanji("report", self.folder / "run", self.folder / "run", "--json").stdout)
        self.assertIn((both["parts"][0]["part"], both["parts"][0]["outcome"]),
                      (("step", "alike"), ("step", "not told")))  # where others make steps correlated

    def test_a_run_is_watched_until_it_ends(self):
        run = self.folder / "run"
        training = subprocess.Popen([HANJI, "train", "--out", run, *NANO, "--ranks", "2", "--steps", "100000"],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment())
        self.addCleanup(training.kill)
        while not (run / "steps" / "rank.1.jsonl").exists():
            time.sleep(0.1)
        time.sleep(1)
        page = self.words(self.hanji("top", run, "--once").stdout)
        self.assertRegex(page, r"run: nano, 2 ranks step \d+ of 100000, .* each, .* per second, .* left")
        self.assertIn("all_reduce", page)
        self.assertIn("run: nano, 2 ranks", self.hanji("top", training.pid).stdout)  # a pipe gets one page
        shown = self.watch_in_terminal(run)
        self.assertGreaterEqual(shown.count("nano, 2 ranks"), 3)
        self.assertRegex(shown, r"\r\x1b\[\d+A\x1b\[J")  # each page over the one before
        narrow = shown.rpartition("\x1b[J")[2].replace("^C", "").splitlines()
        self.assertLess(max(map(len, narrow)), 61)
        stopped = next(one["pid"] for one in self.read_json("run", "ranks.json")["ranks"] if one["rank"] == 1)
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(2)
        hang = self.words(self.hanji("top", run).stdout)
        self.assertRegex(hang, rf"verdict rank 1 \(process {stopped}.* is stopped .*rank 0 waits for it")
        os.kill(stopped, signal.SIGCONT)
        training.send_signal(signal.SIGINT)
        training.wait(60)
        self.assertIn("has ended", self.hanji("top", run).stdout)
        self.assertIn("no such folder", self.hanji("top", self.folder / "none", expect=2).stderr)

    def watch_in_terminal(self, run):
        """What `hanji top` writes in 80 and then 60 columns until Ctrl-C, which leaves the terminal as it was."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        before = termios.tcgetattr(theirs)
        top = subprocess.Popen([HANJI, "top", run], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                               preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), env=self.environment())
        time.sleep(2.5)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        time.sleep(0.5)
        os.write(ours, b"\x03")
        self.assertEqual(top.wait(10), 0)
        self.assertEqual(termios.tcgetattr(theirs), before)
        shown = os.read(ours, 1 << 16).decode()
        os.close(ours)
        os.close(theirs)
        self.assertNotIn("\x1b[?", shown)  # no mode that would stay
        return shown

        page, other = self.folder / "report.html", self.folder / "other.html"
        self.hanji("report", self.folder / "run", "--html", page)
        written = page.read_bytes()
        self.assertIn(b"<!doctype html>", written)
        self.assertIn(b"From the traces of the ranks", written)
        json.loads(self.hanji("report", self.folder / "run", "--json", "--html", page).stdout)
        self.assertEqual(page.read_bytes(), written)
        other.write_text("<!doctype html>\n<p>my own page")
        for target, why in ((other, "exists and is no report of hanji; name another file"),
                            (self.folder, f"is a folder; name a file, such as {page}"),
                            (self.folder / "none/x.html", "none")):
            refused = self.hanji("report", self.folder / "run", "--html", target, expect=2)
            self.assertIn(why, " ".join(refused.stderr.split()))
        self.assertEqual(other.read_text(), "<!doctype html>\n<p>my own page")

    def test_a_report_of_no_run_is_refused(self):
        refused = self.hanji("report", self.folder, expect=2)
        self.assertIn("no plan.json lies here; name the folder of a run", refused.stderr)
        refused = self.hanji("report", self.folder, "a", "b", "--against", "5", expect=2)
        for mistake in ("name one or two folders", "name one folder with it", "--against needs --steps",
                        "5 is no range of steps; write it as 101-200"):
            self.assertIn(mistake, refused.stderr)

    def test_a_stage_that_waits_for_a_message_waits_for_its_rank(self):
        self.train("run", "--mesh", "pp=2", "--steps", 10, "--set", "pipeline.schedule=naive",
                   "--set", "pipeline.micro_batches=1")
        summary = self.read_json("run", "summary.json")
        # One stage computes at a time: in all both wait for as long as both compute.
        self.assertGreater(sum(summary["skew_seconds_by_rank"]), 0.5 * summary["step_seconds_median"])
        self.assertGreater(summary["transfer_seconds"], 0)

    def test_the_plan_of_an_older_version_is_resumed(self):
        """As plans were before transfer and skew were told apart; no checkpoint was saved yet."""
        self.train("run", "--ranks", 2, "--steps", 4)
        shutil.rmtree(self.folder / "run" / "checkpoints")
        (self.folder / "run" / "checkpoints").mkdir()
        path = self.folder / "run" / "plan.json"
        plan = json.loads(path.read_text())
        plan["format"] = 1
        del plan["times"]
        for name in ("transfer", "exposed_transfer", "hidden_transfer"):
            del plan["predicted"][f"{name}_seconds"]
        plan["predicted"]["communication_seconds"] = 0.5
        plan["predicted"]["exposed_communication_seconds"] = 0.5
        path.write_text(json.dumps(plan))
        self.train("run", "--ranks", 2, "--steps", 6, "--resume")
        self.assertEqual(self.read_json("run", "summary.json")["steps"], 6)
        self.assertGreater(self.read_json("run", "plan.json")["times"]["samples"], 0, "measured anew")

    def test_the_trace_has_the_fields_that_readers_need(self):
        self.train("run", "--ranks", 2, "--steps", 3)
        trace = json.loads(sorted((self.folder / "run" / "trace").iterdir())[1].read_text())
        self.assertEqual(trace["distributedInfo"]["rank"], 1)
        events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertTrue(all("cat" in event and "dur" in event for event in events))
        names = {event["name"] for event in events}
        self.assertTrue(any(name.startswith("ProfilerStep#") for name in names))
        self.assertIn("nccl:all_reduce Kernel", names)

    def test_a_profile_has_every_operation_and_changes_no_bits(self):
        for name, *extra in (("ddp",), ("recompute", "--set", "compute.recompute=true"),
                             ("pp", "--set", "mesh.pp=2")):
            for out, profile in ((name, ()), (f"{name}-profiled", ("--profile", "3-4"))):
                self.train(out, "--ranks", 2, "--steps", 6, *extra, *profile)
            self.assertEqual(self.read_json(name, "summary.json")["state_sha256"],
                             self.read_json(f"{name}-profiled", "summary.json")["state_sha256"], name)
            self.assertFalse((self.folder / name / "operations").exists())
            for rank in range(2):
                header, *rows = self.read_lines(f"{name}-profiled", f"operations/rank.{rank}.jsonl")
                self.assertEqual((header["first_step"], header["last_step"]), (3, 4))
                self.assertGreater(header["roof_flops_per_second"], 0)
                self.assertGreater(header["other_step_seconds"], 0)
                seconds = sum(row["seconds"] for row in rows) + header["waits"]
                self.assertAlmostEqual(seconds / header["seconds"], 1, delta=0.01)
                products = [row for row in rows if row["operation"] in ("aten::mm", "aten::addmm",
                                                                        "mkldnn::_linear_pointwise")]
                phases = {row["phase"] for row in products}
                self.assertLessEqual({"forward", "backward"}, phases)
                self.assertEqual("recompute" in phases, name == "recompute")
                self.assertTrue(all(row["flops"] > 0 and row["layer"] >= 0 for row in products
                                    if row["phase"] != "step"), products)
                self.assertIn("hanji::adamw", {row["operation"] for row in rows if row["phase"] == "optimizer"})
        trace = json.loads((self.folder / "ddp-profiled" / "trace" / "rank.0.json").read_text())
        kernels = {event["name"] for event in trace["traceEvents"] if event.get("cat") == "kernel"}
        self.assertIn("hanji::bias_gelu", kernels)

    def test_the_loss_falls(self):
        text = self.folder / "text"
        text.write_text("a rank sends what the next rank receives, and all ranks agree. " * 400)
        self.train("run", "--ranks", 2, "--steps", 120, "--text", text,
                   "--set", "train.learning_rate=3e-3")
        losses = [line["loss"] for line in self.read_lines("run", "run.jsonl") if "loss" in line]
        self.assertLess(sum(losses[-10:]), 0.8 * sum(losses[:10]))

    def test_the_same_command_gives_the_same_parameters(self):
        hashes = set()
        for out in ("a", "b"):
            self.train(out, "--ranks", 2, "--steps", 8, "--set", "model.dropout=0.1")
            hashes.add(self.read_json(out, "summary.json")["params_sha256"])
        self.assertEqual(len(hashes), 1)

    def test_gloo_and_shared_memory_give_the_same_parameters(self):
        hashes = set()
        for engine in ("shm", "gloo"):
            self.train(engine, "--ranks", 3, "--steps", 5, "--set", f"comm.engine={engine}")
            hashes.add(self.read_json(engine, "summary.json")["params_sha256"])
        self.assertEqual(len(hashes), 1)

    def test_token_files_are_read_and_ids_beyond_the_vocabulary_refused(self):
        tokens = [i * 7 % 50 for i in range(5000)]
        (self.folder / "tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        self.train("run", "--ranks", 2, "--steps", 2, "--tokens", "tokens.bin")
        self.assertEqual(self.read_json("run", "plan.json")["data"]["vocabulary"], 50)
        done = self.train("small", "--ranks", 2, "--steps", 2, "--tokens", "tokens.bin",
                          "--set", "model.vocabulary=20", expect=2)
        self.assertIn("--set: model.vocabulary is 20, but tokens.bin needs 50", done.stderr)

    def test_a_stop_is_saved_and_leaves_with_its_code(self):
        for number, code in ((signal.SIGTERM, 75), (signal.SIGINT, 130), (signal.SIGUSR2, 75)):
            out = self.folder / f"stop-{number}"
            process = subprocess.Popen(
                [HANJI, "train", "--out", out, *NANO, "--ranks", "2", "--steps", "1000000"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=self.environment(), start_new_session=True)
            while "loss" not in (line := process.stdout.readline()):
                self.assertTrue(line, "ended before its first step")
            process.send_signal(number)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, code)
            self.assertTrue(list((out / "checkpoints").glob("step_*/model.safetensors")))

    def test_a_signal_before_step_1_has_its_code_and_leaves_nothing(self):
        def plans(process):
            return self.catches(process.pid, signal.SIGTERM)

        def starts_ranks(process):
            return len(self.session(process.pid)) > 1

        for number, code, begun in ((signal.SIGTERM, 75, plans), (signal.SIGHUP, 75, starts_ranks),
                                    (signal.SIGINT, 130, starts_ranks)):
            process = subprocess.Popen(
                [HANJI, "train", "--out", self.folder / f"early-{number}", *NANO, "--ranks", "2", "--steps", "1000000"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=self.environment(), start_new_session=True)
            while not begun(process):
                self.assertIsNone(process.poll())
                time.sleep(0.001)
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, code, errors)
            self.assertEqual(self.session(process.pid), [])

    def test_stages_need_what_is_planned_and_1f1b_keeps_less_than_gpipe(self):
        larger = ["model.layers=4", "model.width=128", "model.heads=4", "model.block=128",
                  "train.global_batch=32", "train.evaluate_batches=1", "pipeline.micro_batches=8"]
        peaks = {}
        for schedule in ("gpipe", "1f1b"):
            wanted = [f"pipeline.schedule={schedule}", *larger]
            done = self.train(schedule, "--mesh", "pp=2", "--steps", 2,
                              *(word for key in wanted for word in ("--set", key)))
            peaks[schedule] = self.read_json(schedule, "summary.json")["peak_bytes"]
            rank, both = (float(megabytes) * MEGABYTE for megabytes in re.search(
                r"total +([0-9.]+) MB +([0-9.]+) MB", done.stdout).groups())
            for measured, planned in ((max(peaks[schedule]), rank), (sum(peaks[schedule]), both)):
                self.assertLess(abs(measured - planned), max(0.03 * planned, 16 * MEGABYTE))
        for gpipe, one_by_one in zip(peaks["gpipe"], peaks["1f1b"]):
            self.assertGreater(gpipe, 2 * one_by_one, "8 passes in flight, and 2 or 1")

    def test_a_checkpoint_is_plain_safetensors(self):
        self.train("run", "--ranks", 2, "--steps", 4)
        latest = max((self.folder / "run" / "checkpoints").glob("step_*"))
        content = (latest / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:8 + length])
        wte = header["transformer.wte.weight"]
        self.assertEqual(wte["dtype"], "F32")
        self.assertEqual(wte["shape"][1], 32)
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        self.assertEqual(max(ends), len(content) - 8 - length)

    def test_generate_continues_a_prompt_from_a_checkpoint(self):
        self.train("run", "--ranks", 1, "--steps", 4)
        arguments = ("generate", "--checkpoint", self.folder / "run", "--prompt", "int ",
                     "--tokens", 40, "--temperature", 0.9, "--top-k", 20)
        first = self.hanji(*arguments, "--seed", 3).stdout
        self.assertTrue(first.startswith("int "))
        self.assertEqual(first, self.hanji(*arguments, "--seed", 3).stdout)
        self.assertNotEqual(first, self.hanji(*arguments, "--seed", 4).stdout)

    def test_generate_says_which_newer_checkpoints_it_does_not_take(self):
        self.train("run", "--ranks", 1, "--steps", 4, "--set", "checkpoint.every=2")
        newest = self.folder / "run" / "checkpoints" / "step_00000004" / "model.safetensors"
        newest.write_bytes(newest.read_bytes()[:-1])
        done = self.hanji("generate", "--checkpoint", "run", "--tokens", 3, "--prompt", "int ")
        self.assertIn("not usable:", done.stderr)
        self.assertIn("step_00000004", done.stderr)

    def test_mistakes_of_generate_are_told_by_flag_all_at_once(self):
        done = self.hanji("generate", "--checkpoint", "run", "--tokens", -1, "--temperature", "nan",
                          "--top-k", -5, expect=2)
        for words in ("--tokens is -1", "--temperature is nan", "--top-k is -5"):
            self.assertIn(words, done.stderr)
        self.hanji("generate", "--checkpoint", "run", "--temperature", "inf", expect=2)

    def test_a_folder_with_something_in_it_is_refused(self):
        (self.folder / "run").mkdir()
        (self.folder / "run" / "precious").write_text("x")
        done = self.train("run", "--steps", 2, expect=2)
        self.assertIn("not an empty folder", done.stderr)
        self.assertEqual((self.folder / "run" / "precious").read_text(), "x")

    def test_threads_that_share_cpus_sleep_unless_the_user_says_otherwise(self):
        threads = len(os.sched_getaffinity(0)) + 1
        job = ["--ranks", 1, "--steps", 1, "--set", f"compute.threads={threads}"]
        clean = {name: value for name, value in os.environ.items()
                 if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")}
        with unittest.mock.patch.dict(os.environ, clean, clear=True):
            # GNU's OpenMP says what it has read; another one has other words.
            done = self.train("asleep", *job, OMP_DISPLAY_ENV="verbose")
            self.assertIn("threads     sleep while they wait: ", done.stdout)
            self.assertEqual(self.read_json("asleep/plan.json")["waits"]["policy"], "sleep")
            log = (self.folder / "asleep/logs/rank.0").read_text(errors="replace")
            if "GOMP_SPINCOUNT" in log:
                self.assertIn("GOMP_SPINCOUNT = '0'", log)
            done = self.train("told", *job, OMP_DISPLAY_ENV="verbose", GOMP_SPINCOUNT="1234")
            self.assertIn("GOMP_SPINCOUNT=1234 is set", done.stdout)
            log = (self.folder / "told/logs/rank.0").read_text(errors="replace")
            if "GOMP_SPINCOUNT" in log:
                self.assertIn("GOMP_SPINCOUNT = '1234'", log)
        self.assertEqual(*(self.read_json(out, "summary.json")["state_sha256"] for out in ("asleep", "told")))

    def test_a_users_text_decides_the_vocabulary(self):
        (self.folder / "text.txt").write_text("abcab cbacb " * 400)
        self.train("run", "--ranks", 2, "--steps", 2, "--text", "text.txt")
        self.assertEqual(self.read_json("run", "plan.json")["data"]["vocabulary"], 4)

    def test_paths_keep_bytes_that_are_no_utf8(self):
        self.folder = self.folder / os.fsdecode(b"caf\xe9")
        self.folder.mkdir()
        text = os.fsdecode(b"t\xff\xc3.txt")
        (self.folder / text).write_text("abcab cbacb " * 400)
        job = ["--ranks", 2, "--text", text]
        self.train("run", *job, "--steps", 2)
        named = self.read_json("run", "plan.json")["config"]["data"]["text"]
        self.assertTrue(named.endswith("caf\0e9/t\0ff\0c3.txt"), named)
        self.hanji("train", "--resume", "--out", "run", "--steps", 3)
        for path in (self.folder / "run").rglob("*.json*"):
            self.assertNotIn("\ufffd", path.read_text(), path)

    def test_a_loss_that_is_not_finite_stops_all_ranks_with_the_reason(self):
        done = self.train("run", "--ranks", 2, "--steps", 50, "--set", "train.learning_rate=10",
                          "--set", "train.weight_decay=10", "--set", "train.warmup_steps=0",
                          expect=2)  # each step multiplies every matrix by 1 - 100
        self.assertIn("not both finite", done.stderr)
        self.assertIn("train.learning_rate", done.stderr)

    def test_plan_prints_the_same_table_and_starts_nothing(self):
        done = self.hanji("plan", "--ranks", 2, "--set", "model.preset=nano")
        self.assertRegex(done.stdout, "predicted")
        self.assertTrue(all(len(line) <= 80 for line in done.stdout.splitlines()))
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
