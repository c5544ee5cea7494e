"""`hanji simulate` and `hanji explain`: the textbook from the command line."""
import json
import re
import shutil
import unittest
import xml.dom.minidom

from command import CommandTest

TEXTBOOK = ("--bytes", "5MB", "--bandwidth", "1MB/s", "--ranks", "8")


class Collectives(CommandTest):
    def setUp(self):
        super().setUp()
        self.costs = self.fit_costs()

    def times(self, routine, *arguments):
        text = self.hanji("simulate", routine, *TEXTBOOK, *arguments, "--json").stdout
        return {one["name"]: one["seconds"] for one in json.loads(text)["algorithms"]}

    def test_the_textbook(self):
        broadcast = self.times("broadcast")
        for name, seconds in (("one_by_one", 35), ("all_at_once", 35), ("binomial", 15),
                              ("scatter_all_gather", 8.75)):
            self.assertAlmostEqual(broadcast[name], seconds, 5)
        for k in (1, 5, 50):
            self.assertAlmostEqual(self.times("broadcast", "--segments", k)["chain"],
                                   (7 + k - 1) * 5 / k, 5)
        self.assertAlmostEqual(self.times("broadcast", "--chunk", "1MB")["chain"], 11, 5)
        all_reduce = self.times("all_reduce")
        self.assertAlmostEqual(all_reduce["reduce_broadcast"], 30, 5)
        self.assertAlmostEqual(all_reduce["ring"], 8.75, 5)
        for half in ("reduce_scatter", "all_gather"):
            self.assertAlmostEqual(self.times(half)["ring"], 4.375, 5)

    def test_the_page_shows_the_rounds(self):
        page = self.words(self.hanji("simulate", "broadcast", *TEXTBOOK).stdout)
        self.assertRegex(page, r"0->4 .*then 1 other served")
        self.assertRegex(page, r"0->2, 4->6 .*then 3 others served")
        self.assertRegex(page, r"0->1, 2->3, 4->5, 6->7 .*then 7 others served")
        self.assertIn("at 143 kB/s each", page)
        reduce = self.hanji("simulate", "reduce", *TEXTBOOK, "--algorithm", "binomial").stdout
        rounds = re.findall(r"\d->\d(?:, \d->\d)*", reduce)
        self.assertEqual(rounds, ["1->0, 3->2, 5->4, 7->6", "2->0, 6->4", "4->0"])

    def test_small_messages_turn_it_round(self):
        arguments = ("simulate", "all_reduce", "--bandwidth", "1GB/s", "--latency", "10us", "--json")
        small = json.loads(self.hanji(*arguments, "--bytes", "8").stdout)
        large = json.loads(self.hanji(*arguments, "--bytes", "100MB").stdout)
        self.assertEqual(small["algorithms"][0]["name"], "recursive_doubling")
        self.assertNotEqual(large["algorithms"][0]["name"], "recursive_doubling")
        self.assertEqual(small["sizes"], large["sizes"])
        self.assertGreater(len(small["sizes"]), 1)
        self.assertRegex(small["why"], "loses against recursive_doubling by .* of latency")

    def test_pipelines_have_the_bubbles_and_messages_of_the_papers(self):
        arguments = ("simulate", "--schedule", "gpipe,1f1b,interleaved,zbv", "-p", "4", "-m", "4")
        text = self.hanji(*arguments, "--json", "--svg", "chart.svg").stdout
        rows = {one["name"]: one for one in json.loads(text)["schedules"]}
        bubbles = {name: row["bubble"] for name, row in rows.items()}
        self.assertAlmostEqual(bubbles["gpipe"], 0.75)
        self.assertAlmostEqual(bubbles["1f1b"], 0.75)
        self.assertAlmostEqual(bubbles["interleaved"], 0.375)
        messages = [(row["forward_messages"], row["backward_messages"]) for row in rows.values()]
        self.assertEqual(messages, [(12, 12), (12, 12), (28, 28), (24, 24)])
        xml.dom.minidom.parse(str(self.folder / "chart.svg"))
        page = self.hanji(*arguments, "--width", "90").stdout
        self.assertIn("\n   3 |            0---0=======1---1=======", page)
        self.assertLessEqual(max(map(len, page.splitlines())), 100)

    def test_a_pipeline_is_edited_as_a_file(self):
        self.hanji("simulate", "--schedule", "1f1b", "-p", "2", "-m", "2", "--csv", "mine.csv")
        file = self.folder / "mine.csv"
        self.assertEqual(file.read_text(), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
        page = self.hanji("simulate", "--schedule", "mine.csv").stdout
        self.assertIn("mine.csv: 2 ranks, 2 stages, 2 micro-batches, 90.0 ms, bubble 0.5000", page)
        file.write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
        self.assertIn("mine.csv: deadlock: rank 0 at action 2",
                      self.hanji("simulate", "--schedule", "mine.csv", expect=2).stderr)
        file.write_text("0X0\n1F\n")
        mistakes = self.hanji("simulate", "--schedule", "mine.csv", expect=3).stderr
        self.assertIn("line 1, cell 1", mistakes)
        self.assertIn("line 2, cell 1", mistakes)
        for other in (("broadcast", "--bytes", "5MB"), ("--bandwidth", "1GB/s"), ("--root", "1")):
            self.assertIn("leave one of the two out",
                          self.hanji("simulate", *other, "--schedule", "1f1b", expect=2).stderr)
        self.assertIn("--bytes is required", self.hanji("simulate", "broadcast", expect=2).stderr)
        self.assertIn("--times has 3 entries for 2 ranks",
                      self.hanji("simulate", "--schedule", "1f1b", "-p", "2", "--times",
                                 "1s/1s/1s,1s/1s/1s,1s/1s/1s", expect=2).stderr)

    def test_pipelines_of_absurd_sizes_are_refused_at_once_and_large_ones_drawn(self):
        for arguments, words in ((("-p", 20_000, "-m", 20_000), "20000 ranks; take at most 10240"),
                                 (("-p", 2_000, "-m", 20_000), "at most 524288 together"),
                                 (("-p", 0), "take at least one of each"),
                                 (("-p", -4), "take at least one of each")):
            self.assertIn(words, self.hanji("simulate", "--schedule", "1f1b", *arguments, expect=2, timeout=20).stderr)
        self.assertIn("schedule zbv: 1025 ranks are ordered as with 2049 micro-batches; take at most 1024",
                      self.hanji("simulate", "--schedule", "zbv", "-p", 1025, "-m", 8, expect=2).stderr)
        page = self.hanji("simulate", "--schedule", "1f1b", "-p", 10_000, "-m", 8, "--width", 40).stdout
        self.assertIn("1f1b: 10000 ranks, 10000 stages, 8 micro-batches", page)

    def topology(self, name, cpus):
        """Two packages of two cores, as `hanji topo --json` would have them."""
        vertices = [{"id": "machine", "kind": "machine", "parent": None, "cpus": []}]
        for package in range(2):
            own = cpus[2 * package:2 * package + 2]
            vertices += [{"id": f"package:{package}", "kind": "package", "parent": "machine"},
                         {"id": f"memory:{package}", "kind": "memory", "cpus": own,
                          "parent": f"package:{package}"}]
            vertices += [{"id": f"core:{cpu}", "kind": "core", "cpus": [cpu],
                          "parent": f"package:{package}"} for cpu in own]
        (self.folder / name).write_text(json.dumps({"vertices": vertices}))

    def test_the_order_of_ranks_follows_the_topology(self):
        self.topology("in_a_row.json", [0, 1, 2, 3])
        self.topology("by_turns.json", [0, 2, 1, 3])
        explain = ("explain", "all_reduce", "--ranks", "4", "--bandwidth", "1GB/s", "--topology")
        self.assertIn("ring 0 1 2 3\n", self.hanji(*explain, "in_a_row.json").stdout)
        page = self.hanji(*explain, "by_turns.json").stdout
        self.assertIn("ring 0 2 1 3\n", page)
        self.assertIn("package: 2, by rank 4", page)
        here = self.hanji("explain", "all_reduce", "--ranks", "2").stdout
        self.assertRegex(here, r"rings and trees of messages on this machine.*:\nring 0 1\n")
        (self.folder / "bad.json").write_text("{}")
        self.assertIn("bad.json", self.hanji(*explain, "bad.json", expect=3).stderr)

    def test_fitted_costs_are_stored_used_and_stale(self):
        cache = {"HANJI_CACHE_DIR": str(self.folder / "cache")}
        explain = ("explain", "all_reduce", "4MiB", "--ranks", "2")
        file = self.folder / "cache" / self.costs.name
        file.parent.mkdir()
        shutil.copy(self.costs, file)
        self.assertIn("takes longer and is closer", self.words(self.hanji(*explain, **cache).stdout))
        self.change_json(file, kernel="0.0.1")
        stale = self.words(self.hanji(*explain, **cache).stdout)
        for words in ("prices: timed just now", "stale: kernel was 0.0.1", "hanji bench --fit --ranks 2",
                      "by costs fitted to calls of 2 ranks"):
            self.assertIn(words, stale)
        page = self.hanji("bench", "--fit", "--ranks", "2", **cache).stdout
        self.assertRegex(page, r"residuals of \d+ calls: median [\d.]+ %")
        self.change_json(file, load=0)
        page = self.hanji(*explain, **cache).stdout
        self.assertRegex(page, r"prices: costs timed on [\d-]+ for 7 s\n")
        self.assertIn("by costs fitted to calls of 2 ranks", self.words(page))
        self.assertRegex(page, r"made of:\n +\w+: +\S")

    def test_what_moves_where_ranks_share_a_layer_is_explained(self):
        layers = ("qkv=4096x6144:tokens-features", "wo=4096x4096:features-tokens",
                  "w1w3=4096x28672:tokens-features", "w2=14336x4096:features-tokens")
        asked = ("explain", "tp", *layers, "--ranks", "8", "--element-bytes", "2", "--bandwidth", "450GB/s")
        value = json.loads(self.hanji(*asked, "--json").stdout)
        self.assertEqual([layer["choices"][0]["moved"] for layer in value],
                         ["input", "weights", "input", "output"])
        by_input = next(one for one in value[0]["choices"] if one["moved"] == "input")
        self.assertAlmostEqual(by_input["sent_bytes"], 2 * 8192 * 4096 * 2 * 7 / 8)
        page = self.hanji(*asked).stdout
        self.assertIn("chosen: weights", page)
        self.assertIn("links of 450GB/s", page)
        here = self.hanji("explain", "tp", "up=384x1536").stdout
        self.assertIn("chosen: input", self.hanji("explain", "tp", "up=384x1536", "--tokens", "512").stdout)
        self.assertIn("2 ranks, 8192 tokens", here)
        self.assertIn("NAME=INPUTSxOUTPUTS", self.hanji("explain", "tp", "up", expect=2).stderr)
        example = self.words(self.hanji("explain", "tp", "--bandwidth", "25GB/s").stdout)
        self.assertIn("an example, `hanji explain tp up=768x3072:whole-features", example)
        self.assertIn("add --bandwidth", self.hanji("explain", "tp", "up=8x8", "--ranks", "64", expect=2).stderr)

    def test_a_device_is_explained_by_its_row_of_the_table(self):
        (device,) = json.loads(self.hanji("explain", "h100", "--json").stdout)
        self.assertEqual((device["name"], device["memory_bytes"]), ("h100-80", 80e9))
        self.assertEqual(device["links"]["peers"], {"name": "NVLink 4", "bytes_per_second": 450e9})
        self.assertAlmostEqual(device["step"]["ridge_flops_per_byte"], 794.5 / 3.35)
        self.assertEqual(len(json.loads(self.hanji("explain", "a100", "--json").stdout)), 2)
        self.assertIn("a100-80", self.hanji("explain", "a100-80").stdout)
        self.assertIn("did you mean h100?", self.hanji("explain", "h10", expect=2).stderr)

    def test_a_transpose_is_drawn_and_priced_as_the_all_to_all_that_it_is(self):
        asked = ("explain", "transpose", "--ranks", 4, "--rows", 8, "--columns", 12, "--channels", 10,
                 "--element-bytes", 2, "--bandwidth", "1MB/s")
        found = json.loads(self.hanji(*asked, "--json", "--svg", "t.svg").stdout)
        self.assertEqual((found["transpose"]["sent_bytes"], found["cost"]["routine"]), (2 * 9 * 20, "all_to_all"))
        pairwise = next(one for one in found["cost"]["algorithms"] if one["name"] == "pairwise")
        self.assertEqual(pairwise["moved_bytes"], found["transpose"]["sent_bytes"])
        self.assertIn("all_to_all", (self.folder / "t.svg").read_text())
        page = self.words(self.hanji(*asked).stdout)
        self.assertIn("[1][1][1][1] [0][1][2][3]", page)
        self.assertIn("a rank sends 360 B", page)
        done = self.hanji("explain", "transpose", "--ranks", 300, "--element-bytes", 3, expect=2)
        self.assertIn("--rows is 256", done.stderr)
        self.assertIn("--element-bytes is 3", done.stderr)

    def test_explain_draws_prices_and_says_why(self):
        page = self.hanji("explain", "all_reduce", "4MiB", "--ranks", "2", "--svg", "a.svg").stdout
        self.assertRegex(page, r"rank 0 +\[a\] +\[a\+b\]")
        self.assertRegex(page, r"(?m)^direct +[\d.]+ .s")
        self.assertRegex(page, "loses against|takes as long as")
        self.assertIn("the fastest by size", page)
        xml.dom.minidom.parse(str(self.folder / "a.svg"))
        self.assertRegex(self.hanji("explain", "barrier", "--ranks", "2").stdout, r"(?m)^sync +[\d.]+ .s")
        self.assertIn("which the receiver ends alone", self.words(self.hanji("explain", "send").stdout))
        value = json.loads(self.hanji("explain", "all_to_all", "--json", "--ranks", "3",
                                      "--bandwidth", "1GB/s").stdout)
        self.assertEqual(value["picture"]["after"][2], ["a2", "b2", "c2"])
        self.assertEqual({one["name"] for one in value["cost"]["algorithms"]},
                         {"bruck", "pairwise"})

    def test_what_is_not_known_is_refused_with_what_was_meant(self):
        for arguments, words in (
                (("simulate", "brodcast", "--bytes", "1MB"), "did you mean broadcast?"),
                (("simulate", "broadcast", "--bytes", "1MB", "--algorithm", "chian"),
                 "did you mean chain?"),
                (("simulate", "broadcast", "--bytes", "1XB"), "'1XB' is no size"),
                (("simulate", "broadcast", "--bytes", "1MB", "--bandwidth", "1"), "is no rate"),
                (("simulate", "broadcast", "--bytes", "1MB", "--ranks", "99999"), "1 to 10240"),
                (("simulate", "broadcast"), "--bytes is required"),
                (("simulate", "broadcast", "--byte", "1MB"), "--byte"),
                (("explain", "all_reduce", "--latency", "1ms"), "add --bandwidth"),
                (("explain", "all_reduce", "2TiB"), "1 B to 1 TiB"),
                (("explain", "all_reduce", "2GiB"), "at most 16 ranks and 1.00 GB"),
                (("explain", "barier"), "did you mean barrier?"),
                (("explain", "barrier", "1MB"), "leave out the size"),
                (("explain", "barrier", "--bandwidth", "1GB/s"), "leave out --bandwidth"),
                (("simulate", "barrier", "--bytes", "1MB"), "unknown routine 'barrier'")):
            done = self.hanji(*arguments, expect=2)
            self.assertEqual(done.stdout, "")
            self.assertIn(words, done.stderr)
        # Refused before a cost is fitted: the only ones are those of 2 ranks.
        self.assertEqual([file.name for file in self.costs.parent.glob("costs-*")], [self.costs.name])

    def test_every_wrong_number_of_what_is_explained_is_named(self):
        for arguments, words in (
                (("explain", "tp", "a=8x8", "--tokens", -1, "--ranks", 1),
                 ("--tokens is -1, which is not from 1", "--ranks is 1, which is not from 2")),
                (("explain", "tp", "a=8", "b=9999999999x9999999999", "--element-bytes", 3,
                  "--latency", "1us"),
                 ("NAME=INPUTSxOUTPUTS", "above 10^15 bytes", "set 2, 4 or 8", "add --bandwidth")),
                (("explain", "cp", "--tokens", 1 << 24, "--heads", 1 << 16, "--head-width", 1 << 16,
                  "--samples", 1 << 16, "-p", 17),
                 ("above 10^17 bytes", "--ranks is 17, a host has at most 16; add --bandwidth")),
                (("explain", "cp", "--bandwidth", "fast", "--latency", "-1us"),
                 ("--bandwidth: 'fast'", "--latency: '-1us'")),
                (("explain", "axial", "--latency", "-1us", "--memory", "lots", "--triangle", "cannon",
                  "--element-bytes", 3, "--padded", 256),
                 ("--padded is 256 of 256 --residues; set 255 or less", "add --bandwidth", "--memory: 'lots'", "--triangle cannon", "set 2, 4 or 8")),
                (("simulate", "all_reduce", "--bytes", "nan", "--bandwidth", "-1", "-p", 0),
                 ("the size: 'nan'", "--bandwidth: '-1'", "--ranks is 0")),
                (("simulate", "--schedule", "1f1b", "-p", 4, "--model", "gpt:7B", "--micro-batch",
                  -1, "--block", 0),
                 ("--micro-batch is -1, which is not from 1", "--block is 0, which is not from 1")),
                (("plan", "--model", "gpt:7B", "--msa", 4, "--network", "0B"),
                 ("--msa means nothing without --residues", "--network 0B is below"))):
            done = self.hanji(*arguments, expect=2)
            self.assertEqual(done.stdout, "")
            for each in words:
                self.assertIn(each, done.stderr)

    def test_what_a_group_of_tokens_moves_is_priced_on_a_network(self):
        asked = ("explain", "cp", "--tokens", 8192, "--heads", 64, "-p", 32, "--bandwidth", "25GB/s")
        self.assertIn("links of 25GB/s, no latency", self.hanji(*asked).stdout)
        slow = self.hanji(*asked[:-1], "25MB/s", "--json").stdout
        fast = self.hanji(*asked, "--json").stdout
        ways = [{one["way"]: one["transfer_seconds"] for one in json.loads(text)["ways"]}
                for text in (slow, fast)]
        for way, seconds in ways[1].items():
            self.assertAlmostEqual(ways[0][way] / seconds, 1000, delta=0.01)

    def test_strategies_and_axes_are_explained_from_the_formulas_of_the_plan(self):
        zero3 = json.loads(self.hanji("explain", "strategies", "--json").stdout)[4]
        self.assertEqual((zero3["data"], zero3["parameter_bytes"], zero3["sent_bytes"]), ("zero3", 0.25, 5.25))
        self.assertIn("set --fsdp 2 or 4", self.hanji("explain", "strategies", "--fsdp", 3, expect=2).stderr)
        self.assertIn("1/4", self.hanji("explain", "strategies").stdout)
        axes = json.loads(self.hanji("explain", "parallel", "--json").stdout)
        self.assertEqual([one["axis"] for one in axes["axes"]], ["pp", "dp", "fsdp", "cp", "tp", "axial"])
        self.assertIn("did you mean", self.hanji("explain", "paralel", expect=2).stderr)
        self.assertIn("gpt3", self.hanji("explain", "parallel", "--model", "gpt3", expect=2).stderr)

    def test_triangles_by_rows_need_no_channel_for_each_rank(self):
        few = ("explain", "axial", "--residues", 16, "--width", 4, "-p", 8)
        self.assertIn("or --triangle ring", self.hanji(*few, expect=2).stderr)
        self.assertNotIn("\nchannels", self.hanji(*few, "--triangle", "ring").stdout)

    def test_a_drawing_replaces_no_other_file(self):
        (self.folder / "job.toml").write_text("[train]\n")
        done = self.hanji("explain", "axial", "-p", 2, "--svg", "job.toml", expect=2)
        self.assertIn("job.toml: exists and is no SVG", done.stderr)
        self.assertEqual((self.folder / "job.toml").read_text(), "[train]\n")
        for _ in range(2):
            self.hanji("explain", "axial", "-p", 2, "--svg", "a.svg")


if __name__ == "__main__":
    unittest.main()
