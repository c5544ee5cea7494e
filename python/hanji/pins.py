"""What the wheel says of itself that other files say: its version, and the torch that it is built for."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find(expression, file):
    return re.search(expression, (ROOT / file).read_text(), re.MULTILINE).groups()


def dynamic_metadata(_settings, _project):
    (version,) = find(r"^project\(hanji VERSION ([0-9.]+)", "CMakeLists.txt")
    major, minor = map(int, find(r'^PYTHON_TORCH="torch==(\d+)\.(\d+)', "dependencies.conf"))
    # C++ interfaces of torch differ from minor to minor.
    return {"version": version, "dependencies": [f"torch>={major}.{minor},<{major}.{minor + 1}"]}
