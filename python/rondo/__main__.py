"""Starts the program rondo in place of this process, with the torch of this Python."""
import importlib.util
import os
import subprocess
import sys

from rondo import cmake_prefix_path
from rondo.needs import GLIBC


def older_system(program):
    """Returns why programs do not start on a system with an older glibc than GLIBC; "" if they start."""
    try:
        words = os.confstr("CS_GNU_LIBC_VERSION").split()
    except (AttributeError, ValueError):
        words = ["no", "glibc"]
    if words[0] == "glibc" and tuple(map(int, words[1].split(".")[:2])) >= GLIBC:
        return ""
    try:
        # Tries to load it, because an old system may have a newer C++ library.
        if subprocess.run([program, "--prefix"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return ""
    except OSError:
        pass
    return (f"this rondo needs glibc {GLIBC[0]}.{GLIBC[1]} or newer, as Debian 12 and Ubuntu 22.04 have; this system has {' '.join(words)}. "
            "Build rondo from its sources here: make install PREFIX=/path")


def main():
    program = os.path.join(cmake_prefix_path, "bin", "rondo")
    reason = older_system(program)
    if reason:
        sys.exit(f"rondo: {reason}")
    beside = os.path.join(os.path.dirname(cmake_prefix_path), "torch")
    torch = importlib.util.find_spec("torch")
    if torch and not os.path.isdir(beside):
        os.environ.setdefault("LIBTORCH", next(iter(torch.submodule_search_locations)))
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"rondo: {program} cannot be started: {error.strerror}. Install the wheel again: pip install --force-reinstall rondo-*.whl")


if __name__ == "__main__":
    main()
