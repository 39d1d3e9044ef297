"""`rondo train --experts`: a gpt with experts over a mesh, as a user runs it."""
import json
import re

import pytest

EXPERTS = ["--experts", 4, "--set", "experts-per-token=2", "--eval-every", 0]
SMALL = ["--model", "gpt-tiny", "--layers", 2, "--heads", 2, "--width", 32, "--seq-len", 32, "--log-every", 1, "--seed", 3,
         "--global-batch-size", 8, "--trace-steps", 0, "--progress", "off"]


@pytest.fixture
def train(rondo, tmp_path, repository):
    def run_train(*flags, run_dir="run", ranks=2):
        return rondo("train", "--data", repository / "README.md", "--run-dir", tmp_path / run_dir, *SMALL,
                     "--nproc-per-node", ranks, *flags, timeout=120)

    return run_train


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run):
    return [row["loss"] for row in rows(run) if row["rank"] == 0 and "loss" in row]


def validation(run):
    return [row["validation_loss"] for row in rows(run) if "validation_loss" in row][-1]


def test_expert_mesh_trains_and_resumes_on_another_mesh(train, rondo, tmp_path):
    flags = [*EXPERTS, "--set", "capacity-factor=1", "--max-grad-norm", 1]
    train(*flags, "--steps", 8, run_dir="one", ranks=1).check_returncode()
    # Spread over two ranks, then over four (two with copies, or divided sequences), then on one again.
    train(*flags, "--mesh", "expert=2", "--steps", 4).check_returncode()
    train("--resume", "--mesh", "data=2,expert=2", "--steps", 6, ranks=4).check_returncode()
    train("--resume", "--mesh", "context=2,expert=2", "--steps", 7, ranks=4).check_returncode()
    train("--resume", "--mesh", "data=1", "--steps", 8, ranks=1).check_returncode()
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "one"), rel=1e-5)
    assert validation(tmp_path / "run") == pytest.approx(validation(tmp_path / "one"), rel=1e-5)
    for key in ("routed_tokens", "dropped_tokens", "gradient_norm", "balance_loss"):
        one = [row[key] for row in rows(tmp_path / "one") if key in row and row["rank"] == 0]
        mesh = [row[key] for row in rows(tmp_path / "run") if key in row and row["rank"] == 0]
        assert mesh == pytest.approx(one, rel=1e-4) and len(one) == 8, key
    # Two layers, two experts per token, eight samples of 32 tokens.
    assert rows(tmp_path / "run")[0]["routed_tokens"] == 2 * 2 * 8 * 32
    assert rows(tmp_path / "run")[0]["dropped_tokens"] > 0
    rondo("report", tmp_path / "run").check_returncode()
    page = (tmp_path / "run" / "report.html").read_text()
    (drawn,) = re.findall(r'{"name":"dropped_tokens","training":\[(.*?)\],"validation"', page)
    assert drawn.count("[") == 8


def test_nothing_is_dropped_without_a_capacity(train, tmp_path):
    train(*EXPERTS, "--set", "capacity-factor=0", "--strategy", "expert", "--steps", 2).check_returncode()
    assert all(row["dropped_tokens"] == 0 for row in rows(tmp_path / "run") if "loss" in row)


@pytest.mark.parametrize("flags, ranks, facts", [
    ([*EXPERTS, "--mesh", "expert=3", "--global-batch-size", 9], 3, ["4 experts", "3 ranks"]),
    ([*EXPERTS, "--mesh", "expert=2", "--strategy", "zero1"], 2, ["zero1", "expert=2"]),
    (["--mesh", "expert=2"], 2, ["--experts"]),
    (["--experts", 4, "--set", "experts-per-token=3"], 1, ["experts-per-token 3", "from 1 to 2"]),
    (["--set", "experts-per-token=2"], 1, ["experts-per-token", "--experts"]),
    (["--experts", 4, "--set", "capacity-factor=-1"], 1, ["capacity-factor", "-1"]),
    (["--experts", 1, "--set", "experts-per-token=2"], 1, ["2 experts", "1"]),
])
def test_what_cannot_be_is_refused(train, flags, ranks, facts):
    result = train(*flags, "--steps", 1, ranks=ranks)
    assert result.returncode == 2, result.stderr
    for fact in facts:
        assert fact in result.stderr, result.stderr
