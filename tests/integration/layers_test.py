"""The layers of rondo/ are what CMakeLists.txt says, and the tree keeps its own rules.

A layer may include only the layers in its USES list, a torch-free layer no header of libtorch. The linker sees only part
of this: header-only use would slip past it.
"""
import pathlib
import re
import subprocess

import pytest

LAYER = re.compile(r"^rondo_layer\((\w+)(.*?)\)", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2)/")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b|not implemented")
SOURCES = {".h", ".cpp"}
LONGEST_FILE = 600
LARGEST_FILE = 1 << 20


class Layer:
    def __init__(self, torch, uses):
        self.torch = torch
        self.uses = uses


def read_layers(cmake_text):
    """The rondo_layer() calls, in order: {name: Layer}."""
    layers = {}
    for name, arguments in LAYER.findall(cmake_text):
        words = arguments.split()
        uses = []
        if "USES" in words:
            for word in words[words.index("USES") + 1 :]:
                if word.isupper():
                    break
                uses.append(word)
        layers[name] = Layer("TORCH" in words, uses)
    return layers


def order_violations(layers):
    """A layer uses only layers declared before it, and a torch-free one only torch-free ones."""
    seen = []
    found = []
    for name, layer in layers.items():
        for used in layer.uses:
            if used not in seen:
                found.append(f"{name} uses {used}, which does not stand above it in CMakeLists.txt")
            elif layers[used].torch and not layer.torch:
                found.append(f"{name} is torch-free and uses {used}, which is not")
        seen.append(name)
    return found


def include_violations(root, layers):
    found = []
    for path in sorted((root / "rondo").rglob("*")):
        if path.suffix not in SOURCES:
            continue
        name = path.relative_to(root / "rondo").parts[0]
        where = path.relative_to(root)
        if name not in layers:
            found.append(f"{where}: rondo/{name} has no rondo_layer() in CMakeLists.txt")
            continue
        layer = layers[name]
        for include in INCLUDE.findall(path.read_text()):
            if include.startswith("rondo/"):
                used = include.split("/")[1]
                if used != name and used not in layer.uses:
                    found.append(f"{where}: includes {include}, but {name} does not list {used} in USES")
            elif TORCH_HEADER.match(include) and not layer.torch:
                found.append(f"{where}: includes {include}, but {name} is torch-free")
    return found


def tracked_files(root):
    """The project's files: what git tracks or would, or in a tree without git everything outside builds."""
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                             capture_output=True, text=True)
    if listing.returncode == 0:
        names = [name for name in listing.stdout.split("\0") if name]
        return sorted({root / name for name in names if (root / name).is_file()})
    outside = {"build", ".venv", ".cache", ".git", "runs"}
    return sorted(path for path in root.rglob("*")
                  if path.is_file() and path.relative_to(root).parts[0] not in outside)


def is_text_of_ours(path):
    return path.suffix in {".h", ".cpp", ".py", ".sh", ".cmake"} or path.name in {"CMakeLists.txt", "Makefile"}


def test_layers_are_declared_lowest_first(repository):
    layers = read_layers((repository / "CMakeLists.txt").read_text())
    assert {"base", "backend", "train"} <= set(layers)
    assert order_violations(layers) == []


def test_no_file_includes_from_a_layer_it_may_not_use(repository):
    layers = read_layers((repository / "CMakeLists.txt").read_text())
    assert include_violations(repository, layers) == []


def test_the_check_sees_violations(tmp_path):
    layers = read_layers("rondo_layer(base LINK x::x)\nrondo_layer(env USES base)\nrondo_layer(nn TORCH USES base)\n")
    for layer in layers:
        (tmp_path / "rondo" / layer).mkdir(parents=True)
    (tmp_path / "rondo" / "base" / "up.h").write_text('#include "rondo/env/env.h"\n')
    (tmp_path / "rondo" / "env" / "tensor.cpp").write_text("#include <ATen/core/Tensor.h>\n#include <vector>\n")
    (tmp_path / "rondo" / "nn" / "side.cpp").write_text('#include "rondo/base/a.h"\n  # include "rondo/env/b.h"\n')
    assert include_violations(tmp_path, layers) == [
        "rondo/base/up.h: includes rondo/env/env.h, but base does not list env in USES",
        "rondo/env/tensor.cpp: includes ATen/core/Tensor.h, but env is torch-free",
        "rondo/nn/side.cpp: includes rondo/env/b.h, but nn does not list env in USES",
    ]
    upward = read_layers("rondo_layer(base USES env)\nrondo_layer(nn TORCH)\nrondo_layer(env USES nn)\n")
    assert len(order_violations(upward)) == 2


def test_every_source_folder_says_what_it_is(repository):
    """By a README.md of its own, or where it is only a few files by a word in the one above."""
    folders = {path.parent for path in (repository / "rondo").rglob("*") if path.suffix in SOURCES}

    def explained(folder):
        above = folder.parent / "README.md"
        return (folder / "README.md").is_file() or (above.is_file() and f"{folder.name}/" in above.read_text())

    assert [str(folder.relative_to(repository)) for folder in sorted(folders) if not explained(folder)] == []


def test_files_stay_small_and_finished(repository):
    found = []
    itself = pathlib.Path(__file__).resolve()
    for path in tracked_files(repository):
        where = path.relative_to(repository)
        if path.stat().st_size > LARGEST_FILE:
            found.append(f"{where}: larger than 1 MiB")
            continue
        if not is_text_of_ours(path) or path.resolve() == itself:
            continue
        lines = path.read_text(errors="replace").splitlines()
        if len(lines) > LONGEST_FILE:
            found.append(f"{where}: {len(lines)} lines, more than {LONGEST_FILE}: one idea a file")
        found += [f"{where}:{number}: unfinished: {line.strip()}" for number, line in enumerate(lines, 1)
                  if UNFINISHED.search(line)]
    assert found == []


@pytest.mark.parametrize("name", ["README.md", "LICENSE", "NOTICE", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile",
                                  ".clang-format", ".clang-tidy", ".gitignore", ".ci/run", "docs/architecture.md",
                                  "docs/cli.md", "docs/errors.md", "docs/status.md"])
def test_the_tree_is_complete(repository, name):
    assert (repository / name).stat().st_size > 0


def test_continuous_integration_calls_what_users_call(repository):
    script = (repository / ".ci" / "run").read_text()
    commands = [line.split() for line in script.splitlines() if line.startswith("make ")]
    assert ["make", "test"] in commands and ["make", "format-check"] in commands
    makefile = (repository / "Makefile").read_text()
    for command in commands:
        assert re.search(rf"^{command[1]}:", makefile, re.MULTILINE), f"no such make target: {command[1]}"


def test_documents_link_to_files_that_exist(repository):
    broken = []
    for page in tracked_files(repository):
        if page.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(repository)}: {target}")
    assert broken == []
