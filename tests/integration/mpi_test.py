"""Engines and plans over Open MPI, whose ranks mpirun must start: on one host, and between emulated hosts."""
import os
import re
import shutil
import stat
import subprocess

import pytest
from hosts import linked_hosts
from marks import long

ALL_FAULTS = os.environ.get("RONDO_FAULTS") == "all"


@pytest.fixture
def mpirun(rondo_bin, clean_environment, tmp_path):
    """mpirun(ranks, backend, filter) runs the tests of tests/backend/launched_ranks.cpp; returns the output of mpirun
    and the ranks.

    Every rank prints to its own file: mpirun mixes parts of lines that ranks print at the same time.
    """
    if shutil.which("mpirun") is None or not (rondo_bin / "../lib/rondo_mpi.so").exists():
        pytest.skip("Open MPI is not installed (make setup-peers), or was not when rondo was built")

    def run(ranks, backend, tests, *flags, prefix=(), program_prefix=(), timeout=120, **variables):
        command = [*prefix, "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks, *flags, *INTO_FILES, *program_prefix,
                   rondo_bin / "launched_ranks", "--gtest_brief=1", "--gtest_color=no", f"--gtest_filter={tests}"]
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, cwd=tmp_path,
                                env=clean_environment | {"RONDO_TEST_BACKEND": backend, "OMP_NUM_THREADS": "1"} | variables)
        result.stdout += "".join(file.read_text() for file in sorted(tmp_path.glob("printed.*")))
        return result

    return run


def passed(result, ranks, tests):
    """Checks that every rank has run this number of tests without a failure."""
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(f"[  PASSED  ] {tests} test") == ranks, result.stdout + result.stderr


INTO_FILES = ("sh", "-c", 'exec "$@" >printed.$OMPI_COMM_WORLD_RANK', "rank")
IN_TURNS = ("bash", "-c", 'RONDO_HOST=host$((OMPI_COMM_WORLD_RANK % 2)) exec "$@"', "rank")


@pytest.mark.parametrize("ranks", [long(2), 3, long(4)])
def test_every_schedule_and_reproducible_sums(mpirun, ranks):
    result = mpirun(ranks, "mpi", "*Run*:*Add*", RONDO_DETERMINISTIC="1")
    passed(result, ranks, 3)
    assert len(re.findall(r"schedules are right", result.stdout)) == ranks


def test_checks_arguments_and_shared_buffers(mpirun):
    passed(mpirun(2, "mpi", "*Gather*:*Refuse*:*Tell*"), 2, 6)


def test_between_hosts_declared_by_host_id(mpirun):
    passed(mpirun(4, "hierarchical(native, mpi)", "*Run*:*Add*", program_prefix=IN_TURNS, RONDO_DETERMINISTIC="1"), 4, 3)


def test_a_stopped_rank_is_named(mpirun):
    result = mpirun(4, "mpi", "*Stopped*", timeout=3600)
    named = dict(re.findall(r"rank (\d): (\d+) faults are named", result.stdout))
    assert sorted(named) == ["0", "1", "2", "3"], result.stdout + result.stderr
    assert len(set(named.values())) == 1 and int(named["0"]) >= 2
    print(f"{named['0']} faults are named over Open MPI")


def test_killed_rank_is_named_and_ends_job(mpirun, run, rondo_bin, clean_environment):
    """mpirun ends the job and names the rank. Kills rank 2 in the second exchange of the first algorithm, or in every
    exchange of all."""
    counted = run(rondo_bin / "launched_ranks", "--gtest_filter=*Killed*", env=clean_environment | {"RONDO_TEST_BACKEND": "native"})
    faults = int(re.search(r"(\d+) faults to kill by", counted.stdout)[1])
    assert faults > 100
    for fault in range(faults) if ALL_FAULTS else [1]:
        result = mpirun(4, "mpi", "*Killed*", RONDO_TEST_FAULT=str(fault))
        assert result.returncode != 0
        assert re.search(r"process rank 2 with PID \d+ .* exited on signal 9", result.stderr), result.stderr


@pytest.fixture
def linked(tmp_path):
    """Yields two emulated hosts, and flags with which mpirun reaches the second from the first."""
    with linked_hosts() as hosts:
        agent = tmp_path / "agent"
        agent.write_text("#!/bin/sh\n# As ssh: a host, then a command. Hosts differ by name too.\nhost=$1\nshift\n" + "".join(
            f'[ "$host" = {host.address} ] && exec ip netns exec {host.name} unshare --uts sh -c '
            f'"hostname {host.name}; $*"\n' for host in hosts))
        agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
        first = hosts[0].command("unshare", "--uts", "sh", "-c", f'hostname {hosts[0].name}; exec "$@"', "mpirun")
        flags = ["--host", ",".join(f"{host.address}:2" for host in hosts), "--map-by", "slot",
                 "--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include", "10.77.0.0/24",
                 "--mca", "btl_tcp_if_include", "10.77.0.0/24", "-x", f"MASTER_ADDR={hosts[0].address}",
                 "-x", "MASTER_PORT=29631", "-x", "RONDO_TEST_BACKEND", "-x", "RONDO_DETERMINISTIC", "-x", "OMP_NUM_THREADS"]
        yield hosts, first, flags


@pytest.mark.parametrize("backend", [long("mpi"), "hierarchical(native, mpi)"])
def test_between_emulated_hosts(mpirun, linked, backend):
    hosts, first, flags = linked
    result = mpirun(4, backend, "*Run*:*Add*", *flags, prefix=first, RONDO_DETERMINISTIC="1")
    passed(result, 4, 3)
    assert sorted(re.findall(r"rank (\d) of 4, 2 on this host", result.stdout)) == ["0", "1", "2", "3"]
