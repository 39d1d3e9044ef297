"""examples/external, a project of somebody else's, builds against rondo in both ways, and its programs run.

The builds are kept in build/external-*, so that a later run only checks that nothing is out of date.
"""
import importlib.util
import os
import shutil
import subprocess
import sys

import pytest


def must(*command, timeout=900, **options):
    """Runs a command that has to succeed, and returns what it printed."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, **options)
    assert result.returncode == 0, f"{command}:\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    return result.stdout


def cached(rondo_bin, variable):
    """A CMake variable of the build under test."""
    for line in (rondo_bin.parent / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(variable + ":"):
            return line.partition("=")[2]
    return ""


@pytest.fixture(scope="module")
def libtorch(rondo_bin):
    """The libtorch that the build under test uses, so that the foreign one takes the same."""
    return cached(rondo_bin, "LIBTORCH")


@pytest.fixture(scope="module")
def installed(repository, rondo_bin, tmp_path_factory):
    prefix = tmp_path_factory.mktemp("installed")
    must("cmake", "--install", rondo_bin.parent, "--prefix", prefix)
    return prefix


def launcher(rondo_bin):
    """What the build under test has before the compiler, as ccache: a second build of the same sources takes seconds."""
    words = cached(rondo_bin, "RONDO_COMPILER_LAUNCHER")
    return [f"-DCMAKE_CXX_COMPILER_LAUNCHER={words}"] if words else []


def configure_and_build(repository, rondo_bin, way, *definitions):
    folder = rondo_bin.parent.parent / f"external-{way}"
    must("cmake", "-S", repository / "examples" / "external", "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         *definitions)
    # The whole of rondo is compiled once more here.
    must("cmake", "--build", folder, timeout=2400)
    return folder


def without_launcher():
    launcher = ("RANK", "WORLD_SIZE", "LOCAL_", "PET_", "OMPI_", "PMI", "SLURM_", "TF_CONFIG", "JOB_COMPLETION_INDEX")
    return {name: value for name, value in os.environ.items() if not name.startswith(launcher)}


def check_who(folder):
    assert must(folder / "who", env=without_launcher()) == "rank 0 of 1, started by none\n"
    under_a_launcher = {**without_launcher(), "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    assert must(folder / "who", env=under_a_launcher).startswith("rank 1 of 2")


def check_two_ranks(*command):
    """Two ranks that end with the same weights, to the last bit."""
    lines = [line for line in must(*command, env=without_launcher()).splitlines() if "sum of weights" in line]
    assert len(lines) == 2
    assert len({line.split("sum of weights ")[1] for line in lines}) == 1


def check_train(folder, rondo):
    """On one process, and on two under every launcher that is here."""
    alone = must(folder / "train", env=without_launcher()).splitlines()
    assert "step 200 loss" in alone[-2] and alone[-1].startswith("rank 0 of 1")
    check_two_ranks(rondo, "run", "-n", "2", folder / "train")
    if importlib.util.find_spec("torch"):
        check_two_ranks(sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2",
                        folder / "train")
    if shutil.which("mpirun"):
        check_two_ranks("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", folder / "train")


def test_find_package_after_install(repository, rondo_bin, installed, libtorch):
    definitions = [f"-DCMAKE_PREFIX_PATH={installed}"] + ([f"-DLIBTORCH={libtorch}"] if libtorch else [])
    folder = configure_and_build(repository, rondo_bin, "installed", *definitions)
    check_who(folder)
    check_train(folder, installed / "bin" / "rondo")


def test_add_subdirectory(repository, rondo_bin, libtorch):
    folder = configure_and_build(repository, rondo_bin, "subdirectory", f"-DRONDO_SOURCE={repository}",
                                 f"-DLIBTORCH={libtorch}", *launcher(rondo_bin))
    check_who(folder)
    check_train(folder, rondo_bin / "rondo")


def test_the_core_needs_no_libtorch(installed, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(p LANGUAGES CXX)\n"
        "find_package(rondo REQUIRED COMPONENTS core)\n"
        "if(TARGET Libtorch::Libtorch)\n  message(FATAL_ERROR \"libtorch was looked for\")\nendif()\n"
        "if(NOT TARGET rondo::core)\n  message(FATAL_ERROR \"no rondo::core\")\nendif()\n")
    must("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={installed}")


def test_installed_programs_run(installed):
    programs = sorted(path.name for path in (installed / "bin").iterdir())
    assert "rondo" in programs
    assert "Usage" in must(installed / "bin" / "rondo", "--help", env=without_launcher())


def test_the_readme_shows_the_example(repository):
    """The C++ of the README is part of a program that the tests above build and run."""
    readme = (repository / "README.md").read_text()
    shown = readme.split("```cpp\n")[1].split("```")[0]
    program = (repository / "examples/external/train.cpp").read_text()
    lines = [line for line in shown.splitlines() if line.strip()]
    assert len(lines) >= 15
    assert [line for line in lines if line not in program.splitlines()] == []
