"""`rondo::train_and_evaluate` (examples/linear_regressor) as every process of a job, and `rondo run --evaluator` beside
ranks."""
import json
import os
import re
import subprocess

import pytest
from marks import long


@pytest.fixture
def regressor(rondo_bin):
    return rondo_bin / "examples" / "linear_regressor"


def evaluated(output):
    """Returns (who, step, mean absolute error) of each process that evaluated."""
    return [(who, int(step), float(error)) for who, step, error in
            re.findall(r"(the evaluator|a trainer) evaluated step (\d+) mae ([\d.e+-]+)", output)]


def rows(run, name):
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


@pytest.mark.parametrize("ranks, strategy", [long(1, []), long(2, []), (2, ["zero2"])])
def test_ranks_evaluate_what_they_train(rondo, regressor, tmp_path, ranks, strategy):
    done = rondo("run", "-n", ranks, regressor, tmp_path / "run", *strategy)
    assert done.returncode == 0, done.stderr
    assert {(who, step) for who, step, _ in evaluated(done.stdout)} == {("a trainer", 300)}
    assert all(error < 0.3 for _, _, error in evaluated(done.stdout))
    # A pass over the validation data with every checkpoint, and the training itself.
    validations = [row["step"] for row in rows(tmp_path / "run", "metrics.jsonl") if "validation_loss" in row]
    assert validations == [100, 200, 300]
    # A second call continues from the newest checkpoint, with no steps left.
    again = rondo("run", "-n", 1, regressor, tmp_path / "run")
    assert again.returncode == 0 and "trained to step 300" in again.stdout, again.stderr
    assert not (tmp_path / "run" / "metrics.evaluator.jsonl").exists()


@pytest.mark.parametrize("flags, strategy, ranks", [
    long(["-n", 2], [], 2), (["--ps", 1, "--workers", 2], ["parameter_server"], 2)])
def test_an_evaluator_evaluates_in_their_place(rondo, regressor, tmp_path, flags, strategy, ranks):
    done = rondo("run", *flags, "--evaluator", regressor, tmp_path / "run", *strategy, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained to step 300") == ranks
    (who, step, error), = evaluated(done.stdout)
    assert who == "the evaluator" and step == 300 and error < 0.5
    steps = [row["step"] for row in rows(tmp_path / "run", "metrics.evaluator.jsonl")]
    assert steps[-1] == 300 and steps == sorted(set(steps)) and set(steps) <= {100, 200, 300}
    assert not [row for row in rows(tmp_path / "run", "metrics.jsonl") if "validation_loss" in row]


def test_an_evaluator_of_tf_config(regressor, clean_environment, tmp_path):
    """Started as by a scheduler: a process with a role that need not be part of the cluster."""
    cluster = {"worker": ["127.0.0.1:1"]}
    role = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}})}
    evaluator = subprocess.Popen([regressor, tmp_path / "run"], env=clean_environment | role, stdout=subprocess.PIPE, text=True)
    try:
        trainer = subprocess.run([regressor, tmp_path / "run"], env=clean_environment, capture_output=True, text=True, timeout=120)
        assert trainer.returncode == 0, trainer.stderr
        output, _ = evaluator.communicate(timeout=120)
        assert evaluator.returncode == 0 and evaluated(output)[0][:2] == ("the evaluator", 300)
    finally:
        evaluator.kill()


def test_late_evaluator_finds_new_checkpoints(regressor, clean_environment, tmp_path):
    role = {"TF_CONFIG": json.dumps({"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}})}
    os.mkfifo(tmp_path / "go")
    evaluator = subprocess.Popen(["bash", "-c", 'read < go; exec "$@"', "evaluator", regressor, tmp_path / "run"], cwd=tmp_path,
                                 env=clean_environment | role, stdout=subprocess.PIPE, text=True)
    try:
        trainer = subprocess.run([regressor, tmp_path / "run"], env=clean_environment, capture_output=True, text=True, timeout=120)
        assert trainer.returncode == 0, trainer.stderr
        (tmp_path / "go").write_text("\n")
        output, _ = evaluator.communicate(timeout=120)  # less than its patience
        assert evaluator.returncode == 0 and evaluated(output)[0][:2] == ("the evaluator", 300)
    finally:
        evaluator.kill()


def figures_of_the_evaluator(regressor, environment, run, *words):
    """Evaluates a finished run with an evaluator that starts before it and joins after its end."""
    role = {"TF_CONFIG": json.dumps({"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}})}
    os.mkfifo(run.parent / f"{run.name}.go")
    evaluator = subprocess.Popen(["bash", "-c", 'read < "$0"; exec "$@"', run.parent / f"{run.name}.go", regressor, run, *words],
                                 env=environment | role, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        trained = subprocess.run([regressor, run], env=environment, capture_output=True, text=True, timeout=120)
        assert trained.returncode == 0, trained.stderr
        (run.parent / f"{run.name}.go").write_text("\n")
        output, errors = evaluator.communicate(timeout=120)
        return evaluator.returncode, evaluated(output), errors, evaluated(trained.stdout)
    finally:
        evaluator.kill()


@pytest.mark.parametrize("strategy", ["mirrored:replicas=2", "central_storage:replicas=3"])
def test_an_evaluator_has_a_strategy_of_its_own(regressor, clean_environment, tmp_path, strategy):
    code, figures, errors, of_trainer = figures_of_the_evaluator(regressor, clean_environment, tmp_path / "run", "one_device", strategy)
    assert code == 0, errors
    (who, step, error), = figures
    assert (who, step) == ("the evaluator", 300)
    assert error == pytest.approx(of_trainer[0][2], rel=1e-4)  # with the printed precision


@pytest.mark.parametrize("strategy, fact", [
    ("parameter_server", "parameter_server"), ("grouped", "grouped"), ("mirrored:replicas=0", "0"), ("no_such_strategy", "no_such_strategy")])
def test_what_cannot_be_an_evaluators_strategy(regressor, clean_environment, tmp_path, strategy, fact):
    role = {"TF_CONFIG": json.dumps({"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}})}
    done = subprocess.run([regressor, tmp_path / "run", "one_device", strategy], env=clean_environment | role, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode != 0 and fact in done.stderr and not done.stdout, done.stderr
    assert not (tmp_path / "run").exists()


def test_what_cannot_be(rondo, regressor, tmp_path):
    done = rondo("run", "-n", 2, regressor, tmp_path / "run", "no_such_strategy")
    assert done.returncode != 0 and "no_such_strategy" in done.stderr
    # Servers would not continue from the first run's checkpoints.
    assert rondo("run", regressor, tmp_path / "run").returncode == 0
    done = rondo("run", "--ps", 1, "--workers", 1, regressor, tmp_path / "run", "parameter_server")
    assert done.returncode != 0 and "step 300" in done.stderr, done.stderr


def test_rondo_run_starts_an_evaluator_beside_ranks(rondo, tmp_path):
    script = f'echo "$ROLE_NAME $RANK of $WORLD_SIZE, $LOCAL_WORLD_SIZE here, ${{RONDO_STORE_FD:+store}} $TF_CONFIG" > {tmp_path}/$ROLE_NAME$RANK'
    done = rondo("run", "-n", 2, "--evaluator", "--", "bash", "-c", script)
    assert done.returncode == 0, done.stderr
    told = {path.name: path.read_text().strip() for path in tmp_path.iterdir()}
    assert told["default0"] == "default 0 of 2, 2 here, store" and told["default1"] == "default 1 of 2, 2 here, store"
    assert '"type":"evaluator"' in told["evaluator2"] and "store" not in told["evaluator2"]


def test_rondo_train_has_an_evaluator_beside_ranks(rondo, tmp_path):
    rows_of_points = [f"{i % 7},{i % 5},{int(i % 7 > i % 5)}" for i in range(400)]
    (tmp_path / "points.csv").write_text("a,b,label\n" + "\n".join(rows_of_points) + "\n")
    done = rondo("run", "-n", 2, "--evaluator", "--", rondo.program, "train", "--data", "points.csv", "--model", "mlp", "--steps", 200,
                 "--checkpoint-every", 50, "--run-dir", "run", timeout=120)
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path / "run", "metrics.evaluator.jsonl")[-1]["step"] == 200
