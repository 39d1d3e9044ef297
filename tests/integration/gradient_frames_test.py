"""The number of functions between autograd and the engine that handle a gradient, built without inlining, and their
list in docs/architecture.md."""
import os
import re
import shlex
import subprocess

import pytest

pytestmark = pytest.mark.tooling
FOLDERS = ["rondo/parallel/ddp", "rondo/parallel/gradients", "rondo/parallel/schedule"]
MOST = 9


def test_a_gradient_passes_few_functions(repository, rondo_bin, tmp_path):
    """Compiles the involved folders again, in one file, and links them before the library that has them with
    inlining."""
    build = rondo_bin.parent
    commands = subprocess.run(["ninja", "-C", str(build), "-t", "commands", "parallel_test"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in commands.splitlines() if "parallel_test" in line]
    compile_line = next(line for line in lines if "tests/CMakeFiles/parallel_test.dir" in line and " -c " in line)
    link_line = lines[-1]
    source = tmp_path / "frames.cpp"
    sources = [path for folder in FOLDERS for path in sorted((repository / folder).rglob("*.cpp"))]
    source.write_text("".join(f'#include "{path}"\n' for path in [*sources, repository / "tests/frames/gradient_frames.cpp"]))
    compiled = tmp_path / "frames.o"
    words = shlex.split(compile_line)
    before = [word for word in words[:words.index("-o")] if word not in ("-MD", "-MT", "-MF") and not word.endswith((".o", ".o.d"))]
    subprocess.run([*before, "-O0", "-fno-inline", "-Wno-error", "-o", str(compiled), "-c", str(source)], check=True, cwd=build,
                   env={**os.environ, "CCACHE_DISABLE": "1"})
    program = tmp_path / "frames"
    link = re.sub(r"tests/CMakeFiles/parallel_test\.dir/\S+\.o", "", link_line)
    link = re.sub(r"-o (\S*)parallel_test\b", f"{compiled} -o {program} -rdynamic -Wl,-z,muldefs", link)
    subprocess.run(link, shell=True, check=True, cwd=build)
    # The program's run path is relative to the build's folder bin.
    libraries = build / "lib" / "rondo"
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True,
                             env={**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{libraries}/libtorch/lib"}).stdout
    paths = []
    for line in printed.splitlines():
        if not line.startswith("all_reduce "):
            continue
        places = [hex(int(place)) for place in line.split()[1:]]
        names = subprocess.run(["addr2line", "-f", "-C", "-e", str(program), *places], capture_output=True, text=True, check=True).stdout.splitlines()[::2]
        names = [re.sub(r"\(.*", "", name.replace("(anonymous namespace)::", "")) for name in names]
        hooks = [i for i, name in enumerate(names) if name == "rondo::Hook::operator"]
        if hooks:
            paths.append([name for name in reversed(names[:hooks[0] + 1]) if name.startswith("rondo::") and " " not in name])
    frames = paths[0]
    assert 5 <= len(frames) <= MOST, " -> ".join(frames)
    page = (repository / "docs/architecture.md").read_text()
    listed = re.findall(r"^\d+\. `(rondo::[^`]+)`", page, re.M)
    assert listed == frames
