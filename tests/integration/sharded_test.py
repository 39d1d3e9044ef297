"""Sharded strategies as a user meets them: `rondo train --strategy`, plans, checkpoints that change strategy."""
import json

import pytest

SMALL = ["--model", "gpt-tiny", "--layers", 2, "--heads", 2, "--width", 32, "--context", 32, "--log-every", 1,
         "--seed", 3, "--batch-size", 4]


@pytest.fixture(scope="module")
def text(tmp_path_factory, repository):
    sources = sorted((repository / "rondo").rglob("*.h"))
    file = tmp_path_factory.mktemp("text") / "sources.txt"
    file.write_text("".join(source.read_text() for source in sources)[:60_000])
    return file


@pytest.fixture
def train(rondo, tmp_path, text):
    def run_train(*flags, run_dir="run", ranks=2):
        return rondo("train", "--data", text, "--run-dir", tmp_path / run_dir, *SMALL, "--nproc-per-node", ranks,
                     *flags, timeout=120)

    return run_train


def losses(run_directory):
    rows = [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["rank"] == 0 and "loss" in row]


@pytest.mark.parametrize("flags", [
    ["--strategy", "zero3", "--clip-norm", 1],
    ["--strategy", "random", "--strategy-seed", 7, "--backend", "gloo", "--comm-schedule", "random"],
], ids=["zero3 in shared memory", "a strategy for each unit, messages in any order"])
def test_losses_are_those_of_ddp(train, tmp_path, flags):
    clip = flags[2:4] if "--clip-norm" in flags else []
    train("--strategy", "ddp", "--steps", 6, *clip, run_dir="ddp").check_returncode()
    train("--steps", 6, *flags, run_dir="sharded").check_returncode()
    assert losses(tmp_path / "sharded") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-5)


def test_a_checkpoint_of_one_strategy_continues_under_another(train, rondo, tmp_path):
    train("--strategy", "ddp", "--steps", 8, run_dir="whole").check_returncode()
    train("--strategy", "zero3", "--steps", 4).check_returncode()
    rondo("train", "--resume", "--run-dir", tmp_path / "run", "--steps", 6, "--strategy", "zero2", "--nproc-per-node",
          2, "--backend", "gloo", timeout=120).check_returncode()
    rondo("train", "--resume", "--run-dir", tmp_path / "run", "--steps", 8, "--strategy", "ddp", "--nproc-per-node", 2,
          timeout=120).check_returncode()
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "whole"), rel=1e-5)


def test_a_plan_says_which_unit_is_kept_how(train, tmp_path):
    plan = {"units": [{"name": name, "strategy": strategy} for name, strategy in
                      [("root", "ddp"), ("transformer.h.0", "zero3"), ("transformer.h.1", "zero1")]]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    train("--strategy", "planned", "--plan", tmp_path / "plan.json", "--steps", 3).check_returncode()

    plan["units"][1]["name"] = "transformer.h.9"
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    wrong = train("--strategy", "planned", "--plan", tmp_path / "plan.json", "--steps", 3, run_dir="other")
    assert wrong.returncode == 2
    assert "names units that the model does not have: transformer.h.9" in wrong.stderr
    assert "leaves out units of the model: transformer.h.0" in wrong.stderr


@pytest.mark.parametrize("flags, says", [
    (["--strategy", "planned"], "--strategy planned needs --plan FILE"),
    (["--strategy", "planned", "--plan", "/nowhere.json"], "the plan file /nowhere.json cannot be read"),
    (["--strategy", "hsdp", "--shard-ranks", 3], "--shard-ranks 3 does not divide the 2 ranks"),
    (["--strategy", "zero4"], "zero4"),
    (["--strategy", "zero3", "--block-size", "many"], "--block-size"),
])
def test_mistakes_are_named(train, flags, says):
    wrong = train(*flags, "--steps", 1)
    assert wrong.returncode == 2
    assert says in wrong.stderr
