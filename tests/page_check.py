"""Opens the HTML reports of real runs in Chromium, in both colour schemes, narrow and wide, and lets axe-core look for
what a reader could not use. Screenshots stay in the folder that is given.

page_check.py FOLDER: where node_modules with puppeteer-core and axe-core lies."""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HANJI = ROOT / "build/dev/bin/hanji"
RUNS = {
    "ddp": [],
    "pp": ["--mesh", "pp=2", "--set", "data.workers=1"],
    "evoformer": ["--set", "model.preset=evoformer-tiny", "--mesh", "axial=2"],
}


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    pages = []
    with tempfile.TemporaryDirectory(prefix="hanji-page-") as runs:
        for name, arguments in RUNS.items():
            run = pathlib.Path(runs) / name
            subprocess.run([HANJI, "train", "--out", run, "--ranks", "2", "--steps", "30", *arguments], check=True,
                           stdout=subprocess.DEVNULL)
            pages.append(folder / f"{name}.html")
            subprocess.run([HANJI, "report", run, "--html", pages[-1]], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["node", ROOT / "tests/page_check.mjs", folder, *pages], check=True, timeout=600)


if __name__ == "__main__":
    main()
