"""Setting up a machine: missing parts are named with the command that installs them, and existing parts are not
changed.

The scripts run from a copy of scripts/, with their own PATH in which apt-get, dpkg-query and python3 are fakes that log
their arguments.
"""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tooling

TOOLS = ["basename", "bash", "env", "cat", "cut", "dirname", "grep", "head", "id", "mkdir", "sed", "sha256sum", "tr"]


class Machine:
    """A machine with a test's own PATH."""

    def __init__(self, repository, folder):
        self.root = folder / "rondo"
        self.bin = folder / "bin"
        self.log = folder / "log"
        shutil.copytree(repository / "scripts", self.root / "scripts")
        self.bin.mkdir()
        self.log.write_text("")
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))

    def program(self, name, body):
        path = self.bin / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>"{self.log}"\n{body}\n')
        path.chmod(0o755)

    def packages_installed(self, *names):
        self.program("dpkg-query", "\n".join(f"echo '{name} ii'" for name in names))

    def required_packages(self):
        lines = (self.root / "scripts" / "packages.txt").read_text().splitlines()
        return [line.split()[1].split("|")[0] for line in lines if line.startswith("required")]

    def optional_packages(self):
        lines = (self.root / "scripts" / "packages.txt").read_text().splitlines()
        return [line.split()[1].split("|")[0] for line in lines if line.startswith(("optional", "tools"))]

    def all_packages_installed(self):
        self.packages_installed(*self.required_packages(), *self.optional_packages())
        self.program("apt-get", "exit 100")

    def python_that_makes_a_venv_whose_pip(self, pip_body):
        """Creates a python3 whose `-m venv DIR` makes a .venv with a pip that logs and then runs `pip_body`."""
        self.program("python3", f"""
[ "$2" = venv ] || exit 0
mkdir -p "$3/bin"
cat >"$3/bin/python" <<'END'
#!/bin/bash
echo "pip $*" >>"{self.log}"
{pip_body}
END
/bin/chmod +x "$3/bin/python" """)

    def setup(self, *arguments, **variables):
        environment = {"PATH": str(self.bin), "HOME": str(self.root), **variables}
        return subprocess.run([str(self.root / "scripts" / "setup.sh"), *arguments], capture_output=True, text=True,
                              env=environment, timeout=120)

    def logged(self, word):
        return [line for line in self.log.read_text().splitlines() if line.startswith(word)]


@pytest.fixture
def machine(repository, tmp_path):
    return Machine(repository, tmp_path)


def test_missing_packages_are_named_with_the_command(machine):
    here = ["git", "python3", "python3-venv", "cmake", "build-essential"]
    machine.packages_installed(*here)
    machine.program("apt-get", "exit 100")
    machine.program("apt-cache", "echo '  Candidate: 1.0'")
    machine.program("sudo", 'exec "$@"')
    result = machine.setup()
    assert result.returncode == 1
    missing = " ".join(name for name in machine.required_packages() if name not in here)
    assert "ninja-build libspdlog-dev" in missing
    assert f"missing and could not be installed: {missing}\n" in result.stderr
    assert f"sudo apt-get update && sudo apt-get install {missing}\n" in result.stderr


def test_without_root_or_sudo_the_command_is_named(machine):
    machine.packages_installed("git")
    machine.program("apt-get", "exit 100")
    machine.program("apt-cache", "echo '  Candidate: 1.0'")
    (machine.bin / "id").unlink()
    machine.program("id", "echo 1000")
    result = machine.setup()
    assert result.returncode == 1
    assert "sudo apt-get install build-essential cmake" in result.stderr
    assert machine.logged("apt-get") == []


def test_only_what_is_missing_is_installed(machine):
    installed = [name for name in machine.required_packages() if name != "libcli11-dev"]
    machine.packages_installed(*installed, *[name for name in machine.optional_packages() if name != "ccache"])
    machine.program("apt-get", "exit 0")
    machine.program("apt-cache", "echo '  Candidate: 1.0'")
    machine.program("sudo", 'exec "$@"')
    machine.python_that_makes_a_venv_whose_pip("exit 0")
    assert machine.setup().returncode == 0
    installs = [line.split("--no-install-recommends ")[1] for line in machine.logged("apt-get") if " install " in line]
    assert installs == ["libcli11-dev", "ccache"]


def test_of_alternatives_the_first_on_offer_is_installed(machine):
    everything = machine.required_packages() + machine.optional_packages()
    machine.packages_installed(*[name for name in everything if name != "mold"])
    machine.program("apt-get", "exit 0")
    machine.program("sudo", 'exec "$@"')
    machine.python_that_makes_a_venv_whose_pip("exit 0")
    # A long answer, as from apt-cache: a reader of only its beginning must not treat that as a failure.
    machine.program("apt-cache", """
echo "  Candidate: 1.0"
for ((line = 0; line < 50000; ++line)); do echo "    500 a mirror"; done""")
    assert machine.setup().returncode == 0
    assert machine.logged("apt-get")[-1].endswith(" mold")


def test_unavailable_optional_package_is_reported_once(machine):
    machine.packages_installed(*machine.required_packages())
    machine.program("apt-get", "exit 0")
    machine.program("apt-cache", "echo '  Candidate: (none)'")
    machine.program("sudo", 'exec "$@"')
    machine.python_that_makes_a_venv_whose_pip("exit 0")
    first = machine.setup()
    assert first.returncode == 0
    assert "not available here: ccache mold|lld" in first.stdout
    machine.log.write_text("")
    second = machine.setup()
    assert second.returncode == 0
    assert second.stdout == ""
    assert machine.logged("apt-get") == [] and machine.logged("pip") == []


def test_system_without_apt_gets_package_list(machine):
    machine.python_that_makes_a_venv_whose_pip("exit 0")
    result = machine.setup()
    assert result.returncode == 0
    assert "has no apt-get" in result.stdout and "libspdlog-dev" in result.stdout


def test_without_python_the_package_is_named(machine):
    machine.all_packages_installed()
    result = machine.setup()
    assert result.returncode == 1
    assert "python3 (3.10 or newer) is missing" in result.stderr
    assert "apt-get install python3 python3-venv" in result.stderr


def test_an_old_python_is_refused(machine):
    machine.all_packages_installed()
    machine.program("python3", '[ "$1" = -V ] && echo "Python 3.8.10" && exit 0; exit 1')
    result = machine.setup()
    assert result.returncode == 1
    assert "python3 is 3.8.10; rondo's tools need 3.10 or newer" in result.stderr


def test_names_unavailable_python_packages(machine):
    machine.all_packages_installed()
    real_python = pathlib.Path(sys.base_prefix) / "bin" / "python3"  # not a shim with dependencies of its own
    machine.program("python3", f'exec {real_python} "$@"')
    result = machine.setup(PIP_NO_INDEX="1", PIP_CONFIG_FILE="/dev/null", PIP_FIND_LINKS="")
    assert result.returncode == 1
    assert "torch==2.13.0" in result.stderr and "highsbox==" in result.stderr
    assert "-m pip install -r" in result.stderr
    assert "LIBTORCH=/path/to/libtorch make setup" in result.stderr
    assert not (machine.root / ".venv" / "rondo-setup.stamp").exists()


def test_with_an_existing_libtorch_torch_is_not_installed(machine):
    machine.all_packages_installed()
    machine.python_that_makes_a_venv_whose_pip("exit 0")
    assert machine.setup(LIBTORCH="/opt/libtorch").returncode == 0
    (request,) = machine.logged("pip")
    assert "requirements.txt" in request and "requirements-torch.txt" not in request
    # The next run without LIBTORCH adds torch; after that LIBTORCH has no effect.
    assert machine.setup().returncode == 0
    assert "requirements-torch.txt" in machine.logged("pip")[1]
    assert machine.setup(LIBTORCH="/opt/libtorch").returncode == 0
    assert len(machine.logged("pip")) == 2


def test_a_changed_list_is_installed_again(machine):
    machine.all_packages_installed()
    machine.python_that_makes_a_venv_whose_pip("exit 0")
    assert machine.setup().returncode == 0
    assert machine.setup().returncode == 0
    assert len(machine.logged("pip")) == 1
    with open(machine.root / "scripts" / "requirements.txt", "a") as requirements:
        requirements.write("another-package\n")
    assert machine.setup().returncode == 0
    assert len(machine.logged("pip")) == 2


def test_programs_need_neither_tools_nor_what_tests_use(machine):
    machine.packages_installed(*machine.required_packages())
    machine.program("apt-get", "exit 0")
    machine.program("apt-cache", "echo '  Candidate: 1.0'")
    machine.program("sudo", 'exec "$@"')
    machine.python_that_makes_a_venv_whose_pip("exit 0")
    assert machine.setup("--programs").returncode == 0
    assert not any(tool in line for line in machine.logged("apt-get") for tool in ("clang", "chromium"))
    (request,) = machine.logged("pip")
    assert "requirements-programs.txt" in request and "requirements.txt" not in request
    # Installed packages are not requested again; a complete set-up adds the rest.
    assert machine.setup("--programs").returncode == 0
    assert len(machine.logged("pip")) == 1
    assert machine.setup().returncode == 0
    assert "requirements.txt" in machine.logged("pip")[1]
    assert machine.setup("--programs").returncode == machine.setup().returncode == 0
    assert len(machine.logged("pip")) == 2


def test_failed_optional_package_blocks_no_other(machine):
    machine.packages_installed(*machine.required_packages())
    machine.program("apt-get", 'case " $* " in *" ccache "*) exit 100 ;; esac')
    machine.program("apt-cache", "echo '  Candidate: 1.0'")
    machine.program("sudo", 'exec "$@"')
    machine.python_that_makes_a_venv_whose_pip("exit 0")
    result = machine.setup("--programs")
    assert result.returncode == 0
    assert "not available here: ccache;" in result.stdout
    assert any(line.endswith("recommends mold") for line in machine.logged("apt-get"))


def test_peers_are_installed_without_their_services(machine):
    """Tests start sshd and Slurm themselves; installed packages, and units that the user masked, are not changed."""
    machine.packages_installed(*machine.required_packages(), *machine.optional_packages(), "munge")
    machine.program("apt-get", "exit 0")
    machine.program("apt-cache", "echo '  Candidate: 1.0'")
    machine.program("sudo", 'exec "$@"')
    machine.program("systemctl", '[ "$1 $2" != "is-enabled ssh.socket" ] || echo masked')
    machine.python_that_makes_a_venv_whose_pip("exit 0")
    result = machine.setup("--peers")
    assert result.returncode == 0 and "neither started nor enabled" in result.stdout, result.stderr
    log = [line for line in machine.log.read_text().splitlines() if line.startswith(("systemctl --quiet", "apt-get"))]
    (install,) = [at for at, line in enumerate(log) if " openssh-server" in line and line.startswith("apt-get")]
    units = ["ssh.service", "slurmctld.service", "slurmd.service"]
    assert sorted(log[install - 3:install]) == sorted(f"systemctl --quiet mask {unit}" for unit in units)
    (unmask,) = [line for line in log[install + 1:] if "unmask" in line]
    assert sorted(unmask.split()[3:]) == sorted(units)
    assert sorted(log[-3:]) == sorted(f"systemctl --quiet disable {unit}" for unit in units)
    assert not any("munge.service" in line or "ssh.socket" in line for line in log)


def test_an_unknown_argument_is_refused(machine):
    result = machine.setup("--everything")
    assert result.returncode == 1
    assert "--everything" in result.stderr and "--peers" in result.stderr


def test_setting_up_again_takes_no_time(repository):
    # Runs make as a user does, even if these tests were started by make.
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")}
    options = dict(cwd=repository, env=environment, check=True, capture_output=True, text=True)
    subprocess.run(["make", "setup"], timeout=600, **options)
    before = os.times()
    result = subprocess.run(["make", "setup"], timeout=120, **options)
    after = os.times()
    assert result.stdout == ""
    # Processor time, which a busy machine does not lengthen: a package manager alone takes more.
    used = after.children_user + after.children_system - before.children_user - before.children_system
    assert used < 1, f"{used:.2f} s"


@pytest.mark.parametrize("layout", ["missing", "empty", "old"])
def test_a_wrong_libtorch_is_refused_by_name(repository, tmp_path, layout):
    libtorch = tmp_path / "libtorch"
    if layout != "missing":
        libtorch.mkdir()
    if layout == "old":
        header = libtorch / "include/torch/csrc/api/include/torch/torch.h"
        header.parent.mkdir(parents=True)
        header.touch()
        (header.parent / "version.h").write_text(
            "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 10\n#define TORCH_VERSION_PATCH 1\n")
        (libtorch / "lib").mkdir()
        (libtorch / "lib" / "libtorch_cpu.so").touch()
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(p LANGUAGES NONE)\n"
        f'list(APPEND CMAKE_MODULE_PATH "{repository}/cmake")\nfind_package(Libtorch REQUIRED)\n')
    result = subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DLIBTORCH={libtorch}"],
                            capture_output=True, text=True, timeout=120)
    assert result.returncode != 0
    message = " ".join(result.stderr.split())
    assert str(libtorch) in message
    assert ("is 2.10.1" if layout == "old" else "holds no libtorch") in message


COUNTS = [
    # Files of the two runners, the expected line, the exit code.
    ({"ctest.xml": '<testsuite><testcase name="a" classname="a" status="run"/>'
                   '<testcase name="b" classname="b" status="fail"><failure message="boom"/></testcase></testsuite>',
      "pytest.xml": '<testsuites><testsuite><testcase name="c" classname="m"/><testcase name="d" classname="m">'
                    '<skipped message="no GPU here"/></testcase></testsuite></testsuites>'},
     "2 passed, 1 failed, 1 skipped", 1),
    ({"ctest.xml": '<testsuite><testcase name="a" classname="a" status="run"/></testsuite>',
      "pytest.xml": '<testsuites><testsuite/></testsuites>'}, "1 passed, 0 failed, 0 skipped", 0),
    ({"ctest.xml": '<testsuite><testcase name="a" classname="a" status="run"/></testsuite>'},
     "1 passed, 1 failed, 0 skipped", 1),
    ({"ctest.xml": "<testsuite/>", "pytest.xml": "<testsuites/>"}, "0 passed, 0 failed, 0 skipped", 1),
    # Suites with their own files: one whose tests count, one that crashed before writing, one that crashed afterwards.
    ({"ctest.xml": '<testsuite><testcase name="l.A/b" status="run"/><testcase name="l.C" status="fail"/>'
                   '<testcase name="l.D" status="fail"/></testsuite>', "pytest.xml": "<testsuites/>",
      "suites/l.A_b.xml": '<testsuites><testsuite><testcase classname="A/b" name="x" status="run"/>'
                          '<testcase classname="A/b" name="y" status="run"><failure message="no"/></testcase>'
                          '<testcase classname="A/b" name="z" status="run"><skipped message="why"/></testcase>'
                          '</testsuite></testsuites>',
      "suites/l.D.xml": '<testsuites><testsuite><testcase classname="D" name="x" status="run"/></testsuite></testsuites>'},
     "2 passed, 3 failed, 1 skipped", 1),
]


CTEST_FILE = """enable_testing()
project(p LANGUAGES NONE)
cmake_minimum_required(VERSION 3.22)
foreach(name IN ITEMS good bad/once bad/always dies)
  add_test(NAME ${name} COMMAND sh -c "${CMAKE_SOURCE_DIR}/one.sh ${name}")
endforeach()
"""
# A test that fails only the first time, one that always fails, and one that crashes the first time.
ONE_TEST = """#!/bin/sh
seen=$(dirname "$0")/seen-$(echo "$1" | tr / _)
case $1 in
  good) exit 0 ;;
  bad/once) [ -e "$seen" ] && exit 0 ;;
  dies) [ -e "$seen" ] && exit 0; touch "$seen"; kill -SEGV $$ ;;
esac
touch "$seen"
echo "[  FAILED  ] $1"
exit 1
"""


@pytest.mark.parametrize("chosen, line, code", [
    ("good|once", "2 passed, 0 failed, 0 skipped", 0),
    ("good|bad", "2 passed, 1 failed, 0 skipped", 1),
    ("good|once|dies", "1 passed, 2 failed, 0 skipped", 1),
], ids=["fails once", "fails always", "crashes once"])
def test_what_failed_gets_a_second_look(repository, tmp_path, run, chosen, line, code):
    (tmp_path / "CMakeLists.txt").write_text(CTEST_FILE)
    (tmp_path / "one.sh").write_text(ONE_TEST)
    (tmp_path / "one.sh").chmod(0o755)
    build, results = tmp_path / "b", tmp_path / "results"
    results.mkdir()
    run("cmake", "-S", tmp_path, "-B", build)
    ctest = ["ctest", "--test-dir", str(build)]
    run(*ctest, "-R", chosen, "--output-junit", results / "ctest.xml")
    look = run(repository / "scripts/second_look.py", "ctest", results, "--", *ctest)
    result = run(repository / "scripts/count_tests.py", results / "ctest.xml")
    assert result.stdout.splitlines()[-1] == line, look.stdout
    assert look.returncode == result.returncode == code
    assert ("unsteady: bad/once" in result.stdout) == (chosen != "good|once|dies")


def test_a_second_look_at_tests_of_python(repository, tmp_path, run):
    (tmp_path / "pytest.ini").write_text("[pytest]\npython_files = *_test.py\n")
    (tmp_path / "some_test.py").write_text(
        "import pathlib, pytest\n\n\n@pytest.mark.parametrize('name', ['a b', 'c/d'])\ndef test_once(name):\n"
        "    seen = pathlib.Path(__file__).with_name('seen-' + name.replace('/', '_'))\n"
        "    assert seen.exists() or seen.write_text('') is None and False\n")
    pytest_command = [sys.executable, "-m", "pytest"]
    options = {"cwd": tmp_path}
    run(*pytest_command, "--junitxml", tmp_path / "pytest.xml", **options)
    look = run(repository / "scripts/second_look.py", "pytest", tmp_path, "--", *pytest_command, **options)
    assert look.returncode == 0, look.stdout
    result = run(repository / "scripts/count_tests.py", tmp_path / "pytest.xml")
    assert result.stdout.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"
    assert result.stdout.count("unsteady: some_test.test_once") == 2


@pytest.mark.parametrize("files, line, code", COUNTS)
def test_counts_are_summed_over_both_runners(repository, tmp_path, run, files, line, code):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    result = run(repository / "scripts/count_tests.py", tmp_path / "ctest.xml", tmp_path / "pytest.xml")
    assert result.stdout.splitlines()[-1] == line
    assert result.returncode == code
