"""Runs `rondo train` and other programs with a deadline, and reads the losses and times of a training."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import threading
import time


class Failed(Exception):
    """A program that failed or took too long; the text is its last words."""


# Lines of a launcher's report, and a warning of PyTorch, that say nothing of the cause.
NO_CAUSE = re.compile(r"last lines of its standard error:$|^command: |^rondo run: rank \d+ on host|^rank \d+ \(pid \d+\)|"
                      r"destroy_process_group")
NAMED_ERROR = re.compile(r"\brondo[a-z-]* ?[a-z]*: |error: ", re.IGNORECASE)


def last_words(errors):
    """The first and the last error that a rank or the program named, else the last lines."""
    lines = [re.sub(r"^\[rank \d+\] ", "", line.strip()) for line in errors.splitlines()]
    lines = list(dict.fromkeys(line for line in lines if line and not NO_CAUSE.search(line)))
    named = [line for line in lines if NAMED_ERROR.search(line)]
    words = [named[0], *named[1:][-1:]] if named else lines[-2:]
    return " | ".join(words)[:600] or "no output on standard error"


class Runner:
    """Starts programs in process groups of their own, and kills such a group at its deadline."""

    def __init__(self, environment):
        self.environment = environment

    def run(self, command, seconds, **variables):
        """Returns the standard output. Throws Failed."""
        if seconds <= 0:
            raise Failed("no time is left")
        environment = dict(self.environment, **{name: str(value) for name, value in variables.items()})
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=environment, start_new_session=True)
        try:
            out, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            _, errors = process.communicate()
            raise Failed(f"took longer than {seconds:.0f} s | {last_words(errors)}") from None
        if process.returncode != 0:
            raise Failed(f"exit code {process.returncode}: {last_words(errors)}")
        return out


class Trainings:
    """Trainings of a small GPT on a made-up text."""

    STEPS = 12

    def __init__(self, program, runner, scratch):
        self.program, self.runner, self.scratch = program, runner, pathlib.Path(scratch)
        self._lock = threading.Lock()  # of `_count`
        self._count = 0
        self.text = self.scratch / "text.txt"
        generator = random.Random(7)
        words = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randrange(2, 9))) for _ in range(300)]
        self.text.write_text(" ".join(generator.choices(words, k=20_000)))

    def new_run(self):
        with self._lock:
            self._count += 1
            return self.scratch / f"run-{self._count}"

    def train(self, device, flags, seconds=60, run_dir=None, data=None, timeout="30s", **variables):
        """The run directory of a finished training; a rank waits for another up to `timeout`. Throws Failed."""
        run_dir = run_dir or self.new_run()
        self.runner.run([self.program, "train", *(data or ["--data", self.text]), "--run-dir", run_dir, "--device", device, "--progress",
                         "off", "--trace-steps", 0, "--log-every", 1, "--eval-batches", 1, "--matmul", "libtorch", "--timeout",
                         timeout, *flags], seconds, **variables)
        return run_dir

    def losses(self, device, flags, seconds=60, run_dir=None):
        """Returns the loss of every step of gpt-tiny."""
        small = ["--model", "gpt-tiny", "--lr", 1e-3, "--global-batch-size", 16]
        if "--steps" not in flags:
            small += ["--steps", self.STEPS]
        run_dir = self.train(device, small + flags, seconds, run_dir, OMP_NUM_THREADS=1)
        return [row["loss"] for row in rows_of(run_dir)]


def rows_of(run_dir):
    """The metrics of rank 0's steps, in their order."""
    rows = {}
    for line in (pathlib.Path(run_dir) / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row.get("rank", 0) == 0 and "loss" in row:
            rows[row["step"]] = row
    return [rows[step] for step in sorted(rows)]


def difference(losses, wanted):
    """The largest relative difference of two lists of losses; infinite where a step is missing."""
    if len(losses) != len(wanted) or not wanted:
        return float("inf")
    return max(float("inf") if a is None or b is None else abs(a - b) / max(abs(b), 1e-9) for a, b in zip(losses, wanted))


def remove(run_dir):
    shutil.rmtree(run_dir, ignore_errors=True)


class Deadline:
    def __init__(self, seconds):
        self._end = time.monotonic() + seconds

    def left(self, most=float("inf")):
        return min(most, self._end - time.monotonic())
