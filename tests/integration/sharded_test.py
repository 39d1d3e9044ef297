"""Sharded strategies as a user runs them: `rondo train --strategy`, plans, checkpoints that change strategy."""
import json
import re

import pytest
from marks import long

SMALL = ["--model", "gpt-tiny", "--layers", 2, "--heads", 2, "--width", 32, "--seq-len", 32, "--log-every", 1,
         "--seed", 3, "--batch-size", 4]


@pytest.fixture(scope="module")
def text(tmp_path_factory, repository):
    sources = sorted((repository / "rondo").rglob("*.h"))
    file = tmp_path_factory.mktemp("text") / "sources.txt"
    file.write_text("".join(source.read_text() for source in sources)[:60_000])
    return file


@pytest.fixture
def train(rondo, tmp_path, text):
    def run_train(*flags, run_dir="run", ranks=2, **options):
        return rondo("train", "--data", text, "--run-dir", tmp_path / run_dir, *SMALL, "--nproc-per-node", ranks,
                     *flags, timeout=120, **options)

    return run_train


def losses(run_directory):
    rows = [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["rank"] == 0 and "loss" in row]


@pytest.mark.parametrize("flags", [
    ["--strategy", "zero3", "--max-grad-norm", 1],
    ["--strategy", "random", "--set", "strategy-seed=7", "--backend", "gloo", "--set", "comm-schedule=random"],
], ids=["zero3 in shared memory", "a strategy for each unit, messages in any order"])
def test_losses_are_those_of_ddp(train, tmp_path, flags):
    clip = flags[2:4] if "--max-grad-norm" in flags else []
    train("--strategy", "ddp", "--steps", 6, *clip, run_dir="ddp").check_returncode()
    train("--steps", 6, *flags, run_dir="sharded").check_returncode()
    assert losses(tmp_path / "sharded") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-5)


def test_the_seed_draws_a_strategy_for_each_unit(train):
    """--seed, unless strategy-seed overrides it."""
    def drawn(*flags, run_dir):
        finished = train("--strategy", "random", *flags, "--steps", 1, "--matmul", "libtorch", run_dir=run_dir,
                         env={"RONDO_LOG_LEVEL": "info"})
        finished.check_returncode()
        (line,) = re.findall(r"strategy random has drawn (.*)", finished.stderr)
        assert [word.split(" ")[0] for word in line.split(", ")] == ["root", "transformer.h.0", "transformer.h.1"]
        return line

    by_seed = drawn("--seed", 7, run_dir="a")
    assert by_seed == drawn("--seed", 5, "--set", "strategy-seed=7", run_dir="b")
    assert by_seed != drawn("--seed", 8, run_dir="c")


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


def blocks_of(run_directory):
    """Returns the events of communication and of the compute lane of a run's trace."""
    events = json.loads((run_directory / "trace.json").read_text())["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    return ([event for event in complete if event["cat"] == "communication"],
            [event for event in complete if event["cat"] == "compute"])


@pytest.mark.parametrize("backend, collectives", [
    long("gloo", {"all_gather", "reduce_scatter"}), ("native", {"all_reduce"})])
def test_the_timeline_tells_the_way_of_every_block(train, rondo, tmp_path, backend, collectives):
    train("--strategy", "zero3", "--steps", 4, "--backend", backend).check_returncode()
    blocks, computed = blocks_of(tmp_path / "run")
    assert {event["name"].split()[0] for event in blocks} == collectives
    units = {"root", "transformer.h.0", "transformer.h.1"}
    assert {event["args"]["unit"] for event in blocks} == units
    assert {event["pid"] for event in blocks} == {0, 1}
    for event in blocks:
        arguments = event["args"]
        step = [e for e in computed if e["pid"] == event["pid"] and e["args"]["step"] == arguments["step"]]
        step_ms = (max(e["ts"] + e["dur"] for e in step) - min(e["ts"] for e in step)) / 1e3
        # Queued, then started, then finished; no wait is longer than the step.
        assert arguments["queued_ms"] >= 0 and event["dur"] >= 0 and arguments["bytes"] > 0
        assert 0 <= arguments["exposed_ms"] <= step_ms
        assert sum(arguments.get("overlapped_ms", {}).values()) <= event["dur"] / 1e3 + 1e-3
    assert any("overlapped_ms" in event["args"] for event in blocks)
    # Each unit runs forward and backward in each step, within the phase of that name.
    for name in ("forward", "backward"):
        phases = [e for e in computed if e["name"] == name]
        for unit in units - {"root"}:
            spans = [e for e in computed if e["name"] == f"{name} {unit}"]
            assert len(spans) == len(phases) == 2 * 4
            assert all(any(p["pid"] == e["pid"] and p["ts"] <= e["ts"] and e["ts"] + e["dur"] <= p["ts"] + p["dur"]
                           for p in phases) for e in spans)

    rondo("report", tmp_path / "run").check_returncode()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "transformer.h.1" in page and "exposed_ms" in page


@pytest.mark.parametrize("flags, says", [
    (["--strategy", "planned"], "--strategy planned needs --plan FILE"),
    (["--strategy", "planned", "--plan", "/nowhere.json"], "--plan: /nowhere.json: No such file"),
    (["--strategy", "hsdp", "--shard-ranks", 3], "--shard-ranks 3 does not divide the 2 ranks"),
    (["--strategy", "zero4"], "zero4"),
    (["--strategy", "zero3", "--set", "segment-size=many"], "segment-size"),
    (["--strategy", "zero3", "--set", "fuse-bytes=small"], "fuse-bytes"),
])
def test_mistakes_are_named(train, flags, says):
    wrong = train(*flags, "--steps", 1)
    assert wrong.returncode == 2
    assert says in wrong.stderr
