"""rondo_torch across hosts: torchrun (static and c10d), `rondo run` and ranks started by hand, on emulated hosts."""
import pathlib
import sys

import pytest
from hosts import Job, launchers, linked_hosts

PROGRAM = pathlib.Path(__file__).resolve().parent / "python_plugin" / "hosts.py"
CHECKS = 13


@pytest.fixture(scope="module")
def hosts():
    with linked_hosts() as both:
        yield both


def must_pass(results, checks):
    for code, out, err in results:
        assert code == 0, out + err[-6000:]
        assert out.count(f"hosts: ok {checks}") == 2, out + err


def torchrun(hosts, *words, flags):
    """torchrun on both hosts, two ranks each; `flags` gives the rendezvous of a host by its number."""
    return [(host.command(sys.executable, "-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 2, *flags(number), *words),
             {"GLOO_SOCKET_IFNAME": host.interface}) for number, host in enumerate(hosts)]


@pytest.mark.parametrize("checks", [["engines", "errors"], pytest.param([], marks=pytest.mark.long)], ids=["some", "all"])
def test_checks_under_torchrun(hosts, plugin_environment, tmp_path, checks):
    """All checks run in make test on hosts that RONDO_HOST names."""
    def static(number):
        return ["--node-rank", number, "--master-addr", hosts[0].address, "--master-port", 29641]

    results = Job(torchrun(hosts, PROGRAM, tmp_path, *checks, flags=static), plugin_environment, tmp_path).finish(300)
    must_pass(results, len(checks) or CHECKS)
    for _, out, err in results:
        assert "frame #" not in err, err


@pytest.mark.long  # the job is that of test_rondo_run_on_every_host
def test_the_c10d_rendezvous_of_torchrun(hosts, plugin_environment, tmp_path):
    def c10d(number):
        return ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts[0].address}:29642", "--rdzv-conf",
                f"is_host={1 - number}", "--local-addr", hosts[number].address]

    must_pass(Job(torchrun(hosts, PROGRAM, tmp_path, "engines", flags=c10d), plugin_environment, tmp_path).finish(), 1)


def test_rondo_run_on_every_host(hosts, rondo_bin, plugin_environment, tmp_path):
    words = [sys.executable, PROGRAM, tmp_path, "engines", "barriers"]
    must_pass(Job(launchers(hosts, rondo_bin, *words, port=29643), plugin_environment, tmp_path).finish(), 2)


def test_ranks_started_by_hand(interpreter, plugin_environment, tmp_path):
    """Hosts that RONDO_HOST names, on a machine where network namespaces need not be."""
    commands = [([PROGRAM, tmp_path],
                 plugin_environment | {"RANK": str(rank), "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29644", "RONDO_HOST": f"h{rank // 2}"})
                for rank in range(4)]
    for rank in interpreter.run(commands, tmp_path, 120):
        assert (rank.returncode, rank.out) == (0, f"hosts: ok {CHECKS}\n"), rank.out + rank.err
