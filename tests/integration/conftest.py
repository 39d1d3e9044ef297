"""Fixtures of all integration tests: the repository, the built programs, and ways to run them."""
import contextlib
import fcntl
import os
import pathlib
import signal
import subprocess

import forked_python
import pytest
from building import must
from launching import TORCHRUN_VARIABLES

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def handle_ignored_signals():
    """Makes programs that tests start receive every signal, even if this process was started with some ignored (nohup,
    a shell's background job). exec() passes on an ignored signal, but resets a signal with a handler to its default
    action."""
    for number in signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


handle_ignored_signals()
# OpenMP threads sleep while they wait. Tests share the processors, where spinning takes many times the work's own time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


# Files whose tests one process runs one after the other: what they share takes long to make, or is one folder of build/.
TOGETHER = [("mutate_test.py",), ("package_test.py",), ("report_test.py", "report_input_test.py"), ("completion_test.py",),
            ("external_test.py", "install_test.py")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Distributes single tests over the processes, and those of TOGETHER as one, first. The mark xdist_group of
    pytest-xdist 3.8 has no effect under pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0].rsplit("/", 1)[-1]
            return next((files[0] for files in TOGETHER if file in files), nodeid)

    return Scheduler(config, log)


@pytest.fixture(scope="session")
def repository():
    return REPOSITORY


@pytest.fixture(scope="session")
def rondo_bin():
    """Returns the folder of the built programs: RONDO_BIN, else the release build's."""
    return pathlib.Path(os.environ.get("RONDO_BIN", REPOSITORY / "build" / "release" / "bin")).resolve()


def shared_folder(tmp_path_factory):
    """Returns a folder of all test processes of a run."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextlib.contextmanager
def only_one(path):
    """Lets one test process at a time execute its body."""
    with open(path, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def installed(rondo_bin, tmp_path_factory):
    """Installs the build under test once for all tests, in a folder that can be a user's home."""
    prefix = tmp_path_factory.mktemp("home") / "rondo"
    must("cmake", "--install", rondo_bin.parent, "--prefix", prefix)
    return prefix


@pytest.fixture
def run(tmp_path):
    """Runs a command in an empty folder and captures its output; kills it after `timeout` seconds."""

    def run_command(*command, timeout=120, **options):
        options.setdefault("cwd", tmp_path)
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout,
                              **options)

    return run_command


@pytest.fixture
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="session")
def matmul_measurements(rondo_bin, tmp_path_factory):
    """Returns the file that selects the matrix kernels: RONDO_MATMUL_MEASUREMENTS, else one of this run. They are measured
    once, before the first test and for all test processes, so that runs which a test compares have the same kernels."""
    base = shared_folder(tmp_path_factory)
    path = pathlib.Path(os.environ.get("RONDO_MATMUL_MEASUREMENTS", base / "matmul.json"))
    with only_one(base / "matmul.lock"):
        if not path.exists():
            subprocess.run([rondo_bin / "rondo", "doctor"], env=os.environ | {"RONDO_MATMUL_MEASUREMENTS": str(path)},
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return path


@pytest.fixture
def clean_environment(scratch, matmul_measurements):
    """Returns this process's environment without a launcher's variables, with a separate TMPDIR. Matrix kernels are
    measured once per test run, and not in the user's cache."""
    dropped = ("PET_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "RONDO_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    for variable in TORCHRUN_VARIABLES + ["OMP_NUM_THREADS"]:
        environment.pop(variable, None)
    environment["TMPDIR"] = str(scratch)
    environment["RONDO_MATMUL_MEASUREMENTS"] = str(matmul_measurements)
    return environment


@pytest.fixture
def plugin_environment(rondo_bin, clean_environment):
    """Returns an environment with this build's rondo_torch on Python's path."""
    package = rondo_bin.resolve().parent / "python"
    assert list(package.glob("rondo_torch/native*.so")), f"rondo_torch is not built in {package}"
    return clean_environment | {"PYTHONPATH": str(package), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture(scope="session")
def interpreter():
    made = forked_python.Interpreter()
    yield made
    made.close()


@pytest.fixture
def python_ranks(interpreter, plugin_environment, tmp_path):
    """python_ranks(PROGRAM, SIZE, env={...}) runs `PROGRAM RENDEZVOUS RANK SIZE` for each rank and returns what has ended
    (forked_python.Ended); all are killed after `timeout` seconds. With hosts=2 the last rank has its own host."""

    def run_ranks(program, size, timeout=180, env=None, hosts=1, finalize=False):
        own_host = [{"RONDO_HOST": f"h{rank // (size - 1)}"} if hosts > 1 else {} for rank in range(size)]
        commands = [([program, f"file://{tmp_path}/store", rank, size], plugin_environment | (env or {}) | own_host[rank])
                    for rank in range(size)]
        return interpreter.run(commands, tmp_path, timeout, finalize)

    return run_ranks


@pytest.fixture
def rondo(rondo_bin, clean_environment, tmp_path):
    """rondo(*words, env={...}) runs to the end; rondo.start(...) returns the running launcher."""

    class Rondo:
        program = str(rondo_bin / "rondo")

        def __call__(self, *words, env=None, timeout=120, **options):
            return subprocess.run([self.program, *map(str, words)], env=clean_environment | (env or {}), text=True,
                                  capture_output=True, timeout=timeout, cwd=tmp_path, **options)

        def start(self, *words, env=None, **options):
            options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
            process = subprocess.Popen([self.program, *map(str, words)], env=clean_environment | (env or {}),
                                       cwd=tmp_path, **options)
            started.append(process)
            return process

    started = []
    yield Rondo()
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
