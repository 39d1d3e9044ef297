"""examples/external, a separate project, builds against rondo in both ways, and its programs run.

The builds are kept in build/external-*, so that a later run only checks that nothing is outdated.
"""
import importlib.util
import os
import re
import shutil
import sys

import pytest
from building import cached, must, without_launcher
from marks import long


# Includes tests that compile all of rondo again (make nightly STEPS=external).
WHOLE = os.environ.get("RONDO_EXTERNAL") == "all"
UNOPTIMISED = "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG"


@pytest.fixture(scope="module")
def libtorch(rondo_bin):
    """Returns the libtorch of the build under test, for use by the separate project."""
    return cached(rondo_bin, "LIBTORCH")


def launcher(rondo_bin):
    """Returns the build's compiler launcher, such as ccache: a second build of the same sources takes seconds."""
    words = cached(rondo_bin, "RONDO_COMPILER_LAUNCHER")
    return [f"-DCMAKE_CXX_COMPILER_LAUNCHER={words}"] if words else []


def configure_and_build(repository, rondo_bin, way, *definitions, targets=("all",)):
    folder = rondo_bin.parent.parent / f"external-{way}"
    # A previous run may have cached an installation that no longer exists.
    must("cmake", "-Urondo_DIR", "-S", repository / "examples" / "external", "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         *definitions)
    must("cmake", "--build", folder, "--target", *targets, timeout=2400)
    return folder


def check_who(folder):
    assert must(folder / "who", env=without_launcher()) == "rank 0 of 1, started by none\n"
    under_a_launcher = {**without_launcher(), "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    assert must(folder / "who", env=under_a_launcher).startswith("rank 1 of 2")


def check_two_ranks(*command):
    """Checks that two ranks end with bitwise equal weights."""
    lines = [line for line in must(*command, env=without_launcher()).splitlines() if "sum of weights" in line]
    assert len(lines) == 2
    assert len({line.split("sum of weights ")[1] for line in lines}) == 1


def check_train(folder, rondo):
    """Runs on one process, and on two under every available launcher."""
    alone = must(folder / "train", env=without_launcher()).splitlines()
    assert "step 200 loss" in alone[-2] and alone[-1].startswith("rank 0 of 1")
    check_two_ranks(rondo, "run", "-n", "2", folder / "train")
    if importlib.util.find_spec("torch"):
        check_two_ranks(sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2",
                        folder / "train")
    if shutil.which("mpirun"):
        check_two_ranks("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", folder / "train")


def check_extend(folder, rondo):
    """Checks that each extension is used."""
    out = must(rondo, "run", "-n", "2", folder / "extend", env=without_launcher())
    assert "engine: communicator 'world'" in out
    assert "algorithm: sum 3" in out      # 1 and 2
    assert "hook: gradient 1.5" in out    # their mean
    assert "callback: 400 steps" in out
    loss = float(re.search(r"strategy, data set, model and optimizer: loss ([\d.]+)", out)[1])
    assert loss < 0.5, out                # ln 2 is 0.69


@pytest.mark.parametrize("programs", [["who", "train"], long(["all"])], ids=lambda programs: programs[-1])
def test_find_package_after_install(repository, rondo_bin, libtorch, programs):
    """The installation is kept, too, at the same path: its files are outdated only if they have changed."""
    prefix = rondo_bin.parent.parent / "external-prefix"
    must("cmake", "--install", rondo_bin.parent, "--prefix", prefix)
    # The result does not depend on the optimiser, which takes most of the time.
    definitions = [f"-DCMAKE_PREFIX_PATH={prefix}", UNOPTIMISED, *launcher(rondo_bin)] + ([f"-DLIBTORCH={libtorch}"] if libtorch else [])
    folder = configure_and_build(repository, rondo_bin, "installed", *definitions, targets=programs)
    check_who(folder)
    check_train(folder, prefix / "bin" / "rondo")
    if programs == ["all"]:
        check_extend(folder, prefix / "bin" / "rondo")


@pytest.mark.parametrize("builds", [False, pytest.param(True, marks=pytest.mark.long)])
def test_installed_examples_build(rondo_bin, installed, libtorch, tmp_path, builds):
    """As examples/README.md says. The nightly run also compiles one, which takes the compile time of libtorch's
    headers; the same program is part of the build under test."""
    folder = tmp_path / "build"
    must("cmake", "-Urondo_DIR", "-S", installed / "share" / "rondo" / "examples", "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         UNOPTIMISED, f"-DCMAKE_PREFIX_PATH={installed}", *([f"-DLIBTORCH={libtorch}"] if libtorch else []), *launcher(rondo_bin))
    if not builds:
        assert "\nminimal: " in must("ninja", "-C", folder, "-t", "targets", "all")
        return
    must("cmake", "--build", folder, "--target", "minimal", timeout=1200)
    assert must(installed / "bin" / "rondo", "run", "-n", "2", folder / "minimal", env=without_launcher())


def test_add_subdirectory(repository, rondo_bin, libtorch):
    """Configures everything. Only the nightly run compiles the sources that use libtorch again, which takes minutes."""
    folder = configure_and_build(repository, rondo_bin, "subdirectory", f"-DRONDO_SOURCE={repository}",
                                 f"-DLIBTORCH={libtorch}", UNOPTIMISED, *launcher(rondo_bin),
                                 targets=["all"] if WHOLE else ["who"])
    check_who(folder)
    if WHOLE:
        check_train(folder, rondo_bin / "rondo")


def test_the_core_needs_no_libtorch(installed, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(p LANGUAGES CXX)\n"
        "find_package(rondo REQUIRED COMPONENTS core)\n"
        "if(TARGET Libtorch::Libtorch)\n  message(FATAL_ERROR \"libtorch was looked for\")\nendif()\n"
        "if(NOT TARGET rondo::core)\n  message(FATAL_ERROR \"no rondo::core\")\nendif()\n")
    must("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={installed}")
