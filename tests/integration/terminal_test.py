"""Terminals of several widths, pipes and log files: progress, help and colours."""
import os
import pathlib
import pty
import re
import subprocess

import pytest
from launching import read_terminal, set_terminal_width

TRAINING = ["--model", "gpt-tiny", "--layers", 1, "--steps", 3, "--batch-size", 2, "--matmul", "libtorch", "--loader-threads", 0]


def drawn(text, columns):
    """Returns the lines that a terminal shows in the end; fails if a line would have been continued on the next."""
    lines = []
    for line in text.split("\n"):
        shown = ""
        for state in line.rstrip("\r").split("\r"):
            plain = re.sub(r"\x1b\[[0-9;]*m", "", state)
            pieces = plain.split("\x1b[K")
            assert all("\x1b" not in piece for piece in pieces), repr(state)
            shown = "".join(pieces) + ("" if len(pieces) > 1 else shown[len(plain):])
            if plain.endswith("\x1b[K"):
                assert len(shown) <= columns, (columns, shown)
        lines.append(shown)
    return lines


@pytest.fixture
def on_terminal(rondo, tmp_path):
    """on_terminal(columns, *words, **env) returns what rondo writes to a terminal of so many columns."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("to be or not to be, that is the question. " * 100)

    def run(columns, *words, on_piece=lambda *_: None, **env):
        leader, follower = pty.openpty()
        set_terminal_width(follower, columns)
        process = rondo.start(*words, stdout=follower, stderr=follower, env={"TERM": "xterm", "COLUMNS": ""} | env)
        os.close(follower)
        text = read_terminal(leader, lambda output: on_piece(leader, output))
        assert process.wait() == 0, text
        return text

    return run


@pytest.mark.parametrize("columns,environment", [(40, {}), (80, {"NO_COLOR": "1"}), pytest.param(160, {}, marks=pytest.mark.tooling)])
def test_a_training_on_a_terminal(on_terminal, columns, environment):
    text = on_terminal(columns, "train", "--data", "text", *TRAINING, "--nproc-per-node", 2, "--run-dir", "run", **environment)
    shown = "\n".join(drawn(text, columns))
    for fact in ("gpt-tiny (", "strategy ddp", "backend native", "device cpu", "run directory", "3/3", "loss ", "took 0:0",
                 "next: rondo report run"):
        assert fact in shown, f"{fact!r} is not in\n{shown}"
    assert "[rank 1]" not in shown and shown.count("3/3") == 1
    assert shown.count("[rank 0] \n") == 0 and not shown.rstrip("\n").endswith("[rank 0] "), repr(shown)
    assert ("\x1b[1m" in text) == ("NO_COLOR" not in environment)
    assert "\x1b[K" in text


@pytest.mark.parametrize("words,environment", [(["--run-dir", "dumb"], {"TERM": "dumb"}), pytest.param(["--run-dir", "lines", "--progress", "lines"], {}, marks=pytest.mark.tooling)])
def test_a_terminal_that_gets_plain_lines(on_terminal, words, environment):
    text = on_terminal(80, "train", "--data", "text", *TRAINING, *words, **environment)
    assert "step 3/3  epoch " in text and "\x1b[K" not in text and "\r\n" in text and "\r" not in text.replace("\r\n", "")
    assert environment == {} or "\x1b" not in text


def test_log_files_get_lines(on_terminal, rondo, tmp_path):
    text = on_terminal(80, "run", "-n", 2, "-t", 3, "--log-dir", "logs", rondo.program, "train", "--data", "text", *TRAINING, "--run-dir", "run")
    logs = {path.parent.name + "/" + path.name: path.read_text() for path in (tmp_path / "logs").rglob("*.log")}
    assert "step 3/3  epoch " in logs["0/stderr.log"] and "next: rondo report run" in logs["0/stdout.log"]
    assert all("\x1b" not in log and "\r" not in log for log in logs.values()), logs
    assert logs["1/stderr.log"] == "", "ranks other than 0 show no progress"
    assert "[rank 0]\x1b[0m step 3/3" in text


def test_a_pipe_gets_lines_and_off_is_silent(rondo, tmp_path):
    (tmp_path / "a.txt").write_text("to be or not to be, that is the question. " * 100)
    piped = rondo("train", "--data", "a.txt", *TRAINING, "--run-dir", "run", env={"TERM": "xterm"})
    assert piped.returncode == 0 and "\x1b" not in piped.stderr and "\r" not in piped.stderr, piped.stderr
    assert re.search(r"^rondo [0-9.]+: training gpt-tiny \(\d+ parameters\) from step 0, to step 3$", piped.stderr, re.M)
    assert piped.stdout.splitlines()[-1] == "next: rondo report run"
    silent = rondo("train", "--data", "a.txt", *TRAINING, "--run-dir", "a run's", "--progress", "off")
    assert silent.returncode == 0 and silent.stderr == ""
    assert silent.stdout.splitlines()[-1] == r"next: rondo report 'a run'\''s'"


@pytest.mark.tooling
def test_the_bar_follows_a_terminal_that_is_resized(on_terminal):
    """Also behind a launcher, which passes the width on when it starts a rank."""
    widths = []

    def narrow(leader, output):
        if not widths and b"1/" in output:
            widths.append(len(output))
            set_terminal_width(leader, 40)

    text = on_terminal(160, "train", "--data", "text", *TRAINING[:4], "--steps", 60, "--batch-size", 2, "--nproc-per-node", 2, "--matmul",
                       "libtorch", "--validation-fraction", 0, "--run-dir", "run", on_piece=narrow)
    assert widths
    states = [re.sub(r"\x1b\[[0-9;]*[mK]", "", state) for state in text.partition("next:")[0].replace("\n", "\r").split("\r")]
    bars = [state for state in states if "/60" in state]
    assert len(bars[0]) > 80
    assert len(bars[-1]) < 40 and "60/60" in bars[-1] and "took" in bars[-1], bars[-1]


@pytest.mark.parametrize("columns", [1, 40, 80, 160])
def test_help_is_as_wide_as_the_terminal(on_terminal, columns):
    text = on_terminal(columns, "plan", "--help").replace("\r\n", "\n")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    width = min(max(20, columns), 120)
    # A word is not broken, nor a name with its type.
    assert [line for line in plain.partition("Examples:")[0].split("\n") if " " in line[width:] and not re.match("  [^ ]", line)] == []
    assert "\x1b[1mUsage:\x1b[0m" in text and "\x1b[36m--memory-limit\x1b[0m" in text
    no_colour = on_terminal(columns, "plan", "--help", NO_COLOR="1").replace("\r\n", "\n")
    assert no_colour == plain


def test_examples_that_are_broken_are_still_commands(on_terminal):
    """A shell joins the lines again."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(50, "train", "--help").replace("\r\n", "\n")).partition("Examples:\n")[2]
    whole = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(400, "train", "--help").replace("\r\n", "\n")).partition("Examples:\n")[2]
    split = subprocess.run(["bash", "-c", "rondo() { printf '%q ' rondo \"$@\"; echo; }\n" + text.partition("\nTERM or")[0]], capture_output=True,
                           text=True, check=True).stdout
    joined = subprocess.run(["bash", "-c", "rondo() { printf '%q ' rondo \"$@\"; echo; }\n" + whole.partition("\nTERM or")[0]], capture_output=True,
                            text=True, check=True).stdout
    assert split == joined and split.count("\n") >= 8


def test_command_line_page_ignores_the_terminal(repository, rondo):
    program = pathlib.Path(rondo.program)
    done = subprocess.run(["python3", repository / "scripts" / "cli_page.py", program, "--check"], capture_output=True, text=True, check=False,
                          env=os.environ | {"COLUMNS": "40"})
    assert done.returncode == 0, done.stderr
