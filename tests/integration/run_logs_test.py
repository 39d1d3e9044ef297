"""Logs of `rondo train` for MLflow and TensorBoard, and the measured utilisation. (tests/readers tests in `make
nightly` that MLflow and TensorBoard read them.)"""
import json
import math

import pytest
import yaml


@pytest.fixture
def train(rondo, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 200)
    flags = ["--data", text, "--model", "gpt", "--layers", 2, "--heads", 2, "--width", 32, "--seq-len", 16, "--progress", "off", "--trace-steps", 0]

    def run_train(*more, name="run"):
        done = rondo("train", *flags, "--run-dir", name, *more, timeout=120)
        assert done.returncode == 0, done.stderr
        return tmp_path / name

    return run_train


def metric(folder, name):
    """Returns {step: value} of an MLflow metric."""
    lines = [line.split() for line in (folder / "metrics" / name).read_text().splitlines()]
    assert all(len(fields) == 3 and int(fields[0]) > 1e12 for fields in lines)
    assert len({fields[2] for fields in lines}) == len(lines)
    return {int(step): float(value) for _, value, step in lines}


def test_mlflow_folders(train, rondo, tmp_path):
    run = train("--steps", 30, "--nproc-per-node", 2, "--log-to", "mlflow", "--set", "mlflow-dir=mlruns", "--checkpoint-every", 20)
    assert not list(run.glob("events.out.tfevents.*")) and (run / "metrics.jsonl").exists()
    experiment = tmp_path / "mlruns" / "0"
    meta = yaml.safe_load((experiment / "meta.yaml").read_text())
    assert meta["experiment_id"] == "0" and meta["lifecycle_stage"] == "active" and meta["name"] == "Default"
    folder, = [path for path in experiment.iterdir() if path.is_dir()]
    meta = yaml.safe_load((folder / "meta.yaml").read_text())
    assert meta["run_id"] == meta["run_uuid"] == folder.name and len(folder.name) == 32
    assert meta["status"] == 3 and meta["end_time"] >= meta["start_time"] and meta["run_name"] == "run"
    assert meta["artifact_uri"] == f"file://{folder}/artifacts"
    assert (folder / "params" / "steps").read_text() == "30" and (folder / "params" / "model").read_text() == "gpt"
    losses = metric(folder, "loss")
    assert list(losses) == [10, 20, 30]
    rows = {row["step"]: row for line in (run / "metrics.jsonl").read_text().splitlines()
            if "loss" in (row := json.loads(line)) and row["rank"] == 0}
    assert losses[20] == pytest.approx(rows[20]["loss"], rel=1e-6)
    assert "validation_loss" in {path.name for path in (folder / "metrics").iterdir()}
    # The same run continues; log entries after the checkpoint are removed.
    done = rondo("train", "--run-dir", "run", "--resume", run / "checkpoints" / "step-00000020", "--steps", 40, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in experiment.iterdir() if path.is_dir()] == [folder.name]
    assert list(metric(folder, "loss")) == [10, 20, 30, 40]


def test_utilisation(train, rondo, tmp_path):
    """The expected value: 10 MFLOP/s, from the formula of the products of a forward and backward pass."""
    run = train("--steps", 10, "--batch-size", 4, "--set", "peak-flops=1e12", name="known")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "loss" in row]
    # Per token and block: 24 width^2 in products, 4 context width in attention. Then the logits.
    tokens = 4 * 16
    forward = tokens * (2 * (24 * 32 ** 2 + 4 * 16 * 32) + 2 * 32 * 256)
    for row in steps[2:]:
        assert row["mfu"] == pytest.approx(3 * forward / (row["step_ms"] * 1e-3 * 1e12), rel=1e-3)
    top = json.loads(rondo("top", "known", "--json", "-").stdout)
    assert top["mfu"] == pytest.approx(steps[-1]["mfu"], rel=1e-6)
    run = train("--steps", 10, "--nproc-per-node", 2, "--strategy", "zero3", "--set", "peak-flops=measured", name="measured")
    steps = [row for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "loss" in row]
    assert all(0 < row["mfu"] < 1 for row in steps)
    assert "mfu" in rondo("report", "known", "-o", "report.html").stdout + (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("flags, facts", [
    (["--log-to", "wandb"], ["--log-to", "wandb", "mlflow"]),
    (["--log-to", "tensorbord"], ["--log-to tensorbord", "did you mean tensorboard?"]),
    (["--log-to", "otel"], ["--log-to otel", "did you mean otlp?"]),
    (["--log-to", "csv,mlflow,csv"], ["--log-to", "csv is named twice"]),
    (["--log-to", "csv", "--log-to", "csv"], ["--log-to", "csv is named twice"]),
    (["--log-to", "none,csv"], ["--log-to", "none cannot be combined"]),
    (["--log-to", ""], ["--log-to", "expected csv"]),
    (["--set", "mlflow-dir=x"], ["mlflow-dir has no effect with --log-to tensorboard", "--log-to mlflow"]),
    (["--log-to", "mlflow,csv", "--set", "tensorboard-histograms-every=5"], ["tensorboard-histograms-every", "--log-to mlflow,csv", "--log-to tensorboard"]),
    (["--log-to", "none", "--set", "otlp-step-spans=true"], ["otlp-step-spans has no effect with --log-to none"]),
    (["--log-to", "otlp", "--set", "otlp-endpoint=localhost:4318"], ["otlp-endpoint localhost:4318", "http://localhost:4318"]),
    (["--log-to", "prometheus", "--set", "prometheus-address=here:port"], ["prometheus-address", "here:port"]),
    (["--csv-log", "x"], ["unknown flag --csv-log", "--log-to csv"]),
    (["--prometheus", "9464"], ["unknown flag --prometheus", "--log-to prometheus"]),
    (["--set", "peak-flops=fast"], ["peak-flops", "fast"]),
    (["--set", "peak-flops=-1"], ["peak-flops", "-1"]),
])
def test_what_cannot_be(rondo, tmp_path, flags, facts):
    (tmp_path / "text.txt").write_text("words " * 500)
    done = rondo("train", "--data", "text.txt", "--steps", 1, "--run-dir", "run", *flags)
    assert done.returncode == 2 and all(fact in done.stderr for fact in facts), done.stderr
    assert not (tmp_path / "run").exists()
