"""Tensor parallelism as a user runs it: `rondo train --strategy tensor`, meshes, checkpoints of any layout, errors."""
import json

import pytest
from marks import long

from safetensors_files import read_safetensors

SMALL = ["--model", "gpt-tiny", "--layers", 2, "--heads", 4, "--width", 32, "--seq-len", 32, "--log-every", 1,
         "--seed", 3, "--dropout", 0.1]


@pytest.fixture(scope="module")
def text(tmp_path_factory, repository):
    sources = sorted((repository / "rondo").rglob("*.h"))
    file = tmp_path_factory.mktemp("text") / "sources.txt"
    file.write_text("".join(source.read_text() for source in sources)[:60_000])
    return file


@pytest.fixture
def train(rondo, tmp_path, text):
    def run_train(*flags, run_dir="run", ranks=2, batch=4, **options):
        return rondo("train", "--data", text, "--run-dir", tmp_path / run_dir, *SMALL, "--nproc-per-node", ranks,
                     "--batch-size", batch, *flags, timeout=120, **options)

    return run_train


def rows(run_directory):
    return [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]


def losses(run_directory):
    return [row["loss"] for row in rows(run_directory) if row["rank"] == 0 and "loss" in row]


LAYOUTS = {"tensor": (["--strategy", "tensor"], 2, 4), "sequence": (["--strategy", "tensor", "--set", "sequence-parallel=true"], 2, 4),
           "mesh": (["--mesh", "data=2,tensor=2", "--strategy", "zero1"], 4, 2), "context": (["--mesh", "context=2"], 2, 4),
           "stages": (["--mesh", "pipeline=2,tensor=2", "--micro-batches", 2], 4, 4)}


@pytest.mark.parametrize("layouts", [["sequence", "mesh", "context"], long(["tensor", "stages"])], ids="-".join)
def test_losses_are_those_of_one_process(train, tmp_path, layouts):
    train("--steps", 6, "--max-grad-norm", 1, ranks=1, run_dir="one").check_returncode()
    one = losses(tmp_path / "one")
    for name in layouts:
        flags, ranks, batch = LAYOUTS[name]
        train("--steps", 6, "--max-grad-norm", 1, *flags, ranks=ranks, batch=batch, run_dir=name).check_returncode()
        assert losses(tmp_path / name) == pytest.approx(one, rel=1e-5), name


def test_checkpoints_are_of_the_whole_model(train, tmp_path):
    train("--steps", 8, ranks=1, run_dir="one").check_returncode()
    train("--strategy", "tensor", "--steps", 4, run_dir="parts").check_returncode()
    for file in (tmp_path / "parts" / "checkpoints").rglob("model*.safetensors"):
        shapes = {name: list(tensor.shape) for name, tensor in read_safetensors(file).items()}
        assert shapes["transformer.h.0.attn.c_attn.weight"] == [96, 32]
        assert shapes["transformer.wte.weight"] == [256, 32]
    train("--steps", 8, "--resume", ranks=1, run_dir="parts").check_returncode()
    assert losses(tmp_path / "parts")[-1] == pytest.approx(losses(tmp_path / "one")[-1], rel=1e-5)


def test_what_cannot_be_divided_names_both_numbers(train):
    finished = train("--strategy", "tensor", "--steps", 1, ranks=3)
    assert finished.returncode != 0
    assert "256" in finished.stderr and "3 ranks" in finished.stderr
    finished = train("--strategy", "tensor", "--set", "tensor-rules=*.nothing=column", "--steps", 1)
    assert finished.returncode != 0
    assert "*.nothing" in finished.stderr
    finished = train("--strategy", "context", "--steps", 1, ranks=3)
    assert finished.returncode != 0
    assert "32 positions" in finished.stderr and "3 ranks" in finished.stderr
