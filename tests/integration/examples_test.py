"""Every example runs as its header says: on two or more ranks under the launcher, and as one process."""
import re

import pytest

TORCHSCRIPT_MODEL = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
torch.jit.script(model).save(sys.argv[1])
"""
TORCHSCRIPT_CHECK = """
import sys, torch
model = torch.jit.load(sys.argv[1])
inputs = torch.randn(256, 4, generator=torch.Generator().manual_seed(5))
print(torch.nn.functional.mse_loss(model(inputs), inputs.abs().sum(1, keepdim=True)).item())
"""


@pytest.fixture
def example(rondo, rondo_bin):
    """example(name, *words, ranks=2) runs it under the launcher and gives its standard output."""

    def run_example(name, *words, ranks=2):
        program = rondo_bin / "examples" / name
        result = rondo("run", "-n", ranks, program, *words, timeout=120)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run_example


def numbers(output, word):
    """The numbers that follow `word` in the output."""
    return [float(value) for value in re.findall(rf"{word} ([-\d.e+]+)", output)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_minimal(example, ranks):
    losses = numbers(example("minimal", ranks=ranks), "loss")
    assert len(losses) == 6 and losses[-1] < losses[0] / 100


def test_minimal_without_a_launcher(run, rondo_bin, clean_environment):
    result = run(rondo_bin / "examples" / "minimal", env=clean_environment)
    assert result.returncode == 0, result.stderr
    assert numbers(result.stdout, "loss")[-1] < 0.01


@pytest.mark.parametrize("strategy", ["zero3", "random"])
def test_sharded(example, strategy):
    output = example("sharded", strategy)
    losses = numbers(output, "loss")
    assert losses[-1] < 0.5 < losses[0]
    sums = re.findall(r"sum of weights (\S+)", output)
    assert len(sums) == 2 and len(set(sums)) == 1


def test_torch_data(example):
    output = example("torch_data")
    assert numbers(output, "evaluated") == [101, 101, 101]
    assert numbers(output, "accuracy")[-1] > 0.8


def test_gan(example):
    assert abs(numbers(example("gan"), "mean")[-1] - 3) < 1


def test_torchscript(example, run, repository, tmp_path):
    python = repository / ".venv" / "bin" / "python"
    source, trained = tmp_path / "in.pt", tmp_path / "out.pt"
    assert run(python, "-c", TORCHSCRIPT_MODEL, source).returncode == 0
    losses = numbers(example("torchscript", source, trained), "loss")
    assert losses[-1] < losses[0] / 4
    check = run(python, "-c", TORCHSCRIPT_CHECK, trained)
    assert check.returncode == 0, check.stderr
    assert float(check.stdout) < losses[0] / 4


def test_torchscript_usage(run, rondo_bin):
    result = run(rondo_bin / "examples" / "torchscript")
    assert result.returncode == 2 and "usage" in result.stderr


def test_spawn(run, rondo_bin, clean_environment):
    result = run(rondo_bin / "examples" / "spawn", 3, env=clean_environment)
    assert result.returncode == 0, result.stderr
    assert "3 ranks, sum 6" in result.stdout


def test_spawn_with_nothing_to_start(run, rondo_bin, clean_environment):
    result = run(rondo_bin / "examples" / "spawn", 0, env=clean_environment)
    assert result.returncode == 1 and "spawn:" in result.stderr


def test_collectives(example):
    output = example("collectives", ranks=3)
    assert "largest 20, weights 6" in output
    assert [numbers(output, "group of")] == [[2, 1, 2]]


@pytest.mark.parametrize("ranks", [1, 2])
def test_distillation(example, ranks):
    teacher, before, after = numbers(example("distillation", ranks=ranks), "accuracy")
    assert teacher > 0.85 and after > 0.85 and after > before + 0.1
