"""Starts the command with the libtorch of this Python."""

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import sys

from . import prefix

USAGE = 2  # docs/exit_codes.md


def torch_folder():
    """The torch beside this package, which the command finds by itself, else the one that Python would import."""
    spec = importlib.util.find_spec("torch")  # without an import of it, which takes seconds
    folders = [prefix.parent / "torch", *map(pathlib.Path, spec.submodule_search_locations or [] if spec else [])]
    return next((folder for folder in folders if (folder / "lib" / "libtorch_cpu.so").exists()), None)


def mistake(torch, requirement):
    """Why the command cannot run with this torch; nothing if it can."""
    advice = f"pip install '{requirement}'"
    if torch is None:
        return f"no torch in the Python {sys.executable}; {advice}"
    version = re.search(r"__version__ = '([^']+)'", (torch / "version.py").read_text()).group(1)
    wanted = re.search(r">=(\d+\.\d+)", requirement).group(1)
    if not version.startswith(wanted + "."):
        return f"{torch} is torch {version}, and this hanji was built for {wanted}; {advice}"
    return None


def main():
    torch = torch_folder()
    (requirement,) = importlib.metadata.requires("hanji")
    if why := mistake(torch, requirement):
        print(f"hanji: {why}", file=sys.stderr)
        sys.exit(USAGE)
    if torch != prefix.parent / "torch":  # where the command does not look by itself
        others = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(torch / "lib"), others]))
    program = str(prefix / "bin" / "hanji")
    os.execv(program, [program, *sys.argv[1:]])
