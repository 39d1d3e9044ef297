"""`rondo new`: its project builds and trains in two commands; a rejected one leaves nothing behind."""
import json
import os

import pytest
from building import cached, cached_compilation, must, without_launcher


@pytest.fixture
def new(installed, tmp_path, run, clean_environment, rondo_bin):
    """new(*words) runs the installed program, with the libtorch of the build under test."""
    libtorch = cached(rondo_bin, "LIBTORCH")
    environment = clean_environment | ({"LIBTORCH": libtorch} if libtorch else {})
    return lambda *words: run(installed / "bin" / "rondo", "new", *words, env=environment, cwd=tmp_path)


@pytest.mark.tooling  # make test runs these commands as README.md has them (pages_test.py)
def test_a_new_project_trains_in_two_commands(new, run, installed, rondo_bin, tmp_path):
    environment = without_launcher() | cached_compilation(rondo_bin, installed)
    project = tmp_path / "projects" / "my_model"
    project.parent.mkdir()
    result = new(project)
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in project.iterdir()) == [
        ".gitignore", "CMakeLists.txt", "Makefile", "README.md", "model.cpp", "net.h", "train.cpp"]
    must("make", "-C", project, env=environment, timeout=600)
    out = must("make", "-C", project, "train", env=environment, timeout=300)
    line = next(line for line in out.splitlines() if "validation loss" in line)
    assert float(line.split("validation loss ")[1].split(",")[0]) < 1
    assert list((project / "checkpoints").iterdir())
    wrong = run(project / "build" / "train", "--stratgy", "zero3", env=environment, cwd=project)
    assert wrong.returncode == 2 and "usage:" in wrong.stderr
    # The same model as a module in rondo's own programs.
    for _ in range(2):  # repeatable
        must("make", "-C", project, "train-module", env=environment, timeout=300)
    trained = sorted((project / "runs").iterdir())
    assert len(trained) == 2
    judged = run(installed / "bin" / "rondo", "evaluate", trained[-1], "--json", "-", env=environment, cwd=project)
    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout)["figures"]["accuracy"] > 0.8


@pytest.mark.parametrize("name", ["", "1st", "a b", "x;y", "-x/../y z", "x" * 101])
def test_names_that_cannot_be(new, tmp_path, name):
    result = new("--", name)
    assert result.returncode == 2 and "NAME" in result.stderr, result.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays(new, tmp_path):
    (tmp_path / "mine").mkdir()
    os.symlink("nowhere", tmp_path / "link")
    for name in ("mine", "link"):
        result = new(name)
        assert result.returncode == 2 and name in result.stderr
    assert list((tmp_path / "mine").iterdir()) == [] and new("no/such/folder").returncode == 1


def test_a_build_says_where_to_run_it(rondo, tmp_path):
    result = rondo("new", "my_model")
    assert result.returncode == 2 and "make install" in result.stderr and not (tmp_path / "my_model").exists()
