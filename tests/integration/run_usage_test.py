"""rondo and rondo run: help, wrong usage, and subcommands."""
import os
import pathlib
import re
import socket
import subprocess

import pytest
from launching import bash, by_rank, reserved_ports


@pytest.mark.parametrize("words, parts", [
    (["--nproc", "2", "true"], ["unknown flag --nproc"]),
    (["--max-restart", "2", "true"], ["unknown flag --max-restart", "did you mean --max-restarts"]),
    (["-n", "0", "true"], ["--nproc-per-node", "0", "at least 1"]),
    (["-n", "-2", "true"], ["--nproc-per-node", "-2"]),
    (["-n", "two", "true"], ["--nproc-per-node", "two", "auto, cpu or gpu"]),
    (["-n"], ["nproc"]),
    (["-n", "gpu", "true"], ["gpu", "no GPU"]),
    (["-n", "100000", "true"], ["100000", "ulimit -n"]),
    ([], ["PROGRAM"]),
    (["--"], ["PROGRAM"]),
    (["no-such-program"], ["no-such-program", "PATH"]),
    (["./missing"], ["./missing", "No such file"]),
    (["missing.py"], ["missing.py", "no such file"]),
    (["/etc/passwd"], ["/etc/passwd", "Permission denied", "chmod"]),
    (["/etc"], ["/etc", "not a file"]),
    (["--nnodes", "2", "true"], ["--nnodes 2", "--master-addr"]),
    (["--nnodes", "1:4", "true"], ["--nnodes 1:4"]),
    (["--node-rank", "1", "true"], ["--node-rank 1"]),
    (["--rdzv-backend", "etcd", "true"], ["--rdzv-backend etcd", "static, c10d"]),
    (["--start-method", "magic", "true"], ["--start-method magic", "forkserver"]),
    (["--monitor-interval", "soon", "true"], ["--monitor-interval", "soon"]),
    (["--max-restarts", "-1", "true"], ["--max-restarts", "-1"]),
    (["--max-restarts", "x", "true"], ["--max-restarts", "x"]),
    (["-r", "4", "true"], ["--redirects", "4"]),
    (["-t", "0:1,1", "true"], ["--tee", "0:1,1"]),
    (["-t", "0:9", "true"], ["--tee", "9"]),
    (["-n", "2", "--local-ranks-filter", "2", "true"], ["--local-ranks-filter", "2", "0-1"]),
    (["--bind-to", "socket", "true"], ["--bind-to socket", "core, numa, none"]),
    (["--omp-threads", "0", "true"], ["--omp-threads", "0"]),
    (["--grace", "soon", "true"], ["--grace", "soon"]),
    (["--grace", "-1s", "true"], ["--grace", "-1s"]),
    (["--wrap", "gdb", "true"], ["--wrap gdb", "RANK:COMMAND"]),
    (["--wrap", "5:env", "true"], ["--wrap", "5"]),
    (["--wrap", "0:'env", "true"], ["--wrap", "quote"]),
    (["--wrap", "0:no-such-debugger", "true"], ["no-such-debugger"]),
    (["--master-port", "70000", "true"], ["--master-port 70000", "1-65535"]),
    (["--master-port", "http", "true"], ["--master-port", "http"]),
    (["--signals-to-handle", "SIGKILL", "true"], ["SIGKILL"]),
    (["--signals-to-handle", "SIGFOO", "true"], ["SIGFOO"]),
    (["--log-dir", "/proc/nowhere", "-r", "3", "true"], ["--log-dir /proc/nowhere"]),
    (["--rdzv-id", "a/b", "true"], ["--rdzv-id a/b"]),
    (["-m", "--no-python", "x"], ["--module", "--no-python"]),
])
def test_usage_error_names_flag_and_allowed_values(rondo, words, parts):
    result = rondo("run", *words)
    assert result.returncode == 2, result.stderr
    for part in parts:
        assert part in result.stderr
    assert result.stdout == ""


def test_bad_environment_variable_names_its_flag(rondo):
    result = rondo("run", "true", env={"PET_NPROC_PER_NODE": "many"})
    assert result.returncode == 2 and "many" in result.stderr


@pytest.mark.parametrize("family, address", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_port_in_use_names_address_and_owner(rondo, family, address):
    try:
        taken = socket.socket(family)
        taken.bind((address, 0))
    except OSError as error:
        pytest.skip(f"this machine has no {address}: {error}")
    with taken:
        taken.listen()
        port = taken.getsockname()[1]
        for words in (["--master-port", port], ["--rdzv-endpoint", f"127.0.0.1:{port}"]):
            result = rondo("run", *words, "true")
            assert result.returncode == 2
            assert f"127.0.0.1:{port}" in result.stderr and "in use" in result.stderr
            assert f"pid {os.getpid()} " in result.stderr


def test_a_port_that_was_asked_for_is_used(rondo):
    with reserved_ports(1) as (port,):
        assert by_rank(rondo("run", "--master-port", port, *bash("echo $MASTER_PORT")).stdout) == {0: [str(port)]}


def test_help_and_version(rondo):
    for words in (["--help"], ["help"], ["run", "--help"], ["help", "run"]):
        result = rondo(*words)
        assert result.returncode == 0 and "Examples:" in result.stdout, words
    assert re.match(r"rondo \d+\.\d+\.\d+\ncommit ", rondo("--version").stdout)
    for flag in ("--nproc-per-node", "--max-restarts", "--log-dir", "--redirects", "--tee", "--wrap", "--bind-to",
                 "--local-ranks-filter", "--master-port", "--standalone"):
        assert flag in rondo("run", "--help").stdout


def test_unknown_and_missing_commands(rondo, tmp_path):
    assert rondo().returncode == 2
    result = rondo("trian")
    assert result.returncode == 2 and "trian" in result.stderr and "train" in result.stderr
    assert rondo("--bogus").returncode == 2
    assert "'trian' is not a rondo command; did you mean train?" in rondo("trian").stderr
    assert "'frobnicate' is not a rondo command; there are run, " in rondo("frobnicate").stderr
    # A copy of the program alone has no siblings.
    copy = tmp_path / "rondo"
    copy.write_bytes(pathlib.Path(rondo.program).read_bytes())
    copy.chmod(0o755)
    result = subprocess.run([copy, "train"], capture_output=True, text=True)
    assert result.returncode == 2 and "rondo-train" in result.stderr and "--target" in result.stderr


def test_subcommands_are_programs_beside_it(rondo, tmp_path):
    copy = tmp_path / "rondo"
    copy.write_bytes(pathlib.Path(rondo.program).read_bytes())
    copy.chmod(0o755)
    (tmp_path / "rondo-train").write_text("#!/bin/sh\necho train \"$@\"\nexit 9\n")
    (tmp_path / "rondo-train").chmod(0o755)
    result = subprocess.run([copy, "train", "--x", "a b"], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (9, "train --x a b\n")
