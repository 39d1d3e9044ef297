"""The archive that is unpacked anywhere: rondo-VERSION-linux-x86_64-torchMINOR.tar.gz with bin, include, lib and share."""
from package_archive import write_tar
from package_stage import make_stage, versions
from package_wheel import needed_glibc, write_start


def make_tar(build, output):
    """Returns the path of the archive."""
    rondo, torch = versions(build)
    folder = output / f"rondo-{rondo}-linux-x86_64-torch{torch.rpartition('.')[0]}"
    make_stage(build, folder)
    start = folder / "bin" / "rondo"
    start.rename(folder / "bin" / "rondo.bin")
    write_start(start, needed_glibc(folder), ['"$here/rondo.bin"'], 'echo "rondo: $here/rondo.bin is missing: unpack the archive again" >&2\nexit 1')
    archive = output / f"{folder.name}.tar.gz"
    write_tar(folder, archive)
    return archive
