#!/usr/bin/env python3
"""Runs every `sh` block of docs/, as a reader would type them, and compares what the pages show of their output.

    tools/docs.py [--write] HANJI [PAGE...]    HANJI is the built command; a page runs in a folder of its own

Blocks of one page share the folder. Each must end with exit code 0, or with N where its fence says
`sh exits N`. Blocks marked `console`, `text` or `cpp` are not run. An `output` block shows what the `sh`
block before it printed, and must be it; in `output measured` numbers agree if their sign, order and unit
do. `...` stands for lines, or for the rest of a line, that the page leaves out. A picture of a page
(`![text](pictures/name.svg)`) is the name.svg that its commands write. --write replaces blocks that leave
nothing out, and pictures, by what the commands give now.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from outputs import difference

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>sh|output)(?: (?P<what>exits \d+|measured))?\n(?P<text>.*?)^ *```$",
                   re.M | re.S)  # in lists too
PICTURE = re.compile(r"!\[[^\]]*\]\(([\w/.-]+\.svg)\)")


class Page:
    """A page whose blocks are run in a folder; `mistakes` collects what is not as it says."""

    def __init__(self, path, folder, environment):
        self.path, self.folder, self.environment = path, pathlib.Path(folder), environment
        self.text = path.read_text()
        self.mistakes = []

    def name(self, block):
        return f"{self.path.relative_to(ROOT)}:{self.text[: block.start()].count(chr(10)) + 2}"

    def run(self, block):
        done = subprocess.run(["bash", "-eu", "-c", block["text"]], cwd=self.folder, env=self.environment,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        expected = int((block["what"] or "exits 0").split()[1])
        if done.returncode != expected:
            self.mistakes.append(f"{self.name(block)}: exit code {done.returncode}, not {expected}\n{done.stdout}")
        return done.stdout

    def blocks(self):
        """Runs and compares all blocks. Returns the text with whole output blocks replaced by what was printed."""
        printed, end, text = "", 0, ""
        for block in BLOCK.finditer(self.text):
            text += self.text[end: block.start("text")]
            shown, end = block["text"], block.end("text")
            if block["kind"] == "sh":
                printed = self.run(block)
            else:
                lines = re.sub("^" + block["indent"], "", shown, flags=re.M)
                found = difference(lines, printed, block["what"] == "measured")
                if found:
                    self.mistakes.append(f"{self.name(block)}: {found}")
                    shown = shown if "..." in shown else "".join(
                        f"{block['indent']}{line}".rstrip() + "\n" for line in printed.strip("\n").split("\n"))
            text += shown
        return text + self.text[end:]

    def pictures(self, write):
        for target in dict.fromkeys(PICTURE.findall(self.text)):
            made, kept = self.folder / pathlib.Path(target).name, self.path.parent / target
            if not made.exists():
                self.mistakes.append(f"{self.path.relative_to(ROOT)}: no command of the page writes {made.name}")
            elif not kept.exists() or made.read_bytes() != kept.read_bytes():
                self.mistakes.append(f"{self.path.relative_to(ROOT)}: {target} is not what the commands write now")
                if write:
                    kept.parent.mkdir(exist_ok=True)
                    shutil.copyfile(made, kept)


def run_page(path, environment, write=False):
    """The mistakes of a page, each with its line and what was printed."""
    with tempfile.TemporaryDirectory(prefix="hanji-docs-") as folder:
        page = Page(path, folder, environment)
        text = page.blocks()
        page.pictures(write)
        if write:
            path.write_text(text)
    return page.mistakes


def main():
    arguments = [one for one in sys.argv[1:] if one != "--write"]
    hanji = pathlib.Path(arguments[0]).resolve()
    pages = [pathlib.Path(name).resolve() for name in arguments[1:]] or sorted(ROOT.glob("docs/**/*.md"))
    with tempfile.TemporaryDirectory(prefix="hanji-docs-cache-") as cache:
        environment = {**os.environ, "PATH": f"{hanji.parent}:{os.environ['PATH']}",
                       "HANJI_CACHE_DIR": cache}
        failures = 0
        for page in pages:
            begin = time.monotonic()
            broken = run_page(page, environment, "--write" in sys.argv)
            failures += len(broken)
            print("\n".join(broken) if broken else f"{page.relative_to(ROOT)}: every command works"
                  f" ({time.monotonic() - begin:.0f} s)", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
