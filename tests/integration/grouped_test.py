"""`--strategy grouped` as a user runs it: synchronous inside a group, asynchronous between groups, and which processes
end together."""
import json
import os
import signal

import pytest
from launching import wait_until
from parameter_server_test import result_of, table, tasks  # noqa: F401

COMMON = ["--model", "mlp", "--data-kind", "csv", "--log-every", 1, "--optimizer", "sgd", "--lr", 0.1, "--seed", 3,
          "--progress", "off", "--trace-steps", 0, "--validation-fraction", 0.1]


@pytest.fixture
def flags(table, tmp_path):  # noqa: F811
    return ["--data", table, "--run-dir", tmp_path / "run", "--json", tmp_path / "result.json", *COMMON]


def losses(run, worker=0):
    """Returns the losses of a group's first rank: each rank has its own rows."""
    path = run / ("metrics.jsonl" if worker == 0 else f"metrics.worker-{worker}.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["loss"] for row in rows if row["rank"] == 0 and "loss" in row]


def grouped(ranks, groups, *more):
    return ["--strategy", "grouped", "--nproc-per-node", ranks, "--ps-groups", groups, *more]


def test_two_groups_of_two_train_at_one_server(rondo, flags, tmp_path):
    done = rondo("train", *flags, *grouped(4, 2), "--steps", 100, "--checkpoint-every", 50, timeout=120)
    assert done.returncode == 0, done.stderr
    run, result = tmp_path / "run", result_of(tmp_path)
    assert result["strategy"] == "grouped" and result["ranks"] == 2 and result["replicas"] == 2
    assert result["validation"]["accuracy"] > 0.9
    # Each group is one worker of the server, and writes its rows once.
    assert [w["steps"] for w in result["servers"]["workers"]] == [100, 100]
    assert len(losses(run)) == len(losses(run, worker=1)) == 100
    assert sorted(path.name for path in run.glob("metrics*")) == ["metrics.jsonl", "metrics.worker-1.jsonl"]
    assert sorted(p.name for p in (run / "checkpoints").iterdir())[-1] == "step-00000100"


def test_a_group_alone_computes_as_ddp(rondo, flags, tmp_path):
    """The order of the samples, unequal last batches and the optimizer equal those of ddp on as many ranks."""
    runs = {}
    for name, how in (("ddp", ["--strategy", "ddp", "--nproc-per-node", 2]), ("grouped", grouped(2, 1))):
        done = rondo("train", *flags, *how, "--run-dir", tmp_path / name, "--steps", 40, "--max-grad-norm", 0.5, "--gradient-accumulation-steps", 2,
                     timeout=120)
        assert done.returncode == 0, done.stderr
        runs[name] = losses(tmp_path / name)
    assert runs["grouped"] == pytest.approx(runs["ddp"], rel=1e-4)


def test_synchronous_groups_are_one_batch(rondo, flags, tmp_path):
    validation = {}
    for name, how in (("ddp", ["--strategy", "ddp", "--nproc-per-node", 4]), ("grouped", grouped(4, 2, "--ps-mode", "sync"))):
        done = rondo("train", *flags, *how, "--run-dir", tmp_path / name, "--steps", 30, timeout=120)
        assert done.returncode == 0, done.stderr
        validation[name] = result_of(tmp_path)["validation"]["loss"]
    assert validation["grouped"] == pytest.approx(validation["ddp"], rel=1e-4)


def test_a_resumed_run_goes_on(rondo, flags, tmp_path):
    adam = ["--optimizer", "adam", "--lr", 0.01]
    for name, steps in (("whole", [60]), ("parts", [30, 60])):
        for number, step in enumerate(steps):
            done = rondo("train", *flags, *adam, *grouped(2, 1), "--run-dir", tmp_path / name, "--steps", step,
                         *(["--resume"] if number else []), timeout=120)
            assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "parts")[-30:] == pytest.approx(losses(tmp_path / "whole")[-30:], rel=1e-3)
    done = rondo("train", "--resume", "--strategy", "ddp", "--nproc-per-node", 2, "--run-dir", tmp_path / "parts", "--steps", 61,
                 timeout=120)
    assert done.returncode == 0, done.stderr


def test_killed_rank_ends_only_its_group(rondo, flags, tmp_path):
    steps = 600  # enough that the kill precedes the last one
    process = rondo.start("train", *flags, *grouped(4, 2), "--steps", steps)
    victim = wait_until(lambda: tasks(process.pid).get(("worker", 3)), "the rank has started")
    metrics = tmp_path / "run" / "metrics.worker-1.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") >= 5, "the second group trains")
    os.kill(victim, signal.SIGKILL)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    workers = json.loads((tmp_path / "result.json").read_text())["servers"]["workers"]
    assert workers[0]["steps"] == steps
    assert workers[1]["phase"] == "lost" and workers[1]["steps"] < steps


@pytest.mark.parametrize("how, facts", [
    (grouped(3, 2), ["--ps-groups", "2", "3"]),
    (grouped(4, 0), ["--ps-groups", "0"]),
    (grouped(2, 2, "--workers", 2), ["--workers", "grouped"]),
    (grouped(2, 2, "--precision", "O2"), ["float32"]),
    (["--strategy", "mirrored", "--nproc-per-node", 2], ["mirrored", "--nproc-per-node", "2", "multi_worker_mirrored"]),
    (["--strategy", "central_storage", "--nproc-per-node", 2], ["central_storage", "2", "multi_worker_mirrored"]),
    (["--strategy", "data_parallel", "--nproc-per-node", 2], ["data_parallel", "2", "multi_worker_mirrored"]),
    (["--strategy", "one_device", "--nproc-per-node", 2], ["one_device", "--nproc-per-node", "2", "ddp"]),
    (["--strategy", "default", "--nproc-per-node", 2], ["default", "--nproc-per-node", "2", "ddp"]),
    (["--strategy", "tpu", "--nproc-per-node", 2, "--set", "torus=2x2"], ["torus", "2x2", "2"]),
])
def test_what_cannot_be_is_refused(rondo, flags, how, facts):
    done = rondo("train", *flags, *how, "--steps", 3, timeout=120)
    assert done.returncode != 0
    assert all(fact in done.stderr for fact in facts), done.stderr


def test_a_torus_of_four_trains_as_ddp(rondo, flags, tmp_path):
    runs = {}
    for strategy in ("ddp", "tpu"):
        done = rondo("train", *flags, "--strategy", strategy, "--nproc-per-node", 4, "--run-dir", tmp_path / strategy, "--steps", 20,
                     timeout=120)
        assert done.returncode == 0, done.stderr
        runs[strategy] = losses(tmp_path / strategy)
    assert runs["tpu"] == pytest.approx(runs["ddp"], rel=1e-5)
