"""`rondo train --strategy local_sgd`, as a user runs it: ranks train independently between averages."""
import json

import pytest
from marks import long
from sharded_options_test import train  # noqa: F401

LOCAL = ["--strategy", "local_sgd", "--sync-period", 3, "--optimizer", "sgd", "--lr", 0.1, "--eval-every", 0]


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run, rank):
    return {row["step"]: row["loss"] for row in rows(run) if row["rank"] == rank and "loss" in row}


def validation(run):
    return [row["validation_loss"] for row in rows(run) if "validation_loss" in row][-1]


@pytest.mark.parametrize("flags", [long([]), ["--outer-optimizer", "diloco", "--set", "sync-fragments=2"], long(["--set", "synchronous-steps=4"]),
                                   ["--set", "sync-delay=2"]])
def test_a_resumed_run_is_the_whole_run(train, tmp_path, flags):  # noqa: F811
    train(*LOCAL, *flags, "--steps", 10, run_dir="whole").check_returncode()
    train(*LOCAL, *flags, "--steps", 7).check_returncode()
    train("--resume", "--steps", 10).check_returncode()
    for rank in (0, 1):
        assert losses(tmp_path / "run", rank) == losses(tmp_path / "whole", rank)
    assert validation(tmp_path / "run") == validation(tmp_path / "whole")
    # Between averages each rank's row has its own loss; at an average it is the mean over ranks.
    first, second = losses(tmp_path / "whole", 0), losses(tmp_path / "whole", 1)
    joint = {1, 2, 3, 4, 7, 10} if "synchronous-steps=4" in flags else {3, 6, 9}
    assert {step for step in first if first[step] == second[step]} == joint


def test_replicas_in_memory_change_nothing(train, tmp_path):  # noqa: F811
    flags = [*LOCAL, "--set", "sync-delay=2", "--outer-optimizer", "diloco", "--max-restarts", 1, "--steps", 8]
    train(*flags, run_dir="whole").check_returncode()
    train(*flags, "--memory-checkpoint-every", 2).check_returncode()
    for rank in (0, 1):
        assert losses(tmp_path / "run", rank) == losses(tmp_path / "whole", rank)


def test_it_learns_as_ddp_does(train, tmp_path):  # noqa: F811
    optimizer = ["--lr", 3e-3, "--steps", 120, "--eval-every", 0]
    train("--strategy", "ddp", *optimizer, run_dir="ddp").check_returncode()
    expected = validation(tmp_path / "ddp")
    for name, flags in {"average": [], "delayed": ["--set", "sync-delay=4", "--set", "sync-fragments=2"]}.items():
        train("--strategy", "local_sgd", "--sync-period", 8, *flags, *optimizer, run_dir=name).check_returncode()
        assert validation(tmp_path / name) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("ranks, strategy", [long(2, ["--strategy", "zero2"]), (3, []), long(1, ["--strategy", "one_device"])])
def test_resumes_under_another_strategy_or_rank_count(train, tmp_path, ranks, strategy):  # noqa: F811
    train(*LOCAL, "--outer-optimizer", "diloco", "--steps", 6).check_returncode()
    before = validation(tmp_path / "run")
    result = train("--resume", *strategy, "--steps", 8, ranks=ranks)
    assert result.returncode == 0, result.stderr
    assert validation(tmp_path / "run") < before + 0.05
    if ranks == 3:
        assert "2 ranks" in result.stderr and "3" in result.stderr
    # From any other strategy to local_sgd.
    result = train("--resume", "--strategy", "local_sgd", "--sync-period", 2, "--steps", 12)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("flags, message", [
    (["--strategy", "local_sgd", "--sync-period", 0], "--sync-period 0"),
    (["--strategy", "local_sgd", "--set", "sync-delay=8"], "sync-delay 8"),
    (["--strategy", "local_sgd", "--set", "sync-fragments=9"], "sync-fragments 9"),
    (["--strategy", "local_sgd", "--set", "outer-lr=1"], "outer-lr"),
    (["--strategy", "ddp", "--sync-period", 4], "--sync-period"),
    (["--strategy", "local_sgd", "--precision", "O2", "--amp-dtype", "bfloat16"], "local_sgd"),
])
def test_what_cannot_be_is_refused(train, flags, message):  # noqa: F811
    result = train(*flags, "--steps", 1)
    assert result.returncode == 2 and message in result.stderr, result.stderr
