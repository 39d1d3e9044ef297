"""The archive that is unpacked anywhere: rondo-VERSION-linux-x86_64-torchMINOR.tar.gz with bin, include, lib and share."""
from package_archive import write_tar
from package_stage import make_stage, versions


def make_tar(build, output):
    """Returns the path of the archive."""
    rondo, torch = versions(build)
    folder = output / f"rondo-{rondo}-linux-x86_64-torch{torch.rpartition('.')[0]}"
    make_stage(build, folder)
    archive = output / f"{folder.name}.tar.gz"
    write_tar(folder, archive)
    return archive
