"""MLflow imports the folders of `rondo train --log-to mlflow`, and TensorBoard's own loader reads its events, histograms too."""
import os
import pathlib
import subprocess
import sys

import pytest

RONDO = pathlib.Path(os.environ["RONDO_BIN"]).resolve() / "rondo"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 200)
    words = ["train", "--data", "text.txt", "--model", "gpt", "--layers", "1", "--heads", "2", "--width", "32", "--seq-len", "16", "--steps", "20",
             "--nproc-per-node", "2", "--strategy", "zero3", "--log-to", "tensorboard,mlflow", "--set", "mlflow-dir=mlruns", "--set", "tensorboard-histograms-every=10",
             "--run-dir", "run"]
    done = subprocess.run([RONDO, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return tmp_path / "run"


def test_tensorboard_reads_scalars_and_histograms(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(run), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [10, 20]
    tags = events.Tags()["histograms"]
    weight = "transformer.h.0.mlp.c_fc.weight"
    assert f"weights/{weight}" in tags and f"gradients/{weight}" in tags
    for event in events.Histograms(f"weights/{weight}"):
        histogram = event.histogram_value
        assert sum(histogram.bucket) == pytest.approx(histogram.num) == 4 * 32 * 32  # of the whole model, each element once
        assert histogram.min < 0 < histogram.max and histogram.bucket_limit == sorted(histogram.bucket_limit)
        assert histogram.bucket_limit[-1] >= histogram.max


def test_mlflow_imports_the_run(run, tmp_path):
    mlflow = pathlib.Path(sys.executable).parent / "mlflow"
    database = f"sqlite:///{tmp_path}/mlflow.db"
    done = subprocess.run([mlflow, "migrate-filestore", "--source", tmp_path / "mlruns", "--target", database], capture_output=True, text=True,
                          timeout=280, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    from mlflow.tracking import MlflowClient
    client = MlflowClient(tracking_uri=database)
    imported, = client.search_runs(["0"])
    assert imported.info.status == "FINISHED" and imported.data.params["steps"] == "20"
    assert [each.step for each in client.get_metric_history(imported.info.run_id, "loss")] == [10, 20]
