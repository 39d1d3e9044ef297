#!/usr/bin/env python3
"""Builds the packages of HEAD twice, in clones of different folders, and compares them byte by byte; twice the time of a full build.

    scripts/reproduce.py [TARGET...]

TARGETs of the build (rondo_memory) are compiled and compared instead of packages. No compiler cache is used. The second build differs
in its folder, that of libtorch's headers, time zone, language and file permissions. Prints the files that differ.
"""
import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

from package_libraries import ROOT, output_of, run

FOLDER = ROOT / "build" / "reproduce"
SETTINGS = {"first": {}, "the second/of both": {"TZ": "Asia/Tokyo", "LC_ALL": "C"}}


def torch_folder():
    """The libtorch of .venv."""
    found = subprocess.run([ROOT / ".venv" / "bin" / "python", "-c", "import torch; print(torch.__path__[0])"], capture_output=True, text=True,
                           check=True)
    return pathlib.Path(found.stdout.strip())


def copy_of_torch(original, target):
    """Makes a libtorch in another folder: its headers are copied, since CMake resolves links, and its libraries are the same files."""
    target.mkdir(parents=True)
    shutil.copytree(original / "include", target / "include")
    shutil.copy(original / "version.py", target)
    os.symlink(original / "lib", target / "lib")


def build(name, commit, variables, targets):
    """Builds a clone of `commit` and returns the files to compare."""
    clone = FOLDER / name / "rondo"
    run("git", "clone", "--quiet", "--no-checkout", ROOT, clone)
    run("git", "-C", clone, "checkout", "--quiet", "--detach", commit)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    environment = os.environ | variables | {"CCACHE_DISABLE": "1"}
    if variables:
        copy_of_torch(torch_folder(), FOLDER / name / "torch")
        environment |= {"LIBTORCH": str(FOLDER / name / "torch"), "CMAKE_ARGS": f"-DPython3_EXECUTABLE={ROOT}/.venv/bin/python"}
    umask = 0o077 if variables else 0o022
    folder = clone / "build" / "portable"
    run(clone / "scripts" / "configure.sh", "portable", env=environment, umask=umask, stdout=subprocess.DEVNULL)
    if targets:
        run("ninja", "-C", folder, *targets, env=environment, umask=umask)
        archives = sorted(folder.rglob("*.a"))
        for archive in archives:
            run("strip", "--strip-unneeded", archive)  # as package_libraries.copy_stripped() does
        return archives
    run(sys.executable, clone / "scripts" / "package.py", env=environment, umask=umask)
    return sorted(path for path in (clone / "build" / "package").iterdir() if path.is_file())


def members(path):
    """{name: digest} of what an archive holds."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}
    if path.suffix == ".gz":
        with tarfile.open(path) as archive:
            return {member.name: hashlib.sha256(archive.extractfile(member).read()).hexdigest() for member in archive if member.isfile()}
    return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    targets = parser.parse_args().targets
    if FOLDER.exists():
        shutil.rmtree(FOLDER)
    commit = output_of("git", "-C", ROOT, "rev-parse", "HEAD").strip()
    print(f"commit {commit}", flush=True)
    first, second = (build(name, commit, variables, targets) for name, variables in SETTINGS.items())
    if not first or [path.name for path in first] != [path.name for path in second]:
        sys.exit(f"error: {first} and {second} are not the same files")
    different = 0
    for one, other in zip(first, second):
        if one.read_bytes() == other.read_bytes():
            print(f"{one.name}: the same {one.stat().st_size} bytes")
            continue
        different += 1
        ours, theirs = members(one), members(other)
        names = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        print(f"{one.name}: DIFFERENT", *names[:20], sep="\n  ")
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
