"""Commands of the documentation run as printed, page by page, and print what the page shows; its C++ compiles.

`make test` runs the pages that a new user reads first; make nightly STEPS=pages the others, and compiles C++ blocks.
"""
import contextlib
import os
import pathlib
import re
import sys
import sysconfig

import pages
import pages_cpp
import pytest
from building import cached, cached_compilation, must
from hosts import linked_hosts, why_no_namespaces
from pages_data import Provider

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FIRST = ("README.md", "docs/tutorials/own-model.md")
OTHER_FOLDERS = ("docs/decisions/", "docs/releases/")
MOST_MARKED = 0.1  # share of the blocks that may be marked as not run


def all_pages():
    found = [REPOSITORY / "README.md", REPOSITORY / "python" / "README.md", *(REPOSITORY / "docs").rglob("*.md"),
             *(REPOSITORY / "examples").rglob("*.md")]
    names = sorted(str(path.relative_to(REPOSITORY)) for path in found)
    return [name for name in names if not name.startswith(OTHER_FOLDERS)]


def read(name):
    return pages.blocks(name, (REPOSITORY / name).read_text())


def with_commands(names):
    return [name for name in names if any(block.language == "sh" for block in read(name))]


def marked(name):
    return pytest.param(name, marks=[] if name.startswith(FIRST) else pytest.mark.tooling)


READMES = ("rondo/train/README.md", "rondo/options/README.md")  # with C++ blocks


def cpp_blocks(names):
    """Returns the C++ blocks of pages, without files that the commands of their page compile."""
    return [block for name in names for block in read(name) if block.language in ("cpp", "diff") and not block.said("file")]


def left_out(block):
    """Returns the reason why a block is not run here, or None."""
    for reason in block.said("not run"):
        return reason
    if block.said("needs") and not list((REPOSITORY / "build" / "package").glob("rondo-*")):
        return "build/package holds no packages; make package makes them"
    if block.said("on hosts"):
        return why_no_namespaces()
    return None


@pytest.fixture
def reader(rondo_bin, installed, clean_environment, tmp_path):
    """reader(blocks) returns the shell of a user, who has rondo in ~/rondo, in an empty folder with the files that the
    blocks read."""

    def make(page_blocks):
        folder = tmp_path / "page"
        folder.mkdir()
        text = "\n".join(block.text for block in page_blocks
                         if (block.language == "sh" or block.said("file")) and not left_out(block))
        environment = clean_environment | {
            "HOME": str(installed.parent), "PREFIX": str(installed), "PYTHONPATH": str(rondo_bin.parent / "python"),
            "PATH": f"{installed}/bin:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        libtorch = cached(rondo_bin, "LIBTORCH")
        if libtorch:
            environment["LIBTORCH"] = libtorch
        environment |= cached_compilation(rondo_bin, installed)
        if re.search(r"^pip install", text, re.M):
            environment |= python_environment(tmp_path / "venv", environment["PATH"], rondo_bin)
        Provider(REPOSITORY, rondo_bin.parent, installed, environment).provide(folder, text)
        return pages.Shell(folder, environment)

    return make


def python_environment(venv, path, rondo_bin):
    """Makes a virtual environment that has the torch of this one, and returns its variables. pip loads nothing:
    what a package needs is there."""
    must(sys.executable, "-m", "venv", venv)
    (packages,) = venv.glob("lib/python3.*/site-packages")
    # Before the packages of the new environment, whose setuptools may be older.
    (packages / "base.pth").write_text(f"import sys; sys.path.insert(0, {sysconfig.get_path('purelib')!r})\n")
    return {"PATH": f"{venv}/bin:{path}", "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PYTHONPATH": "",
            "RONDO_BUILD_DIR": str(rondo_bin.parent)}


@pytest.mark.parametrize("name", [marked(name) for name in with_commands(all_pages())])
def test_page_runs_as_printed(name, reader):
    page_blocks = read(name)
    with contextlib.ExitStack() as stack:
        hosts = None
        if any(block.said("on hosts") and not left_out(block) for block in page_blocks):
            hosts = stack.enter_context(linked_hosts(network="10.0.0", interface="eth0"))
        pages.run_page(page_blocks, reader(page_blocks), left_out, hosts)


def test_every_block_says_what_it_is():
    bare = [f"{block.place(-1)}: {block.language or 'no language'}: sh for commands, console for their output, text for others"
            for name in all_pages() for block in read(name) if block.language in ("", "bash", "shell")]
    assert bare == []


def test_most_commands_are_run():
    commands = [block for name in all_pages() for block in read(name) if block.language == "sh"]
    marked = [block for block in commands if block.said("not run")]
    for block in marked:
        print(f"{block.place()}: not run: {block.said('not run')[0]}")
    print(f"{len(commands)} blocks of commands, {len(marked)} not run")
    assert len(marked) <= MOST_MARKED * len(commands)


def test_the_first_example_is_part_of_a_program():
    sources = pages_cpp.compiled_sources(REPOSITORY)
    assert [block.place() for block in cpp_blocks(["README.md"]) if not pages_cpp.is_part(block, sources)] == []


@pytest.mark.tooling
def test_every_cpp_block_compiles(rondo_bin, installed, tmp_path):
    sources = pages_cpp.compiled_sources(REPOSITORY)
    found = cpp_blocks([*all_pages(), *READMES])
    alone = [block for block in found if not pages_cpp.is_part(block, sources)]
    print(f"{len(found)} C++ blocks, {len(found) - len(alone)} of them parts of programs of the build")
    pages_cpp.check(alone, REPOSITORY / "tests" / "integration" / "pages_prelude.h", tmp_path, rondo_bin, installed)


@pytest.mark.tooling
def test_a_block_that_does_not_compile_is_named(rondo_bin, installed, tmp_path):
    (tmp_path / "prelude.h").touch()
    blocks = pages.blocks("page.md", "# A\n\n```cpp\nint number = 1;\nnumber += missing;\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:5:.*missing"):
        pages_cpp.check(blocks, tmp_path / "prelude.h", tmp_path, rondo_bin, installed)


@pytest.fixture
def run_text(tmp_path):
    """run_text(page) runs the text of a page named page.md."""

    def run(text):
        (tmp_path / "page").mkdir()
        shell = pages.Shell(tmp_path / "page", {"PATH": os.environ["PATH"]})
        pages.run_page(pages.blocks("page.md", text), shell, lambda block: next(iter(block.said("not run")), None))

    return run


def test_blocks_share_folder_and_variables(run_text):
    run_text("""<!-- file: numbers -->
```text
1
2
```

```sh
mkdir -p a/b && cd a/b   # stays there
export WORD='two
lines'
```

Prose.

```sh
for i in 1 2; do
  echo "$i: $WORD" \\
    | wc -l
done
cat ../../numbers; basename $PWD
echo "took 3.25 s, loss 0.5"
```

```console
2
...
b
took 9.75 s, loss 0.125
```
""")


@pytest.mark.parametrize("page, place", [
    ("# A\n\n```sh\ntrue\nfalse\n```\n", "page.md:5: exit code 1"),
    ("# A\n\n```sh\nrm nothing\ntrue\n```\n", "page.md:4: exit code 1"),
    ("```sh\necho 'loss 0.5'\n```\n\n```console\nerror 0.5\n```\n", "page.md:6: 'error 0.5' is not printed"),
    ("```sh\necho a; echo b\n```\n\n```console\na\nc\n```\n", "page.md:7: 'c' is not printed"),
    ("```sh\necho 'a\n```\n", "page.md:2: no complete command"),
    ("<!-- fails: true -->\n```sh\ntrue\n```\n", "page.md:3: exit code 0"),
    ("```sh\ntrue\n", "page.md:1: the block has no end")])
def test_a_fault_is_named_with_its_line(run_text, page, place):
    with pytest.raises(AssertionError) as failure:
        run_text(page)
    assert str(failure.value).startswith(place)


def test_marks_of_a_block_count_for_it_alone(run_text, tmp_path):
    run_text("""<!-- not run: needs a cluster -->
```sh
touch first
```

<!-- run as: second => other -->
```sh
touch second
```

<!-- fails: false -->
```sh
false 3
touch third
```
""")
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == ["other", "third"]
