"""Helpers of the tests that build or install rondo again."""
import os
import re
import subprocess


def must(*command, timeout=900, **options):
    """Runs a command that must succeed, and returns its output."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, **options)
    assert result.returncode == 0, f"{command}:\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    return result.stdout


def cached(rondo_bin, variable):
    """Returns a CMake variable of the build under test."""
    for line in (rondo_bin.parent / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(variable + ":"):
            return line.partition("=")[2]
    return ""


def without_launcher():
    launcher = ("RANK", "WORLD_SIZE", "LOCAL_", "PET_", "OMPI_", "PMI", "SLURM_", "TF_CONFIG", "JOB_COMPLETION_INDEX")
    return {name: value for name, value in os.environ.items() if not name.startswith(launcher)}


def cached_compilation(rondo_bin, installed):
    """Returns variables by which projects of tests use the build's compiler cache, if it has one: a project that two
    tests build, in folders of the same depth beside the installation, is compiled once."""
    launcher = cached(rondo_bin, "RONDO_COMPILER_LAUNCHER")
    if not launcher:
        return {}
    base = installed.parent.parent
    return {"CMAKE_CXX_COMPILER_LAUNCHER": re.sub("CCACHE_BASEDIR=[^;]*", f"CCACHE_BASEDIR={base}", launcher),
            "CCACHE_DIR": os.environ.get("CCACHE_DIR", os.path.expanduser("~/.cache/ccache"))}
