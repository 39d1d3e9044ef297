"""The documentation site: its build names the file and line of each fault."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tooling

INDEX = "# Site\n\n```{toctree}\n:glob:\n\nfirst\n/rondo/README\nguides/*\nmissin[g]\n```\n"
FIRST = """# First

A [guide](guides/one.md#second-part), a [program](../rondo/base/version.h), the [folder](../rondo/README.md).

| Name | Page |
|---|---|
| one | [one](guides/one.md) |
"""
GUIDE = "# One\n\n## Second part\n\nBack to the [first](../first.md).\n"


def sphinx_environment(repository):
    """Returns a virtual environment with Sphinx, or None."""
    for venv in repository / "build" / "docs-venv", pathlib.Path(sys.prefix):
        python = venv / "bin" / "python"
        if python.exists() and subprocess.run([python, "-c", "import furo, myst_parser, sphinx"], check=False,
                                              stderr=subprocess.DEVNULL).returncode == 0:
            return venv
    return None


@pytest.fixture
def project(repository, tmp_path):
    """A copy of the site's settings and scripts with three pages, and a function that builds it."""
    venv = sphinx_environment(repository)
    if venv is None:
        pytest.skip("Sphinx is not installed; make docs installs it")
    root = tmp_path / "project"
    shutil.copytree(repository / "docs" / "site", root / "docs" / "site", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "scripts").mkdir()
    for name in "docs.sh", "common.sh", "cli_page.py":
        shutil.copy(repository / "scripts" / name, root / "scripts")
    shutil.copy(repository / "docs" / "conf.py", root / "docs")
    (root / "rondo" / "base").mkdir(parents=True)
    shutil.copy(repository / "rondo" / "base" / "version.h", root / "rondo" / "base")
    (root / "rondo" / "README.md").write_text("# Library\n")
    (root / "docs" / "index.md").write_text(INDEX)
    (root / "docs" / "first.md").write_text(FIRST)
    (root / "docs" / "guides").mkdir()
    (root / "docs" / "guides" / "one.md").write_text(GUIDE)

    def build(**variables):
        environment = os.environ | {"RONDO_DOCS_VENV": str(venv), "RONDO_BIN": str(root / "bin")} | variables
        return subprocess.run([root / "scripts" / "docs.sh", "--without-api"], capture_output=True, text=True,
                              timeout=600, env=environment)

    return root, build


def append(path, text):
    """Appends a paragraph to a page and returns the number of its line."""
    path.write_text(path.read_text() + f"\n{text}\n")
    return len(path.read_text().splitlines())


def test_pages_link_to_each_other_and_to_files(project):
    root, build = project
    result = build()
    assert result.returncode == 0, result.stderr
    page = (root / "build" / "docs" / "docs" / "first.html").read_text()
    assert {"guides/one.html#second-part", "../files/rondo/base/version.h.html",
            "../rondo/README.html"} <= set(re.findall(r'href="(.*?)"', page))
    assert "RONDO_VERSION" in (root / "build" / "docs" / "files" / "rondo" / "base" / "version.h.html").read_text()
    assert "docs/index.html" in (root / "build" / "docs" / "index.html").read_text()


def test_site_loads_nothing_from_other_hosts(project):
    root, build = project
    result = build()
    assert result.returncode == 0, result.stderr
    loaded = re.compile(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="(?:https?:)?//')
    for page in (root / "build" / "docs").rglob("*.html"):
        assert not loaded.search(page.read_text()), page


def test_each_fault_is_named_with_its_line(project):
    root, build = project
    page, guide = root / "docs" / "first.md", root / "docs" / "guides" / "one.md"
    (root / "docs" / "lonely.md").write_text("# Lonely\n")
    in_table = append(page, "| Name | Page |\n|---|---|\n| one | [one](guides/one.md) |\n| two | [two](guides/two.md) |")
    anchor = append(page, "A [part](guides/one.md#third-part).")
    local = append(page, "A [part](#fourth-part).")
    source = append(guide, "A [file](../../rondo/nothing.h).")
    folder = append(guide, "A [folder](../../rondo/base).")
    image = append(guide, "![A drawing](nothing.svg)")
    result = build()
    assert result.returncode == 1
    lines = result.stderr.splitlines()

    def named(place, *facts):
        return any(line.startswith(f"{place}:") and all(fact in line for fact in facts) for line in lines)

    assert named(f"docs/first.md:{in_table}", "dead link", "guides/two.md"), result.stderr
    assert named(f"docs/first.md:{anchor}", "third-part"), result.stderr
    assert named(f"docs/first.md:{local}", "fourth-part"), result.stderr
    assert named(f"docs/guides/one.md:{source}", "dead link", "rondo/nothing.h"), result.stderr
    assert named(f"docs/guides/one.md:{folder}", "README.md"), result.stderr
    assert named(f"docs/guides/one.md:{image}", "nothing.svg"), result.stderr
    assert named("docs/lonely.md", "toctree"), result.stderr


def test_undocumented_flag_is_named(project, repository, rondo_bin):
    root, build = project
    text = (repository / "docs" / "cli" / "train-flags.md").read_text().splitlines(keepends=True)
    number = next(number for number, line in enumerate(text, 1) if line.startswith("| `--model "))
    (root / "docs" / "cli").mkdir()
    (root / "docs" / "cli" / "train-flags.md").write_text("".join(text[:number - 1] + text[number:]))
    result = build(RONDO_BIN=str(rondo_bin))
    assert result.returncode == 1
    assert f"docs/cli/train-flags.md:{number}: " in result.stderr
    assert "--model" in result.stderr
