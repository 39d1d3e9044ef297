"""`--strategy parameter_server` as a user runs it: processes by role, the effect of kills, and error messages."""
import json
import os
import pathlib
import signal
import socket

import pytest
from launching import alive, reserved_ports, wait_until

SERVED = ["--strategy", "parameter_server", "--model", "mlp", "--data-kind", "csv", "--log-every", 1,
          "--optimizer", "sgd", "--lr", 0.1, "--seed", 3, "--progress", "off", "--trace-steps", 0]

# For trainings in which a process is killed: they last seconds, and the kill comes in between.
STEPS = 3_000
LONG = ["--steps", STEPS, "--eval-every", 0, "--checkpoint-every", STEPS // 10]


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """Returns a table of two classes that a line separates."""
    path = tmp_path_factory.mktemp("table") / "points.csv"
    rows = ["a,b,label"]
    for i in range(600):
        a, b = (i * 37 % 101) / 50 - 1, (i * 53 % 97) / 48 - 1
        rows.append(f"{a:.4f},{b:.4f},{int(a + b > 0)}")
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def flags(table, tmp_path):
    return ["--data", table, "--validation-fraction", 0.1, "--run-dir", tmp_path / "run", "--json", tmp_path / "result.json",
            *SERVED]


def result_of(tmp_path):
    return json.loads((tmp_path / "result.json").read_text())


def losses(run, worker=0):
    name = "metrics.jsonl" if worker == 0 else f"metrics.worker-{worker}.jsonl"
    rows = [json.loads(line) for line in (run / name).read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def tasks(launcher):
    """Returns process ids below `launcher` by (role, number), once each runs its final program."""
    found = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid = int(stat.parent.name)
            command = (stat.parent / "cmdline").read_bytes().split(b"\0")[0].decode()
            environment = dict(item.split(b"=", 1) for item in (stat.parent / "environ").read_bytes().split(b"\0")
                               if b"=" in item)
            parent = pid
            while parent > 1 and parent != launcher:
                parent = int(pathlib.Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()[1])
            role = environment[b"ROLE_NAME"].decode()
            if parent == launcher and command.endswith("rondo-train" if role == "ps" else "rondo-train-worker"):
                found[role, int(environment[b"ROLE_RANK"])] = pid
        except (OSError, KeyError, ValueError):
            continue
    return found


def started(rondo, flags, tmp_path, *more, command=("train",)):
    process = rondo.start(*command, *flags, *more)
    metrics = tmp_path / "run" / "metrics.worker-1.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") >= 5, "some steps are done")
    return process


def test_chief_validates_and_saves(rondo, flags, tmp_path):
    done = rondo("train", *flags, "--ps", 1, "--workers", 2, "--steps", 150, "--checkpoint-every", 50, timeout=120)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    assert len(losses(run)) == len(losses(run, worker=1)) == 150
    assert sorted(p.name for p in (run / "checkpoints").iterdir())[-1] == "step-00000150"
    result = result_of(tmp_path)
    assert result["strategy"] == "parameter_server"
    assert result["validation"]["accuracy"] > 0.9
    assert [w["steps"] for w in result["servers"]["workers"]] == [150, 150]
    assert result["servers"]["lost_steps"] == 0


def test_one_worker_trains_as_one_process_does(rondo, flags, tmp_path):
    for optimizer in (["sgd"], ["adamw", "--weight-decay", 0.1]):
        runs = {}
        for name, strategy in (("alone", "one_device"), ("served", "parameter_server")):
            done = rondo("train", *flags, "--strategy", strategy, "--run-dir", tmp_path / name / optimizer[0], "--steps", 40,
                         "--optimizer", *optimizer, timeout=120)
            assert done.returncode == 0, done.stderr
            runs[name] = losses(tmp_path / name / optimizer[0])
        assert runs["served"] == pytest.approx(runs["alone"], rel=1e-4)


def test_a_synchronous_step_is_that_of_ddp(rondo, flags, tmp_path):
    both = {}
    for name, how in (("ddp", ["--strategy", "ddp", "--nproc-per-node", 2]),
                      ("served", ["--ps", 2, "--workers", 2, "--ps-mode", "sync", "--set", "ps-partitioner=fixed:2"])):
        done = rondo("train", *flags, *how, "--run-dir", tmp_path / name, "--steps", 40, timeout=120)
        assert done.returncode == 0, done.stderr
        both[name] = result_of(tmp_path)["validation"]["loss"]
    assert both["served"] == pytest.approx(both["ddp"], rel=1e-4)


@pytest.mark.parametrize("mode", [["ssp", "--set", "ps-staleness=2"], ["sync"], ["sync", "--set", "ps-backup-workers=1"]])
def test_other_modes_reach_the_same(rondo, flags, tmp_path, mode):
    done = rondo("train", *flags, "--workers", 2, "--ps-mode", *mode, "--steps", 150, timeout=120)
    assert done.returncode == 0, done.stderr
    assert result_of(tmp_path)["validation"]["accuracy"] > 0.9


def test_resumes_with_server_optimizer_state(rondo, flags, tmp_path):
    adam = ["--optimizer", "adam", "--lr", 0.01]
    for name, steps in (("whole", [60]), ("parts", [30, 60])):
        for number, step in enumerate(steps):
            done = rondo("train", *flags, *adam, "--run-dir", tmp_path / name, "--steps", step,
                         *(["--resume"] if number else []), timeout=120)
            assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "parts")[-30:] == pytest.approx(losses(tmp_path / "whole")[-30:], rel=1e-3)
    # Also under another strategy.
    done = rondo("train", "--resume", "--strategy", "one_device", "--run-dir", tmp_path / "parts", "--steps", 61,
                 timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_killed_worker_stops_nobody(rondo, flags, tmp_path):
    process = started(rondo, flags, tmp_path, "--workers", 2, *LONG)
    os.kill(tasks(process.pid)["worker", 1], signal.SIGKILL)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert "rank 1" in errors and "worker 1" in errors
    workers = result_of(tmp_path)["servers"]["workers"]
    assert workers[0] == {**workers[0], "steps": STEPS, "phase": "finished"}
    assert workers[1]["phase"] == "lost" and workers[1]["steps"] < STEPS
    assert result_of(tmp_path)["validation"]["accuracy"] > 0.9


def test_a_lost_worker_returns(rondo, flags, tmp_path):
    command = ["run", "--ps", 1, "--workers", 2, "--on-failure", "worker=restart", "--", rondo.program, "train"]
    process = started(rondo, flags, tmp_path, *LONG, command=command)
    os.kill(tasks(process.pid)["worker", 1], signal.SIGKILL)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    worker = result_of(tmp_path)["servers"]["workers"][1]
    assert worker["returns"] == 1 and worker["phase"] == "finished"
    assert worker["steps"] == STEPS
    # It continues from its state: each step and each part of the data once. (The row of the interrupted step may be
    # missing.)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.worker-1.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows]
    assert steps == sorted(set(steps)) and steps[-1] == STEPS and len(steps) >= STEPS - 1
    per_epoch = next(row["step"] for row in rows if row["epoch"] == 1) - 1
    assert [row["epoch"] for row in rows] == [(step - 1) // per_epoch for step in steps]


def test_an_evaluator_judges_the_checkpoints_of_the_run(rondo, flags, tmp_path):
    run = tmp_path / "run"
    done = rondo("run", "--ps", 1, "--workers", 2, "--evaluator", "--", rondo.program, "train", *flags, "--steps", 300,
                 "--checkpoint-every", 100, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (run / "metrics.evaluator.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 300 and [row["step"] for row in rows] == sorted({row["step"] for row in rows})
    assert rows[-1]["validation_accuracy"] > 0.9
    result = result_of(tmp_path)
    assert rows[-1]["validation_loss"] == pytest.approx(result["validation"]["loss"], rel=1e-5)
    # The training is not disturbed, and servers have no third worker.
    assert [w["steps"] for w in result["servers"]["workers"]] == [300, 300]


def test_synchronous_step_with_many_parameters(rondo, flags):
    """With eight parameters the ring of pushes once had no room for the end of the step."""
    done = rondo("train", *flags, "--ps-mode", "sync", "--ps", 1, "--workers", 1, "--model-config", '{"hidden": [4, 4, 4]}',
                 "--steps", 3, "--timeout", "60s")
    assert done.returncode == 0, done.stderr


def test_the_timeout_reaches_servers(rondo, flags, tmp_path):
    """No server answers: the worker ends long before the default of five minutes."""
    secret = tmp_path / "secret"
    secret.write_text("a" * 64)
    secret.chmod(0o600)
    with reserved_ports(2) as (here, there):
        role = {"TF_CONFIG": json.dumps({"cluster": {"worker": [f"127.0.0.1:{here}"], "ps": [f"127.0.0.1:{there}"]},
                                         "task": {"type": "worker", "index": 0}}), "RONDO_SECRET_FILE": str(secret)}
        done = rondo("train", *flags, "--steps", 3, "--timeout", "2s", env=role)
    assert done.returncode == 1 and f"127.0.0.1:{there}" in done.stderr and "server 0" in done.stderr, done.stderr


@pytest.mark.parametrize("workers, killed, more", [
    (2, 1, ["--strategy", "parameter_server"]),
    (3, 2, ["--strategy", "parameter_server", "--ps-mode", "sync", "--set", "ps-backup-workers=1"]),
    (4, 3, ["--strategy", "grouped", "--ps-groups", 2, "--timeout", "10s"]),
], ids=["async", "sync with a backup", "grouped"])
def test_does_not_wait_for_early_killed_worker(rondo, flags, workers, killed, more):
    at_once = f'[ "$ROLE_NAME $ROLE_RANK" = "worker {killed}" ] && kill -9 $$; exec "$0" "$@"'
    done = rondo("run", "--ps", 1, "--workers", workers, "--", "bash", "-c", at_once, rondo.program, "train", *flags, *more,
                 "--steps", 20)
    assert done.returncode == 0, done.stderr
    name = f"worker {killed} (rank {killed}) on host {socket.gethostname()} was killed by SIGKILL"
    assert f"{name}; the others continue without it" in done.stderr, done.stderr
    assert "ended before it joined" in done.stderr, done.stderr


def test_late_evaluator_ends(rondo, flags, tmp_path):
    run = tmp_path / "run"
    assert rondo("train", *flags, "--strategy", "one_device", "--steps", 20).returncode == 0
    role = {"TF_CONFIG": json.dumps({"cluster": {"worker": ["localhost:1"]}, "task": {"type": "evaluator", "index": 0}})}
    done = rondo("train", *flags, "--timeout", "1s", env=role)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (run / "metrics.evaluator.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [20]
    # The launcher tells its own evaluator that the workers have ended, whatever files they left.
    late = f'[ $ROLE_NAME = evaluator ] || exit 0; exec "$0" "$@"'
    done = rondo("run", "-n", 2, "--evaluator", "--", "bash", "-c", late, rondo.program, "train", *flags, "--timeout", "10min")
    assert done.returncode == 0, done.stderr


def test_an_evaluator_of_no_training_says_so(rondo, flags, tmp_path):
    role = {"TF_CONFIG": json.dumps({"cluster": {"worker": ["localhost:1"]}, "task": {"type": "evaluator", "index": 0}})}
    done = rondo("train", *flags, "--timeout", "1s", env=role, timeout=120)
    assert done.returncode == 1 and str(tmp_path / "run") in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()
    done = rondo("train", *flags, "--validation-fraction", 0, env=role, timeout=120)
    assert done.returncode == 2 and "--validation-fraction" in done.stderr, done.stderr


def test_a_killed_server_loses_no_update(rondo, flags, tmp_path):
    process = started(rondo, flags, tmp_path, "--workers", 2, *LONG)
    for _ in range(3):
        server = wait_until(lambda: tasks(process.pid).get(("ps", 0)), "there is a server")
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: not alive(server) and tasks(process.pid).get(("ps", 0)), "there is another server")
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    result = result_of(tmp_path)
    # Each step's four updates were acknowledged before the next: a lost one would be missing here.
    assert [w["steps"] for w in result["servers"]["workers"]] == [STEPS, STEPS]
    assert result["servers"]["lost_steps"] == 0
    assert result["validation"]["accuracy"] > 0.9


@pytest.fixture
def cluster(rondo, flags, tmp_path):
    """cluster(role, index, **variables) starts a process of a cluster that TF_CONFIG describes."""
    with reserved_ports(3) as ports:
        yield starter_of(rondo, flags, tmp_path, ports)


def starter_of(rondo, flags, tmp_path, ports):
    description = {"chief": [f"localhost:{ports[0]}"], "worker": [f"localhost:{ports[1]}"], "ps": [f"127.0.0.1:{ports[2]}"]}
    secret = tmp_path / "secret"
    secret.write_text("ab" * 32 + "\n")
    secret.chmod(0o600)

    def start(role, index, *more, secret=secret, description=description):
        config = {"cluster": description, "task": {"type": role, "index": index}}
        environment = {"TF_CONFIG": json.dumps(config), "RONDO_SECRET_FILE": str(secret)}
        return rondo.start("train", *flags, "--steps", 60, *more, env=environment)

    return start


def test_tf_config_gives_the_roles(cluster, tmp_path):
    processes = [cluster("ps", 0), cluster("worker", 0), cluster("chief", 0)]
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert result_of(tmp_path)["servers"]["workers"][1]["steps"] == 60


def test_refuses_wrong_secret_model_and_file_mode(cluster, tmp_path):
    server, chief = cluster("ps", 0), cluster("chief", 0, "--steps", 1000000)
    try:
        wait_until(lambda: (tmp_path / "run" / "metrics.jsonl").exists(), "the chief trains")
        wrong = tmp_path / "wrong"
        wrong.write_text("cd" * 32)
        wrong.chmod(0o600)
        for more, options, facts in ((["--ps-mode", "ssp"], {}, ["server 0", "worker 1", "async", "ssp"]),
                                     (["--model-config", '{"hidden": [7]}'], {}, ["server 0", "worker 1", "7"]),
                                     ([], {"secret": wrong}, ["server 0", "worker 1", "secret", str(wrong)])):
            process = cluster("worker", 0, *more, **options)
            output, errors = process.communicate(timeout=120)
            assert process.returncode != 0
            assert all(fact in errors for fact in facts), errors
        wrong.chmod(0o644)
        process = cluster("worker", 0, secret=wrong)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 2 and str(wrong) in errors and "0644" in errors
    finally:
        chief.kill()
        server.kill()
        chief.communicate()
        server.communicate()


@pytest.mark.parametrize("more, facts", [
    (["--set", "ps-staleness=-1", "--ps-mode", "ssp"], ["ps-staleness", "-1"]),
    (["--set", "ps-staleness=1"], ["ps-staleness", "--ps-mode"]),
    (["--workers", 2, "--ps-mode", "sync", "--set", "ps-backup-workers=2"], ["2"]),
    (["--set", "ps-partitioner=fixed:0"], ["ps-partitioner", "fixed:0"]),
    (["--ps", 0], ["--ps"]),
    (["--workers", 3, "--global-batch-size", 32], ["32", "3"]),
    (["--nproc-per-node", 2], ["--nproc-per-node", "--workers"]),
    (["--precision", "O2"], ["float32"]),
    (["--codec", "zip"], ["zip", "int8"]),
    (["--workers", 3, "--input-sharding", "file"], ["3 processes", "1 of", "points.csv"]),
])
def test_what_cannot_be_is_refused(rondo, flags, more, facts):
    done = rondo("train", *flags, "--steps", 3, *more, timeout=120)
    assert done.returncode != 0
    assert all(fact in done.stderr for fact in facts), done.stderr


@pytest.mark.parametrize("flags_of_run, facts", [
    (["--workers", 2, "--ps-command", "true"], ["--ps-command true", "--ps"]),
    (["--workers", 2, "-n", 3], ["--workers 2", "--nproc-per-node 3"]),
    (["--workers", 0], ["--workers 0"]),
    (["--on-failure", "worker=stop"], ["--on-failure worker=stop", "--workers"]),
    (["--ps", 1, "-n", 2], ["--ps", "--nproc-per-node"]),
    (["--ps", 1, "--on-failure", "boss=stop"], ["--on-failure", "boss"]),
    (["--ps", 1, "--on-failure", "ps=sleep"], ["--on-failure", "sleep"]),
    (["--evaluator", "--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", 29611, "--node-rank", 0], ["--evaluator", "TF_CONFIG"]),
])
def test_rondo_run_refuses_roles_that_cannot_be(rondo, flags_of_run, facts):
    done = rondo("run", *flags_of_run, "--", "true")
    assert done.returncode == 2
    assert all(fact in done.stderr for fact in facts), done.stderr


def test_rondo_run_tells_each_process_its_role(rondo, tmp_path):
    # Servers end with the workers, which wait here until the server's command has written its output.
    script = (f'until [ -s {tmp_path}/ps ]; do sleep 0.01; done; '
              'echo "$ROLE_NAME $ROLE_RANK of $ROLE_WORLD_SIZE, rank $RANK of $WORLD_SIZE, memory ${RONDO_SERVER_MEMORY:+there}" '
              f'> {tmp_path}/$RANK; stat -Lc %a "$RONDO_SECRET_FILE" >> {tmp_path}/$RANK; echo "$TF_CONFIG" >> {tmp_path}/$RANK')
    done = rondo("run", "--ps", 1, "--workers", 2, "--ps-command", f"bash -c 'echo ps > {tmp_path}/ps'", "--", "bash", "-c",
                 script)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "1").read_text().splitlines()
    assert lines[:2] == ["worker 1 of 2, rank 1 of 3, memory ", "600"]
    config = json.loads(lines[2])
    assert config["task"] == {"type": "worker", "index": 1}
    assert [len(config["cluster"][role]) for role in ("worker", "ps")] == [2, 1]
    assert (tmp_path / "ps").read_text() == "ps\n"
    assert not (tmp_path / "2").exists()
