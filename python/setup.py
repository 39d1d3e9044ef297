"""Builds the package with the project's own CMake, in build/pip, or takes it from a build that is already there.

RONDO_BUILD_DIR=build/release   take it from this build (what is out of date there is built again)
CMAKE_ARGS="-DX=Y ..."          further settings for CMake
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent
OUTPUT = PROJECT / "build" / "pip"


def project_version():
    header = PROJECT / "rondo" / "base" / "version.h"
    return re.search(r'#define RONDO_VERSION "([0-9.]+)"', header.read_text()).group(1)


def configure(build):
    try:
        import torch
    except ImportError:
        sys.exit("rondo_torch is built against the torch that is installed, and there is none. Install torch, then run\n"
                 "  pip install --no-build-isolation ./python")
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "LIBTORCH": pathlib.Path(torch.__file__).parent,
        "Python3_EXECUTABLE": sys.executable,
        "RONDO_BUILD_PYTHON": "REQUIRED",
        "RONDO_BUILD_APPS": "OFF",
        "RONDO_BUILD_EXAMPLES": "OFF",
        "RONDO_BUILD_TESTS": "OFF",
    }
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    subprocess.run(
        ["cmake", "-S", PROJECT, "-B", build, *generator, *(f"-D{name}={value}" for name, value in settings.items()),
         *shlex.split(os.environ.get("CMAKE_ARGS", ""))],
        check=True)


class CMakeBuild(build_ext):
    def run(self):
        given = os.environ.get("RONDO_BUILD_DIR")
        build = PROJECT / given if given else OUTPUT / "cmake"
        if not given:
            configure(build)
        jobs = str(os.cpu_count() or 1)
        subprocess.run(["cmake", "--build", build, "--target", "rondo_torch", "--parallel", jobs], check=True)
        target = pathlib.Path(self.build_lib) / "rondo_torch"
        shutil.copytree(build / "python" / "rondo_torch", target, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("__pycache__"))


OUTPUT.mkdir(parents=True, exist_ok=True)
setup(
    version=project_version(),
    packages=[],
    # The name does not matter. An extension module makes the wheel specific to this Python and platform.
    ext_modules=[Extension("rondo_torch.native", [])],
    cmdclass={"build_ext": CMakeBuild},
    options={"build": {"build_base": str(OUTPUT)}, "egg_info": {"egg_base": str(OUTPUT)}},
)
