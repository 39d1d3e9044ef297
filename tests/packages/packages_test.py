"""The packages in build/package ($RONDO_PACKAGES), each by itself: the archive unpacked elsewhere, the Debian package in a folder of its own,
what the wheel needs of a system; and that packing again gives the same bytes (compiling again: scripts/reproduce.py). Run by make package."""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = pathlib.Path(os.environ.get("RONDO_PACKAGES", REPOSITORY / "build" / "package"))
LARGEST_BYTES = 25_000_000
ENVIRONMENT = pathlib.Path(sysconfig.get_path("purelib"))


def only(pattern):
    found = list(PACKAGES.glob(pattern))
    if not found:
        reason = f"no {pattern} in {PACKAGES}: make package makes it"
        print(reason)
        pytest.skip(reason)
    assert len(found) == 1, found
    return found[0]


def must(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, check=False, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def clean(**variables):
    return {"PATH": "/usr/bin:/bin", "HOME": "/proc", "RONDO_MATMUL": "libtorch"} | variables


def train(program, folder, environment):
    (folder / "text.txt").write_text("to be or not to be " * 300)
    must(program, "train", "--data", "text.txt", "--layers", 1, "--steps", 1, "--nproc-per-node", 2, "--run-dir", "run", cwd=folder, env=environment)
    assert (folder / "run" / "metrics.jsonl").exists()


@pytest.fixture
def unpacked(tmp_path):
    must("tar", "xzf", only("*.tar.gz"), "-C", tmp_path)
    folder, = tmp_path.glob("rondo-*")
    return folder


def test_archive_trains_with_named_or_active_libtorch(unpacked, tmp_path):
    train(unpacked / "bin" / "rondo", tmp_path, clean(LIBTORCH=str(ENVIRONMENT / "torch")))
    shutil.rmtree(tmp_path / "run")
    train(unpacked / "bin" / "rondo", tmp_path, clean(PATH=f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin"))
    # A folder by that name where one happens to be is no torch.
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    done = subprocess.run([unpacked / "bin" / "rondo", "--libtorch"], cwd=tmp_path, env=clean(PATH="/usr/bin:/bin"), capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1 and "libtorch was not found" in done.stderr and "Get it: pip install" in done.stderr, done


def test_archive_keeps_users_libtorch_link(unpacked, tmp_path):
    (unpacked / "lib" / "rondo" / "libtorch").symlink_to(ENVIRONMENT / "torch")
    train(unpacked / "bin" / "rondo", tmp_path, clean())


def test_archive_names_a_system_that_is_too_old(unpacked):
    """Its program asks for a glibc that this system lacks, and the script does not see this system's newer C++ library."""
    script, program = unpacked / "bin" / "rondo", unpacked / "bin" / "rondo.bin"
    program.write_bytes(program.read_bytes().replace(b"\0GLIBC_2.34\0", b"\0GLIBC_9.34\0"))
    script.write_text(script.read_text().replace("/usr/lib", "/nowhere"))
    (unpacked / "rondo").symlink_to(script)
    started = subprocess.run([unpacked / "rondo", "--version"], env=clean(), capture_output=True, text=True, check=False)
    assert started.returncode == 1 and re.fullmatch(r"rondo: this rondo needs glibc 2\.\d+ or newer, .*\n", started.stderr), started
    assert os.confstr("CS_GNU_LIBC_VERSION") in started.stderr, started


def test_new_project_of_archive_trains(unpacked, tmp_path):
    environment = clean(LIBTORCH=str(ENVIRONMENT / "torch"))
    must(unpacked / "bin" / "rondo", "new", "mine", cwd=tmp_path, env=environment)
    must("make", "-C", tmp_path / "mine", env=clean())
    assert "validation loss" in must("make", "-C", tmp_path / "mine", "train", env=clean())
    must("make", "-C", tmp_path / "mine", "train-module", env=environment)


def test_trains_on_processor_without_avx(unpacked, tmp_path):
    """Ranks of a training are started in an emulator, as that processor."""
    emulator = shutil.which("qemu-x86_64")
    if not emulator:
        reason = "no qemu-x86_64 (Debian's package qemu-user), which emulates such a processor"
        print(reason)
        pytest.skip(reason)
    worker = unpacked / "bin" / "rondo-train-worker"
    real = worker.rename(worker.with_name("worker"))
    worker.write_text(f'#!/bin/sh\nexec {emulator} -cpu Nehalem {real} "$@"\n')
    worker.chmod(0o755)
    train(unpacked / "bin" / "rondo", tmp_path, clean(LIBTORCH=str(ENVIRONMENT / "torch")))


def test_debian_package_trains_and_passes_lintian(tmp_path):
    package = only("*.deb")
    assert package.stat().st_size <= LARGEST_BYTES
    must("dpkg-deb", "-x", package, tmp_path / "root")
    train(tmp_path / "root" / "usr" / "bin" / "rondo", tmp_path, clean(LIBTORCH=str(ENVIRONMENT / "torch")))
    fields = must("dpkg-deb", "-f", package)
    depends = re.search(r"^Depends: (.+)$", fields, re.M)[1]
    assert re.match(r"libc6 \(>= 2\.\d+\), libstdc\+\+6", depends) and "libzmq5" in depends, fields
    must("md5sum", "--check", "--quiet", cwd=tmp_path / "root", input=must("dpkg-deb", "-I", package, "md5sums"))
    if not shutil.which("lintian"):
        print("lintian is not installed: its check is left out")
        return
    done = subprocess.run(["lintian", "--allow-root", package], capture_output=True, text=True, check=False)
    assert not [line for line in done.stdout.splitlines() if line.startswith("E:")], done.stdout


def test_wheel_needs_match_its_tag(tmp_path):
    """auditwheel copies nothing into it and agrees with its tag."""
    wheel = only("*.whl")
    assert wheel.stat().st_size <= LARGEST_BYTES
    tools = pathlib.Path(sys.executable).parent
    must(tools / "auditwheel", "repair", "--exclude", "libtorch*.so", "--exclude", "libc10.so", "--wheel-dir", tmp_path, wheel,
         env=dict(os.environ, PATH=f"{tools}:/usr/bin:/bin"))
    repaired, = tmp_path.glob("*.whl")
    platforms = repaired.stem.rpartition("-")[2].split(".")
    assert wheel.stem.rpartition("-")[2] in platforms, repaired
    assert ".libs/" not in must(sys.executable, "-m", "zipfile", "-l", repaired)


def test_no_file_names_the_folder_of_the_build():
    """Neither the sources' nor that of libtorch."""
    content = PACKAGES / "wheel"
    if not content.is_dir():
        pytest.skip(f"no {content}: make package makes it")
    folders = {str(REPOSITORY).encode(), str((ENVIRONMENT / "torch").resolve().parent).encode()}
    named = [path for path in content.rglob("*") if path.is_file() and any(folder in path.read_bytes() for folder in folders)]
    assert named == []


def test_packing_is_reproducible(tmp_path):
    made = [only(pattern) for pattern in ("*.whl", "*.tar.gz", "*.deb")]
    must(sys.executable, REPOSITORY / "scripts" / "package.py", "--output", tmp_path, umask=0o077, env=os.environ | {"TZ": "Asia/Tokyo", "LC_ALL": "C"})
    for package in made:
        again = tmp_path / package.name
        assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(package.read_bytes()).digest(), package.name
