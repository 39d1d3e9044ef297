"""Only processes that send messages load ZeroMQ's library, and only they fail without it."""
import ctypes.util
import pathlib
import subprocess

import pytest
from parameter_server_test import SERVED, table  # noqa: F401


@pytest.fixture
def without_zeromq(rondo, clean_environment, tmp_path):
    """run(*words) runs `rondo` with an empty file in place of libzmq."""
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True)
    if probe.returncode != 0:
        reason = f"this kernel or user may not make mount namespaces: {probe.stderr.strip()}"
        print(reason)
        pytest.skip(reason)
    name = ctypes.util.find_library("zmq")
    cache = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    files = {pathlib.Path(line.split("=> ")[1]).resolve() for line in cache.split("\n") if line.strip().startswith(f"{name} ")}
    assert files, f"no {name} in the loader's cache"
    script = "".join(f"mount --bind /dev/null {file} && " for file in files) + 'exec "$@"'

    def run(*words):
        return subprocess.run(["unshare", "-m", "bash", "-c", script, "bash", rondo.program, *map(str, words)],
                              env=clean_environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    return run


def test_a_training_without_messages_does_not_need_it(without_zeromq, rondo, table):  # noqa: F811
    flags = [word if word != "parameter_server" else "ddp" for word in SERVED]
    result = without_zeromq("run", "-n", 2, "--", rondo.program, "train", "--data", table, "--steps", 3, *flags)
    assert result.returncode == 0, result.stderr


def test_a_parameter_server_names_the_package(without_zeromq, rondo, table):  # noqa: F811
    result = without_zeromq("run", "--ps", 1, "--workers", 1, "--", rondo.program, "train", "--data", table, "--steps", 3, *SERVED)
    assert result.returncode != 0
    for fact in ("ZeroMQ", "libzmq5", "libzmq.so.5"):
        assert fact in result.stderr, result.stderr
