"""The wheel `rondo`: the tree of package_stage.py as Python's package rondo, rondo_torch, and the command `rondo`."""
import base64
import hashlib
import pathlib
import re
import shutil
import time
import zipfile

from package_archive import files_below, is_program, source_date
from package_libraries import ROOT, copy_stripped, output_of, run
from package_stage import make_stage, versions

# Folders of rondo/share that pip also puts into the environment's own share, where shells and `man` look. Those in rondo/share are for
# environments without a usual prefix: `rondo --prefix` names their folder in every kind of installation.
OF_SHELLS = ("bash-completion", "fish", "man", "zsh")
# Allowed versions of the C++ library in a manylinux package, with the oldest glibc of systems that have it (PEP 600).
CXX_OF_GLIBC = {(3, 4, 28): (2, 31), (3, 4, 29): (2, 34), (3, 4, 30): (2, 35), (3, 4, 31): (2, 38), (3, 4, 32): (2, 39)}
# Possible folders of Python packages, relative to their scripts: in an environment, for a user (pip install --user), for the system, or in a
# folder (pip install --target).
SITE_PACKAGES = ("../lib/python{python}/site-packages", "../lib64/python{python}/site-packages", "../lib/python{python}/dist-packages",
                 "../lib/python3/dist-packages", "..")
METADATA = """Metadata-Version: 2.1
Name: rondo
Version: {version}
Summary: Distributed training for libtorch, in C++: programs, library, and a backend of torch.distributed
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Requires-Python: =={python}.*
Requires-Dist: torch=={torch}.*
Description-Content-Type: text/markdown

{readme}"""


def write_start(path, glibc, programs, otherwise):
    """Writes the script that starts the first of `programs` (words of the shell) that exists, else runs the command `otherwise`."""
    text = (ROOT / "packaging" / "start.sh.in").read_text()
    for name, value in {"GLIBC": "%d.%d" % glibc, "PROGRAMS": " ".join(programs), "OTHERWISE": otherwise}.items():
        text = text.replace(f"@{name}@", value)
    path.write_text(text)
    path.chmod(0o755)


def newest(files, symbol):
    """The highest version of GLIBC or GLIBCXX symbols that files need, as a tuple."""
    found = set()
    for file in files:
        found |= set(re.findall(rf"\({symbol}_([0-9.]+)\)", output_of("objdump", "-T", file)))
    return max((tuple(map(int, text.split("."))) for text in found), default=(0,))


def elf_files(folder):
    return [path for path in files_below(folder) if path.read_bytes()[:4] == b"\x7fELF"]


def needed_glibc(folder):
    """The oldest glibc that everything below `folder` runs with, as (2, 35)."""
    files = elf_files(folder)
    of_cxx = max((glibc for cxx, glibc in CXX_OF_GLIBC.items() if cxx <= newest(files, "GLIBCXX")), default=(2, 31))
    return max(newest(files, "GLIBC")[:2], of_cxx)


def python_of(module):
    """(tag, version) of the Python that an extension module is for: ("cp311", "3.11")."""
    digits = re.search(r"\.cpython-3(\d+)-", module.name)[1]
    return f"cp3{digits}", f"3.{digits}"


def fill(build, folder):
    """Fills `folder` with what pip puts into site-packages, and returns the extension module."""
    make_stage(build, folder / "rondo")
    for file in sorted((ROOT / "python" / "rondo").glob("*.py")):
        shutil.copy(file, folder / "rondo")
    built = build / "python" / "rondo_torch"
    modules = list(built.glob("native*.so"))
    if len(modules) != 1:
        raise SystemExit(f"error: {built} has {len(modules)} extension modules; the wheel needs a build with Python's headers")
    (folder / "rondo_torch").mkdir()
    for file in sorted(built.glob("*.py")):
        shutil.copy(file, folder / "rondo_torch")
    copy_stripped(modules[0], folder / "rondo_torch" / modules[0].name)
    needs = f'"""Requirements of this package."""\n\nGLIBC = {needed_glibc(folder)}\n'
    (folder / "rondo" / "needs.py").write_text(needs)
    return modules[0]


def digest_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def write_zip(folder, archive, record):
    """Packs all below `folder`, and last the list of it in the file `record`."""
    date = time.gmtime(source_date())[:6]
    lines = []
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        def add(name, content, mode):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, (0o100000 | mode) << 16
            packed.writestr(entry, content)

        for path in files_below(folder):
            name, content = str(path.relative_to(folder)), path.read_bytes()
            add(name, content, 0o755 if is_program(path) else 0o644)
            lines.append(digest_line(name, content))
        add(record, "".join([*lines, f"{record},,\n"]), 0o644)


def make_wheel(build, output):
    """Returns the path of the wheel."""
    run("ninja", "-C", build, "rondo_torch", capture_output=True)
    folder = output / "wheel"
    if folder.exists():
        shutil.rmtree(folder)
    module = fill(build, folder)
    tag, python = python_of(module)
    rondo, torch = versions(build)
    minor = torch.rpartition(".")[0]
    version = f"{rondo}+torch{minor}"
    major, glibc_minor = needed_glibc(folder)
    platform = f"manylinux_{major}_{glibc_minor}_x86_64"
    information = folder / f"rondo-{version}.dist-info"
    (information / "licenses").mkdir(parents=True)
    readme = (ROOT / "README.md").read_text()
    (information / "METADATA").write_text(METADATA.format(version=version, python=python, torch=minor, readme=readme))
    (information / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: rondo {rondo}\nRoot-Is-Purelib: false\nTag: {tag}-{tag}-{platform}\n")
    (information / "top_level.txt").write_text("rondo\nrondo_torch\n")
    for name in ("LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, information / "licenses")
    share = folder / f"rondo-{version}.data" / "data" / "share"
    share.mkdir(parents=True)
    for name in OF_SHELLS:
        shutil.copytree(folder / "rondo" / "share" / name, share / name)
    scripts = folder / f"rondo-{version}.data" / "scripts"
    scripts.mkdir(parents=True)
    programs = [f'"$here/{packages.format(python=python)}/rondo/bin/rondo"' for packages in SITE_PACKAGES]
    write_start(scripts / "rondo", (major, glibc_minor), programs, 'exec python3 -m rondo "$@"')
    wheel = output / f"rondo-{version}-{tag}-{tag}-{platform}.whl"
    write_zip(folder, wheel, f"{information.name}/RECORD")
    return pathlib.Path(wheel)
