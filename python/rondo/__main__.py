"""Starts the program rondo in place of this process, with the torch of this Python."""
import importlib.util
import os
import sys

from rondo import cmake_prefix_path


def main():
    program = os.path.join(cmake_prefix_path, "bin", "rondo")
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
