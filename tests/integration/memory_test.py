"""`rondo train`'s memory tracker: the peak by unit, the limit, and the effect of activation checkpointing."""
import json

import pytest


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 400)
    return path


MODEL = ["--model", "gpt-tiny", "--layers", 4, "--width", 64, "--heads", 2, "--seq-len", 64, "--batch-size", 8,
         "--steps", 3, "--log-every", 1, "--dropout", 0.1, "--progress", "off", "--validation-fraction", 0]


def train(run, rondo_bin, text, name, *flags):
    return run(rondo_bin / "rondo", "train", "--data", text, "--run-dir", name, *MODEL, *flags)


def rows_of(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("ranks, backend", [(1, "auto"), (2, "native"), (2, "gloo")])
def test_reports_peak_by_unit_and_kernel_figures(run, rondo_bin, text, tmp_path, ranks, backend):
    result = train(run, rondo_bin, text, "run", "--nproc-per-node", ranks, "--backend", backend)
    assert result.returncode == 0, result.stderr
    memory = json.loads((tmp_path / "run" / "memory.json").read_text())["ranks"]
    assert [peak["rank"] for peak in memory] == list(range(ranks))
    last = [row for row in rows_of(tmp_path / "run") if row["step"] == 3]
    for peak in memory:
        row = next(row for row in last if row["rank"] == peak["rank"])
        assert row["peak_bytes"] <= peak["peak_bytes"] < row["peak_rss_bytes"]
        assert sum(peak["categories"].values()) == peak["peak_bytes"]
        units = {unit["name"]: unit["categories"] for unit in peak["units"]}
        block = 64 * 64 * 12 + 64 * 13  # weights and biases of a block, its two norms included
        for layer in range(4):
            categories = units[f"transformer.h.{layer}"]
            assert categories["parameters"] == 4 * block
        assert peak["categories"]["optimizer_state"] == pytest.approx(2 * peak["categories"]["parameters"], rel=0.05)
        assert peak["phase"] in ("forward", "backward", "optimizer") and peak["step"] >= 1

    trace = json.loads((tmp_path / "run" / "trace.json").read_text())["traceEvents"]
    counters = [event for event in trace if event["ph"] == "C"]
    assert {event["pid"] for event in counters} == set(range(ranks))
    largest = max(sum(event["args"].values()) for event in counters if event["pid"] == 0)
    assert largest == memory[0]["peak_bytes"]


def test_a_timeline_is_of_steps_not_of_validations(run, rondo_bin, text, tmp_path):
    """Writing a timeline at the end would delay the end of a run that was asked to stop."""
    numbers = {}
    for batches in (1, 20):
        result = train(run, rondo_bin, text, str(batches), "--validation-fraction", 0.5, "--eval-every", 1,
                       "--eval-batch-size", 1, "--eval-batches", batches)
        assert result.returncode == 0, result.stderr
        trace = json.loads((tmp_path / str(batches) / "trace.json").read_text())["traceEvents"]
        numbers[batches] = sum(event["ph"] == "C" for event in trace)
    assert numbers[20] == numbers[1] > 0


def test_checkpointing_changes_memory_and_nothing_else(run, rondo_bin, text, tmp_path):
    losses, peaks = {}, {}
    for which in ("none", "all", "every-2", "transformer.h.1,transformer.h.3"):
        name = which.replace(",", "+")
        result = train(run, rondo_bin, text, name, "--activation-checkpointing", which)
        assert result.returncode == 0, result.stderr
        losses[which] = [row["loss"] for row in rows_of(tmp_path / name)]
        peaks[which] = json.loads((tmp_path / name / "memory.json").read_text())["ranks"][0]["peak_bytes"]
    assert all(loss == losses["none"] for loss in losses.values())
    assert peaks["all"] < peaks["every-2"] < peaks["none"]


def test_limit_error_lists_memory_in_use(run, rondo_bin, text):
    result = train(run, rondo_bin, text, "run", "--memory-limit", "4MiB")
    assert result.returncode == 1
    assert "memory limit exceeded" in result.stderr and "4.0 MiB" in result.stderr
    assert "In use:" in result.stderr and "activations of transformer.h." in result.stderr
    assert "--activation-checkpointing" in result.stderr
    assert train(run, rondo_bin, text, "roomy", "--memory-limit", "1GiB").returncode == 0


def test_a_limit_below_the_model_itself_is_named(run, rondo_bin, text):
    result = train(run, rondo_bin, text, "run", "--width", 512, "--memory-limit", "16MiB", "--strategy", "zero3",
                   "--nproc-per-node", 2)
    assert result.returncode == 2, result.stderr
    assert "--memory-limit 16MiB is too small for --model gpt-tiny" in result.stderr, result.stderr
    assert "Raise the limit, or train a smaller model" in result.stderr


@pytest.mark.parametrize("flags, expected", [
    (["--memory-limit", "lots"], "--memory-limit"),
    (["--activation-checkpointing", "every-0"], "at least 1"),
    (["--activation-checkpointing", "transformer.h.9"], "has no unit 'transformer.h.9'"),
])
def test_wrong_usage(run, rondo_bin, text, flags, expected):
    result = train(run, rondo_bin, text, "run", *flags)
    assert result.returncode == 2, result.stderr
    assert expected in result.stderr


# Deep enough that full weights or a full optimizer state would be the peak.
DEEP = ["--layers", 10, "--width", 128, "--heads", 2, "--seq-len", 32, "--batch-size", 2, "--eval-batch-size", 2]


@pytest.mark.parametrize("backend", ["native", pytest.param("gloo", marks=pytest.mark.long)])
def test_validation_and_checkpoints_fit_where_training_does(run, rondo_bin, text, tmp_path, backend):
    """Shards are gathered unit by unit to validate, and tensor by tensor to save."""
    job = [*DEEP, "--strategy", "zero3", "--nproc-per-node", 2, "--backend", backend, "--prefetch", 0]
    assert train(run, rondo_bin, text, "alone", *job, "--steps", 4).returncode == 0
    in_training = max(row["peak_bytes"] for row in rows_of(tmp_path / "alone") if row["step"] == 4)
    limit = ["--memory-limit", f"{int(in_training * 1.02)}"]
    watched = [*job, *limit, "--validation-fraction", 0.1, "--eval-every", 2, "--checkpoint-every", 2]
    result = train(run, rondo_bin, text, "limited", *watched, "--steps", 4)
    assert result.returncode == 0, result.stderr
    resumed = train(run, rondo_bin, text, "limited", *watched, "--steps", 6, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    whole = train(run, rondo_bin, text, "whole", *job, "--validation-fraction", 0.1, "--eval-every", 2, "--steps", 6)
    assert whole.returncode == 0, whole.stderr
    for name in ("loss", "validation_loss"):
        limited, plain = ([row[name] for row in rows_of(tmp_path / run_name) if name in row] for run_name in ("limited", "whole"))
        assert limited == plain and plain
