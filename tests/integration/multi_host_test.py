"""Jobs over several hosts: `rondo run --nnodes`, training between emulated hosts, and faults."""
import datetime
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess

import pytest
from hosts import Job, launchers, linked_hosts
from launching import bash, reserved_ports, sharing_socket, wait_until
from marks import long

MODEL = ["--model", "mlp", "--data-kind", "csv", "--global-batch-size", 24, "--epochs", 2, "--log-every", 1,
         "--validation-fraction", 0]


@pytest.fixture(scope="module")
def hosts():
    with linked_hosts() as both:
        yield both


@pytest.fixture
def table(tmp_path):
    """Returns a CSV file with three numbers and a class in each row."""
    rows = [f"{(i * 7) % 13},{(i * 5) % 11},{i % 17},{(i * 7) % 13 > 6:d}" for i in range(240)]
    (tmp_path / "table.csv").write_text("a,b,c,label\n" + "\n".join(rows) + "\n")
    return tmp_path / "table.csv"


def train_words(rondo_bin, table, run_dir, *more):
    return [rondo_bin / "rondo-train-worker", "--data", table, "--run-dir", run_dir, *MODEL, *more]


def losses(run_dir):
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["rank"] == 0 and "loss" in row]


def must_succeed(results):
    for code, out, err in results:
        assert code == 0, out + err


@pytest.fixture
def alone(rondo, rondo_bin, table, tmp_path):
    result = rondo("train", *train_words(rondo_bin, table, tmp_path / "alone")[1:])
    assert result.returncode == 0, result.stderr
    return losses(tmp_path / "alone")


def test_training_on_two_hosts_equals_one_process(hosts, rondo_bin, clean_environment, table, tmp_path, alone):
    words = train_words(rondo_bin, table, tmp_path / "two")
    must_succeed(Job(launchers(hosts, rondo_bin, *words, port=29611), clean_environment, tmp_path).finish())
    assert losses(tmp_path / "two") == pytest.approx(alone, rel=1e-4)
    configuration = (tmp_path / "two" / "config.json").read_text()
    assert "hierarchical(native, gloo)" in configuration or "auto" in configuration
    assert len({json.loads(line)["rank"] for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()}) == 4


def test_traces_of_hosts_are_on_one_clock(hosts, rondo_bin, clean_environment, table, tmp_path):
    """Clocks of two hosts have different origins: the second host's is 5,000 s ahead (a time namespace)."""
    words = train_words(rondo_bin, table, tmp_path / "run", "--trace-steps", 3)
    first, (command, extra) = launchers(hosts, rondo_bin, *words, port=29617)
    ahead = command[:4] + ["unshare", "--time", "--monotonic", "5000", "--fork", "--kill-child"] + command[4:]
    must_succeed(Job([first, (ahead, extra)], clean_environment, tmp_path).finish())
    events = json.loads((tmp_path / "run" / "trace.json").read_text())["traceEvents"]
    begins = {}
    for event in events:
        if event["ph"] == "X" and event["name"] == "backward" and event["args"]["step"] == 2:
            begins[event["pid"]] = event["ts"]
    assert sorted(begins) == [0, 1, 2, 3]
    # All ranks are in the same step within the duration of a step, which is far below 5,000 s even on the slowest
    # machine.
    assert max(begins.values()) - min(begins.values()) < 500e6, begins


def test_ranks_in_turns_on_hosts_of_different_sizes(hosts, rondo_bin, clean_environment, table, tmp_path, alone):
    """Without a launcher: every rank is started by hand, 0 and 2 on one host, 1 on the other; gradients are
    compressed."""
    commands = []
    for rank in range(3):
        host = hosts[rank % 2]
        words = train_words(rondo_bin, table, tmp_path / "turns", "--backend",
                            "hierarchical(native, gloo, codec=bfloat16)")
        commands.append((host.command(*words), {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": hosts[0].address,
                                                "MASTER_PORT": "29612", "OMP_NUM_THREADS": "1"}))
    must_succeed(Job(commands, clean_environment, tmp_path).finish())
    assert losses(tmp_path / "turns") == pytest.approx(alone, rel=1e-2)


def test_the_store_listens_on_the_named_address_only(hosts, rondo_bin, clean_environment, tmp_path):
    """All other sockets of the ranks are on the named interface, too."""
    words = [rondo_bin / "examples" / "collectives"]
    if shutil.which("ss") is None:
        pytest.skip("this machine has no ss (iproute2)")
    listening = set()
    for _ in range(10):  # a job may end before the first look
        job = Job(launchers(hosts, rondo_bin, *words, port=29613), clean_environment, tmp_path)
        while any(process.poll() is None for process in job.processes):
            for host in hosts:
                seen = subprocess.run(host.command("ss", "-Hltnp"), capture_output=True, text=True).stdout
                # Only the ranks' sockets: the launcher briefly checks on every address whether the port is free.
                listening |= {line.split()[3].rsplit(":", 1)[0] for line in seen.splitlines() if '"collectives"' in line}
        must_succeed(job.finish())
        if listening:
            break
    assert listening and listening <= {host.address for host in hosts}


def test_names_killed_rank_on_other_host(hosts, rondo_bin, clean_environment, table, tmp_path):
    words = train_words(rondo_bin, table, tmp_path / "run", "--epochs", 100000)
    # With time for rank 2 to report the lost rank before its launcher kills it, too.
    job = Job(launchers(hosts, rondo_bin, *words, port=29614, flags=("--grace", "60s")), clean_environment, tmp_path)
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 20, "some steps are done")
    pids = subprocess.run(["ip", "netns", "pids", hosts[1].name], capture_output=True, text=True).stdout.split()

    def is_rank_three(pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ, open(f"/proc/{pid}/cmdline", "rb") as command:
                return b"\0RANK=3\0" in b"\0" + environ.read() and b"rondo-train-worker" in command.read().split(b"\0")[0]
        except OSError:
            return False

    victim = [int(pid) for pid in pids if is_rank_three(pid)]
    assert len(victim) == 1
    os.kill(victim[0], signal.SIGKILL)
    (_, _, here), (_, _, there) = job.finish()
    assert "rank 3" in there and "SIGKILL" in there
    assert "rank 3 on host 1" in here or "world rank 3" in here, here
    for text in (here, there):  # no messages of libtorch beside it
        assert "frame #" not in text and "[c10d]" not in text and text.isascii(), text


def listening_socket(port):
    """Returns a descriptor of a listening socket on a reserved port, for its new owner."""
    listener = sharing_socket("127.0.0.1", port)
    listener.listen()
    return listener.detach()


def rank_process(host, rank):
    """Returns the process id of that rank's program on a host."""
    for pid in subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True).stdout.split():
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ, open(f"/proc/{pid}/cmdline", "rb") as command:
                words = b"\0" + environ.read()
                if f"\0RANK={rank}\0".encode() in words and b"rondo-train-worker" in command.read().split(b"\0")[0]:
                    return int(pid)
        except OSError:
            continue
    raise AssertionError(f"rank {rank} is not on {host.name}")


def train_for_ever(hosts, rondo_bin, environment, table, tmp_path, port, *more, ranks=2):
    words = train_words(rondo_bin, table, tmp_path / "run", "--epochs", 1000000, "--timeout", "5s", *more)
    job = Job(launchers(hosts, rondo_bin, *words, port=port, ranks=ranks), environment, tmp_path)
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 20, "some steps are done")
    return job


def test_stopped_rank_0_is_not_waited_for(hosts, rondo_bin, clean_environment, table, tmp_path):
    """It holds the job's store, which no longer answers."""
    job = train_for_ever(hosts, rondo_bin, clean_environment, table, tmp_path, 29621)
    os.kill(rank_process(hosts[0], 0), signal.SIGSTOP)
    for code, _, err in job.finish():
        assert code != 0 and "rank 0" in err, err


def test_ends_stopped_rank_alone_on_its_host(hosts, rondo_bin, clean_environment, table, tmp_path):
    """No rank beside it fails because of it; its launcher knows how long the other host's ranks wait."""
    job = train_for_ever(hosts, rondo_bin, clean_environment, table, tmp_path, 29623, ranks=1)
    os.kill(rank_process(hosts[1], 1), signal.SIGSTOP)
    (_, _, here), (code, _, there) = job.finish()
    assert code == 128 + signal.SIGKILL and "rank 1" in there and "was suspended (SIGSTOP) for" in there, there
    assert "rank 1" in here, here


def test_groups_of_the_same_name_meet_apart(rondo, rondo_bin):
    """Also in the launcher's store, in which the ranks of a host meet."""
    result = rondo("run", "-n", 4, "--", "bash", "-c", 'RONDO_HOST=host$((RANK / 2)) exec "$@"', "rank", rondo_bin / "launched_ranks",
                   "--gtest_filter=LaunchedContexts.*", env={"RONDO_TEST_BACKEND": "auto"}, timeout=120)
    assert result.returncode == 0 and result.stdout.count("[  PASSED  ] 1 test") == 4, result.stdout + result.stderr


def test_hosts_that_are_cut_off_end(hosts, rondo_bin, clean_environment, table, tmp_path):
    job = train_for_ever(hosts, rondo_bin, clean_environment, table, tmp_path, 29622)
    subprocess.run(["ip", "-n", hosts[1].name, "link", "set", hosts[1].interface, "down"], check=True)
    try:
        results = job.finish()  # the kernel would retry for 15 minutes
    finally:
        subprocess.run(["ip", "-n", hosts[1].name, "link", "set", hosts[1].interface, "up"], check=True)
    for code, _, err in results:
        assert code != 0 and re.search(r"rank \d", err), err


def test_silent_leader_times_out(rondo, rondo_bin, tmp_path):
    """Between hosts rank 0 announces the order of launches; it hangs while the other rank waits for nothing else."""
    result = rondo("run", "-n", 2, "--", "bash", "-c", 'RONDO_HOST=host$RANK exec "$@"', "rank", rondo_bin / "training_loops", "suspended",
                   tmp_path / "run", "zero3", timeout=120)
    assert result.returncode != 0
    assert re.search("rank 0 of group '[^']+' has sent nothing for 2 s", result.stderr), result.stderr


@pytest.mark.parametrize("strategy", ["hsdp", long("zero3")])
def test_a_rank_lost_in_another_group_is_named(hosts, rondo_bin, clean_environment, table, tmp_path, strategy):
    """Ranks 0 and 2, 1 and 3 are groups of hsdp besides those of each host. A rank that ends because of the lost one,
    such as rank 0 (which orders zero3's launches), is not blamed."""
    job = train_for_ever(hosts, rondo_bin, clean_environment, table, tmp_path, 29623, "--strategy", strategy, "--timeout", "60s")
    os.kill(rank_process(hosts[1], 3), signal.SIGKILL)
    (_, _, here), (_, _, there) = job.finish()
    assert "rank 3" in there and "SIGKILL" in there
    # The launcher names the first rank that failed; it repeats that rank's error unless it is on the line above.
    report = re.search(r"^rondo run: rank (\d) .*", here, re.MULTILINE | re.DOTALL)
    assert report, here
    of_the_first = [line for line in here.splitlines() if line.startswith(f"[rank {report[1]}] rondo train: ")] + [report[0]]
    assert any("world rank 3" in line or "rank 3 on host 1" in line for line in of_the_first), here


@pytest.mark.parametrize("flags, parts", [
    (["--nnodes", "2", "--master-addr", "10.0.0.1", "--node-rank", "2"], ["--node-rank 2", "0 to 1"]),
    (["--nnodes", "2"], ["--master-addr", "address of host 0"]),
    (["--nnodes", "0"], ["--nnodes", "at least 1"]),
    (["--nnodes", "1:4"], ["--nnodes 1:4"]),
    (["--nnodes", "2", "--master-addr", "10.0.0.1", "-n", "1,2,3"], ["--nproc-per-node 1,2,3", "--nnodes is 2"]),
    (["--nnodes", "2", "--standalone", "--master-addr", "10.0.0.1"], ["--standalone", "--nnodes"]),
    (["--interface", "nosuch0"], ["--interface nosuch0", "lo"]),
    (["--rdzv-conf", "join_timeout=-1"], ["join_timeout"]),
])
def test_wrong_usage_is_named(rondo, flags, parts):
    result = rondo("run", *flags, "true")
    assert result.returncode == 2, result.stderr
    for part in parts:
        assert part in result.stderr


def test_torchruns_variables_of_the_second_host(rondo):
    result = rondo("run", "--nnodes", 2, "--node-rank", 1, "--master-addr", "127.0.0.1", "--interface", "lo", "-n", "2,3",
                   "bash", "-c", "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE "
                   "$MASTER_ADDR:$MASTER_PORT $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME")
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [f"[rank {2 + i}] {2 + i} {i} 5 3 1 2 127.0.0.1:29500 lo lo" for i in range(3)]


@pytest.mark.parametrize("flags", [lambda port: ["--master-addr", "[::1]", "--master-port", port],
                                   lambda port: ["--rdzv-endpoint", f"[::1]:{port}"]])
def test_an_address_of_ipv6(rondo_bin, clean_environment, tmp_path, flags):
    if not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    with reserved_ports(1) as (port,):
        words = [rondo_bin / "rondo", "run", "--nnodes", 2, *flags(port), "-n", 1, "--node-rank"]
        program = rondo_bin / "examples" / "collectives"
        job = Job([([*words, host, program], {"RONDO_HOST": f"host-{host}"}) for host in range(2)], clean_environment, tmp_path)
        must_succeed(job.finish())
    shown = subprocess.run([str(word) for word in [*words, 0, "--", *bash("echo $MASTER_ADDR")]], capture_output=True, text=True,
                           env=clean_environment)
    assert shown.stdout == "[rank 0] ::1\n", shown.stderr


def test_pod_index_is_node_rank(rondo):
    """The index of an Indexed Job; Kubeflow's variables or flags give the rest."""
    environment = {"JOB_COMPLETION_INDEX": "1", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_MASTER_ADDR": "127.0.0.1"}
    result = rondo("run", *bash("echo $RANK $GROUP_RANK of $WORLD_SIZE"), env=environment)
    assert sorted(result.stdout.splitlines()) == ["[rank 2] 2 1 of 4", "[rank 3] 3 1 of 4"], result.stderr
    given = rondo("run", "--node-rank", 0, *bash("echo $RANK $GROUP_RANK of $WORLD_SIZE"), env=environment)
    assert sorted(given.stdout.splitlines()) == ["[rank 0] 0 0 of 4", "[rank 1] 1 0 of 4"], given.stderr
    beyond = rondo("run", "true", env=environment | {"JOB_COMPLETION_INDEX": "2"})
    assert beyond.returncode == 2 and "JOB_COMPLETION_INDEX=2" in beyond.stderr and "0 to 1" in beyond.stderr


def test_names_unreachable_address_in_time(rondo, rondo_bin):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        result = rondo("run", "--nnodes", 2, "--node-rank", 1, "--master-addr", "127.0.0.1", "--master-port", port,
                       "--rdzv-conf", "join_timeout=3", rondo_bin / "examples" / "collectives")
    assert result.returncode != 0
    for part in ("cannot reach rank 0", f"127.0.0.1:{port}", "Connection refused", "MASTER_ADDR", "firewall"):
        assert part in result.stderr, result.stderr


def test_a_host_that_never_comes_is_named(rondo, rondo_bin):
    with reserved_ports(1) as (port,):
        result = rondo("run", "--nnodes", 2, "--node-rank", 0, "--master-addr", "127.0.0.1", "--master-port", port, "-n", "1,2",
                       "--rdzv-conf", "join_timeout=8", rondo_bin / "examples" / "collectives")
    assert result.returncode != 0
    assert "missing: 1, 2" in result.stderr, result.stderr
    assert "still waiting for ranks to join; missing: 1, 2 of 3" in result.stderr, "long before the time is over"


def test_ranks_report_rank_0_lost_while_joining(rondo, rondo_bin):
    """One of three hosts never joins, and rank 0 gives up first."""
    with reserved_ports(1) as (port,):
        first, second = [rondo.start("run", "--nnodes", 3, "--node-rank", host, "--master-addr", "127.0.0.1", "--master-port", port,
                                     "--rdzv-conf", f"join_timeout={seconds}", rondo_bin / "examples" / "collectives")
                         for host, seconds in enumerate([10, 100])]
        out, err = first.communicate(timeout=120)
        assert first.returncode != 0 and "missing: " in err, out + err
        out, err = second.communicate(timeout=120)
    assert second.returncode != 0 and f"rank 0 at 127.0.0.1:{port}" in err and "lost" in err, out + err
    for part in ("frame #", "[c10d]", "got 0 bytes"):
        assert part not in err, err


def test_first_host_names_port_in_use(rondo):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = rondo("run", "--nnodes", 2, "--node-rank", 0, "--master-addr", "127.0.0.1", "--master-port", port, "true")
    assert result.returncode == 2
    assert f"127.0.0.1:{port}" in result.stderr and str(os.getpid()) in result.stderr


def test_the_same_node_rank_twice_is_told(rondo, rondo_bin, clean_environment, tmp_path):
    with reserved_ports(1) as (port,):
        words = [rondo_bin / "rondo", "run", "--nnodes", 3, "--master-addr", "127.0.0.1", "--master-port", port, "-n", 1,
                 "--rdzv-conf", "join_timeout=100", "--node-rank"]
        program = rondo_bin / "examples" / "collectives"
        job = Job([([*words, 0, program], {}), ([*words, 1, program], {}), ([*words, 1, program], {})], clean_environment,
                  tmp_path)
        # The others would wait for the third host.
        wait_until(lambda: any(process.poll() is not None for process in job.processes), "one is told")
        for process in job.processes:
            process.terminate()
        results = job.finish()
    assert any("claimed by two processes" in err and "--node-rank" in err for _, _, err in results), results


@pytest.fixture
def one_of_two(rondo, rondo_bin):
    """Starts one of two launchers with one rank each; the rank prints its process id first."""
    with reserved_ports(1) as (port,):
        yield lambda host, *flags: rondo.start(
            "run", "--nnodes", 2, "--node-rank", host, "--master-addr", "127.0.0.1", "--master-port", port, "-n", 1, *flags, "--",
            *bash(f"echo pid $$; exec {rondo_bin / 'examples' / 'collectives'}"), env={"RONDO_LOG_LEVEL": "info"})


def test_host_ahead_by_an_attempt_waits(one_of_two):
    """Hosts restart one after the other: rank 0 of the previous attempt may still listen."""
    first = one_of_two(0, "--max-restarts", 1)
    first.stdout.readline()
    ahead = one_of_two(1, "--max-restarts", 1, "--restart-count", 1)
    # Rank 0 waits for the second host in an attempt that this host has left: it learns that the attempt is over.
    for process in (first, ahead):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
        if process is first:
            assert "attempt 0 of the job is over" in err and "restart 1 of 1" in err, err


def test_a_kill_while_ranks_join_costs_one_restart(rondo, rondo_bin):
    program = rondo_bin / "examples" / "collectives"
    script = f'[ $RANK.$TORCHELASTIC_RESTART_COUNT = 3.0 ] && kill -9 $$; exec {program}'
    with reserved_ports(1) as (port,):
        hosts = [rondo.start("run", "--nnodes", 2, "--node-rank", host, "--master-addr", "127.0.0.1", "--master-port", port, "-n", 2,
                             "--max-restarts", 1, "--", *bash(script)) for host in range(2)]
        for process in hosts:
            out, err = process.communicate(timeout=120)  # less than the time limit of joining
            assert process.returncode == 0, out + err
            assert "restart 1 of 1" in err, err


def test_kill_while_joining_ends_other_host(hosts, rondo_bin, clean_environment, tmp_path):
    """The other host does not wait for the time limit of joining."""
    # Rank 3 kills itself once rank 0 listens; only a connection can detect that.
    script = (f'[ $RANK = 3 ] && {{ until : 2>/dev/null </dev/tcp/$MASTER_ADDR/$MASTER_PORT; do sleep 0.05; done; kill -9 $$; }}; '
              f'exec {rondo_bin / "examples" / "collectives"}')
    job = Job(launchers(hosts, rondo_bin, *bash(script), port=29624), clean_environment, tmp_path)
    (here_code, _, here), (there_code, _, there) = job.finish()
    assert there_code == 128 + signal.SIGKILL and "rank 3" in there, there
    assert here_code != 0 and f"rank 3 on host {socket.gethostname()} was killed by SIGKILL" in here, here


def test_a_kill_while_ranks_join_ends_all_hosts(rondo, rondo_bin):
    """Rank 0 ends with the others, and its store with it; its launcher informs launchers that have not learned of the
    failure."""
    program = rondo_bin / "examples" / "collectives"
    script = (f'[ $RANK = 2 ] && {{ until : 2>/dev/null </dev/tcp/$MASTER_ADDR/$MASTER_PORT; do sleep 0.05; done; exit 7; }}; '
              f'exec {program}')
    with reserved_ports(1) as (port,):
        hosts = [rondo.start("run", "--nnodes", 3, "--node-rank", host, "--master-addr", "127.0.0.1", "--master-port", port, "-n", 1,
                             "--", *bash(script)) for host in range(3)]
        for process in hosts:
            out, err = process.communicate(timeout=120)
            assert process.returncode != 0 and re.search(r"rank 2 on host \S+ (\(pid \d+\) )?exited with code 7", err), out + err


def test_kill_before_rank_0_listens_ends_other_host(rondo, rondo_bin):
    program = rondo_bin / "examples" / "collectives"
    script = f'[ $RANK = 1 ] && kill -9 $$; exec {program}'
    with reserved_ports(1) as (port,):
        def launcher(host):
            return rondo.start("run", "--nnodes", 2, "--node-rank", host, "--master-addr", "127.0.0.1", "--master-port", port, "-n",
                               "2,1", "--", *bash(script), env={"RONDO_LOG_LEVEL": "info"})
        second = launcher(1)
        # It prints this when it begins to join.
        begun = next(line for line in second.stderr if "matrix products" in line)
        first = launcher(0)
        out, err = first.communicate(timeout=120)
        assert first.returncode == 128 + signal.SIGKILL, out + err
        out, err = second.communicate(timeout=120)
    assert second.returncode != 0 and re.search(r"rank 1 on host \S+ was killed by SIGKILL", err), begun + out + err


def test_signal_before_rank_0_listens_ends_other_host(rondo, rondo_bin):
    """Its ranks would otherwise wait for the time limit of joining."""
    with reserved_ports(1) as (port,):
        def launcher(host, *words):
            return rondo.start("run", "--nnodes", 2, "--node-rank", host, "--master-addr", "127.0.0.1", "--master-port", port, "-n", 1,
                               "--", *words, env={"RONDO_LOG_LEVEL": "info"})
        second = launcher(1, rondo_bin / "examples" / "collectives")
        begun = next(line for line in second.stderr if "matrix products" in line)
        first = launcher(0, *bash("echo there; exec sleep 600"))
        assert next(first.stdout).strip().endswith("there")
        first.send_signal(signal.SIGINT)
        out, err = second.communicate(timeout=120)
        assert second.returncode != 0 and "was stopped by SIGINT" in err, begun + out + err
        out, err = first.communicate(timeout=120)
        assert "stopped by SIGINT" in err, out + err


def test_early_signal_reaches_late_host_0(rondo):
    """The stopped launcher tells it: it waits for a while until rank 0 listens."""
    distributed = pytest.importorskip("torch.distributed")
    with reserved_ports(1) as (port,):
        second = rondo.start("run", "--nnodes", 2, "--node-rank", 1, "--master-addr", "127.0.0.1", "--master-port", port, "-n", 1,
                             "--", *bash("echo there; exec sleep 600"))
        assert next(second.stdout).strip().endswith("there")
        second.send_signal(signal.SIGINT)
        assert any("stopped by SIGINT" in line for line in second.stderr)
        store = distributed.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False,
                                     timeout=datetime.timedelta(seconds=60), master_listen_fd=listening_socket(port))
        assert b"was stopped by SIGINT" in store.get("rondo/attempt/0/over")
        second.communicate(timeout=120)


def test_names_host_behind_by_an_attempt(one_of_two):
    first = one_of_two(0, "--max-restarts", 1, "--restart-count", 1)
    behind = one_of_two(1)
    out, err = behind.communicate(timeout=120)
    assert behind.returncode != 0 and "rank 0 is in attempt 1" in err and "--restart-count 1" in err, out + err
    # With restarts it joins the attempt by itself.
    behind = one_of_two(1, "--max-restarts", 1)
    for process in (first, behind):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err


# Engines that are not built in

def mpirun(ranks, *words):
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *map(str, words)]


def test_training_over_open_mpi(run, rondo_bin, clean_environment, table, tmp_path, alone):
    if shutil.which("mpirun") is None or not (rondo_bin / "../lib/rondo_mpi.so").exists():
        pytest.skip("Open MPI is not installed (make setup-peers), or was not when rondo was built")
    words = train_words(rondo_bin, table, tmp_path / "mpi", "--backend", "mpi")
    result = run(*mpirun(2, *words), env=clean_environment, timeout=120)
    assert result.returncode == 0, result.stderr
    assert losses(tmp_path / "mpi") == pytest.approx(alone, rel=1e-4)


def test_training_over_open_mpi_between_hosts(run, rondo_bin, clean_environment, table, tmp_path, alone):
    """Hosts that only have different names; mpi_test.py has emulated ones."""
    if shutil.which("mpirun") is None or not (rondo_bin / "../lib/rondo_mpi.so").exists():
        pytest.skip("Open MPI is not installed (make setup-peers), or was not when rondo was built")
    words = train_words(rondo_bin, table, tmp_path / "mpi", "--backend", "hierarchical(native, mpi, codec=bfloat16)")
    command = " ".join(shlex.quote(str(word)) for word in words)
    result = run(*mpirun(4, "bash", "-c", f"RONDO_HOST=h$((OMPI_COMM_WORLD_RANK % 2)) exec {command}"),
                 env=clean_environment, timeout=120)
    assert result.returncode == 0, result.stderr
    assert losses(tmp_path / "mpi") == pytest.approx(alone, rel=1e-2)


def test_mpi_without_mpirun_says_so(rondo, rondo_bin, table, tmp_path):
    if not (rondo_bin / "../lib/rondo_mpi.so").exists():
        pytest.skip("Open MPI was not installed when rondo was built")
    result = rondo("run", "-n", 2, *train_words(rondo_bin, table, tmp_path / "run", "--backend", "mpi"))
    assert result.returncode != 0
    assert "backend mpi: this is rank" in result.stderr and "mpirun" in result.stderr
    # Reported before any rank initializes MPI: two ranks that do so at once, each alone, sometimes fail with other
    # messages.
    assert "mkdir" not in result.stderr and "MPI_Init" not in result.stderr


def test_a_third_partys_engine_from_a_shared_module(rondo, rondo_bin, table, tmp_path, alone):
    module = (rondo_bin / "../lib/store_backend.so").resolve()
    result = rondo("train", *train_words(rondo_bin, table, tmp_path / "run", "--backend", f"{module}:store")[1:],
                   "--nproc-per-node", 2)
    assert result.returncode == 0, result.stderr
    assert losses(tmp_path / "run") == pytest.approx(alone, rel=1e-4)
    empty = tmp_path / "empty.so"
    subprocess.run(["cc", "-shared", "-o", empty, "-x", "c", "-"], input="int unused;", text=True, check=True)
    for name, parts in {f"{module}:other": ["no backend 'other'", "it has: store"],
                        "/nowhere/x.so:store": ["/nowhere/x.so", "cannot be loaded"],
                        f"{empty}:store": ["does not export rondo_register_backends"]}.items():
        wrong = rondo("train", *train_words(rondo_bin, table, tmp_path / "wrong", "--backend", name)[1:], "--nproc-per-node", 2)
        assert wrong.returncode == 2, wrong.stderr
        for part in parts:
            assert part in wrong.stderr, wrong.stderr
