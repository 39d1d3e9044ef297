"""The tree that packages are made of: programs, libraries, headers, the package of CMake, documents, licences.

It works in any folder. Nothing is compiled for it: programs and libraries are linked from what the build has (RondoPackage.cmake).
"""
import os
import pathlib
import re
import shutil

from package_archive import files_below, source_date
from package_libraries import ROOT, copy_libraries, copy_licences, copy_stripped, own_libraries, run

# Debian packages that are compiled into the programs, without a copied library.
COMPILED_IN = ["nlohmann-json3-dev", "libcli11-dev", "libtomlplusplus-dev", "libjs-chart.js"]
# Those whose interface changes with each release of a distribution, by the beginning of their names.
UNSTEADY = ("libspdlog", "libfmt", "libhighs")


def build_programs(build):
    run("ninja", "-C", build, "rondo_package", stdout=None)


def install(build, folder):
    """What `cmake --install` installs, but for what links a certain libtorch or MPI of this machine."""
    environment = {name: value for name, value in os.environ.items() if name != "DESTDIR"} | {"SOURCE_DATE_EPOCH": str(source_date())}
    run("cmake", "--install", build, "--prefix", folder, env=environment, capture_output=True)
    for path in (folder / "lib").glob("*"):
        if path.suffix in (".a", ".so"):
            path.unlink()
    (folder / "lib" / "rondo" / "libtorch").unlink()
    shutil.rmtree(folder / "bin")
    shutil.rmtree(folder / "lib" / "cmake")


def copy_programs(build, folder):
    (folder / "bin").mkdir()
    for program in sorted((build / "package" / "bin").glob("*.packaged")):
        copy_stripped(program, folder / "bin" / program.stem)
    for library in sorted((build / "package" / "lib" / "rondo").glob("librondo*.so")):
        copy_stripped(library, folder / "lib" / "rondo" / library.name)
    for library in (folder / "lib" / "rondo").glob("libhighs*"):  # cmake --install has put it there
        run("strip", "--strip-unneeded", library)


def copy_cmake_package(build, folder):
    target = folder / "lib" / "cmake" / "rondo"
    target.mkdir(parents=True)
    for source in (ROOT / "cmake" / "package" / "rondoConfig.cmake", ROOT / "cmake" / "FindLibtorch.cmake", ROOT / "cmake" / "RondoModel.cmake",
                   build / "package" / "rondoContent.cmake", build / "rondoConfigVersion.cmake"):
        shutil.copy(source, target)


def copy_json_headers(folder):
    """JSON for Modern C++, which rondo's headers include, of the version that rondo was compiled with."""
    target = folder / "lib" / "rondo" / "include"
    shutil.copytree("/usr/include/nlohmann", target / "nlohmann")


def torch_of(build):
    """The folder of the libtorch that the build uses."""
    return (build / "lib" / "rondo" / "libtorch").resolve()


def versions(build):
    """(version of rondo, version of libtorch, both as texts)"""
    rondo = re.search(r'#define RONDO_VERSION "(.+)"', (ROOT / "rondo/base/version.h").read_text())[1]
    version = (torch_of(build) / "version.py").read_text()
    return rondo, re.search(r"__version__ = '([0-9.]+)", version)[1]


def make_stage(build, folder, steady_libraries=True):
    """Fills `folder`. Without steady_libraries only those of others' libraries come along whose interface changes with each release of
    a distribution. Returns {name: path} of the libraries that were left out."""
    if folder.exists():
        shutil.rmtree(folder)
    install(build, folder)
    copy_programs(build, folder)
    copy_cmake_package(build, folder)
    copy_json_headers(folder)
    private = folder / "lib" / "rondo"
    files = [*(folder / "bin").iterdir(), *private.glob("librondo*.so")]
    libraries = own_libraries(files, torch_of(build) / "lib", private)
    included = {name: path for name, path in libraries.items() if steady_libraries or name.startswith(UNSTEADY)}
    copy_libraries(included, private)
    copy_licences(included, COMPILED_IN, folder / "share" / "rondo" / "licences")
    for path in files_below(folder):
        is_script = path.read_bytes()[:2] == b"#!"
        path.chmod(0o755 if path.parent == folder / "bin" or is_script else 0o644)
    return {name: path for name, path in libraries.items() if name not in included}


def default_build():
    return pathlib.Path(os.environ.get("RONDO_PACKAGE_BUILD", ROOT / "build" / "portable")).resolve()
