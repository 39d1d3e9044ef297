"""scripts/coverage.py: executed lines by layer, from gcov's counters."""
import shutil

import pytest

pytestmark = pytest.mark.tooling


def test_lines_that_ran_are_counted_by_layer(run, repository, tmp_path):
    for folder in ("scripts", "rondo/base", "apps/tool", "build"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(repository / "scripts" / "coverage.py", tmp_path / "scripts")
    (tmp_path / "rondo/base/half.h").write_text("inline int half(int x) {\n  if (x > 0)\n    return x / 2;\n  return -1;\n}\n")
    (tmp_path / "apps/tool/main.cpp").write_text('#include "rondo/base/half.h"\nint main() {\n  return half(0) + 1;\n}\n')
    (tmp_path / "apps/tool/other.cpp").write_text('#include "rondo/base/half.h"\nint never() {\n  return half(4);\n}\n')
    compiled = run("g++", "--coverage", "-O0", "-I", tmp_path, "-o", "program", "../apps/tool/main.cpp", "../apps/tool/other.cpp",
                   cwd=tmp_path / "build")
    assert compiled.returncode == 0, compiled.stderr
    assert run(tmp_path / "build/program").returncode == 0
    result = run(tmp_path / "scripts/coverage.py", tmp_path / "build")
    assert result.returncode == 0, result.stderr
    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()[1:]}
    # half() ran except for one line, in one of two programs; never() did not run.
    assert rows == {"rondo/base": ["4", "3", "75.0%"], "apps/tool": ["4", "2", "50.0%"], "total": ["8", "5", "62.5%"]}
    missed = (tmp_path / "build/coverage.txt").read_text().splitlines()
    assert missed == ["apps/tool/other.cpp: 2 of 2 lines: 2 3", "rondo/base/half.h: 1 of 4 lines: 3"]
