"""The reference of the public headers: everything that a program may use has a comment."""
import os
import re
import shutil
import subprocess

import pytest
from public_headers_test import public_headers

COMMENT = "// Twice the number.\n"
# A header whose type has a comment, with placeholders for one above its function and its enumeration.
HEADER = """#pragma once

namespace rondo::{space} {{

// A number.
struct Number {{
  int value = 0;{behind}
}};

{function}int twice(int number);

{enumeration}enum class Kind {{
  odd,   // by two, one is left
  even,  // none is left
}};

}}  // namespace rondo::{space}
"""

# Four of its members lack comments; the others need none: overrides, and members that are not public.
CLASS = """class Number final : public Value {
 public:
  Number() = default_of<Number>();
  Number(const Number&) = delete;
  ~Number() override;
  // The number.
  int value() const { return value_; }
  int twice() const;  // of it
  void print(std::ostream& stream,
             int width) const override;
  void grow(int by,
            int most);
  // A parity.
  enum class Kind {
    odd,
    even,  // none is left
  };
  int zero() const {
    return 0;
  }

 private:
  int value_;
};
"""


def header(space, function=COMMENT, enumeration="// Kinds of numbers.\n", behind="  // of it"):
    return HEADER.format(space=space, function=function, enumeration=enumeration, behind=behind)


def without_details(text):
    return re.sub(r"^namespace (\w+_)?detail \{$.*?^\}  // namespace (\w+_)?detail$", "", text, flags=re.MULTILINE | re.DOTALL)


def bare_declarations(text):
    """Returns the first line of each declaration in a namespace without a comment. Relies on clang-format's layout:
    only these lines are not indented."""
    begins = re.compile(r"(?!\s|[}#]|//|namespace )")
    needs_none = re.compile(r"(class|struct|enum class) \w+;$|TORCH_MODULE\(|.*[;}]\s+// ")
    found, before = [], ""
    for line in without_details(text).splitlines():
        if line and begins.match(line) and not needs_none.match(line) and not before.startswith(("//", "template <")):
            found.append(line)
        before = line
    return found


def bare_members(text):
    """Returns public members of classes and enumerations without a comment. Relies on clang-format's layout: a member
    is indented by two columns relative to its class, its continuation lines by more, `public:` by one."""
    head = re.compile(r"(class|struct|enum class|enum)\b[^;(]*\{$")
    label = re.compile(r"(public|protected|private):")
    needs_none = re.compile(r"using .*::|friend |(virtual )?~|(class|struct|enum class) \w+;$")
    found, scopes, before, lines = [], [], "", without_details(text).splitlines()
    # A scope: the column of its members, and whether they are public.
    for number, line in enumerate(lines):
        words, column = line.strip(), len(line) - len(line.lstrip())
        if words:
            while scopes and column < scopes[-1][0] - 1:
                scopes.pop()
        at_member = not scopes or column == scopes[-1][0]
        if scopes and column == scopes[-1][0] - 1 and label.match(words):
            scopes[-1] = scopes[-1][0], words.startswith("public")
        elif scopes and at_member and words and not words.startswith(("}", "#", "//")) and all(public for _, public in scopes):
            end = number
            while not re.search(r"[;{}]( *//.*)?$", lines[end]) and len(lines[end + 1]) - len(lines[end + 1].lstrip()) > column:
                end += 1
            # A comment is above, after the last line, or between a template's parameters and the rest.
            above = [before.strip()] + [lines[number + 1].strip()] * words.startswith("template <")
            if not any(each.startswith(("//", "template <")) for each in above) and "  // " not in lines[end] and not needs_none.match(words) \
                    and not re.search(r"\boverride\b|= (delete|default)\b", " ".join(lines[number:end + 1])):
                found.append(words)
        if at_member and (begins := head.match(words)):
            scopes.append((column + 2, begins[1] != "class"))
        before = line
    return found


def test_every_public_declaration_has_a_comment(repository):
    texts = {name: (repository / name).read_text() for name in sorted(public_headers(repository))}
    found = {name: bare for name, text in texts.items() if (bare := bare_declarations(text) + bare_members(text))}
    assert found == {}


def test_the_check_sees_what_has_none():
    assert bare_declarations(header("one")) == []
    assert bare_declarations(header("one", function="")) == ["int twice(int number);"]
    assert bare_declarations(header("one", enumeration="")) == ["enum class Kind {"]
    assert bare_members(header("one")) == []
    assert bare_members(header("one", behind="")) == ["int value = 0;"]
    assert bare_members(CLASS) == ["Number() = default_of<Number>();", "void grow(int by,", "odd,", "int zero() const {"]
    # The comment above belongs to the previous declaration.
    assert bare_declarations(header("one", function=f"{COMMENT}int half(int number);\n")) == ["int twice(int number);"]


@pytest.fixture
def tree(repository, tmp_path):
    """A project with the scripts and two public headers, for scripts/docs_api.sh."""
    root = tmp_path / "project"
    shutil.copytree(repository / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("docs", "rondo/base", "rondo/extend"):
        (root / folder).mkdir(parents=True)
    shutil.copy(repository / "docs" / "Doxyfile", root / "docs")
    shutil.copy(repository / "rondo" / "base" / "version.h", root / "rondo" / "base")
    (root / "docs" / "api.md").write_text("# The C++ interface\n")
    (root / "rondo" / "core.h").write_text('#include "rondo/base/one.h"\n')
    (root / "rondo" / "rondo.h").write_text('#include "rondo/base/two.h"\n#include "rondo/core.h"\n')
    (root / "rondo" / "extend" / "engine.h").write_text("")
    (root / "rondo" / "base" / "one.h").write_text(header("one"))
    (root / "rondo" / "base" / "two.h").write_text(header("two"))
    return root


def write_reference(root, **variables):
    return subprocess.run([root / "scripts" / "docs_api.sh"], capture_output=True, text=True, timeout=300,
                          env=os.environ | variables)


def test_doxygen_is_told_of_each_namespace_and_header(tree):
    """Uses a fake Doxygen, because Doxygen may not be installed."""
    programs = tree / "bin"
    programs.mkdir()
    (programs / "doxygen").write_text("#!/bin/sh\ntest -f \"$1\"\n")
    (programs / "doxygen").chmod(0o755)
    result = write_reference(tree, PATH=f"{programs}:{os.environ['PATH']}")
    assert result.returncode == 0, result.stderr
    folder = tree / "build" / "docs-api"
    settings = (folder / "Doxyfile").read_text()
    inputs = re.search(r"^INPUT = (.*)$", settings, re.MULTILINE)[1].split()
    assert {"build/docs-api/namespaces.h", "rondo/base/one.h", "rondo/base/two.h"} <= set(inputs)
    assert re.findall(r"@namespace (\S+)", (folder / "namespaces.h").read_text()) == ["rondo::one", "rondo::two"]
