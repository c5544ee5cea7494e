"""Mistakes that only the command meets: the data, the folder, and all of them at once."""
import json
import os
import struct
import subprocess
import unittest

from command import HANJI, NANO, CommandTest

EXAMPLE = """[model]
preset = "nan0"
[train]
stpes = 10
global_batch = "many"
learning_rate = -1
[nonsense]
x = 1
"""


class Mistakes(CommandTest):
    def setUp(self):
        super().setUp()
        (self.folder / "good.txt").write_text("abcab cbacb " * 400)

    def refuse(self, toml, *arguments, verb="train", expect=2):
        """The messages that name a place; nothing but what was there before may be left."""
        (self.folder / "job.toml").write_text(toml)
        before = sorted(self.folder.iterdir())
        done = self.hanji(verb, "--config", "job.toml", *arguments, expect=expect)
        self.assertEqual(sorted(self.folder.iterdir()), before, "something was started")
        self.assertEqual(done.stdout, "")
        lines = done.stderr.splitlines()
        self.assertRegex(lines[-1], r"^hanji: \d+ mistakes? in the configuration; nothing was")
        self.assertEqual(len(lines) - 1, int(lines[-1].split()[1]))
        return [line.removeprefix("hanji: ") for line in lines[:-1]]

    def test_five_mistakes_get_exactly_five_messages(self):
        for verb in ("train", "plan"):
            self.assertEqual(self.refuse(EXAMPLE, "--out", "run", verb=verb), [
                'job.toml:2:1: model.preset must be one of nano, char, baby, gpt2, resnet-tiny, resnet18, resnet50, evoformer-tiny, evoformer-demo, evoformer-af2, pairformer, pairmixer, module, not "nan0"; '
                'did you mean "nano"?',
                'job.toml:4:1: train.stpes: unknown key; did you mean train.steps?',
                'job.toml:5:1: train.global_batch must be an integer, at least 1 (samples), not '
                '"many"',
                'job.toml:6:1: train.learning_rate is -1, but must be at least 1e-12',
                'job.toml:7:2: nonsense: unknown table; tables: run, model, data, train, '
                'checkpoint, compute, comm, parallel, mesh, pipeline, offload'])

    def test_output_that_is_lost_fails_the_verb_whose_result_it_is(self):
        with open("/dev/full", "w") as full:
            for command, code in ((("plan", "--keys"), 4), (("topo",), 4),
                                  (("train", *NANO, "--ranks", "1", "--steps", "1"), 0)):
                done = subprocess.run([HANJI, *command], cwd=self.folder, stdout=full, text=True,
                                      stderr=subprocess.PIPE, env=self.environment())
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn("standard output: part of it could not be written", done.stderr)
        gone = subprocess.run(["bash", "-c", f"{HANJI} plan --keys | true; echo ${{PIPESTATUS[0]}}"],
                              capture_output=True, text=True, env=self.environment())
        self.assertEqual((gone.stdout, gone.stderr), ("0\n", ""), "a reader who left is no failure")

    def test_a_folder_that_cannot_be_made_is_told_with_its_option(self):
        for command, words in ((("train", *NANO, "--ranks", 1, "--out", "/proc/x"),
                                "name another folder with --out"),
                               (("train", "--out", ""), "--out: run.out is empty"),
                               (("run", "--logs", "/proc/x", "true"), "--logs")):
            self.assertIn(words, self.hanji(*command, expect=2).stderr)

    def test_a_path_that_is_not_there_is_told_with_a_way_out(self):
        (self.folder / "file").write_text("x")
        for command, words in ((("ckpt", "list", "none"), "none: no such folder; name the folder of"),
                               (("generate", "--checkpoint", "none"), "none: no such folder; name"),
                               (("data", "info", "none"), "check the path"),
                               (("ckpt", "diff", "file", "."), "name two safetensors files, or two"),
                               (("run", "--ranks", 2, "/tmp"), "it is a folder; name a program"),
                               (("run", "--nnodes", 2, "--node-rank", 0, "--rendezvous",
                                 "127.0.0.1:7777", "--token-fd", 77, "true"), "open it for reading")):
            self.assertIn(words, self.hanji(*command, expect=2).stderr)
        self.train("run", "--ranks", 1, "--steps", 1)
        self.assertIn("/nonexist is no folder; make it", self.hanji(
            "ckpt", "export", "run", "/nonexist/e.safetensors", expect=2).stderr)
        done = self.hanji("run", "--hosts", "h:1", "--ssh", "/bin/false", "true", expect=1)
        self.assertIn("host h (node 0): `/bin/false h` ended with code 1", done.stderr)

    def test_a_command_behind_two_dashes_runs_here_and_over_ssh(self):
        said = ("--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")
        self.assertIn("rank 1 of 2", self.hanji("run", "-n", 2, *said).stdout)
        ssh = self.folder / "ssh"  # the last word is the line that the other host runs
        ssh.write_text("#!/bin/sh\nfor line; do :; done\nexec sh -c \"$line\"\n")
        ssh.chmod(0o755)
        done = self.hanji("run", "--ssh", ssh, "--hosts", "127.0.0.1:1,localhost:2", *said)
        for rank in range(3):
            self.assertIn(f"rank {rank} of 3", done.stdout)

    def test_integers_differ_by_no_ulps(self):
        for name, value in (("a", 3), ("b", 1493)):
            header = json.dumps({"n": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}).ljust(64)
            self.folder.joinpath(name).write_bytes(
                struct.pack("<Q", 64) + header.encode() + struct.pack("<q", value))
        self.assertIn("at most 1.49e+03 apart\n", self.hanji("ckpt", "diff", "a", "b", expect=7).stdout)

    def test_a_file_of_tensors_is_shown_with_those_that_are_not_read(self):
        header = json.dumps({"n": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                             "scale": {"dtype": "U16", "shape": [1], "data_offsets": [4, 6]}}).encode()
        (self.folder / "x").write_bytes(struct.pack("<Q", len(header)) + header + bytes(6))
        shown = self.hanji("ckpt", "show", "x").stdout
        self.assertRegex(shown, r"n +float32 \[1\] +4 B\n +scale +U16 \[1\] +2 B +of a type that hanji does not read")
        tensors = json.loads(self.hanji("ckpt", "show", "--json", "x").stdout)["tensors"]
        self.assertEqual([(one["name"], one["dtype"], one["read"]) for one in tensors],
                         [("n", "float32", True), ("scale", "U16", False)])

    def test_a_stream_is_refused_before_ranks_start_and_the_file_behind_one_is_read(self):
        command = [HANJI, "plan", "--text", "/dev/stdin", *NANO, "--print-config"]
        run = lambda **stdin: subprocess.run(command, cwd=self.folder, text=True, capture_output=True,
                                             env=self.environment(), timeout=120, **stdin)
        refused = run(input="abcab" * 1000)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("'/dev/stdin' is a stream that one process can read once", refused.stderr)
        with open(self.folder / "good.txt") as text:
            read = run(stdin=text)
        self.assertIn(str((self.folder / "good.txt").resolve()), read.stdout)

    def test_a_text_that_is_missing_empty_binary_or_short(self):
        (self.folder / "empty.txt").write_text("")
        (self.folder / "binary.txt").write_bytes(b"a\0b" * 100)
        (self.folder / "late.txt").write_bytes(b"a" * 100_000 + b"\0")
        (self.folder / "wide.txt").write_text("a text in UTF-16", "utf-16-le")
        (self.folder / "latin.txt").write_bytes(b"caf\xe9 " * 1000)
        (self.folder / "short.txt").write_text("short")
        (self.folder / "nothing").mkdir()
        os.mkfifo(self.folder / "pipe")
        for name, words in (("missing.txt", "cannot read"), ("empty.txt", "is empty"),
                            ("binary.txt", "byte 1 is NUL"), ("wide.txt", "iconv -f UTF-16LE -t UTF-8"), ("late.txt", "byte 100000 is NUL"),
                            ("latin.txt", "not UTF-8 at byte 3"), ("short.txt", "bring a longer"),
                            ("pipe", "pipe: no regular file"), ("nothing", "holds no file")):
            messages = self.refuse(f'[data]\ntext = "{name}"\n')
            self.assertEqual(len(messages), 1, messages)
            self.assertRegex(messages[0], r"^job.toml:2:1: data.text: ", name)
            self.assertIn(words, messages[0])

    def test_tokens_beyond_the_vocabulary(self):
        (self.folder / "t.bin").write_bytes(struct.pack("<5000H", *(i % 50 for i in range(5000))))
        messages = self.refuse('[data]\ntokens = "t.bin"\n[model]\nvocabulary = 20\n')
        self.assertEqual(messages, ['job.toml:4:1: model.vocabulary is 20, but t.bin needs 50; set '
                                    'model.vocabulary = "auto", and the data decides'])

    def test_a_vocabulary_below_the_texts(self):
        messages = self.refuse("", "--text", "good.txt", "--set", "model.vocabulary=3")
        self.assertEqual(len(messages), 1)
        self.assertIn("--set: model.vocabulary is 3, but the text's vocabulary needs 4", messages[0])

    def test_more_blocks_than_the_texts_vocabulary_has(self):
        messages = self.refuse("", "--text", "good.txt", "--set", "train.bits=stable", "--set",
                               "train.cuts.features=2")
        self.assertEqual(len(messages), 1)
        self.assertIn("--set: train.cuts.features is 2, but a block has whole heads and 16 columns",
                      messages[0])
        self.assertIn("the vocabulary 4; set train.cuts.features = 1 or less", messages[0])

    def test_a_damaged_token_file_is_corrupt_input(self):
        (self.folder / "odd.bin").write_bytes(b"123")
        messages = self.refuse('[data]\ntokens = "odd.bin"\n', expect=3)
        self.assertRegex(messages[0], r"^job.toml:2:1: data.tokens: .*3 bytes are not a whole")

    def test_a_foreign_folder_is_left_as_it_is(self):
        (self.folder / "run").mkdir()
        (self.folder / "run" / "precious").write_text("x")
        messages = self.refuse('[run]\nout = "run"\n')
        self.assertRegex(messages[0], r"^job.toml:2:1: run.out: run is not an empty folder")
        self.assertEqual((self.folder / "run" / "precious").read_text(), "x")

    def test_a_folder_for_moments_that_is_none(self):
        for name in ("none", "good.txt"):
            messages = self.refuse('[offload]\noptimizer = "file"\n', "--out", "run", "--set", f"offload.folder={name}")
            self.assertEqual(messages, [f"--set: offload.folder: '{name}' is no folder that this user may write; "
                                        "make it, or name another"])

    def test_a_folder_that_cannot_be_made(self):
        messages = self.refuse("", "--out", "good.txt/run")
        self.assertRegex(messages[0], r"^--out: run.out: good.txt/run cannot be made")

    def test_mistakes_of_file_data_folder_and_flags_come_together_in_order(self):
        (self.folder / "run").mkdir()
        (self.folder / "run" / "precious").write_text("x")
        messages = self.refuse('[run]\nout = "run"\n[data]\ntext = "missing.txt"\n[train]\n'
                               'steps = 1.5\ngrain = 5\n', "--ranks", 99)
        places = [message.split(" ")[0] for message in messages]
        self.assertEqual(places, ["job.toml:2:1:", "job.toml:4:1:", "job.toml:6:1:",
                                  "job.toml:7:1:", "--ranks:"])

    def test_mistakes_of_a_mesh_come_together_with_the_nearest_degrees(self):
        for verb in ("train", "plan", "verify"):
            messages = self.refuse('[model]\npreset = "baby"\n', "--ranks", 8, "--mesh",
                                   "dp=3,tp=7,xp=2,cp=two", "--set", "mesh.dp=2", verb=verb)
            self.assertEqual(messages, [
                "--mesh: mesh.dp is set twice, by --set too; give it once",
                "--mesh: mesh.xp: unknown key; did you mean mesh.dp?",
                '--mesh: mesh.cp must be an integer, 1 to 65536 (ranks), not "two"',
                "--mesh: mesh.tp is 7, but a rank has whole heads and model.heads is 6; set "
                "mesh.tp = 4"])
            messages = self.refuse("", "--ranks", 8, "--mesh", "dp=2,tp=3", verb=verb)
            self.assertEqual(messages, ["--mesh: mesh.tp: a mesh of (dp 2, tp 3) does not have 8 "
                                        "ranks; set mesh.tp = 4"])

    def test_more_stages_than_a_counted_model_has_layers(self):
        done = self.hanji("plan", "--ranks", 9, "--mesh", "pp=9", "--set",
                          "model.preset=evoformer-tiny", "--set", "model.layers=1", expect=2)
        self.assertIn("mesh.pp = 9 with 1 stage each has 9 stages, but the model has 3 layers, "
                      "counting those beside model.layers; set mesh.pp = 3 or less", done.stderr)

    def test_print_config_names_every_origin(self):
        (self.folder / "job.toml").write_text('[model]\npreset = "nano"\n[train]\nsteps = 30\n')
        for verb in ("train", "plan"):
            shown = self.hanji(verb, "--config", "job.toml", "--set", "train.seed=5", "--ranks", 2,
                               "--print-config").stdout
            for line in (r'preset = "nano" +# job.toml:2:1', r"width = 32 +# preset nano",
                         r"steps = 30 +# job.toml:4:1", r"seed = 5 +# --set", r"ranks = 2 +# --ranks",
                         r"beta1 = 0.9 +# default"):
                self.assertRegex(shown, line)
            (self.folder / "again.toml").write_text(shown)
            again = self.hanji(verb, "--config", "again.toml", "--print-config").stdout
            values = [[line.split("#")[0] for line in text.splitlines()] for text in (shown, again)]
            self.assertEqual(values[0], values[1], "the output is a configuration itself")

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_a_folder_without_permission(self):
        (self.folder / "locked").mkdir(mode=0o500)
        messages = self.refuse("", "--out", "locked/run")
        self.assertIn("no folder that this user may write", messages[0])


if __name__ == "__main__":
    unittest.main()
