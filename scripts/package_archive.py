"""Archives that have the same bytes for the same files: sorted, all of one time and of nobody."""
import gzip
import os
import subprocess
import tarfile

from package_libraries import ROOT


def source_date():
    """The time of everything in a package, in seconds: $SOURCE_DATE_EPOCH, else that of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    answer = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False)
    # A source archive without Git: the oldest time that a zip archive can have.
    return int(answer.stdout) if answer.returncode == 0 else 315532800


def files_below(folder):
    """Files and links below a folder, sorted by their paths."""
    return sorted(path for path in folder.rglob("*") if path.is_file() or path.is_symlink())


def is_program(path):
    return bool(path.stat().st_mode & 0o100)


def write_tar(folder, archive):
    """Packs `folder`, under its own name, into a .tar.gz."""
    date = source_date()

    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = date
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    with open(archive, "wb") as file, gzip.GzipFile("", "wb", compresslevel=9, fileobj=file, mtime=0) as compressed, \
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(folder, folder.name, filter=plain)
