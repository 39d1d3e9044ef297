#!/usr/bin/env python3
"""Makes build/gpu/rondo-gpu.tar.gz: rondo's programs for machines with a card, their own libraries, and gpu-check.

    scripts/gpu_bundle.py [--build FOLDER] [--no-build]

LIBTORCH names a virtual environment with the torch to build against; else one is made in build/gpu/venv of
scripts/requirements-gpu.txt. A machine that unpacks the bundle needs a driver, Python and the same torch, and no network:

    tar xzf rondo-gpu.tar.gz && LIBTORCH=/path/of/venv rondo-gpu/gpu-check.sh --json gpu.json
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from package_archive import write_tar
from package_libraries import ROOT, copy_libraries, copy_stripped, own_libraries, run

GPU = ROOT / "build" / "gpu"
LARGEST = 40_000_000  # bytes of the bundle
TARGETS = ["quickstart_programs", "rondo-doctor", "rondo_nccl", "rondo_sim"]
PROGRAMS = ["rondo", "rondo-train", "rondo-train-worker", "rondo-matmul", "rondo-report", "rondo-doctor"]
# Loaded by programs that have libtorch already, so they need no run path.
MODULES = ["rondo_nccl.so", "rondo_sim.so"]
# Libraries that programs load where a device is asked for, so that a training on the CPU starts without them.
ON_DEMAND = re.compile(r"lib(torch_cuda|c10_cuda|nccl|cuda)\.so")


def make_venv():
    """The virtual environment of LIBTORCH, else the bundle's own."""
    if given := os.environ.get("LIBTORCH"):
        return pathlib.Path(given)
    venv, wanted = GPU / "venv", ROOT / "scripts" / "requirements-gpu.txt"
    stamp = venv / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        print(f"installing torch with CUDA into {venv} (4.7 GB)", flush=True)
        run(sys.executable, "-m", "venv", venv)
        run(venv / "bin" / "python", "-m", "pip", "install", "--quiet", "-r", wanted)
        shutil.copyfile(wanted, stamp)
    return venv


def build(folder, venv):
    run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DLIBTORCH={venv}", "-DRONDO_NCCL=REQUIRED",
        "-DRONDO_BUILD_PYTHON=OFF", "-DRONDO_BUILD_EXAMPLES=OFF")
    run("ninja", "-C", folder, *TARGETS)


def check_needs_no_cuda(program):
    out = run("readelf", "-d", program, capture_output=True, text=True).stdout
    needed = [name for name in re.findall(r"\(NEEDED\).*\[(.+)\]", out) if ON_DEMAND.match(name)]
    if needed:
        sys.exit(f"error: {program} is linked with {', '.join(needed)}, which it must load on demand")


def describe(venv, libraries):
    def said(*command):
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT).stdout.strip()

    return {"commit": said("git", "rev-parse", "HEAD"), "changed": bool(said("git", "status", "--porcelain", "--untracked-files=no")),
            "torch": said(venv / "bin" / "python", "-c", "import torch; print(torch.__version__)"), "libraries": list(libraries)}


def gather(folder, build_folder, venv):
    if folder.exists():
        shutil.rmtree(folder)
    for part in ("bin", "lib/rondo", "check", "peers"):
        (folder / part).mkdir(parents=True)
    (torch_libraries,) = venv.glob("lib/python3*/site-packages/torch/lib")
    programs = [build_folder / "bin" / name for name in PROGRAMS]
    for program in programs:
        check_needs_no_cuda(program)
        copy_stripped(program, folder / "bin" / program.name)
    libraries = own_libraries(programs, torch_libraries)
    copy_libraries(libraries, folder / "lib" / "rondo")
    for module in MODULES:
        copy_stripped(build_folder / "lib" / module, folder / "lib" / module)
    for file in (ROOT / "scripts" / "gpu_check").glob("*.py"):
        shutil.copy(file, folder / "check")
    for name in ("gpt.py", "gpu_step.py", "leaving.py"):
        shutil.copy(ROOT / "bench" / "peers" / name, folder / "peers")
    shutil.copy(ROOT / "scripts" / "gpu_check" / "gpu-check.sh", folder)
    shutil.copy(ROOT / "LICENSE", folder)
    (folder / "bundle.json").write_text(json.dumps(describe(venv, libraries), indent=1) + "\n")


def pack(folder, archive):
    write_tar(folder, archive)
    size = archive.stat().st_size
    if size > LARGEST:
        sys.exit(f"error: {archive} has {size:,} bytes, more than the limit of {LARGEST:,}")
    print(f"{archive}: {size / 1e6:.1f} MB. On a machine with a card:\n"
          f"  tar xzf {archive.name} && LIBTORCH=/path/of/venv {folder.name}/gpu-check.sh --json gpu.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "cuda", help="build folder (default: build/cuda)")
    parser.add_argument("--no-build", action="store_true", help="use the existing programs without building")
    arguments = parser.parse_args()
    GPU.mkdir(parents=True, exist_ok=True)
    venv = make_venv()
    if not arguments.no_build:
        build(arguments.build, venv)
    gather(GPU / "rondo-gpu", arguments.build, venv)
    pack(GPU / "rondo-gpu", GPU / "rondo-gpu.tar.gz")


if __name__ == "__main__":
    main()
