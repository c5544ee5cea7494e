"""What docs/ says about the command is what the command says about itself."""
import json
import pathlib
import re
import sys
import tempfile
import unittest

from command import CommandTest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]
import page  # noqa: E402
from docs import run_page  # noqa: E402
from outputs import difference  # noqa: E402

OURS = (".ci", "bench", "cmake", "docs", "examples", "fuzz", "hanji", "python", "tests", "tools")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in OURS for page in (ROOT / folder).rglob("*.md"))])
SOURCE = re.compile(r"\.(h|c|cpp|py|sh|md|conf|cmake)$")
# What no checkout has: built, of a run, of libtorch.
ELSEWHERE = ("build", "tensorboard", "torch")
WRITTEN = re.compile(r"(?<![\w.*<$/-])(?:[\w.-]+/)*([\w.-]*\w\.(?:jsonl?|safetensors))(?![\w*/])")
COMMANDS = re.compile(r"^ *```\w.*?^ *```$|`[^`\n]* [^`\n]*`", re.M | re.S)
PART = re.compile(r"\.part_\w+(?=\.)")
NUMBER = re.compile(r"(?<=[._])(?:\d+|[NK])(?=\.).*")


def paths_of(line, fence):
    """Paths that a line names: in a picture (a fence without a language) files, in prose names in backticks."""
    if fence == "```":
        return re.findall(r"[\w+/.-]+\.(?:h|cpp|py|sh)\b", line)
    if fence:
        return []
    return [name for name in re.findall(r"`([\w.+/-]+)`", line)
            if name.split("/")[0] not in ELSEWHERE
            and (SOURCE.search(name) or name.endswith("/") or name.split("/")[0] in OURS and "/" in name)]


def missing_paths(page, text):
    """Lines "page:line: path" of paths and links that lead nowhere from the page, ROOT or hanji/."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fence = "" if fence else line.strip()
            continue
        prose = "" if fence else re.sub(r"`[^`]*`", "", line)
        found = [(target, (page.parent,)) for target in re.findall(r"\]\(([^)#:\s]+)", prose)]
        found += [(name, (page.parent, ROOT, ROOT / "hanji")) for name in paths_of(line, fence)
                  if not name.startswith(("/", "-"))]
        for path, places in found:
            if not any((place / path).exists() for place in places):
                yield f"{page.relative_to(ROOT)}:{number}: {path}"


def unwritten_files(page, text, sources):
    """Lines "page:line: file" of files that no source writes; those in a page's commands are the reader's own.
    Where a page has a number (rank.0.json), a source has a brace."""
    own = {name for block in COMMANDS.findall(text) for name in WRITTEN.findall(block)}
    for number, line in enumerate(text.splitlines(), 1):
        for name in set(WRITTEN.findall(line)) - own:
            whole = PART.sub("", name)
            if whole not in sources and NUMBER.sub("{", whole) not in sources:
                yield f"{page.relative_to(ROOT)}:{number}: {name}"


class Docs(CommandTest):
    def test_the_page_of_keys_is_the_commands_own(self):
        self.assertEqual((ROOT / "docs" / "configuration.md").read_text(),
                         self.hanji("plan", "--keys").stdout,
                         "regenerate: ./dev hanji plan --keys > docs/configuration.md")

    def test_every_path_of_the_pages_exists(self):
        self.assertGreater(len(PAGES), 50)
        self.assertEqual([], [path for one in PAGES for path in missing_paths(one, one.read_text())])

    def test_every_file_of_a_run_that_the_pages_name_is_written(self):
        sources = "\n".join(one.read_text() for folder in ("hanji", "python", "bench", "tools") for one in (ROOT / folder).rglob("*")
                            if one.suffix in (".h", ".cpp", ".py", ".sh") and "test" not in one.name)
        pages = [one for one in PAGES if one.name != "CHANGELOG.md"]
        self.assertEqual([], [name for one in pages for name in unwritten_files(one, one.read_text(), sources)])
        text = "`run.jsonl`, `rank_0.json`\n```\n rank.1.json part_2/x.safetensors\n```\n```sh\ncat mine.json\n```\nmine.json"
        self.assertEqual(["docs/README.md:1: rank_0.json", "docs/README.md:3: x.safetensors"], list(unwritten_files(
            ROOT / "docs" / "README.md", text, 'folder / "run.jsonl", "rank.{}.json"')))

    def test_a_path_that_does_not_exist_is_named_with_its_line(self):
        contents = ROOT / "docs" / "README.md"
        text = ("see [bits](bits.md), `shm/engine.cpp`, `hanji/plan/`\n"
                "[gone](gone.md) and `parallel/gone.cpp`\n```sh\n./not_read.py\n```\n```\n gone.h  it\n```\n"
                "`bench/gone`")
        self.assertEqual([f"docs/README.md:{path}" for path in
                          ("2: gone.md", "2: parallel/gone.cpp", "7: gone.h", "9: bench/gone")],
                         list(missing_paths(contents, text)))

    def test_every_test_that_a_chapter_names_exists(self):
        tests = {f"{suite}.{name}" for one in (ROOT / "hanji").rglob("*_test.cpp")
                 for suite, name in re.findall(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", one.read_text(), re.M)}
        named = {name for one in (ROOT / "docs" / "learn").glob("*.md")
                 for name in re.findall(r"`([A-Z]\w+\.[A-Z]\w+)`", one.read_text())}
        self.assertEqual(set(), named - tests)
        self.assertGreater(len(named), 5)

    def test_the_table_of_contents_names_every_page(self):
        contents = (ROOT / "docs" / "README.md").read_text()
        for one in (ROOT / "docs").rglob("*.md"):
            if one != ROOT / "docs" / "README.md":
                self.assertIn(f"({one.relative_to(ROOT / 'docs')})", contents)

    def test_every_benchmark_has_its_command(self):
        names = re.search('names="([a-z_ ]+)"', (ROOT / "tools" / "bench.sh").read_text())[1].split()
        text = (ROOT / "docs" / "benchmarks.md").read_text()
        self.assertGreaterEqual(len(names), 4)
        self.assertEqual(set(re.findall(r"`./dev bench (\w+)`", text)), {*names, "page"})
        shown = {command[0] for table in page.MEASURED for command in table.commands}
        self.assertEqual(shown, {*names, "c10d"}, "./dev bench --smoke runs what the page shows")

    def test_the_page_of_benchmarks_is_rendered_from_its_rows(self):
        rows = json.loads((ROOT / "docs" / "benchmarks.json").read_text())
        self.assertEqual((ROOT / "docs" / "benchmarks.md").read_text(), page.render(rows),
                         "write it again: ./dev bench page --render")

    def test_a_table_says_whether_its_bars_are_met_or_that_it_was_not_measured(self):
        processor = {"model": "P", "family": "1", "instructions": ["avx512_bf16"], "cores": 2}
        row = {"question": "fsdp", "part": "peers", "base": "fully", "strategy": "PyTorch fully_shard", "apart": 0,
               "first_seconds": 1, "second_seconds": 2, "low": 2, "high": 3, "pairs": 4}
        entry = {"processor": processor, "commit": "c0ffee", "date": "2026-01-02", "torch": "2", "load_before": 0.1,
                 "took_seconds": 7, "smoke": False, "commands": [["fsdp", "--parts", "peers"]],
                 "rows": [{**row, "ratio": 2.2}, {**row, "ratio": 1.3, "strategy": "PyTorch fully_shard, tuned"}]}
        text = page.render({"tables": {"peers": {"P": entry}}})
        self.assertIn("- Met: PyTorch fully_shard over hanji's `fully_shard` is 2.20; the bar is at least 2.1.", text)
        self.assertIn("- **Missed**: PyTorch fully_shard, tuned over hanji's `fully_shard` is 1.30", text)
        self.assertIn("P (family-model-stepping 1), 2 cores, avx512_bf16; commit `c0ffee`, 2026-01-02", text)
        self.assertIn("Not measured yet: `./dev bench page --only step`", text)
        self.assertNotIn("--only peers`", text)

    def test_the_readme_names_every_verb(self):
        verbs = re.findall(r"^  (\w+) {2,}", self.hanji("--help").stdout.split("Subcommands:")[1],
                           re.M)
        readme = (ROOT / "README.md").read_text()
        self.assertGreaterEqual(len(verbs), 5)
        for verb in verbs:
            self.assertIn(f"`hanji {verb}", readme)


class ShownOutput(unittest.TestCase):
    def test_measured_numbers_agree_by_sign_order_and_unit(self):
        printed = "ring  1.2 ms  3.5 GB/s  ███  12 %\nsum 7\n"
        self.assertEqual("", difference("ring 900 us 990 MB/s █ 40 %\nsum 7\n", printed, True))
        for wrong in ("ring -1.2 ms 3.5 GB/s ██ 12 %\nsum 7", "ring 13 ms 3.5 GB/s ██ 12 %\nsum 7",
                      "ring 1.2 ms 3.5 GB ██ 12 %\nsum 7", "tree 1.2 ms 3.5 GB/s ██ 12 %\nsum 7",
                      "ring 1.2 ms 3.5 GB/s ██ 12 %\nsum 8"):
            self.assertIn("is not what was printed", difference(wrong, printed, True), wrong)

    def test_what_a_block_leaves_out_is_marked(self):
        printed = "one\n  two 2\nthree\n"
        for whole in (printed, "...\n  two ...\n...\n", "one ...\n...\nthree\n"):
            self.assertEqual("", difference(whole, printed))
        self.assertIn('"three" was printed and is not shown', difference("one\n  two 2\n", printed))
        self.assertIn('"three" is not what was printed', difference("one\nthree\n", printed))
        self.assertIn('"two 2" is not what was printed', difference("one\ntwo 2\n...\n", printed))

    def test_a_page_is_compared_with_its_commands_and_written_again(self):
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
            path = pathlib.Path(folder) / "a.md"
            text = "![a](pictures/a.svg) ![b](pictures/b.svg)\n```sh\necho 5; echo 6 >a.svg\n```\n```output\n4\n```\n"
            path.write_text(text + "```sh\nfalse\n```\n")
            found = "\n".join(run_page(path, None, write=True))
            for mistake in ("a.md:6: \"4\" is not what", "a.md:9: exit code 1, not 0", "pictures/a.svg is not what",
                            "no command of the page writes b.svg"):
                self.assertIn(mistake, found)
            self.assertIn("```output\n5\n```", path.read_text())
            self.assertEqual("6\n", (path.parent / "pictures" / "a.svg").read_text())


if __name__ == "__main__":
    unittest.main()
