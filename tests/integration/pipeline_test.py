"""`rondo train --mesh`, `--strategy pipeline`, as a user runs it: a model in stages."""
import json

import pytest
from marks import long
from safetensors_files import read_safetensors
from sharded_options_test import losses, train  # noqa: F401

FLAGS = ["--batch-size", 8, "--eval-every", 0]


def validation(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row["validation_loss"] for row in rows if "validation_loss" in row][-1]


def test_every_schedule_trains_as_one_process(train, tmp_path):  # noqa: F811
    train(*FLAGS, "--steps", 6, run_dir="alone", ranks=1).check_returncode()
    expected = losses(tmp_path / "alone")
    for schedule in ["gpipe", "1f1b", "zb_h1", "zb_v"]:
        result = train("--strategy", "pipeline", "--pipeline-schedule", schedule, "--micro-batches", 4, *FLAGS, "--steps", 6,
                       "--max-grad-norm", 100, run_dir=schedule)
        assert result.returncode == 0, result.stderr
        assert losses(tmp_path / schedule) == pytest.approx(expected, rel=1e-4)
        assert validation(tmp_path / schedule) == pytest.approx(validation(tmp_path / "alone"), rel=1e-4)


@pytest.mark.parametrize("strategy", [long("ddp"), "zero1"])
def test_a_mesh_of_pipeline_and_data(train, tmp_path, strategy):  # noqa: F811
    train(*FLAGS, "--steps", 4, run_dir="alone", ranks=1).check_returncode()
    result = train("--mesh", "pipeline=2,data=2", "--strategy", strategy, "--micro-batches", 2, "--batch-size", 4,
                   "--eval-every", 0, "--steps", 4, ranks=4)
    assert result.returncode == 0, result.stderr
    assert "one unit" not in result.stderr  # a stage is one unit, which a user cannot change
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "alone"), rel=1e-4)


def test_master_weights_of_stages(train, tmp_path):  # noqa: F811
    flags = [*FLAGS, "--precision", "O2", "--max-grad-norm", 1]
    train(*flags, "--steps", 6, run_dir="alone", ranks=1).check_returncode()
    for steps, more in ((3, ["--strategy", "pipeline", "--micro-batches", 4]), (6, ["--resume", "--strategy", "tensor"])):
        result = train(*more, *flags, "--steps", steps)
        assert result.returncode == 0, result.stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "alone"), rel=1e-2)
    weights = read_safetensors(max((tmp_path / "run" / "checkpoints").glob("step-*")) / "model.safetensors")
    assert {str(array.dtype) for array in weights.values()} == {"float32"}


def test_resumes_with_other_or_no_stages(train, tmp_path):  # noqa: F811
    train(*FLAGS, "--steps", 9, run_dir="alone", ranks=1).check_returncode()
    train("--strategy", "pipeline", *FLAGS, "--steps", 3).check_returncode()
    result = train("--resume", "--strategy", "ddp", "--batch-size", 4, "--steps", 6)
    assert result.returncode == 0, result.stderr
    result = train("--resume", "--strategy", "pipeline", "--set", "stage-cuts=transformer.h.1", "--batch-size", 8, "--steps", 9)
    assert result.returncode == 0, result.stderr
    assert losses(tmp_path / "run")[-3:] == pytest.approx(losses(tmp_path / "alone")[-3:], rel=1e-3)


def test_resumes_parts_in_other_meshes(train, tmp_path):  # noqa: F811
    """Every rank writes its part of the state: stages, then divided layers, then everything."""
    parts = ["--checkpoint-sharded"]
    train(*FLAGS, "--steps", 10, run_dir="alone", ranks=1).check_returncode()
    for steps, batch, more in [(3, 8, ["--strategy", "pipeline"]), (4, 8, ["--strategy", "pipeline"]), (5, 8, ["--strategy", "tensor"]),
                               (6, 8, ["--strategy", "tensor"]), (8, 8, ["--strategy", "pipeline", "--pipeline-schedule", "zb_v"]),
                               (10, 4, ["--strategy", "ddp"])]:
        resume = ["--resume"] if steps > 3 else []
        result = train(*resume, *more, *parts, "--batch-size", batch, "--eval-every", 0, "--steps", steps)
        assert result.returncode == 0, result.stderr
        newest = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[-1]
        assert (newest / "model-00002-of-00002.safetensors").exists(), more
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "alone"), rel=1e-3)


def test_bubbles_are_in_the_trace_and_the_report(train, rondo, tmp_path):  # noqa: F811
    train("--strategy", "pipeline", "--micro-batches", 4, *FLAGS, "--trace-steps", 3, "--steps", 3).check_returncode()
    done = rondo("report", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    trace = json.loads((tmp_path / "run" / "trace.json").read_text())
    # In the compute lane: rank 1 waits for its first activation, rank 0 for gradients.
    waits = {(event["pid"], event["name"]) for event in trace["traceEvents"] if event.get("tid") == 0 and "wait" in event["name"]}
    assert (1, "wait stage 1, micro-batch 0") in waits
    assert any(rank == 0 and "stage 0, micro-batch" in name for rank, name in waits)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "wait for activation" in page and "stage 1, micro-batch 0" in page


@pytest.mark.parametrize("flags, named", [
    (["--mesh", "pipeline=2,data=2"], ["4", "2"]),
    (["--mesh", "rows=2"], ["'rows'", "pipeline"]),
    (["--mesh", "pipeline=x"], ["--mesh", "x"]),
    (["--strategy", "pipeline", "--pipeline-schedule", "2f2b"], ["2f2b", "zb_v"]),
    (["--strategy", "pipeline", "--micro-batches", 0], ["--micro-batches", "0"]),
    (["--strategy", "pipeline", "--set", "stage-cuts=transformer.h.7"], ["'transformer.h.7'", "transformer.h.1"]),
    (["--strategy", "pipeline", "--set", "stage-cuts=transformer.h.0,head"], ["2", "3"]),
    (["--strategy", "pipeline", "--pipeline-schedule", "interleaved", "--set", "pipeline-chunks=3"], ["4", "6"]),
    (["--micro-batches", 2], ["--micro-batches"]),
])
def test_what_cannot_be_is_refused(train, flags, named):  # noqa: F811
    result = train(*flags, "--steps", 1)
    assert result.returncode == 2
    for fact in named:
        assert fact in result.stderr


def test_few_micro_batches_are_warned_of(train):  # noqa: F811
    result = train("--strategy", "pipeline", "--micro-batches", 1, *FLAGS, "--steps", 1)
    assert result.returncode == 0, result.stderr
    assert "--micro-batches 1" in result.stderr and "%" in result.stderr
