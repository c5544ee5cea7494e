#!/usr/bin/env python3
"""Runs every `sh` block of docs/*.md, as a reader would type them.

    tools/docs.py HANJI [PAGE...]    HANJI is the built command; a page runs in a folder of its own

Blocks of one page share the folder. Each must end with exit code 0, or with N where its fence says
`sh exits N`. Blocks marked `console`, `text` or `cpp` are not run.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^ *```sh(?: exits (\d+))?\n(.*?)^ *```$", re.M | re.S)  # in lists too


def run_page(page, environment):
    """The failed blocks of a page, each with its line and output."""
    text = page.read_text()
    with tempfile.TemporaryDirectory(prefix="hanji-docs-") as folder:
        for block in BLOCK.finditer(text):
            line = text[: block.start()].count("\n") + 2
            done = subprocess.run(["bash", "-eu", "-c", block.group(2)], cwd=folder,
                                  env=environment, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=300)
            expected = int(block.group(1) or 0)
            if done.returncode != expected:
                yield (f"{page.relative_to(ROOT)}:{line}: exit code {done.returncode}, not "
                       f"{expected}\n{done.stdout}")


def main():
    hanji = pathlib.Path(sys.argv[1]).resolve()
    pages = [pathlib.Path(name).resolve() for name in sys.argv[2:]] or sorted(ROOT.glob("docs/*.md"))
    with tempfile.TemporaryDirectory(prefix="hanji-docs-cache-") as cache:
        environment = {**os.environ, "PATH": f"{hanji.parent}:{os.environ['PATH']}",
                       "HANJI_CACHE_DIR": cache}
        failures = 0
        for page in pages:
            begin = time.monotonic()
            broken = list(run_page(page, environment))
            failures += len(broken)
            print("\n".join(broken) if broken else f"{page.relative_to(ROOT)}: every command works"
                  f" ({time.monotonic() - begin:.0f} s)", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
