"""The wheel, made of the build under test without compiling it again, in an empty environment beside .venv's torch: programs, rondo_torch and
find_package work at once; what does not fit is named. The other packages and clean systems are in tests/packages (make nightly)."""
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest
from building import must

LARGEST_BYTES = 25_000_000
ALL_REDUCE = """
import torch, torch.distributed as dist, rondo_torch
dist.init_process_group("rondo", init_method="rondo://")
value = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(value)
print("sum", value.tolist())
"""


class Environment:
    """A virtual environment with the wheel and no torch; run(NAME, WORDS...) runs a program of its bin."""

    def __init__(self, folder, wheel, home):
        must(sys.executable, "-m", "venv", "--without-pip", folder)
        self.folder, self.home = folder, home
        self.packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        must(sys.executable, "-m", "pip", "--python", folder / "bin" / "python3", "install", "--quiet", "--no-index", "--no-deps", wheel)

    def run(self, name, *words, **variables):
        environment = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "HOME": str(self.home), "RONDO_MATMUL": "libtorch"} | variables
        return subprocess.run([self.folder / "bin" / name, *map(str, words)], cwd=self.home, env=environment, capture_output=True,
                              text=True, timeout=180)


@pytest.fixture(scope="module")
def wheel(repository, rondo_bin, tmp_path_factory):
    """The wheel in $RONDO_PACKAGES (scripts/package.sh), else one that is made of the build under test."""
    if "RONDO_PACKAGES" in os.environ:
        made, = pathlib.Path(os.environ["RONDO_PACKAGES"]).glob("*.whl")
        return made
    output = tmp_path_factory.mktemp("packages")
    must(sys.executable, repository / "scripts" / "package.py", "wheel", "--build", rondo_bin.parent, "--output", output)
    path, = output.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def torch_packages():
    """Where torch and what it imports are."""
    return pathlib.Path(sysconfig.get_path("purelib"))


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    return Environment(folder / "venv", wheel, folder)


@pytest.fixture(scope="module")
def environment(wheel, torch_packages, tmp_path_factory):
    """Torch lies in it as pip would have put it there, by a link."""
    folder = tmp_path_factory.mktemp("complete")
    made = Environment(folder / "venv", wheel, folder)
    (made.packages / "torch").symlink_to(torch_packages / "torch")
    (made.packages / "others.pth").write_text(f"{torch_packages}\n")
    (folder / "text.txt").write_text("to be or not to be " * 300)
    return made


def train(environment, run_dir, *words, **variables):
    return environment.run("rondo", "train", "--data", environment.home / "text.txt", "--layers", 1, "--steps", 2, "--nproc-per-node", 2,
                           "--run-dir", run_dir, *words, **variables)


def test_size_and_versions(wheel, environment):
    assert wheel.stat().st_size <= LARGEST_BYTES
    said = environment.run("rondo", "--version")
    assert said.returncode == 0 and f"{environment.packages.resolve()}/torch" in said.stdout.replace(
        str(pathlib.Path(sysconfig.get_path("purelib"))), str(environment.packages.resolve())), said
    assert environment.run("python3", "-m", "rondo", "--version").stdout == said.stdout


def test_wheel_trains_with_proxies_and_readonly_home(environment):
    proxies = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")}
    done = train(environment, "run", HOME="/proc", **proxies)
    assert done.returncode == 0, done.stderr
    assert (environment.home / "run" / "metrics.jsonl").exists()


def test_the_wheel_is_a_backend_of_torch_distributed(environment):
    program = environment.home / "all_reduce.py"
    program.write_text(ALL_REDUCE)
    done = environment.run("rondo", "run", "-n", 2, "--", environment.folder / "bin" / "python3", program)
    assert done.returncode == 0 and done.stdout.count("sum [3.0, 3.0, 3.0]") == 2, done.stdout + done.stderr


def test_prefix_holds_completions_and_manual_pages(environment, repository):
    prefix = pathlib.Path(environment.run("rondo", "--prefix").stdout.strip())
    for share in (prefix / "share", environment.folder / "share"):
        for file in ("bash-completion/completions/rondo", "zsh/site-functions/_rondo", "fish/vendor_completions.d/rondo.fish", "man/man1/rondo.1"):
            assert (share / file).is_file(), share / file
    # The line of docs/install.md, in a shell without the package bash-completion.
    page = (repository / "docs" / "install.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith('source "$(rondo --prefix)'))
    script = line + "\nCOMP_WORDS=(rondo compl) COMP_CWORD=1 COMP_LINE='rondo compl' COMP_POINT=11\n_rondo\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
    done = subprocess.run(["bash", "--norc", "-c", script], env={"PATH": f"{environment.folder}/bin:/usr/bin:/bin"}, capture_output=True,
                          text=True, timeout=180)
    assert done.returncode == 0 and done.stdout.split() == ["completion"] and not done.stderr, done


@pytest.mark.long  # external_test.py builds against an installation, whose files the wheel has
def test_a_project_builds_against_the_wheel(environment):
    project = environment.home / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(p LANGUAGES CXX)\nfind_package(rondo REQUIRED)\n"
        "if(NOT TARGET rondo::rondo OR NOT Libtorch_DIR_FOUND)\n  message(FATAL_ERROR \"incomplete\")\nendif()\n"
        "add_executable(p main.cpp)\ntarget_link_libraries(p PRIVATE rondo::core)\n")
    (project / "main.cpp").write_text("#include <rondo/core.h>\n#include <cstdio>\nint main() { std::puts(rondo::kVersion); }\n")
    prefix = environment.run("rondo", "--prefix").stdout.strip()
    assert pathlib.Path(prefix) == environment.packages.resolve() / "rondo"
    must("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-O0")
    must("cmake", "--build", project / "build")
    assert must(project / "build" / "p").strip() == environment.run("rondo", "--version").stdout.split()[1]


def test_an_environment_without_torch_or_with_another_one(bare, torch_packages, tmp_path):
    trained = bare.run("rondo", "train", "--data", "/etc/hostname", PATH="/nowhere")
    assert trained.returncode == 1 and "libtorch was not found" in trained.stderr and "pip install 'torch==" in trained.stderr, trained
    imported = bare.run("python3", "-c", "import rondo_torch")
    assert imported.returncode == 1 and "this Python has no torch: pip install 'torch==" in imported.stderr.splitlines()[-1], imported.stderr
    # Torch that is elsewhere, as in the environment below one with --system-site-packages.
    (bare.packages / "others.pth").write_text(f"{torch_packages}\n")
    found = bare.run("rondo", "--libtorch")
    assert found.stdout.strip() == f"{torch_packages}/torch", found
    # Only what tells its version is there of another one.
    other = tmp_path / "torch"
    (other / "lib").mkdir(parents=True)
    (other / "lib" / "libtorch_cpu.so").touch()
    header = other / "include" / "torch" / "headeronly" / "version.h"
    header.parent.mkdir(parents=True)
    header.write_text("".join(f"#define TORCH_VERSION_{part} {number}\n" for part, number in zip(("MAJOR", "MINOR", "PATCH"), (2, 10, 1))))
    (other / "__init__.py").write_text("__version__ = '2.10.1+cpu'\n")
    (other / "distributed").mkdir()
    (other / "distributed" / "__init__.py").touch()
    for said in (bare.run("rondo", "train", "--data", "/etc/hostname", LIBTORCH=str(other)),
                 bare.run("python3", "-c", "import rondo_torch", PYTHONPATH=str(tmp_path))):
        text = said.stderr.strip().splitlines()[0 if said.stderr.startswith("rondo") else -1]
        assert said.returncode != 0 and "2.10.1" in text and "was built with" in text and "pip install 'torch==" in text, said.stderr


def test_pip_refuses_the_wheel_beside_another_torch(wheel, tmp_path):
    must(sys.executable, "-m", "venv", "--without-pip", tmp_path)
    packages, = tmp_path.glob("lib/python3*/site-packages")
    (packages / "torch-2.10.1.dist-info").mkdir()
    (packages / "torch-2.10.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.10.1\n")
    # Without this machine's settings of pip: other places may have the torch that is wanted.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")} | {"PIP_CONFIG_FILE": os.devnull}
    refused = subprocess.run([sys.executable, "-m", "pip", "--python", tmp_path / "bin" / "python3", "install", "--no-index", wheel],
                             env=environment, capture_output=True, text=True, check=False)
    minor = wheel.name.split("-")[1].partition("+torch")[2]
    assert refused.returncode == 1 and f"No matching distribution found for torch=={minor}.*" in refused.stderr, refused.stderr


def as_for_a_later_glibc(file):
    """Changes a program or library so that this system's glibc is too old for it."""
    file.write_bytes(file.read_bytes().replace(b"\0GLIBC_2.34\0", b"\0GLIBC_9.34\0"))


def test_names_a_system_that_is_too_old(environment, tmp_path):
    for package in ("rondo", "rondo_torch"):
        (tmp_path / package).mkdir()
        for file in [*(environment.packages / package).glob("*.py"), *(environment.packages / package).glob("*.so")]:
            shutil.copy(file, tmp_path / package)
    (tmp_path / "rondo" / "bin").mkdir()
    program = tmp_path / "rondo" / "bin" / "rondo"
    shutil.copy(environment.packages / "rondo" / "bin" / "rondo", program)
    for file in (program, *(tmp_path / "rondo_torch").glob("*.so")):
        as_for_a_later_glibc(file)
    (tmp_path / "rondo" / "needs.py").write_text("GLIBC = (9, 34)\n")
    started = environment.run("python3", "-m", "rondo", "--version", PYTHONPATH=str(tmp_path))
    assert started.returncode == 1 and started.stderr.startswith("rondo: this rondo needs glibc 9.34 or newer"), started
    assert os.confstr("CS_GNU_LIBC_VERSION") in started.stderr and started.stderr.count("\n") == 1, started.stderr
    imported = environment.run("python3", "-c", "import rondo_torch", PYTHONPATH=str(tmp_path))
    assert "ImportError: this rondo_torch needs a newer system" in imported.stderr.splitlines()[-1], imported.stderr


def test_programs_of_two_installations_are_not_mixed(bare):
    mixed = subprocess.run([bare.packages / "rondo" / "bin" / "rondo-plan", "--help"], env=os.environ | {"RONDO_STARTED_BY": "rondo 9.9.9 for libtorch 2.9.0"},
                           capture_output=True, text=True)
    assert mixed.returncode == 1 and "rondo 9.9.9 for libtorch 2.9.0" in mixed.stderr and "two installations" in mixed.stderr, mixed.stderr
    assert bare.run("rondo", "plan", "--help").returncode == 0


def test_a_program_names_a_library_of_another_build(wheel, bare, tmp_path):
    """LD_LIBRARY_PATH comes before the folder of the package, so it may name the library of a build from the sources."""
    version = wheel.name.split("-")[1].partition("+")[0]
    library = bare.packages / "rondo" / "lib" / "rondo" / "librondo_core.so"
    (tmp_path / library.name).write_bytes(library.read_bytes().replace(f"\0{version}\0".encode(), b"\0%s\0" % b"9.9.9".ljust(len(version), b"9")))
    mixed = bare.run("rondo", "plan", "--help", LD_LIBRARY_PATH=str(tmp_path))
    assert mixed.returncode == 1 and f"is of rondo {version}" in mixed.stderr and "library that it loaded is of rondo 9.9.9" in mixed.stderr, mixed
