"""Runs the command blocks of a Markdown page in order, as a reader who copies them, and compares what they print.

The language of a fenced block says how it is read: `sh` is a block of commands, `console` is the output of the commands
before it, `cpp` is C++; a block of any other language is only shown. Comments directly before a block tell the test
what a reader does not see:

    <!-- not run: REASON -->       the block needs what the test does not have: a network, other hardware
    <!-- needs: make package -->   the block runs if build/package holds the packages
    <!-- run as: OLD => NEW -->    the commands run with NEW instead of OLD, such as fewer steps
    <!-- fails: COMMAND -->        commands that begin so end with an error
    <!-- on hosts -->              the commands run at once, each on an emulated host
    <!-- file: NAME -->            the block is the content of a file that later commands read
    <!-- given: CODE -->           C++ declarations that the block uses and the page does not show
"""
import dataclasses
import os
import re
import resource
import signal
import subprocess
import time

FENCE = re.compile(r"^( *)(`{3,})(.*)$")
DIRECTIVE = re.compile(r"<!--\s*(not run|needs|run as|fails|on hosts|file|given)\b:?\s*(.*?)\s*-->", re.DOTALL)
COMMAND_SECONDS = 900  # limit of one command
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")


@dataclasses.dataclass
class Block:
    """A fenced block: its page, the line of its first row, and the comments before it as (name, text)."""
    page: str
    line: int
    language: str
    text: str
    directives: list

    def place(self, row=0):
        return f"{self.page}:{self.line + row}"

    def said(self, name):
        return [text for key, text in self.directives if key == name]


def blocks(page, text):
    """Returns the fenced blocks of a page."""
    found, directives, rows, opening = [], [], None, None
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        fence = FENCE.match(line)
        if opening is not None:
            if fence and fence[2] == opening[2] and not fence[3].strip():
                found.append(Block(page, start, opening[3].strip().split(" ")[0], "\n".join(rows), directives))
                opening, directives = None, []
            else:
                rows.append(line.removeprefix(opening[1]))
        elif fence:
            opening, rows, start = fence, [], number + 1
        elif line.lstrip().startswith("<!--"):
            comment = line
            while "-->" not in comment and number < len(lines):
                comment += "\n" + lines[number]
                number += 1
            directives += DIRECTIVE.findall(comment)
        elif line.strip():
            directives = []
    assert opening is None, f"{page}:{start - 1}: the block has no end"
    return found


def commands(block):
    """Returns the commands of a block, each with the row at which it starts."""
    found, pending, start = [], "", 0
    for row, line in enumerate(block.text.splitlines()):
        if not pending:
            start = row
            if not line.strip() or line.lstrip().startswith("#"):
                continue
        pending += line + "\n"
        if line.endswith("\\"):
            continue
        if subprocess.run(["bash", "-n"], input=pending, text=True, capture_output=True, check=False).stderr:
            continue  # an open quote, loop or here-document
        found.append((start, pending.rstrip("\n")))
        pending = ""
    assert not pending, f"{block.place(start)}: no complete command: {pending}"
    return found


def substituted(block, command):
    """Returns the command as the test runs it."""
    for rule in block.said("run as"):
        old, _, new = (part.strip() for part in rule.partition("=>"))
        command = command.replace(old, new)
    return command


class Shell:
    """A shell of a reader: the folder and exported variables last from one command to the next."""

    def __init__(self, folder, environment):
        self.folder, self.environment = folder, dict(environment)
        self.state = folder.parent / f"{folder.name}.state"

    def run(self, command, prefix=()):
        """Runs a command; returns its exit code and its output and errors in one text."""
        process = self.start(command, prefix)
        return self.finish(process)

    def start(self, command, prefix=()):
        script = f"{command}\nstatus=$?\n{{ pwd; env -0; }} >{self.state}\nexit $status"
        return subprocess.Popen([*prefix, "bash", "-c", script], cwd=self.folder, env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                start_new_session=True, errors="replace")

    def finish(self, process):
        try:
            output = process.communicate(timeout=COMMAND_SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0]
            return 124, f"{output}\nno end within {COMMAND_SECONDS} s"
        if self.state.exists():
            folder, _, variables = self.state.read_text().partition("\n")
            self.folder = type(self.folder)(folder)
            self.environment = dict(pair.split("=", 1) for pair in variables.split("\0") if "=" in pair)
            self.state.unlink()
        return process.returncode, output


def pattern(line):
    """Returns a regular expression for a shown line: numbers differ, spaces are of any width, ... is any text."""
    parts = [re.escape(NUMBER.sub("\x01", part)) for part in line.strip().split("...")]
    text = ".*".join(parts).replace("\x01", r"[-+\d.,e]+")
    return re.sub(r"(?:\\ |\s)+", r"\\s+", text)


def missing_line(shown, printed):
    """Returns (row, line) of the first shown line that the output lacks, in order, or None. A line with nothing but
    ... stands for any number of lines."""
    rows = [line.strip() for line in re.sub("\x1b\\[[0-9;]*[A-Za-z]", "", printed).replace("\r", "\n").splitlines()]
    rows = [row for row in rows if row]
    position, anywhere = 0, True
    for number, line in enumerate(shown.splitlines()):
        if line.strip() in ("", "..."):
            anywhere = anywhere or line.strip() == "..."
            continue
        wanted = re.compile(pattern(line))
        candidates = range(position, len(rows)) if anywhere else range(position, min(position + 1, len(rows)))
        place = next((row for row in candidates if wanted.fullmatch(rows[row])), None)
        if place is None:
            return number, line
        position, anywhere = place + 1, False
    return None


def processor_seconds():
    """Returns the processor time of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_page(page_blocks, shell, left_out, hosts=None, report=print):
    """Runs the command blocks of a page, except those for which left_out(block) gives a reason. Raises AssertionError
    with page and line at the first command that fails or prints something else."""
    printed = None  # output of the last block that ran
    for block in page_blocks:
        for name in block.said("file"):
            (shell.folder / name).write_text(block.text + "\n")
        if block.language == "console":
            if printed is not None:
                missing = missing_line(block.text, printed)
                assert missing is None, f"{block.place(missing[0])}: '{missing[1].strip()}' is not printed, but\n{printed[-6000:]}"
            continue
        if block.language != "sh":
            continue
        printed = None
        reason = left_out(block)
        if reason:
            report(f"{block.place()}: not run: {reason}")
            continue
        lines = [(row, substituted(block, command)) for row, command in commands(block)]
        began, used = time.monotonic(), processor_seconds()
        if block.said("on hosts"):
            results = run_on_hosts(shell, hosts, [command for _, command in lines])
        else:
            results = run_in_turn(shell, block, lines)
        printed = "".join(output for _, output in results)
        for (row, command), (status, output) in zip(lines, results):
            assert (status != 0) == fails(block, command), f"{block.place(row)}: exit code {status}: {command}\n{output[-6000:]}"
        report(f"{block.place()}: {time.monotonic() - began:.1f} s, {processor_seconds() - used:.1f} s of processor time")


def fails(block, command):
    """Returns whether the page says that the command ends with an error."""
    return any(command.startswith(start) for start in block.said("fails"))


def run_in_turn(shell, block, lines):
    """Runs the commands up to the first that ends otherwise than the page says."""
    results = []
    for _, command in lines:
        results.append(shell.run(command))
        if (results[-1][0] != 0) != fails(block, command):
            break
    return results


def run_on_hosts(shell, hosts, lines):
    """Runs the commands at once, each on its host."""
    processes = [shell.start(command, host.command()) for command, host in zip(lines, hosts, strict=True)]
    return [shell.finish(process) for process in processes]
