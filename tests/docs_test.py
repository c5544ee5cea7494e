"""What docs/ says about the command is what the command says about itself."""
import pathlib
import re
import unittest

from command import CommandTest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


class Docs(CommandTest):
    def test_the_page_of_keys_is_the_commands_own(self):
        self.assertEqual((ROOT / "docs" / "configuration.md").read_text(),
                         self.hanji("plan", "--keys").stdout,
                         "regenerate: ./dev hanji plan --keys > docs/configuration.md")

    def test_every_link_leads_somewhere(self):
        for page in PAGES:
            words = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)  # no code
            for target in re.findall(r"\]\(([^)#:]+)\)", words):
                self.assertTrue((page.parent / target).exists(), f"{page.name}: {target}")

    def test_the_table_of_contents_names_every_page(self):
        contents = (ROOT / "docs" / "README.md").read_text()
        for page in (ROOT / "docs").glob("*.md"):
            if page.name != "README.md":
                self.assertIn(f"({page.name})", contents)

    def test_every_benchmark_has_its_command(self):
        names = re.search('names="([a-z_ ]+)"', (ROOT / "tools" / "bench.sh").read_text())[1].split()
        page = (ROOT / "docs" / "benchmarks.md").read_text()
        self.assertGreaterEqual(len(names), 4)
        self.assertEqual(set(re.findall(r"`./dev bench (\w+)`", page)), set(names))

    def test_the_readme_names_every_verb(self):
        verbs = re.findall(r"^  (\w+) {2,}", self.hanji("--help").stdout.split("Subcommands:")[1],
                           re.M)
        readme = (ROOT / "README.md").read_text()
        self.assertGreaterEqual(len(verbs), 5)
        for verb in verbs:
            self.assertIn(f"`hanji {verb}", readme)


if __name__ == "__main__":
    unittest.main()
