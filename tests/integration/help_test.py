"""--help, --help-all and --version of every program and subcommand have one format."""
import re

import pytest
from marks import long

PROGRAMS = "train evaluate predict export tokenize bench profile plan simulate checkpoint report top doctor new".split()
SUBCOMMANDS = {"checkpoint": "inspect verify diff convert reshard merge".split(),
               "bench": "checkpoint collectives step".split(),
               "bench-dev": "codecs loader memory-tracking pipeline servers startup strategies trainer".split()}
EVERY = [("run",), ("completion",), ("bench-dev",), *((name,) for name in PROGRAMS), *((name, command) for name, commands in SUBCOMMANDS.items() for command in commands)]


def asked(rondo, *words, columns="100"):
    result = rondo(*words, env={"COLUMNS": columns})
    assert result.returncode == 0 and result.stderr == "", (words, result.returncode, result.stderr)
    return result.stdout


@pytest.fixture(scope="session")
def version(repository):
    return re.search(r'#define RONDO_VERSION "([0-9.]+)', (repository / "rondo/base/version.h").read_text())[1]


def test_the_front_answers_too(rondo, version):
    lines = dict(line.split(" ", 1) for line in asked(rondo, "--version").splitlines())
    assert lines["rondo"] == version and re.fullmatch("[0-9a-f]{40}|unknown", lines["commit"])
    assert re.fullmatch(r"\d+\.\d+\.\d+ \((CPU|CUDA) build\), /.*", lines["libtorch"]) and "native" in lines["engines"].split(", ")
    for name in PROGRAMS:
        assert re.search(rf"^  {name}\b", asked(rondo, "--help"), re.M) and re.search(rf"^  {name}\b", asked(rondo, "--help-all"), re.M)


@pytest.mark.parametrize("words", [long(words) if words[0] == "bench-dev" and len(words) > 1 else words for words in EVERY], ids=" ".join)
def test_every_command_answers_in_one_format(rondo, version, words):
    short, everything = asked(rondo, *words, "--help"), asked(rondo, *words, "--help-all")
    assert asked(rondo, *words, "--version") == f"rondo {version}\n"
    for text in (short, everything):
        lines = text.splitlines()
        assert lines[0].strip() and not lines[0].startswith("Usage"), "what the command does comes first"
        usages = [line for line in lines if line.startswith("Usage: ")]
        assert usages and usages[0].startswith("Usage: rondo " + " ".join(words)), usages
        before = text.partition("Examples:")[0].partition("More:")[0]
        assert not re.search(r":POSITIVE|:NONNEGATIVE|--[\w-]+ (?:U?INT|FLOAT)\b|in \[-?\d|Env:|OPTIONS:", before), before
        # A flag, a type, a default; then the text, which begins in a fixed column.
        for line in before.splitlines():
            if line.startswith("  -"):
                assert re.match(r"  -[^ ]*( [^ ]+)*(  .*)?$", line), line
        assert max(map(len, before.splitlines())) <= 140, max(before.splitlines(), key=len)
    assert re.search(r"^  (-h,)?--help\b", everything, re.M) and re.search(r"^  --version\b", everything, re.M)


def test_help_is_as_wide_as_the_terminal(rondo):
    texts = {columns: asked(rondo, "plan", "--help", columns=columns).partition("Examples:")[0] for columns in ("70", "110")}
    entries = {columns: [line for line in text.splitlines() if line.startswith(" " * 28)] for columns, text in texts.items()}
    assert all(len(line) <= 70 or " " not in line.strip() for line in entries["70"]) and len(entries["70"]) > len(entries["110"])


def test_no_subcommand_is_forgotten(rondo):
    for name, commands in SUBCOMMANDS.items():
        listed = re.findall(r"^  ([a-z-]+)(?:  |$)", asked(rondo, name, "--help").partition("Commands:")[2].partition("\n\n")[0], re.M)
        assert set(listed) == set(commands), name
    listed = re.findall(r"^  ([a-z]+)  ", asked(rondo, "--help").partition("Commands:")[2].partition("\n\n")[0], re.M)
    assert set(listed) == {"run", "completion", *PROGRAMS}
