"""rondo, distributed training for libtorch in C++, as a Python package: where its programs, headers and libraries are.

    cmake -S . -B build -DCMAKE_PREFIX_PATH=$(python -m rondo --prefix)

`python -m rondo ARGUMENTS` is the program rondo. The backend of torch.distributed is the package rondo_torch.
"""
import pathlib

# The installation prefix (bin, include, lib, share) for CMake's find_package(rondo).
cmake_prefix_path = str(pathlib.Path(__file__).resolve().parent)
