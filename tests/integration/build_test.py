"""scripts/build.py: its display while ninja builds, and that errors and exit codes are passed on."""
import importlib.util
import os
import pty
import re
import subprocess

import pytest

pytestmark = pytest.mark.tooling

BUILD = """
rule make
  command = touch $out
  description = Building CXX object $out
rule fail
  command = echo "the compiler says no" && exit 3
  description = Building CXX object $out
build some.dir/a.o: make
build some.dir/b.o: make some.dir/a.o
build some.dir/c.o: make some.dir/b.o
build some.dir/wrong.o: fail some.dir/c.o
build fine: phony some.dir/c.o
build all: phony some.dir/wrong.o
default all
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "build.ninja").write_text(BUILD)
    return tmp_path


def test_log_shows_counts_only_while_building(run, repository, folder):
    done = run(repository / "scripts/build.py", folder, "fine")
    assert done.returncode == 0, done.stderr
    first, *_, last, summary = done.stdout.splitlines()
    assert re.match(r"\[1/3\] +\d+%", first) and re.match(r"\[3/3\] 100%", last) and "3 steps" in summary
    again = run(repository / "scripts/build.py", folder, "fine")
    assert again.returncode == 0 and again.stdout.splitlines() == ["ninja: no work to do."]


def test_an_error_comes_through_with_the_exit_code(run, repository, folder):
    failed = run(repository / "scripts/build.py", folder)
    assert failed.returncode == 1
    assert "the compiler says no" in failed.stdout and "FAILED: some.dir/wrong.o" in failed.stdout
    unknown = run(repository / "scripts/build.py", folder, "nothing-of-that-name")
    assert unknown.returncode != 0 and "nothing-of-that-name" in unknown.stdout + unknown.stderr


def test_a_terminal_has_one_line(repository, folder):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([repository / "scripts/build.py", folder, "fine"], stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(timeout=120) == 0
    assert shown.count(b"\n") == 1 and shown.count(b"\r\x1b[K") >= 4, shown
    assert b"[2/3]" in shown and b"some b.o" in shown, shown


def test_time_left_weighs_kinds_of_steps(repository):
    spec = importlib.util.spec_from_file_location("build", repository / "scripts" / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    estimate = build.Estimate({"plain.o": 1.0, "torch.o": 8.0, "last.o": 1.0}, ["plain.o", "torch.o", "last.o"])
    assert estimate.seconds_left(0, 3, 1.0) is None
    estimate.finish("Building CXX object plain.o")
    assert estimate.seconds_left(1, 3, 2.0) == pytest.approx(18)
    estimate.finish("Building CXX object torch.o")
    assert estimate.share(2, 3) == pytest.approx(0.9)
    estimate.finish("Building CXX object last.o")
    assert estimate.seconds_left(3, 3, 20.0) == 0
    assert [build.clock(seconds) for seconds in (5, 130, 3725)] == ["0:05", "2:10", "1:02:05"]
