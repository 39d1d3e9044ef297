"""Common behaviour of all command lines: readable ranges, missing paths, and no repeated messages."""
import concurrent.futures
import json
import os
import re
import subprocess

import pytest

NUMBER = re.compile(r"^\s*(?:-\w,)?--([a-z0-9-]+) (?:INT|UINT|FLOAT|N|X|SHARE|SEED)\b", re.M)
# Flags that a program needs before it checks others.
COMMANDS = {
    "train": ["--data", "/etc/passwd", "--run-dir", "/nowhere/run"],
    "plan": ["--synthetic", "gpt:layers=2,dim=64", "--memory-limit", "1GiB", "--plan-time-limit", "1s"],
    "simulate": ["--synthetic", "gpt:layers=2,dim=64"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_numeric_flag_names_itself_and_its_range(rondo, command):
    flags = sorted(set(NUMBER.findall(rondo(command, "--help-all" if command == "train" else "--help").stdout)))
    assert len(flags) >= 5, flags

    def refused(flag, value):
        others = COMMANDS[command] if flag != "random-profile" else ["--memory-limit", "1GiB"][:2 * (command == "plan")]
        result = rondo(command, *others, f"--{flag}={value}")
        said = result.stderr
        longest = max(map(len, re.findall(r"[\d.]+", said)), default=0)
        if result.returncode != 2 or f"--{flag}" not in said or value not in said or longest > 20:
            return f"--{flag}={value}: exit code {result.returncode}: {said}"

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        wrong = list(pool.map(lambda pair: refused(*pair), [(flag, v) for flag in flags for v in ("-1", "nan", "1e999", "x")]))
    assert [text for text in wrong if text] == []


@pytest.mark.parametrize("flag, value, allowed", [
    ("steps", "0", "above 0"), ("lr", "-1", "0 or more"), ("dropout", "1.5", "from 0 to 1"), ("steps", "1.5", "--steps")])
def test_ranges_are_said_in_words(rondo, flag, value, allowed):
    result = rondo("train", *COMMANDS["train"], f"--{flag}", value)
    assert result.returncode == 2
    assert f"--{flag}" in result.stderr and value in result.stderr and allowed in result.stderr, result.stderr


@pytest.mark.parametrize("words", [
    ["--freeze", "x%y"], ["--metrics", "x%y"], ["--keep-best", "x%y"], ["--activation-checkpointing", "x%y"],
    ["--set", "init-rename=x%y", "--init-from", "/etc/passwd"]], ids=lambda words: words[0] if words[0] != "--set" else words[1])
def test_errors_of_the_library_name_the_flag(rondo, tmp_path, words):
    """Names that only the model or the metrics can check: those functions do not know the flags."""
    (tmp_path / "text.txt").write_text("a text of some words. " * 40)
    result = rondo("train", "--data", "text.txt", "--model", "gpt-tiny", "--layers", 1, "--width", 32, "--heads", 4, "--seq-len", 16,
                   "--steps", 1, *words)
    name = words[0] if words[0] != "--set" else words[1].split("=")[0]  # the name in a configuration file
    assert result.returncode == 2 and f"{name} x%y: " in result.stderr, result.stderr


def test_no_program_checks_numbers_or_paths_by_itself(repository):
    """CLI11's own checks print 309 digits and accept nan."""
    found = [f"{path.relative_to(repository)}: {word}" for path in (repository / "apps").rglob("*.cpp")
             for word in re.findall(r"CLI::(?:Range|PositiveNumber|NonNegativeNumber|Number|Bound|Existing\w+)", path.read_text())]
    assert found == []


def test_json_errors_hide_library_text(repository):
    """json_problem() omits the library's name and number; readers should also name the position."""
    catch = re.compile(r"catch \(const (?:[\w:]*[jJ]son\w*::)\w+& (\w+)\) \{(.*?)\n\s*\}", re.DOTALL)
    found = [f"{path.relative_to(repository)}: {name}.what()"
             for folder in ("rondo", "apps") for path in sorted((repository / folder).rglob("*.cpp"))
             for name, block in catch.findall(path.read_text()) if f"{name}.what()" in block]
    assert found == []


MISSING = [["train", "--data", "GONE"], ["train", "--data", "HERE", "--init-from", "GONE"],
           ["train", "--data", "HERE", "--plan", "GONE"], ["train", "--data", "HERE", "--profile", "GONE"],
           ["train", "--data", "HERE", "--config", "GONE"], ["train", "--data", "HERE", "--resume", "GONE"],
           ["train", "--data", "HERE", "--model", "bert", "--from-pretrained", "GONE"],
           ["train", "--data", "HERE", "--model", "bert", "--vocabulary", "GONE"],
           ["train", "--data", "HERE", "--model", "gpt", "--tokenizer", "GONE"], ["tokenize", "HERE", "-o", "OUT", "--tokenizer", "GONE"],
           ["evaluate", "RUN", "--data", "HERE", "--checkpoint", "GONE"], ["predict", "RUN", "--data", "HERE", "--checkpoint", "GONE"],
           ["export", "RUN", "-o", "OUT.safetensors", "--checkpoint", "GONE"],
           ["bench", "step", "--variant", "planned --plan GONE"],
           ["plan", "GONE", "--memory-limit", "1GiB"], ["plan", "--profile", "GONE", "--memory-limit", "1GiB"],
           ["tokenize", "GONE", "-o", "OUT"], ["train", "--data", "HERE,GONE", "--data-weights", "1,1"],
           ["evaluate", "GONE"], ["predict", "GONE", "--data", "HERE"], ["export", "GONE", "-o", "OUT.safetensors"],
           ["profile", "--model", "GONE.pt", "--json", "OUT.json"], ["top", "GONE"], ["report", "GONE", "GONE"],
           ["simulate", "GONE"], ["simulate", "--synthetic", "gpt", "--plan", "GONE"], ["report", "GONE"],
           ["checkpoint", "inspect", "GONE"], ["checkpoint", "verify", "GONE"], ["checkpoint", "diff", "GONE", "GONE"],
           ["checkpoint", "convert", "GONE", "x.safetensors"], ["run", "./GONE"]]


@pytest.mark.parametrize("words", MISSING, ids=lambda words: "-".join(words))
def test_missing_path_is_a_usage_error(rondo, tmp_path, words):
    (tmp_path / "HERE").write_text("some text " * 100)
    (tmp_path / "RUN").mkdir()
    (tmp_path / "RUN" / "config.json").write_text('{"model": "gpt-tiny", "data": "HERE"}')
    before = sorted(path.name for path in tmp_path.iterdir())
    result = rondo(*words)
    assert result.returncode == 2 and "GONE" in result.stderr, result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("words", [["plan", "BAD", "--memory-limit", "1GiB"], ["simulate", "BAD"],
                                   ["simulate", "--synthetic", "gpt", "--plan", "BAD"], ["checkpoint", "inspect", "BAD"],
                                   ["checkpoint", "verify", "BAD"]], ids=lambda words: "-".join(words))
def test_a_damaged_file_is_a_failure(rondo, tmp_path, words):
    (tmp_path / "BAD").write_text("{\"format\": ")
    result = rondo(*words)
    assert result.returncode == 1 and "BAD" in result.stderr, result.stderr


@pytest.mark.parametrize("words, said", [
    (["train", "--lr"], "--lr needs a value"),
    (["run", "-n"], "needs a value"),
    (["checkpoint", "inspct", "HERE"], "'inspct' is not a command of rondo checkpoint; there are inspect, verify, "),
    (["new", "-x"], "unknown flag -x"),
    (["simulate", "--synthetic", "gpt", "--plan", "HERE", "--strategy", "ddp"], "--plan"),
    (["plan", "PLAN", "--memory-limit", "1GiB"], "PLAN is a plan"),
    (["simulate", "PLAN"], "PLAN is a plan"),
    (["train", "--data", "HERE", "--nproc-per-node", "2", "--strategy", "planned", "--plan", "PROFILE"], "PROFILE is a profile")],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "")
def test_wrong_lines_name_the_word(rondo, tmp_path, words, said):
    (tmp_path / "HERE").write_text("some text " * 1000)
    (tmp_path / "PLAN").write_text('{"feasible": true, "step_ms": 1, "units": []}')
    (tmp_path / "PROFILE").write_text('{"format": "rondo-profile-2", "units": [], "link": {}}')
    result = rondo(*words)
    assert result.returncode in (1, 2) and said in result.stderr, result.stderr


def test_export_writes_the_format_that_the_name_says(rondo, tmp_path):
    (tmp_path / "data.csv").write_text("a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(60)))
    assert rondo("train", "--data", "data.csv", "--steps", 1, "--run-dir", "run").returncode == 0
    assert rondo("export", "run", "-o", "m.safetensors").returncode == 0
    header = (tmp_path / "m.safetensors").read_bytes()
    assert "weight" in str(json.loads(header[8:8 + int.from_bytes(header[:8], "little")]))


def test_infeasible_plan_is_reported_once(rondo):
    result = rondo("plan", "--synthetic", "gpt:layers=2,dim=256", "--memory-limit", "1MiB", "--quiet")
    assert result.returncode == 1 and result.stdout == "", result.stdout
    assert result.stderr.count("smallest") == 1 and result.stderr.count(" bytes)") == 1, result.stderr


def test_slowdown_of_a_plan_is_not_negative(rondo):
    for layers in (1, 2, 3):
        result = rondo("plan", "--synthetic", f"gpt:layers={layers},dim=64", "--memory-limit", "8GiB", "--quiet")
        assert result.returncode == 0 and "-0.0" not in result.stdout, result.stdout


@pytest.fixture
def program(tmp_path):
    """program(script) writes a file, so that its output is not part of the command line, which the report shows."""

    def write(script):
        path = tmp_path / "program"
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        return path

    return write


def test_shows_error_of_launched_program_once(rondo, program):
    result = rondo("run", "-n", 2, program("[ $RANK = 1 ] && exec sleep 100; echo 'no cable in port 7' >&2; exit 1"))
    assert result.returncode == 1
    assert result.stderr.count("no cable in port 7") == 1, result.stderr
    assert "[rank 0] no cable" in result.stderr and "rondo run: rank 0" in result.stderr


def test_shows_recorded_error_once(rondo, program):
    note = ("printf '{\"message\": {\"message\": \"no cable in port 7\"}}' >$TORCHELASTIC_ERROR_FILE; "
            "echo 'program: no cable in port 7' >&2; exit 1")
    result = rondo("run", "-n", 1, program(note))
    assert result.returncode == 1 and result.stderr.count("no cable in port 7") == 1, result.stderr


def test_a_wrong_training_says_so_once(rondo, tmp_path):
    (tmp_path / "short.txt").write_text("short")
    result = rondo("train", "--data", "short.txt", "--nproc-per-node", 2, "--matmul", "libtorch")
    assert result.returncode == 1 and result.stderr.count("short.txt' has") == 1, result.stderr


def test_late_rank_0_reports_an_agreed_error(rondo, rondo_bin, tmp_path):
    """The launcher stops rank 0 as soon as another rank has ended with the same error."""
    (tmp_path / "text.txt").write_text("some text " * 200)
    result = rondo("run", "-n", 2, rondo_bin / "own_strategy", "--data", "text.txt", "--steps", 1, "--strategy", "slow_to_go")
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("rank 1: slow_to_go is not for rank 1") == 1, result.stderr


# A command followed by several spaces and a remark, which a shell would pass as arguments.
BARE_REMARK = re.compile(r"^ *(?:[A-Z_]+=\S+ )*(?:rondo|make|\./\S+|srun|mpirun)(?: \S+)*? {2,}(?!#)\w.*$", re.M)


@pytest.mark.tooling
def test_a_copied_example_runs(repository, rondo):
    """Remarks in help and documents follow a #."""
    helps = {name: rondo(*name, "--help").stdout for name in
             [(), *((name,) for name in "run train evaluate predict export tokenize profile report plan simulate checkpoint doctor top new".split()),
              *(("bench", name) for name in "collectives step checkpoint".split()),
              *(("bench-dev", name) for name in "pipeline codecs loader startup".split())]}
    texts = {" ".join(("rondo", *name)): text.partition("Examples:")[2] for name, text in helps.items()}
    assert sum(bool(text) for text in texts.values()) > 15
    for page in [repository / "README.md", repository / "python" / "README.md", *(repository / "docs").rglob("*.md"),
                 *(repository / "examples").rglob("*.md")]:
        texts[page.name] = "\n".join(page.read_text().split("```")[1::2])
    assert [f"{name}: {line}" for name, text in texts.items() for line in BARE_REMARK.findall(text)] == []
