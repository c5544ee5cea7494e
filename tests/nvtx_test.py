"""Ranges of `hanji train` as a tool receives them that NVTX injects: a stand-in for Nsight Systems."""
import collections
import os
import unittest
import unittest.mock

from command import CommandTest

TOOL = os.environ["HANJI_NVTX_TOOL"]


class Ranges(CommandTest):
    def train_with(self, out, tool, **extra):
        with unittest.mock.patch.dict(os.environ, {"NVTX_INJECTION64_PATH": str(tool), **extra}):
            return self.train(out, "--ranks", 2, "--steps", 3)

    def read_ranks(self):
        """Lines of each rank; the launcher computes too, to measure kernels."""
        texts = [path.read_text() for path in sorted(self.folder.glob("ranges.*"))]
        return [text.splitlines() for text in texts if " step\n" in text]

    def test_a_tool_receives_steps_phases_layers_and_collectives(self):
        self.train_with("run", TOOL, NVTX_TOOL_OUT=str(self.folder / "ranges"))
        ranks = self.read_ranks()
        self.assertEqual(len(ranks), 2)
        for lines in ranks:
            self.assertEqual(lines[0], "domain hanji")
            categories = {words[2]: words[1] for words in map(str.split, lines) if words[0] == "category"}
            pushed = [line.split(maxsplit=4)[2:] for line in lines if line.startswith("push")]
            self.assertEqual(lines.count("pop"), len(pushed))
            steps = [payload for category, payload, name in pushed
                     if name == "step" and category == categories["step"]]
            self.assertEqual(steps, ["0", "1", "2"])
            names = collections.Counter(name for _, _, name in pushed)
            for phase in ("forward", "backward", "optimizer", "data"):
                self.assertEqual(names[phase], 3, phase)
            layers = [int(payload) for _, payload, name in pushed if name == "layer"]
            self.assertEqual(sorted(set(layers)), [0, 1, 2, 3])
            started = [line.split() for line in lines if line.startswith("start")]
            ended = [line.split()[1] for line in lines if line.startswith("end")]
            self.assertEqual({words[4] for words in started} & {"all_reduce"}, {"all_reduce"})
            self.assertGreater(max(int(words[3]) for words in started), 1000)  # bytes
            self.assertEqual(sorted(words[1] for words in started), sorted(ended))
            self.check_nesting(lines)

    def check_nesting(self, lines):
        """A step is outermost, and a layer is within a phase."""
        open_names = []
        for line in lines:
            if line.startswith("push"):
                name = line.split(maxsplit=4)[4]
                if name == "forward":
                    self.assertEqual(open_names, ["step"])
                open_names.append(name)
            elif line == "pop":
                open_names.pop()
        self.assertEqual(open_names, [])

    def test_a_tool_that_does_not_load_is_told_and_training_goes_on(self):
        done = self.train_with("run", self.folder / "no_such_tool.so")
        self.assertRegex(done.stdout, r"warning: NVTX_INJECTION64_PATH: the tool was not loaded")
        self.assertIn("no_such_tool.so: cannot open", " ".join(done.stdout.split()))
        self.assertEqual(self.read_json("run", "summary.json")["steps"], 3)

    def test_a_tool_that_refuses_is_told(self):
        done = self.train_with("run", TOOL)
        self.assertIn("InitializeInjectionNvtx2() refused", " ".join(done.stdout.split()))

    def test_ranges_change_no_bits(self):
        self.train_with("with", TOOL, NVTX_TOOL_OUT=str(self.folder / "ranges"))
        self.train("without", "--ranks", 2, "--steps", 3)
        self.assertEqual(self.read_json("with", "summary.json")["state_sha256"],
                         self.read_json("without", "summary.json")["state_sha256"])


if __name__ == "__main__":
    unittest.main()
