#!/usr/bin/env python3
"""The time that programs need to end after SIGTERM or SIGINT: `rondo train` on two processes in every phase of a run,
and others.

    .venv/bin/python bench/stopping.py [--runs 5] [--phases training plan ...] [--docs] [--json FILE|-]

A run that has trained writes a checkpoint and ends with 3; before its first step it has nothing to save. Programs with
nothing to save die of the signal: their exit code is -15. Results: a list of {phase, runs, p50_s, max_s, exit_codes,
checkpoints, goal_s}; --docs writes them into docs/benchmarks.md. The goal is 1 s in every phase. Needs 4 GB in the
folder for temporary files.
"""
import json
import pathlib
import shutil
import signal
import statistics
import struct
import subprocess
import tempfile
import time

from harness import BIN, keep, parser_of, run, show, table, wrapped, write_section, write_training_text

GOAL_S = 1.0
ONE_STEP = ["--steps", 1, "--eval-every", 0]
TINY = ["--model", "gpt-tiny", "--batch-size", 4, "--nproc-per-node", 2, "--steps", 100000, "--log-every", 1]
PLANNED = ["--strategy", "planned", "--memory-limit", "2GiB"]
VALIDATION = ["--eval-every", 2, "--eval-batch-size", 1, "--seq-len", 8, "--validation-fraction", 0.9]
# 306 MB with AdamW.
LARGE = ["--model", "gpt-25m", "--batch-size", 1, "--seq-len", 16, "--nproc-per-node", 2, "--steps", 100000, "--checkpoint-every", 1]


def said(part):
    """Returns a function that waits for a line with `part`."""
    def wait(process, run):
        for line in process.stderr:
            if part in line:
                return
        raise SystemExit(f"the run ended without {part!r}")
    return wait


def after(seconds):
    return lambda process, run: time.sleep(seconds)


def in_folder(pattern):
    """Returns a function that waits for a file or folder of the run."""
    def wait(process, run):
        while not any(run.glob(pattern)):
            if process.poll() is not None:
                raise SystemExit(f"the run ended without {pattern}: {process.stderr.read()}")
            time.sleep(0.001)
    return wait


def mapping(name):
    """Returns a function that waits until the program has mapped this file into its memory."""
    def wait(process, run):
        while process.poll() is None:
            try:
                if f"/{name}\n" in pathlib.Path(f"/proc/{process.pid}/maps").read_text():
                    return
            except OSError:
                pass  # ended meanwhile
            time.sleep(0.001)
        raise SystemExit(f"the program ended without mapping {name}: {process.stderr.read()}")
    return wait


def training(*flags):
    """Returns the command of rondo train on the text."""
    return lambda place: ["train", "--data", place / "text.txt", "--run-dir", place / "run", *flags]


def words(*given):
    return lambda place: given


def report_of_a_large_run(place):
    rows = place / "large" / "metrics.jsonl"
    if not rows.exists():
        rows.parent.mkdir()
        with rows.open("w") as file:
            for step in range(1, 300_001):
                file.write(json.dumps({"rank": 0, "step": step, "elapsed_s": step * 0.1, "loss": 1 + 1 / step, "tokens_per_s": 1000.0,
                                       "step_ms": 100.0, "compute_ms": 90.0, "comm_ms": 9.0, "exposed_comm_ms": 1.0}) + "\n")
    return ["report", rows.parent]


def checkpoint_of_a_gigabyte(place):
    weights = place / "weights.safetensors"
    header = json.dumps({"weight": {"dtype": "F32", "shape": [1 << 18, 1 << 10], "data_offsets": [0, 1 << 30]}}).encode()
    header += b" " * (-len(header) % 8)
    with weights.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + (1 << 30))
    run(place.rondo, "checkpoint", "convert", weights, place / "saved")


def verify(place):
    if not (place / "saved").exists():
        checkpoint_of_a_gigabyte(place)
    return ["checkpoint", "verify", place / "saved"]


def train_once(place, name, *flags):
    if not (place / name).exists():
        run(place.rondo, "train", "--data", place / "text.txt", "--run-dir", place / name, *flags, "--steps", 1, "--progress", "off")


def resume_of_a_large_checkpoint(place):
    train_once(place, "large-trained", "--model", "gpt-25m", "--batch-size", 1, "--seq-len", 16)
    return ["train", "--run-dir", place / "large-trained", "--resume", "--steps", 100000]


def evaluate(place):
    train_once(place, "trained", "--model", "gpt-tiny")
    return ["evaluate", place / "trained", "--data", place / "text.txt", "--batch-size", 1]


def predict(place):
    train_once(place, "trained", "--model", "gpt-tiny")
    return ["predict", place / "trained", "--data", place / "text.txt", "--batch-size", 1, "-o", place / "rows.csv"]


def export(place):
    train_once(place, "large-trained", "--model", "gpt-25m", "--batch-size", 1, "--seq-len", 16)
    return ["export", place / "large-trained", "-o", place / "net.pt", "--overwrite"]


def tokenize(place):
    texts = place / "texts.txt"
    if not texts.exists():
        with texts.open("wb") as file:
            for _ in range((1 << 30) // (place / "text.txt").stat().st_size):
                file.write((place / "text.txt").read_bytes())
    return ["tokenize", texts, "-o", place / "run"]


# The command, as a function of its folder, when the signal is sent, and the signal (default: TERM).
PHASES = {
    "start": (training(*TINY), after(0.1)),
    "measuring for a plan": (training(*TINY, *PLANNED), said("planned: measuring")),
    "training": (training(*TINY), in_folder("metrics.jsonl")),
    "training, INT": (training(*TINY), in_folder("metrics.jsonl"), signal.SIGINT),
    "validation": (training(*TINY, *VALIDATION), said("validation: ")),
    "last validation": (training(*TINY, *VALIDATION, *ONE_STEP), said("validation: ")),
    "checkpoint": (training(*LARGE), in_folder("checkpoints/*")),
    "resume of a large checkpoint": (resume_of_a_large_checkpoint, mapping("optimizer.safetensors")),
    "plan": (words("plan", "--synthetic", "gpt:layers=48,dim=1024", "--ranks", 8, "--gradient-accumulation-steps", 100, "--memory-limit", "3GiB", "--gap", 0,
                   "--plan-time-limit", "1000s"), said("baselines: ")),
    "simulate": (words("simulate", "--synthetic", "gpt:layers=12,dim=512", "--ranks", 2, "--gradient-accumulation-steps", 20000), after(1)),
    "report of 300,000 steps": (report_of_a_large_run, mapping("metrics.jsonl")),
    "checkpoint verify of 1 GiB": (verify, mapping("model.safetensors")),
    "evaluate": (evaluate, after(1.5)),
    "predict": (predict, after(1.5)),
    "export": (export, mapping("model.safetensors")),
    "tokenize": (tokenize, mapping("texts.txt")),
    "bench collectives": (words("bench", "collectives", "--sizes", "64MiB", "--bursts", 1000), after(1)),
}


class Place:
    """The folder of one benchmark, and the program."""

    def __init__(self, folder, rondo):
        self.folder = pathlib.Path(folder)
        self.rondo = rondo

    def __truediv__(self, name):
        return self.folder / name


def once(place, phase):
    words_of, moment, *other = PHASES[phase]
    run = place / "run"
    shutil.rmtree(run, ignore_errors=True)
    command = [place.rondo, *words_of(place)]
    # A shell's background job ignores INT, and its children inherit that.
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
        moment(process, run)
        if process.poll() is not None:
            raise SystemExit(f"{phase}: ended with {process.returncode} before the signal: {process.stderr.read()}")
        process.send_signal(other[0] if other else signal.SIGTERM)
        began = time.perf_counter()
        process.communicate(timeout=120)
        took = time.perf_counter() - began
    kept = [path for path in run.glob("checkpoints/step-*") if (path / "manifest.json").exists()]
    return took, process.returncode, len(kept)


def page(results):
    """Returns the section of docs/benchmarks.md."""
    training = [row for row in results if row["exit_codes"] != [-signal.SIGTERM] and row["phase"] != "plan"]
    others = [row for row in results if row not in training]
    lines = ["## From TERM to the end", "",
             "Seconds from SIGTERM (or SIGINT) until the last process of `rondo train` has ended, with two processes (resume: one).",
             f"Unsaved state is saved first. {results[0]['runs']} runs each, by `bench/stopping.py`; a large checkpoint has 306 MB.", "",
             *table(["phase", "median", "longest"], [[row["phase"], f"{row['p50_s']:.2f}", f"{row['max_s']:.2f}"] for row in training])]
    if others:
        lines += ["", *wrapped("The longest times of other programs: " + ", ".join(f"{row['phase']} {row['max_s']:.2f}" for row in others) + ".")]
    return lines


def main():
    parser = parser_of(__doc__, docs="benchmarks.md")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rondo", default=str(BIN / "rondo"))
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES))
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        place = Place(folder, options.rondo)
        write_training_text(place / "text.txt")
        for phase in options.phases:
            runs = [once(place, phase) for _ in range(options.runs)]
            times = [run[0] for run in runs]
            results.append({"phase": phase, "runs": len(runs), "p50_s": round(statistics.median(times), 3),
                            "max_s": round(max(times), 3), "exit_codes": sorted({run[1] for run in runs}),
                            "checkpoints": sorted({run[2] for run in runs}), "goal_s": GOAL_S})
            show(json.dumps(results[-1]), options.json)
    keep(options.json, results)
    if options.docs:
        write_section("benchmarks.md", "stopping", page(results))


if __name__ == "__main__":
    main()
