"""C++ blocks of the documentation: part of a program that the build compiles, or compiled here as a reader's program."""
import json
import re
import shlex
import subprocess

from building import cached, must

# A block with one of these is compiled at namespace scope, any other as the body of a function.
DEFINITIONS = re.compile(r'^(int main\(|extern "C"|template )', re.M)
COMPILED = ("examples", "tests", "apps")  # folders with sources that the build compiles

PROJECT = """cmake_minimum_required(VERSION 3.22)
project(pages LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_package(rondo REQUIRED)
add_library(pages OBJECT pages.cpp)
target_link_libraries(pages PRIVATE rondo::rondo)
"""


def code(block):
    """Returns the C++ of a block; of a `diff` block what it leads to."""
    if block.language == "cpp":
        return block.text
    return "\n".join(line[1:] for line in block.text.splitlines() if not line.startswith("-"))


def normal(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def compiled_sources(repository):
    """Returns the lines of every source that the build compiles."""
    return [normal(path.read_text()) for folder in COMPILED for path in sorted((repository / folder).rglob("*"))
            if path.suffix in (".cpp", ".h")]


def is_part(block, sources):
    """Returns whether the block is part of one of the sources, apart from spaces."""
    lines = normal(code(block))
    return any(lines[0] in source and any(source[start:start + len(lines)] == lines for start, line in enumerate(source)
                                          if line == lines[0]) for source in sources)


def program(page_blocks, prelude):
    """Returns a source file with the blocks, each in a namespace of its own, with messages that name the page."""
    parts, includes = [], []
    for number, block in enumerate(page_blocks):
        rows = block.text.splitlines()
        for row, line in enumerate(rows):
            if line.startswith("#include"):
                includes.append(f'#line {block.line + row} "{block.page}"\n{line}')
                rows[row] = ""
        body = f'#line {block.line} "{block.page}"\n' + "\n".join(rows)
        if not DEFINITIONS.search(block.text):
            body = f"inline void reader() {{\n{body}\n}}"
        given = "\n".join(block.said("given"))
        parts.append(f"namespace block_{number} {{\n{given}\n{body}\n}}  // namespace block_{number}\n")
    return "\n".join([*includes, f'#include "{prelude}"', *parts])


def check(page_blocks, prelude, folder, rondo_bin, installed):
    """Compiles the blocks against the installed rondo. Raises AssertionError with the compiler's messages."""
    (folder / "CMakeLists.txt").write_text(PROJECT)
    (folder / "pages.cpp").write_text(program(page_blocks, prelude))
    libtorch = cached(rondo_bin, "LIBTORCH")
    must("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={installed}",
         *([f"-DLIBTORCH={libtorch}"] if libtorch else []))
    (entry,) = json.loads((folder / "build" / "compile_commands.json").read_text())
    words = shlex.split(entry["command"])
    output = words.index("-o")
    del words[output:output + 2]
    done = subprocess.run([*words, "-fsyntax-only", "-w"], cwd=entry["directory"], capture_output=True, text=True, check=False)
    messages = [line for line in done.stderr.splitlines() if "error:" in line]
    assert done.returncode == 0, "\n".join(messages) + "\n" + done.stderr[-4000:]
