"""Completion scripts in the shells that they are for, and manual pages."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

RULES = re.compile(r"^mandoc: .*: (ERROR|WARNING|UNSUPP|BADARG): .*$", re.M)


@pytest.fixture(scope="module")
def made(rondo_bin, tmp_path_factory):
    """The scripts of all shells, from commands that are read once, and the folder of that file."""
    folder = tmp_path_factory.mktemp("completion")
    program = rondo_bin / "rondo"
    commands = subprocess.run([program, "--help-json"], capture_output=True, check=True, timeout=120)
    assert commands.stderr == b""
    (folder / "commands.json").write_bytes(commands.stdout)
    for shell in ("bash", "zsh", "fish"):
        done = subprocess.run([program, "completion", shell, "--from", "commands.json"], cwd=folder, capture_output=True, check=True, timeout=120)
        assert done.stderr == b""
        (folder / shell).write_bytes(done.stdout)
    return folder


def needs(program, reason):
    if shutil.which(program) is None:
        print(f"without {reason}: {program} is not installed")
        pytest.skip(f"{program} is not installed")


def in_bash(folder, line):
    """Returns the words that bash offers at the end of `line`."""
    # As bash splits it: COMP_WORDBREAKS has '='.
    words = re.findall(r"=|[^\s=]+", line) + ([""] if line.endswith(" ") else [])
    script = f"""source ./bash
COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}
_rondo
printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "--norc", "-c", script], cwd=folder, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == "", done.stderr
    return set(done.stdout.split())


CASES = [
    ("rondo tr", {"train"}, None),
    ("rondo checkpoint ", {"inspect", "verify", "diff", "convert", "reshard", "merge"}, None),
    ("rondo completion ", {"bash", "zsh", "fish"}, None),
    ("rondo train --strategy pa", {"parameter_server"}, None),
    ("rondo train --progress=b", {"bar"}, None),
    ("rondo train --optimizer=", {"adam", "lion"}, {"zero3"}),
    ("rondo train --acti", {"--activation-checkpointing"}, None),
    ("rondo train --set weight-decay-on", {"weight-decay-on="}, None),
    ("rondo checkpoint verify --j", {"--json"}, {"--parts"}),
    ("rondo run -n 2 rondo train --strategy zero", {"zero1", "zero2", "zero3"}, {"ddp"}),
    ("rondo run --nproc-per-node=2 --log-dir x -- rondo plan --solv", {"--solver"}, None),
    ("rondo train --config comm", {"commands.json"}, None),
    ("rondo train --steps ", set(), {"commands.json"}),
]


@pytest.mark.parametrize("line,offered,not_offered", CASES, ids=[line for line, *_ in CASES])
def test_bash_completes(made, line, offered, not_offered):
    found = in_bash(made, line)
    assert offered <= found and not (not_offered or set()) & found, found
    if not_offered is None:
        assert found == offered or line.endswith("zero"), found


def test_every_flag_of_every_command_is_offered(made):
    """The script has what --help-json declares, which is what the programs parse."""
    def pages(page):
        yield page
        for command in page["commands"]:
            yield from pages(command)

    front = json.loads((made / "commands.json").read_text())
    assert {page["name"] for page in front["commands"]} >= {"rondo run", "rondo train", "rondo bench", "rondo completion"}
    script = (made / "bash").read_text()
    for page in pages(front):
        names = {name for group in page["groups"] for entry in group["entries"] for name in entry["names"] if name.startswith("-")}
        described = re.search(rf"^    '{page['name']}'\)\n      flags='([^']*)'$", script, re.M)
        assert described and set(described[1].split()) == names, page["name"]


@pytest.mark.tooling
def test_zsh_completes(made):
    needs("zsh", "a test of zsh")
    script = f"""
import os, pty, re, select, sys, time
pid, leader = pty.fork()
if pid == 0:
    os.chdir({str(made)!r})
    os.execvpe("zsh", ["zsh", "-f", "-i"], os.environ | {{"TERM": "dumb", "PS1": "% ", "PROMPT": "% "}})
def read_until(mark, text=""):
    end = time.monotonic() + 100
    while mark not in text:
        assert time.monotonic() < end, text
        if select.select([leader], [], [], 0.1)[0]:
            text += os.read(leader, 65536).decode(errors="replace")
    return text
def write(text):
    os.write(leader, text.encode())
write("autoload -Uz compinit && compinit -u -D && mkdir -p f && cp zsh f/_rondo && fpath=($PWD/f $fpath) && autoload -Uz _rondo && compdef _rondo rondo; unsetopt zle_bracketed_paste; setopt list_ambiguous; echo rea''dy\\n")
read_until("ready")
for line, mark in (("rondo tr", "rondo train"), ("rondo train --stra", "--strategy"), ("rondo train --optimizer li", "lion"),
                   ("rondo checkpoint ver", "verify"), ("rondo run -n 2 rondo train --progress li", "lines")):
    write("\\x15" + line + "\\t")
    text = read_until(mark)
    write("\\x15\\n")
print("completed")
os.kill(pid, 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and "completed" in done.stdout, done.stdout + done.stderr


def test_fish_completes(made):
    needs("fish", "a test of fish")
    for line, offered, refused in (("rondo tr", {"train"}, {"plan"}), ("rondo checkpoint ", {"verify", "diff"}, {"train"}),
                                   ("rondo train --optimizer li", {"lion"}, {"adam"}), ("rondo train --acti", {"--activation-checkpointing"}, {"--lr"}),
                                   ("rondo checkpoint verify --j", {"--json"}, {"--parts"}), ("rondo train --config comm", {"commands.json"}, set())):
        done = subprocess.run(["fish", "--no-config", "-c", f"source fish; complete -C '{line}'"], cwd=made, capture_output=True, text=True, check=True,
                              timeout=120, env=os.environ | {"HOME": str(made)})
        found = {text.split("\t")[0] for text in done.stdout.splitlines()}
        assert done.stderr == "" and offered <= found and not refused & found, (line, done)


@pytest.mark.parametrize("words,facts", [(["tcsh"], ["tcsh", "bash", "zsh", "fish"]), ([], ["SHELL"]), (["bash", "--form", "x"], ["--form"]),
                                         (["bash", "--from", "missing.json"], ["missing.json"]), (["bash", "--from", "other.json"], ["other.json", "--help-json"]),
                                         (["bash", "zsh"], ["zsh"])])
def test_what_completion_refuses(rondo, tmp_path, words, facts):
    (tmp_path / "other.json").write_text('{"name": 1}')
    refused = rondo("completion", *words)
    assert refused.returncode in (1, 2) and refused.stdout == "" and "rondo completion: " in refused.stderr, refused
    for fact in facts:
        assert fact in refused.stderr, refused.stderr


def test_a_program_that_is_missing_leaves_the_others(rondo_bin, tmp_path):
    for name in ("rondo", "rondo-top"):
        shutil.copy(rondo_bin / name, tmp_path)
    done = subprocess.run([tmp_path / "rondo", "completion", "bash"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0 and "without the flags of 'rondo plan'" in done.stderr, done
    assert "'rondo top --json'" in done.stdout and "'rondo plan')" in done.stdout


def test_manual_pages(made, repository, tmp_path):
    subprocess.run([sys.executable, repository / "scripts" / "man_pages.py", made / "commands.json", tmp_path], check=True, timeout=120,
                   env=os.environ | {"SOURCE_DATE_EPOCH": "0"})
    pages = {path.name: path.read_text() for path in tmp_path.glob("*.1")}
    assert {"rondo.1", "rondo-run.1", "rondo-train.1", "rondo-checkpoint.1", "rondo-checkpoint-verify.1", "rondo-completion.1"} <= set(pages)
    assert '.TH RONDO-TRAIN 1 1970-01-01 "rondo' in pages["rondo-train.1"] and r"\fB\-\-strategy\fR" in pages["rondo-train.1"]
    needs("mandoc", "a check of manual pages")
    for name in sorted(pages):
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", tmp_path / name], capture_output=True, text=True, check=False, timeout=120)
        assert RULES.findall(lint.stdout + lint.stderr) == [], (name, lint.stdout)
    shown = subprocess.run(["mandoc", "-T", "utf8", tmp_path / "rondo-train.1"], capture_output=True, text=True, check=True, timeout=120).stdout
    plain = re.sub(r".\x08", "", shown)
    assert re.search(r"^ +--strategy VALUE \(default: auto\)$", plain, re.M) and "parameter_server, pipeline, planned" in " ".join(plain.split())
    assert "rondo train --data texts/ --nproc-per-node 2" in plain


def test_an_installation_has_them(installed):
    share = installed / "share"
    assert "complete -F _rondo rondo" in (share / "bash-completion/completions/rondo").read_text()
    assert (share / "zsh/site-functions/_rondo").read_text().startswith("#compdef rondo\n")
    assert "complete -c rondo" in (share / "fish/vendor_completions.d/rondo.fish").read_text()
    assert {"rondo.1", "rondo-train.1", "rondo-run.1"} <= {path.name for path in (share / "man/man1").iterdir()}
