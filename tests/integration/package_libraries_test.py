"""Libraries that packages bring along (scripts/package_libraries.py)."""
import pathlib
import subprocess
import sys

import pytest
from building import must

pytestmark = pytest.mark.tooling


@pytest.fixture
def libraries(repository, monkeypatch):
    monkeypatch.syspath_prepend(str(repository / "scripts"))
    import package_libraries

    return package_libraries


def test_libraries_are_found_in_folders_with_a_space(libraries, tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "inner.c").write_text("int inner(void) { return 1; }\n")
    (folder / "outer.c").write_text("int inner(void);\nint outer(void) { return inner(); }\n")
    must("cc", "-shared", "-fPIC", "-o", folder / "libinner.so", folder / "inner.c")
    must("cc", "-shared", "-fPIC", "-o", folder / "libouter.so", folder / "outer.c", f"-L{folder}", "-linner", "-Wl,-rpath,$ORIGIN")
    found = libraries.resolved_libraries(folder / "libouter.so", tmp_path)
    assert found["libinner.so"] == str(folder / "libinner.so")

    # In a process of its own, which then has the library loaded.
    program = "import sys, package_libraries; print(package_libraries.path_of_library(sys.argv[1]))"
    shown = subprocess.run([sys.executable, "-c", program, "libinner.so"], cwd=pathlib.Path(libraries.__file__).parent, text=True,
                           capture_output=True, check=True, env={"LD_LIBRARY_PATH": str(folder)})
    assert shown.stdout.strip() == str(folder / "libinner.so")
