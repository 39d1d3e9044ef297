"""The layers of rondo/ match CMakeLists.txt, and the tree follows its own rules.

A layer may include only the layers in its USES list, and a torch-free layer no header of libtorch. The linker detects
only part of this: it misses header-only use. Folders inside a layer depend on each other in one direction only, and
only the registry distinguishes the engines.
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
    """Returns the rondo_layer() calls, in order: {name: Layer}."""
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
    """Returns violations: a layer may only use layers declared before it, and a torch-free one only torch-free ones."""
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
        if name == "extend" or name == path.name:  # public headers, lists of headers of all layers
            found.extend(f"{where}: {line}" for line in path.read_text().splitlines()
                         if line and not re.match(r'//|#pragma once$|#include ("rondo/|<torch/optim.h>)', line))
            continue
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


def folder_cycles(root):
    """Returns cycles among the folders inside each layer, including the layer's own folder: every group of folders that
    reach each other by includes, with the includes that cause it."""
    edges = {}
    for path in sorted((root / "rondo").rglob("*")):
        if path.suffix not in SOURCES:
            continue
        folder = path.relative_to(root).parent.as_posix()
        for include in INCLUDE.findall(path.read_text()):
            used = pathlib.PurePosixPath(include).parent.as_posix()
            if used != folder and used.split("/")[:2] == folder.split("/")[:2]:
                edges.setdefault(folder, {}).setdefault(used, []).append(f"{path.name} includes {include}")

    def reachable(folder):
        seen, left = set(), [folder]
        while left:
            for used in edges.get(left.pop(), {}):
                if used not in seen:
                    seen.add(used)
                    left.append(used)
        return seen

    reached = {folder: reachable(folder) for folder in edges}
    found = []
    for folder, used in sorted((folder, used) for folder in edges for used in edges[folder]):
        if folder in reached.get(used, ()):
            found.append(f"{folder} and {used} need each other: {edges[folder][used][0]}")
    return found


def backends_by_name(root):
    """Returns violations of the engines' encapsulation. Code that depends on an engine's properties uses its traits
    (rondo/backend/engine/traits.h). Outside an engine's own folder only the registry, its list of folders, and the
    Python plug-in of the native engine include its headers. No other code casts to it or uses its name; a program gets
    names from the registry."""
    engines = sorted(path.name for path in (root / "rondo" / "backend").iterdir()
                     if any((path / header).is_file() for header in ("factory.h", f"{path.name}_backend.h")))
    header = re.compile(rf'#\s*include\s*[<"](rondo/backend/(?:{"|".join(engines)})/[^>"]+)')
    cast = re.compile(r"(?:dynamic|static)(?:_pointer|_intrusive_pointer)?_cast<[^>]*(?<!Extended)Backend\b[^>]*>")
    name = re.compile(r"(?:getBackendName|backend_name)\(\)\s*[!=]=|[!=]=\s*[\w.>()-]*(?:getBackendName|backend_name)\(\)")
    written = re.compile(rf'"(?:{"|".join(engines)})["(]')
    comment = re.compile(r"(?:^|\s)//.*")
    backend = root / "rondo" / "backend"
    may_name = {root / "apps" / "doctor" / "backend_checks.cpp"}  # has a check of its own for each engine: what the machine lacks
    may_include = {backend / "registry.cpp", backend / "engine_factories.h", root / "python" / "module.cpp"}
    found = []
    for path in sorted(path for top in ("rondo", "apps", "examples", "python") for path in (root / top).rglob("*")):
        parts = path.relative_to(root).parts
        if path.suffix not in SOURCES or (parts[:2] == ("rondo", "backend") and parts[2] in engines):
            continue
        text = path.read_text()
        uses = [] if path in may_include else header.findall(text)
        uses = [*uses, *cast.findall(text), *name.findall(text)]
        # rondo bench compares the engines.
        if parts[0] == "apps" and parts[1] != "bench" and path not in may_name:
            uses += written.findall(comment.sub("", text))
        found += [f"{path.relative_to(root)}: {use}" for use in uses]
    return found


def tracked_files(root):
    """Returns the project's files: those that git tracks or would track; without git all files outside builds."""
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


def test_layers_include_only_allowed_layers(repository):
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


def test_no_folders_of_a_layer_need_each_other(repository):
    assert folder_cycles(repository) == []


VIRTUAL = re.compile(r"^\s*virtual ", re.MULTILINE)
MOST_VIRTUALS_OF_STRATEGIES = 45


def test_the_interface_of_strategies_stays_small(repository):
    """Counts virtual functions, including destructors: grep -hE '^\\s*virtual ' rondo/strategy/*.h | wc -l"""
    counts = {path.name: len(VIRTUAL.findall(path.read_text())) for path in (repository / "rondo" / "strategy").glob("*.h")}
    assert sum(counts.values()) <= MOST_VIRTUALS_OF_STRATEGIES, counts


def test_engines_are_asked_what_they_can_do(repository):
    assert backends_by_name(repository) == []


DECLARED = re.compile(r'\.name = "(\w+)"')
# Dimensions of a mesh have strategies of the same names, and the program knows the dimensions; "default" has many
# meanings.
ALSO_ELSEWHERE = {"pipeline", "data", "context", "expert", "tensor", "default"}


def strategies_by_name(root):
    """The program only knows a strategy's declared properties; only the meaning of "auto" is written in the program."""
    folders = [path for top in ("parallel", "strategy") for path in (root / "rondo" / top).rglob("*_options.cpp")]
    names = {name for path in folders for name in DECLARED.findall(path.read_text())} - ALSO_ELSEWHERE
    written = re.compile(rf'"(?:{"|".join(sorted(names))})"')
    found = []
    for path in sorted((root / "apps" / "train").glob("*")):
        if path.suffix in SOURCES:
            text = re.sub(r"(?:^|\s)//.*|std::string strategy_of_auto\(.*", "", path.read_text())
            found += [f"{path.name}: {use}" for use in written.findall(text)]
    return found


def test_the_program_knows_no_strategy_by_name(repository, tmp_path):
    assert strategies_by_name(repository) == []
    (tmp_path / "rondo/parallel/ddp").mkdir(parents=True)
    (tmp_path / "apps/train").mkdir(parents=True)
    (tmp_path / "rondo/parallel/ddp/ddp_options.cpp").write_text('return {{.name = "ddp"}, {.name = "pipeline"}};')
    (tmp_path / "apps/train/a.cpp").write_text('std::string strategy_of_auto(bool several) { return "ddp"; }\n// "ddp"\n"pipeline"\n')
    assert strategies_by_name(tmp_path) == []
    (tmp_path / "apps/train/b.cpp").write_text('if (flags.strategy == "ddp") {}\n')
    assert strategies_by_name(tmp_path) == ['b.cpp: "ddp"']


def test_the_check_sees_cycles_and_names_of_backends(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("rondo/parallel/ddp/strategy.cpp", '#include "rondo/parallel/sharded/model.h"\n')
    write("rondo/parallel/sharded/model.h", '#include "rondo/parallel/schedule/queue.h"\n')
    write("rondo/parallel/schedule/queue.h", '#include "rondo/parallel/ddp/hook.h"\n#include "rondo/base/error.h"\n')
    write("rondo/parallel/all.cpp", '#include "rondo/parallel/ddp/hook.h"\n')
    assert folder_cycles(tmp_path) == [
        "rondo/parallel/ddp and rondo/parallel/sharded need each other: strategy.cpp includes rondo/parallel/sharded/model.h",
        "rondo/parallel/schedule and rondo/parallel/ddp need each other: queue.h includes rondo/parallel/ddp/hook.h",
        "rondo/parallel/sharded and rondo/parallel/schedule need each other: model.h includes rondo/parallel/schedule/queue.h",
    ]
    write("rondo/parallel/ddp/root.h", '#include "rondo/parallel/all.h"\n')
    assert any(line.startswith("rondo/parallel and rondo/parallel/ddp") for line in folder_cycles(tmp_path))

    write("rondo/backend/native/native_backend.h", "")
    write("rondo/backend/nccl/factory.h", "")
    write("rondo/backend/engine/traits.h", "dynamic_cast<ExtendedBackend*>(backend.get());\n")
    write("rondo/backend/registry.cpp", '#include "rondo/backend/native/native_backend.h"\n')
    write("rondo/backend/nccl/own.cpp", 'backend.getBackendName() == "nccl";\n')
    assert backends_by_name(tmp_path) == []
    write("rondo/train/a.h", '#include "rondo/backend/native/native_backend.h"\n')
    write("rondo/train/b.cpp", "dynamic_cast<const NativeBackend*>(group.backend().get());\n")
    write("apps/c.cpp", 'const bool nccl = group.backend()->getBackendName() == "nccl";\n')
    write("apps/d.cpp", 'const bool gloo = "gloo" == context.backend_name();\n')
    write("apps/train/e.cpp", 'if (name == "auto") name = "native";  // not "nccl"\n')
    write("apps/train/f.cpp", 'start("--backend", "native(x)");\n')
    write("apps/bench/g.cpp", 'measure("native");\n')
    write("apps/doctor/backend_checks.cpp", 'add("native");\n')
    assert [line.split(":")[0] for line in backends_by_name(tmp_path)] == [
        "apps/c.cpp", "apps/c.cpp", "apps/d.cpp", "apps/train/e.cpp", "apps/train/f.cpp", "rondo/train/a.h", "rondo/train/b.cpp"]


def test_texts_are_made_in_the_classic_locale(repository):
    """A program's global locale may have decimal commas and thousands separators; rondo::TextStream and str() ignore
    it."""
    bytes_only = {"rondo/base/text.h", "rondo/checkpoint/optimizer_state.cpp", "rondo/launch/spawn.cpp"}
    found = [str(path.relative_to(repository)) for path in sorted((repository / "rondo").rglob("*"))
             if path.suffix in SOURCES and "std::ostringstream" in path.read_text()]
    assert set(found) - bytes_only == set()


def test_only_base_opens_files_and_parses_json(repository):
    """Limits, links, pipes and devices are handled in one place (docs/security.md), which other code would bypass."""
    ways = {re.compile(r"\bjson::(parse|accept|sax_parse)\(", re.IGNORECASE): {"rondo/base/json_strict.cpp", "rondo/options/config_file.cpp"},
            re.compile(r"std::ofstream|\bfopen\("): set(),
            # Workers write their own log files, which grow while they are read.
            re.compile(r"\bO_CREAT\b"): {"rondo/base/appended_output.cpp", "rondo/base/file_access.cpp", "rondo/format/file.cpp",
                                         "rondo/format/run_directory.cpp", "rondo/format/run_progress.cpp", "rondo/launch/worker.cpp",
                                             "rondo/memory/file_memory.cpp"}}
    found = []
    for path in sorted([*(repository / "rondo").rglob("*"), *(repository / "apps").rglob("*")]):
        if path.suffix not in SOURCES:
            continue
        where, text = str(path.relative_to(repository)), path.read_text()
        found += [f"{where}: {match.group()}" for way, places in ways.items() if where not in places
                  for match in way.finditer(text)]
    assert found == []


def programs_over_gloo_that_end_by_themselves(folders):
    itself = pathlib.Path(__file__).resolve()
    return [str(path) for folder in folders for path in folder.rglob("*.py")
            if path.resolve() != itself and re.search(r"""^(?!.*--).*["']gloo["']""", text := path.read_text(), re.MULTILINE)
            and "destroy_process_group" in text and not re.search(r"^ *leave\(\)$", text, re.MULTILINE)
            and "unittest.TestCase" not in text]  # a test of PyTorch's kind ends with its runner


def test_programs_in_python_over_gloo_end_without_finalizing(repository, tmp_path):
    """bench/peers/leaving.py explains the reason."""
    assert programs_over_gloo_that_end_by_themselves([repository / "bench", repository / "tests"]) == []
    (tmp_path / "wrong.py").write_text("dist.init_process_group('gloo')\ndist.destroy_process_group()\n")
    assert programs_over_gloo_that_end_by_themselves([tmp_path]) == [str(tmp_path / "wrong.py")]


def test_every_folder_says_what_it_is(repository):
    """A newcomer finds any feature by the names and READMEs of folders; folders of tests are named like their
    layers."""
    tops = ("rondo", "apps", "bench", "examples")
    folders = {path.parent for top in tops for path in (repository / top).rglob("*") if path.suffix in SOURCES | {".py", ".js"}}
    folders |= {repository / top for top in tops} | {repository / "tests", repository / "python", repository / "python" / "peers"}
    assert [str(folder.relative_to(repository)) for folder in sorted(folders) if not (folder / "README.md").is_file()] == []


def headers_without_a_word(repository, headers):
    """Returns the headers that the README of their folder does not name. It may say `thing`, `thing.h`, `thing.*` or
    `thing.cpp`. Headers with only an options struct, and the header with the folder's name, need no entry."""
    found = []
    for header in headers:
        page = re.sub(r"```.*?```", "", (header.parent / "README.md").read_text(), flags=re.DOTALL)
        named = {word.rsplit("/", 1)[-1].split(".")[0] for code in re.findall(r"`([^`]+)`", page)
                 for word in re.findall(r"[\w./]+", code)}
        if not header.stem.endswith("_options") and header.stem not in named | {header.parent.name}:
            found.append(str(header.relative_to(repository)))
    return found


def test_folder_readme_lists_every_header(repository, tmp_path):
    headers = [path for path in tracked_files(repository)
               if path.suffix == ".h" and path.relative_to(repository).parts[0] in ("rondo", "apps")]
    assert len(headers) > 500
    assert headers_without_a_word(repository, headers) == []
    folder = tmp_path / "thing"
    folder.mkdir()
    (folder / "README.md").write_text("# thing: `told`, `a/of_path.*`, `code.cpp`, unmarked\n```\n`fenced`\n```\n")
    names = ("thing", "told", "of_path", "code", "my_options", "unmarked", "fenced", "silent")
    assert headers_without_a_word(tmp_path, [folder / f"{name}.h" for name in names]) == [
        "thing/unmarked.h", "thing/fenced.h", "thing/silent.h"]


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
    # `step` runs a command and prints its time.
    lines = [line.removeprefix("step ") for line in script.splitlines()]
    commands = [line.split() for line in lines if line.startswith("make ")]
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
