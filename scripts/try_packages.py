#!/usr/bin/env python3
"""Tries the packages of build/package where there is nothing else: in clean roots of Debian that debootstrap makes.

    scripts/try_packages.py [SUITE...]      default: bookworm trixie bullseye

In each root the wheel and the Debian package are installed and train a step; .venv, with its torch and its Python, is mounted there. Prints
the time from the beginning of the installation of the wheel to the end of the first step. bullseye is too old: there the `rondo` of the
wheel and of the archive say so, and apt refuses the Debian package. Needs root, debootstrap and a mirror of Debian.
"""
import argparse
import shutil
import subprocess
import sys

from package_libraries import ROOT

PACKAGES = ROOT / "build" / "package"
LONGEST_S = 60
# Libraries that the mounted Python loads from the system.
LIBRARIES_OF_PYTHON = "libffi8,zlib1g"
INCLUDED_OLD = "python3"
ENTER = """
set -e
root=$1 venv=$2 python=$3 packages=$4
for folder in "$venv" "$python" "$packages"; do
  mkdir -p "$root$folder"
  mount --rbind "$folder" "$root$folder"
done
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
exec chroot "$root" /bin/bash -c "$5" inside "$venv" "$packages"
"""
INSIDE = """
set -e
venv=$1 packages=$2
export HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /tmp
yes 'to be or not to be' | head -2000 > text.txt
"$venv/bin/python" -m venv --without-pip /tmp/env
site=$(echo /tmp/env/lib/python3.*/site-packages)
torch=$(echo "$venv"/lib/python3.*/site-packages)
ln -s "$torch/torch" "$site/torch"
echo "$torch" > "$site/others.pth"
began=$(date +%s%N)
"$venv/bin/python" -m pip --python /tmp/env/bin/python3 install --quiet --no-index --no-deps "$packages"/*.whl
/tmp/env/bin/rondo train --data text.txt --layers 1 --steps 1 --nproc-per-node 2 --run-dir wheel --progress off
echo "SECONDS $(( ($(date +%s%N) - began) / 1000000 ))e-3"
/tmp/env/bin/python3 -W ignore -c 'import rondo_torch'
/tmp/env/bin/rondo --version
apt-get update -qq
apt-get install -qq -y --no-install-recommends "$packages"/*.deb > /dev/null 2>&1
LIBTORCH=$torch/torch rondo train --data text.txt --layers 1 --steps 1 --nproc-per-node 2 --run-dir deb --progress off --matmul libtorch
"""

INSIDE_OLD = """
packages=$2
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /tmp
python3 -c 'import glob, sys, zipfile; zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0]).extractall("lib/python3/dist-packages")' "$packages"
mkdir bin
cp lib/python3/dist-packages/rondo-*.data/scripts/rondo bin
chmod +x bin/rondo lib/python3/dist-packages/rondo/bin/*
bin/rondo --version && exit 1
PYTHONPATH=lib/python3/dist-packages python3 -m rondo --version && exit 1
tar xzf "$packages"/rondo-*.tar.gz
rondo-*/bin/rondo --version && exit 1
apt-get install -y "$packages"/*.deb && exit 1
exit 0
"""
OLD_SUITES = ("bullseye",)


def make_root(suite):
    folder = PACKAGES / "roots" / suite
    if not (folder / "etc" / "debian_version").exists():
        print(f"creating a root file system of {suite} in {folder}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["debootstrap", "--variant=minbase", f"--include={INCLUDED_OLD if suite in OLD_SUITES else LIBRARIES_OF_PYTHON}", suite, folder], check=True, stdout=subprocess.DEVNULL)
        shutil.copy("/etc/resolv.conf", folder / "etc")
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="default: bookworm trixie bullseye")
    failed = 0
    for suite in parser.parse_args().suites or ["bookworm", "trixie", *OLD_SUITES]:
        root = make_root(suite)
        inside = INSIDE_OLD if suite in OLD_SUITES else INSIDE
        words = ["unshare", "--mount", "bash", "-c", ENTER, "enter", root, sys.prefix, sys.base_prefix, PACKAGES, inside]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
        if suite in OLD_SUITES:
            refused = done.returncode == 0 and done.stderr.count("this rondo needs glibc") == 3 and "Depends: libc6 (>=" in done.stdout + done.stderr
            print(done.stdout, done.stderr, f"{suite}: {'refused by name' if refused else 'FAILED'}", sep="\n", flush=True)
            failed |= not refused
            continue
        taken = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("SECONDS ")]
        print(done.stdout, done.stderr[-2000:], sep="\n")
        if done.returncode != 0 or not taken or taken[0] > LONGEST_S:
            failed = 1
        print(f"{suite}: {'installed to first step in %.1f s' % taken[0] if taken else 'FAILED'}; exit code {done.returncode}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
