"""Lets CMake build the extension from the source tree that this folder lies in."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = pathlib.Path(__file__).resolve().parent


def torch_folder():
    """The installed torch, which a build in isolation cannot import but can see."""
    found = os.environ.get("HANJI_TORCH")
    spec = None if found else importlib.util.find_spec("torch")
    folders = [found] if found else [spec.submodule_search_locations[0]] if spec else []
    folders += [os.path.join(sysconfig.get_path(kind), "torch") for kind in ("platlib", "purelib")]
    for folder in folders:
        if os.path.exists(os.path.join(folder, "lib", "libtorch_python.so")):
            return folder
    sys.exit("hanji_c10d: no torch here (looked in " + ", ".join(folders) + "): install it first, "
             "pip install torch, or set HANJI_TORCH to its folder")


class CMakeBuild(build_ext):
    def build_extension(self, ext):
        target = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve()
        if os.environ.get("HANJI_C10D_MODULE"):  # built beside everything else, by ./dev python
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(os.environ["HANJI_C10D_MODULE"], target)
            return
        build = pathlib.Path(self.build_temp).resolve()
        configure = ["cmake", "-S", HERE.parents[1], "-B", build, "-DCMAKE_BUILD_TYPE=Release",
                     "-DHANJI_PYTHON=ON", "-DHANJI_TESTS=OFF", "-DHANJI_UNITY=ON",
                     f"-DHANJI_TORCH={torch_folder()}",
                     f"-DPython3_EXECUTABLE={sys.executable}",
                     f"-DHANJI_PYTHON_MODULE={target}"]
        if shutil.which("ninja"):
            configure += ["-G", "Ninja"]
        if shutil.which("ccache"):
            configure += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
        subprocess.run(configure, check=True)
        jobs = os.environ.get("MAX_JOBS", str(len(os.sched_getaffinity(0))))
        subprocess.run(["cmake", "--build", build, "--target", "hanji_c10d", "-j", jobs], check=True)


setup(ext_modules=[Extension("hanji_c10d._C", sources=[])], cmdclass={"build_ext": CMakeBuild})
