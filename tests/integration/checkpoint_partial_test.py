"""Weights loaded in part by rules for names, and checkpoints that link unchanged tensors."""
import pytest
from safetensors_files import read_safetensors, write_safetensors

from checkpoint_parts_test import MODEL, losses, newest, run


@pytest.fixture
def words(rondo_bin, repository):
    return [rondo_bin / "rondo", "train", "--data", repository / "docs", *MODEL]


@pytest.fixture
def trained(words, clean_environment, tmp_path):
    """Returns the weights of a run of one step."""
    run(words, clean_environment, "--steps", 1, "--run-dir", tmp_path / "source")
    return read_safetensors(newest(tmp_path / "source") / "model.safetensors")


def test_rules_load_renamed_weights(words, clean_environment, trained, tmp_path):
    """The losses after loading under other names equal those after loading under the model's own names."""
    weights = {f"theirs.{name}": array for name, array in trained.items()}
    write_safetensors(tmp_path / "theirs.safetensors", weights)
    start = ["--steps", 2, "--lr", "0"]
    run(words, clean_environment, *start, "--run-dir", tmp_path / "own", "--init-from", newest(tmp_path / "source"))
    load = [*start, "--init-from", tmp_path / "theirs.safetensors"]
    done = run(words, clean_environment, *load, "--run-dir", tmp_path / "renamed", "--set", "init-rename=theirs.*=*")
    assert f"{len(trained)} tensors loaded" in done.stderr
    assert losses(tmp_path / "renamed") == losses(tmp_path / "own")
    # A tensor that the model lacks, one of another shape, a missing one, and a rule without effect.
    first, second, third = sorted(name for name, array in trained.items() if array.ndim == 2)[:3]
    weights["theirs.stranger"] = weights[f"theirs.{first}"]
    weights[f"theirs.{second}"] = weights[f"theirs.{second}"].T[:1].copy()
    del weights[f"theirs.{third}"]
    write_safetensors(tmp_path / "theirs.safetensors", weights)
    rules = ["--set", "init-rename=theirs.*=*,nobody.*=x.*"]
    done = run(words, clean_environment, *load, *rules, "--run-dir", tmp_path / "refused", code=1)
    for name in ("theirs.safetensors", "theirs.stranger", second, third, "nobody.*=x.*"):
        assert name in done.stderr, done.stderr
    done = run(words, clean_environment, *load, *rules, "--init-strict=false", "--run-dir", tmp_path / "partial")
    for name in ("theirs.stranger", second, third, "nobody.*=x.*"):
        assert name in done.stderr, done.stderr


@pytest.mark.parametrize("flags, fact", [
    (["--init-from", "x.safetensors", "--set", "init-rename=a.*=b"], "a.*=b"),
    (["--init-from", "x.safetensors", "--set", "init-rename=ab"], "ab"),
    (["--set", "init-rename=a=b"], "--init-from"),
    (["--init-strict=false"], "--init-from"),
    (["--set", "checkpoint-incremental=true", "--checkpoint-sharded"], "--checkpoint-sharded"),
])
def test_bad_flags(words, clean_environment, tmp_path, flags, fact):
    write_safetensors(tmp_path / "x.safetensors", {})
    flags = [tmp_path / word if word == "x.safetensors" else word for word in flags]
    done = run(words, clean_environment, "--steps", 1, "--run-dir", tmp_path / "run", *flags, code=2)
    assert fact in done.stderr


def test_links_frozen_weights_and_resumes(words, rondo_bin, clean_environment, trained, tmp_path):
    """Two processes as zero2, and one: all checkpoints share one file of frozen tensors."""
    words = [word if word != "32" else "128" for word in words]
    frozen = ["--freeze", sorted(name for name, array in trained.items() if array.ndim == 2)[0].rsplit(".", 1)[0]]
    for label, more in (("whole", []), ("linked", ["--set", "checkpoint-incremental=true"])):
        for steps, resume in ((3, []), (5, ["--resume"])):
            run(words, clean_environment, "--steps", steps, *resume, "--run-dir", tmp_path / label, "--checkpoint-every", 1,
                "--keep-checkpoints", 2, "--nproc-per-node", 2, "--strategy", "zero2", *frozen, *more)
    assert losses(tmp_path / "linked") == losses(tmp_path / "whole")
    run([rondo_bin / "rondo", "checkpoint", "verify", tmp_path / "linked"], clean_environment)
    run([rondo_bin / "rondo", "checkpoint", "diff", tmp_path / "linked", tmp_path / "whole"], clean_environment)
    assert len(list((tmp_path / "linked" / "checkpoints").glob("step-*"))) == 2
    links = {path.name: path.stat().st_nlink for path in newest(tmp_path / "linked").iterdir()}
    assert 2 in links.values(), links
    assert links["manifest.json"] == 1
