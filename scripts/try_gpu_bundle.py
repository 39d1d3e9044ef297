#!/usr/bin/env python3
"""Tries build/gpu/rondo-gpu.tar.gz in a minimal system: unpacked in another folder, below a root that has the C and C++
libraries, bash, and the environment with torch and its Python.

    scripts/try_gpu_bundle.py [--venv FOLDER] [-- ARGUMENT...]      arguments of gpu-check.sh; default: --device sim

Needs the right to mount and to change the root folder.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOADER = re.compile(r"(/\S+) \(0x")
# System libraries that torch and rondo's programs need; torch's own libraries are in the environment.
BASE = ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1",
        "libresolv.so.2"]
ENTER = """
set -e
root=$1 venv=$2 python=$3
mount --bind "$venv" "$root/venv"
mount --bind "$python" "$root$python"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
shift 3
exec chroot "$root" /bin/bash -c "$@"
"""
# First the programs, without this process's environment variables; then all checks.
INSIDE = """
set -e
cd /
bundle=/opt/some/where/rondo-gpu
export LIBTORCH=/venv
"$bundle/bin/rondo" --version
"$bundle/bin/rondo" doctor || true
printf 'a,b,label\\n1,2,0\\n2,1,1\\n3,4,0\\n4,3,1\\n' > /tmp/data.csv
for device in cpu auto sim; do
  "$bundle/bin/rondo" train --data /tmp/data.csv --model mlp --run-dir "/tmp/$device" --steps 1 --batch-size 2 --device "$device" \\
    --progress off --matmul libtorch
done
exec "$bundle/gpu-check.sh" "$@"
"""


def needed(*files):
    """Returns the paths of the libraries that the loader finds for these files, including the loader."""
    out = "".join(subprocess.run(["ldd", file], capture_output=True, text=True).stdout for file in files)
    return {path for path in LOADER.findall(out)}


def place(root, path):
    target = root / str(path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        target.write_bytes(pathlib.Path(path).read_bytes())
        target.chmod(0o755)


def fill(root, venv):
    """Creates the folders of the new root. Returns the folder of the environment's Python, which is mounted at its own
    path."""
    python = subprocess.run([venv / "bin" / "python3", "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True,
                            check=True).stdout.strip()
    for folder in ("venv", "proc", "dev", "tmp", "bin", "opt/some/where", python.lstrip("/")):
        (root / folder).mkdir(parents=True, exist_ok=True)
    extensions = sorted(pathlib.Path(python).glob("lib/python3*/lib-dynload/*.so"))
    libraries = needed("/bin/bash", (venv / "bin" / "python3").resolve(), *extensions)
    folders = {pathlib.Path(path).parent for path in libraries}
    libraries |= {str(folder / name) for folder in folders for name in BASE if (folder / name).exists()}
    for path in libraries:
        if not path.startswith((python, str(venv))):
            place(root, path)
    place(root, "/bin/bash")
    (root / "bin" / "sh").symlink_to("bash")
    return python


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=pathlib.Path, default=ROOT / "build" / "gpu" / "rondo-gpu.tar.gz")
    parser.add_argument("--venv", type=pathlib.Path, default=pathlib.Path(os.environ.get("LIBTORCH") or ROOT / "build" / "gpu" / "venv"),
                        help="the environment with torch (default: $LIBTORCH, else build/gpu/venv)")
    parser.add_argument("arguments", nargs="*", help="arguments of gpu-check.sh (default: --device sim)")
    given = parser.parse_args()
    for path in (given.bundle, given.venv / "bin" / "python3"):
        if not path.exists():
            sys.exit(f"error: {path} is missing; build it with: make gpu-bundle")
    with tempfile.TemporaryDirectory(prefix="rondo-gpu-root-") as folder:
        root = pathlib.Path(folder)
        python = fill(root, given.venv)
        subprocess.run(["tar", "xzf", given.bundle.resolve(), "-C", root / "opt/some/where"], check=True)
        words = ["unshare", "--mount", "bash", "-c", ENTER, "enter", root, given.venv.resolve(), python, INSIDE, "inside",
                 *(given.arguments or ["--device", "sim"])]
        environment = {"PATH": "/bin:/usr/bin:/sbin:/usr/sbin", "HOME": "/tmp"}
        return subprocess.run([str(word) for word in words], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
