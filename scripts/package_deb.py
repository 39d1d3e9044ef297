"""The Debian package rondo. Libraries whose interface a distribution keeps are Debian's own; libtorch, which Debian lacks, is LIBTORCH's or the
active Python's."""
import gzip
import hashlib
import os
import shutil
import time

from package_archive import files_below, is_program, source_date
from package_libraries import ROOT, debian_package_of, run
from package_stage import make_stage, versions
from package_wheel import needed_glibc

# Libraries that programs name or load themselves; what these need in turn is their packages' affair.
DIRECT = ("libzmq", "libjpeg", "libpng", "libxxhash")
CONTROL = """Package: rondo
Version: {version}
Section: science
Priority: optional
Architecture: amd64
Maintainer: The rondo authors <rondo@localhost>
Installed-Size: {size}
Depends: {depends}
Recommends: python3
Suggests: cmake, g++
Description: distributed training for libtorch, in C++
 Programs that train models on several processes and hosts, plan and measure
 such trainings, and the C++ library that they are made of, with its headers
 and its package for CMake.
 .
 It needs libtorch {torch}, which Debian does not have: the variable LIBTORCH
 names its folder; without it the package torch of the active Python is used.
"""
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: rondo

Files: *
Copyright: 2026 the rondo authors
License: Apache-2.0

Files: usr/lib/rondo/libspdlog.so.* usr/lib/rondo/libfmt.so.* usr/lib/rondo/libhighs.so usr/lib/rondo/include/*
Copyright: 2013-2026 their authors, whom /usr/share/rondo/licences names
License: Expat

License: Apache-2.0
 On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.

License: Expat
 The full texts, with the names of their authors, are in /usr/share/rondo/licences.
"""
CHANGES = """rondo ({version}) unstable; urgency=medium

  * The changes of each version are in /usr/share/rondo/CHANGELOG.md.

 -- The rondo authors <rondo@localhost>  {date}
"""
OVERRIDES = """# The project has no address for mail.
rondo: bogus-mail-host *
rondo: bogus-mail-host-in-debian-changelog *
# Started by rondo train and by benchmarks.
rondo: no-manual-page [usr/bin/rondo-train-worker]
rondo: no-manual-page [usr/bin/rondo-matmul]
# libtorch, which Debian lacks, may be beside the package; /usr/lib/rondo holds rondo's own libraries.
rondo: custom-library-search-path *
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def depends(libraries, glibc):
    """The packages of the libraries that are not included; the interfaces of these are older than any Debian with this glibc."""
    packages = {debian_package_of(path) for path in libraries.values() if path.split("/")[-1].startswith(DIRECT)}
    return ", ".join([f"libc6 (>= {glibc[0]}.{glibc[1]})", "libstdc++6 (>= 12)", *sorted(packages)])


def make_deb(build, output):
    """Returns the path of the package."""
    rondo, torch = versions(build)
    minor = torch.rpartition(".")[0]
    version = f"{rondo}+torch{minor}-1"
    folder = output / "deb"
    if folder.exists():
        shutil.rmtree(folder)
    left_out = make_stage(build, folder / "usr", steady_libraries=False)
    share = folder / "usr" / "share"
    (share / "zsh" / "site-functions").rename(share / "zsh" / "vendor-completions")
    for page in (share / "man" / "man1").glob("*.1"):
        page.with_suffix(".1.gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
        page.unlink()
    documents = share / "doc" / "rondo"
    write(documents / "copyright", COPYRIGHT)
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(source_date()))
    (documents / "changelog.Debian.gz").write_bytes(gzip.compress(CHANGES.format(version=version, date=date).encode(), 9, mtime=0))
    write(folder / "usr" / "share" / "lintian" / "overrides" / "rondo", OVERRIDES)
    shutil.copy(ROOT / "CHANGELOG.md", folder / "usr" / "share" / "rondo")
    size = sum(path.stat().st_size for path in files_below(folder)) // 1024
    control = CONTROL.format(version=version, size=size, torch=minor, depends=depends(left_out, needed_glibc(folder)))
    sums = "".join(f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in files_below(folder))
    write(folder / "DEBIAN" / "control", control)
    write(folder / "DEBIAN" / "md5sums", sums)
    for path in [folder, *folder.rglob("*")]:
        # make_stage() has set those of programs.
        path.chmod(0o755 if path.is_dir() or is_program(path) else 0o644)
    package = output / f"rondo_{version}_amd64.deb"
    run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", folder, package, capture_output=True,
        env=dict(os.environ, SOURCE_DATE_EPOCH=str(source_date())))
    return package
