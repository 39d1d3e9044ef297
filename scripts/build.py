#!/usr/bin/env python3
"""Builds a configured folder and shows its progress and the remaining time:  scripts/build.py FOLDER [TARGET...]

Prints one changing line on a terminal, otherwise a line every ten seconds. Passes the output of compilers and linkers
through unchanged, and returns ninja's exit code.
"""
import json
import os
import pathlib
import re
import selectors
import shutil
import subprocess
import sys
import time

STATUS = re.compile(r"\[(\d+)/(\d+)\] (.*)")
# Relative times: a file with libtorch takes about eight times as long as one without; a link takes almost none.
ON_LIBTORCH, PLAIN, OTHER = 8.0, 1.0, 0.05
LOG_INTERVAL = 10.0


def clock(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def cached(folder, variable):
    """A CMake variable of a build folder, or None."""
    try:
        text = (folder / "CMakeCache.txt").read_text()
    except OSError:
        return None
    found = re.search(rf"^{variable}:\w+=(.*)$", text, re.M)
    return found and found[1]


def weights_of_objects(folder):
    """Returns weights by object file, with ninja's names."""
    try:
        commands = json.loads((folder / "compile_commands.json").read_text())
    except (OSError, ValueError):
        return {}
    weights = {}
    for entry in commands:
        name = re.search(r" -o (\S+)", entry["command"])
        if name:
            weights[name[1]] = ON_LIBTORCH if "cmake_pch" in entry["command"] or "/torch/" in entry["command"] else PLAIN
    return weights


def what(step):
    """Returns the target and the file from ninja's description of a step."""
    target = re.search(r"([^/ ]+)\.dir/", step)
    return (target[1] + " " if target else "") + pathlib.Path(step).name


class Estimate:
    """Estimates the remaining time from the finished steps. `weights` has the object files, `missing` those that must
    be built; steps that only ninja knows are assumed to resemble the previous ones of their kind."""

    def __init__(self, weights, missing):
        self.weights, self.missing = weights, set(missing)
        self.done = 0.0
        self.unforeseen = []  # weights of finished steps that were not missing before

    def finish(self, description):
        output = description.rsplit(" ", 1)[-1]
        weight = self.weights.get(output, OTHER)
        self.done += weight
        if output in self.missing:
            self.missing.remove(output)
        else:
            self.unforeseen.append(weight)

    def share(self, finished, total):
        """Returns the finished share of the work, from 0 to 1."""
        others = max(0, total - finished - len(self.missing))
        each = sum(self.unforeseen) / len(self.unforeseen) if self.unforeseen else OTHER
        rest = sum(self.weights[name] for name in self.missing) + others * each
        return self.done / (self.done + rest) if self.done else 0.0

    def seconds_left(self, finished, total, elapsed):
        """Returns the estimate, or None before the first progress."""
        share = self.share(finished, total)
        return elapsed * (1 - share) / share if share else None


class Display:
    """Prints progress, and passes other lines through."""

    def __init__(self, stream):
        self.stream, self.terminal = stream, stream.isatty()
        self.shown, self.printed = "", None

    def show(self, text, now, last=False):
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r\x1b[K" + text[:width])
            self.shown = text
        elif last or self.printed is None or now - self.printed >= LOG_INTERVAL:
            self.stream.write(text + "\n")
            self.printed = now
        self.stream.flush()

    def let_through(self, line):
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.shown = ""
        self.stream.write(line + "\n")
        self.stream.flush()


def lines_of(process, seconds):
    """Yields complete lines of the process's output, and None whenever `seconds` pass without one."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(seconds):
                yield None
                continue
            piece = os.read(process.stdout.fileno(), 1 << 16)
            *complete, rest = (rest + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in complete)
            if not piece:
                break
    if rest:
        yield rest.decode(errors="replace")


def build(folder, targets):
    ninja = cached(folder, "CMAKE_MAKE_PROGRAM") or "ninja"
    weights = weights_of_objects(folder)
    inputs = subprocess.run([ninja, "-C", folder, "-t", "inputs", *(targets or ["all"])], capture_output=True, text=True)
    needed = inputs.stdout.split("\n") if inputs.returncode == 0 else weights  # ninja before 1.11 has no `inputs`
    estimate = Estimate(weights, [name for name in needed if name in weights and not (folder / name).exists()])

    process = subprocess.Popen([ninja, "-C", folder, *targets], stdout=subprocess.PIPE,
                               env=os.environ | {"NINJA_STATUS": "[%f/%t] "})
    display = Display(sys.stdout)
    began, finished, total, step = time.monotonic(), 0, 0, ""
    for line in lines_of(process, 1.0):
        now = time.monotonic()
        status = STATUS.fullmatch(line) if line is not None else None
        if status:
            # Regeneration of the build files is no step of the build.
            if status[3].startswith("Re-"):
                continue
            finished, total, step = int(status[1]), int(status[2]), status[3]
            estimate.finish(step)
        elif line is not None:
            if not line.startswith("ninja: Entering directory"):
                display.let_through(line)
            continue
        if not total:
            continue
        left = estimate.seconds_left(finished, total, now - began)
        text = f"[{finished:>{len(str(total))}}/{total}] {estimate.share(finished, total):4.0%}"
        if finished < total and left is not None:
            text += f" {clock(left)} left"
        display.show(f"{text}  {what(step)}" if display.terminal else text, now, last=finished == total)
    code = process.wait()
    if total and code == 0:
        display.let_through(f"built {total} steps in {clock(time.monotonic() - began)}")
    return code


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        sys.exit(build(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]))
    except KeyboardInterrupt:  # ninja got the signal, too, and has reported it
        sys.exit(130)
