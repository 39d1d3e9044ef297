"""Headers that an external program may include: rondo/*.h and rondo/extend/*.h, without conflicts."""
import pathlib
import re
import sys

import pytest
from building import cached, must

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
import install_headers  # noqa: E402


def libtorch_of(rondo_bin):
    torch = cached(rondo_bin, "FIND_PACKAGE_MESSAGE_DETAILS_Libtorch").split("]")[0].strip("[")
    return ["-isystem", f"{torch}/include", "-isystem", f"{torch}/include/torch/csrc/api/include"]


INCLUDE = re.compile(r'^#include "(rondo/.*)"', re.MULTILINE)


def includes(path):
    return INCLUDE.findall(path.read_text())


def lists(repository):
    """Returns the public headers as a program includes them."""
    return sorted(str(path.relative_to(repository)) for folder in ("rondo", "rondo/extend") for path in (repository / folder).glob("*.h"))


def public_headers(repository):
    """Returns the source headers that these include."""
    return {header for each in lists(repository) for header in includes(repository / each)} - set(lists(repository))


def with_what_they_include(repository, headers):
    found, wanted = set(), list(headers)
    while wanted:
        header = wanted.pop()
        if header not in found:
            found.add(header)
            wanted += includes(repository / header)
    return found


def test_messages_name_headers_that_are_installed(repository):
    literal = re.compile(r'"[^"\n]*\b(rondo/[\w/]+\.h)\b[^"\n]*"')
    found = [f"{path.relative_to(repository)}: {header}"
             for folder in ("rondo", "apps") for path in sorted((repository / folder).rglob("*.cpp"))
             for line in path.read_text().splitlines() if not line.lstrip().startswith("#include")
             for header in literal.findall(line) if header not in lists(repository)]
    assert found == []


def test_the_page_lists_the_public_headers(repository):
    rows = re.findall(r"^- `(rondo/.*?)`(?:$|: )", (repository / "docs" / "api.md").read_text(), re.MULTILINE)
    assert len(rows) == len(set(rows)) and set(rows) == public_headers(repository)


# Parts that name nothing for users: comments, texts, directives, friends, forward declarations, private parts of
# classes.
NOT_CODE = re.compile(r'//.*|"(?:\\.|[^"\\\n])*"|^#.*|^ *friend .*|^(?:class|struct|enum|enum class) \w+;', re.MULTILINE)
PRIVATE = re.compile(r"^( *) private:\n.*?(?=^\1 (?:public|protected):|^\1\})", re.MULTILINE | re.DOTALL)
TYPE = re.compile(r"^(?:(?:class|struct|enum|enum class) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?:\s*:[^:][^;{]*)?\s*\{|"
                  r"(?:using|concept) (\w+) =|TORCH_MODULE\((\w+)\))", re.MULTILINE)


class Header:
    def __init__(self, path):
        code = NOT_CODE.sub("", path.read_text())
        self.code = PRIVATE.sub("", code)
        # Namespaces in which its words are looked up, innermost first.
        namespace = next(iter(re.findall(r"^namespace (rondo\S*) \{", code, re.MULTILINE)), "rondo")
        parts = namespace.split("::")
        self.scopes = ["::".join(parts[:count]) for count in range(len(parts), 0, -1)]
        self.types = {f"{namespace}::{''.join(name)}" for name in TYPE.findall(code)}

    def named(self, types):
        """Returns the elements of `types` that its code names; `types` has all of rondo's types."""
        found = set()
        for word in set(re.findall(r"(?:[A-Za-z_]\w*::)*[A-Za-z_]\w*", self.code)):
            parts = word.removeprefix("rondo::").split("::")
            starts = ["::".join(parts[:count]) for count in range(len(parts), 0, -1)]  # A::B may refer to type A
            names = (f"{scope}::{start}" for scope in self.scopes for start in starts)
            found.add(next((name for name in names if name in types), None))
        return found - {None}


def test_what_public_headers_name_is_public(repository):
    public = public_headers(repository)
    headers = {str(path.relative_to(repository)): Header(path) for path in (repository / "rondo").rglob("*.h")}
    where = {}
    for path, header in headers.items():
        for each in header.types:
            where.setdefault(each, set()).add(path)
    hidden = {each for each, paths in where.items() if not paths & public}
    assert [f"{path} names {each} of {where[each]}" for path in sorted(public) for each in headers[path].named(where) & hidden] == []


def test_few_headers_are_installed(repository, installed):
    there = sorted(str(path.relative_to(installed / "include")) for path in (installed / "include").rglob("*") if path.is_file())
    assert there == lists(repository)
    outside = [header for header in there if not header.startswith("rondo/extend/")]
    assert len(outside) <= 15 and len(there) - len(outside) <= 15


def test_installed_headers_have_source_text_once(repository, installed):
    texts = "".join((installed / "include" / header).read_text() for header in lists(repository))
    parts = re.findall(r"^// (rondo/\S+/\S+?\.h)(: internal)?", texts, re.MULTILINE)
    public = public_headers(repository)
    assert sorted(path for path, _ in parts) == sorted(with_what_they_include(repository, lists(repository)) - set(lists(repository)))
    assert {path for path, mark in parts if not mark} == public
    for path in public:
        last = [line for line in (repository / path).read_text().splitlines() if line and not line.startswith("#")][-2]
        assert last in texts, path


def test_unlisted_public_header_is_an_error(repository, tmp_path):
    for folder in ("rondo", "rondo/extend"):
        (tmp_path / folder).mkdir()
        for path in (repository / folder).glob("*.h"):
            (tmp_path / folder / path.name).write_text("#pragma once\n")
    install_headers.installed_headers(tmp_path)
    (tmp_path / "rondo" / "nn.h").write_text('#pragma once\n#include "rondo/train.h"\n')
    with pytest.raises(ValueError, match="rondo/nn.h includes rondo/train.h, which comes later"):
        install_headers.installed_headers(tmp_path)
    (tmp_path / "rondo" / "new.h").touch()
    with pytest.raises(ValueError, match="new.h"):
        install_headers.installed_headers(tmp_path)


def test_examples_include_installed_headers_only(repository, installed):
    sources = [path for path in (installed / "share" / "rondo" / "examples").rglob("*") if path.suffix in (".cpp", ".h")]
    assert {path.name for path in (repository / "examples").glob("*.cpp")} <= {path.name for path in sources}
    there = lists(repository)
    assert [f"{path.name} includes {header}" for path in sources for header in includes(path) if header not in there] == []


@pytest.mark.parametrize("header", ["rondo/core.h", "rondo/extend/options.h", "rondo/extend/algorithm.h"])
def test_core_needs_no_libtorch(installed, tmp_path, header):
    source = tmp_path / "core.cpp"
    source.write_text(f"#include <rondo/core.h>\n#include <{header}>\nint main() {{ return rondo::env::discover_process().rank; }}\n")
    must("c++", "-std=c++20", "-fsyntax-only", "-I", installed / "include", source)


# A program with its own helpers, which it calls although all of rondo is in scope.
NAMES = ["str", "join", "split", "trim", "name", "median", "printable", "parse_integer", "parse_number", "parse_json_strict",
         "divide_rounding_up"]


@pytest.mark.long
def test_helpers_are_not_in_the_namespace_of_users(repository, rondo_bin, installed, tmp_path):
    source = tmp_path / "names.cpp"
    own = "".join(f"template <class... Values> int {name}(const Values&...) {{ return 1; }}\n" for name in NAMES)
    calls = "".join(f"  sum += {name}(1, rondo::Bytes{{}}, rondo::Error(\"\"));\n" for name in NAMES)
    version = "static_assert(RONDO_VERSION_MAJOR * 10000 + RONDO_VERSION_MINOR * 100 + RONDO_VERSION_PATCH >= 100);\n"
    extensions = "".join(f"#include <{header}>\n" for header in lists(repository) if "/extend/" in header)
    source.write_text(f"{extensions}#include <rondo/rondo.h>\n{version}{own}using namespace rondo;\n"
                      "torch::optim::AdamW* optimizer = nullptr;\n"
                      f"int main() {{\n  int sum = 0;\n{calls}  return sum == {len(NAMES)} ? 0 : 1;\n}}\n")
    must("c++", "-std=c++20", "-fsyntax-only", "-I", installed / "include", *libtorch_of(rondo_bin), source)


def test_the_version_is_one(repository, rondo_bin):
    header = (repository / "rondo" / "base" / "version.h").read_text()
    numbers = [re.search(rf"RONDO_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]
    assert f'RONDO_VERSION "{".".join(numbers)}"' in header
    assert cached(rondo_bin, "CMAKE_PROJECT_VERSION") == ".".join(numbers)
    assert must(rondo_bin / "rondo", "--version").splitlines()[0] == f"rondo {'.'.join(numbers)}"
    for path, line in {"CITATION.cff": "version: {}", "README.md": "- Version {}:", "docs/status.md": "Version {},", "docs/api.md": '("{}")'}.items():
        assert line.format(".".join(numbers)) in (repository / path).read_text(), path
