"""The selection of changed files by scripts/tidy.sh, with fakes of clang's programs."""
import json
import os
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.tooling


@pytest.fixture
def tree(repository, tmp_path):
    """A project of three files that changed since its first commit."""
    root = tmp_path / "project"
    (root / "scripts").mkdir(parents=True)
    for script in ("common.sh", "tidy.sh"):
        shutil.copy(repository / "scripts" / script, root / "scripts")
    programs = root / "programs"
    programs.mkdir()
    for name in ("clang++", "cmake"):
        (programs / name).write_text("#!/bin/sh\n")
    (programs / "clang-tidy").write_text('#!/bin/sh\nfor file; do :; done\necho "checked $file"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    build = root / "build" / "tidy"
    build.mkdir(parents=True)
    (build / "build.ninja").touch()
    sources = ["a.cpp", "b.cpp", "c.cpp"]
    (build / "compile_commands.json").write_text(json.dumps([{"file": str(root / name)} for name in sources], indent=1))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "begin"]):
        subprocess.run([*git, *command], cwd=root, check=True)
    for name in sources:
        (root / name).write_text("int value;\n")
    subprocess.run([*git, "add", *sources], cwd=root, check=True)
    subprocess.run([*git, "commit", "-q", "-m", "change"], cwd=root, check=True)
    return root


def tidy_changed(root, **variables):
    result = subprocess.run([root / "scripts" / "tidy.sh", "--changed"], capture_output=True, text=True, timeout=60,
                            env=os.environ | {"PATH": f"{root / 'programs'}:{os.environ['PATH']}"} | variables)
    assert result.returncode == 0, result.stderr
    lines = (result.stdout + result.stderr).splitlines()
    checked = sorted(line.split()[1] for line in lines if line.startswith("checked "))
    return checked, [line.strip() for line in lines if line.startswith("  ")]


def commit(root, files):
    for name, text in files.items():
        (root / name).write_text(text)
    subprocess.run(["git", "add", *files], cwd=root, check=True)
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "-q", "-m", "more"], cwd=root, check=True)


def test_checks_headers_through_including_sources(tree):
    """A header that no source reaches does not end the list: alphabetically it precedes the others."""
    commit(tree, {"b.cpp": '#include "outer.h"\n', "outer.h": '#include "inner.h"\n', "inner.h": "int one;\n", "c.h": "int two;\n"})
    commit(tree, {"alone.h": "int alone;\n", "inner.h": "int three;\n", "c.h": "int four;\n"})
    assert tidy_changed(tree)[0] == ["b.cpp", "c.cpp"]


def test_files_beyond_the_limit_are_named(tree):
    assert tidy_changed(tree) == (["a.cpp", "b.cpp", "c.cpp"], [])
    assert tidy_changed(tree, RONDO_TIDY_LIMIT="1") == (["a.cpp"], ["b.cpp", "c.cpp"])
