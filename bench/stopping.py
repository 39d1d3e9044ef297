#!/usr/bin/env python3
"""How long `rondo train` on two processes takes to end after SIGTERM, in every phase of a run.

    .venv/bin/python bench/stopping.py [--runs 5] [--json FILE|-]

A run that has trained leaves a checkpoint and ends with 3; before its first step it has nothing to save. Results: a list of
{phase, runs, p50_s, max_s, exit_codes, checkpoints}. The goal is a second in every phase.
"""
import argparse
import pathlib
import signal
import statistics
import subprocess
import tempfile
import time

from training_runs import REPOSITORY, print_result, write_results, write_training_text
GOAL_S = 1.0
TINY = ["--model", "gpt-tiny", "--batch-size", 4, "--nproc-per-node", 2, "--steps", 100000, "--log-every", 1]
PLANNED = ["--strategy", "planned", "--memory-limit", "2GiB"]
VALIDATION = ["--eval-every", 2, "--eval-batch-size", 1, "--context", 8, "--validation-fraction", 0.9]
# 306 MB with AdamW.
LARGE = ["--model", "gpt-25m", "--batch-size", 1, "--context", 16, "--nproc-per-node", 2, "--steps", 100000, "--checkpoint-every", 1]


def said(part):
    """Waits for a line with `part`."""
    def wait(process, run):
        for line in process.stderr:
            if part in line:
                return
        raise SystemExit(f"the run ended without {part!r}")
    return wait


def after(seconds):
    return lambda process, run: time.sleep(seconds)


def in_folder(pattern):
    """Waits for a file or folder of the run."""
    def wait(process, run):
        while not any(run.glob(pattern)):
            if process.poll() is not None:
                raise SystemExit(f"the run ended without {pattern}: {process.stderr.read()}")
            time.sleep(0.001)
    return wait


PHASES = {
    "start": (TINY, after(0.1)),
    "measuring for a plan": ([*TINY, *PLANNED], said("planned: measuring")),
    "training": (TINY, in_folder("metrics.jsonl")),
    "validation": ([*TINY, *VALIDATION], said("validation: ")),
    "checkpoint": (LARGE, in_folder("checkpoints/*")),
}


def once(rondo, text, phase):
    flags, moment = PHASES[phase]
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = [rondo, "train", "--data", text, "--run-dir", run, *flags]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            moment(process, run)
            process.send_signal(signal.SIGTERM)
            began = time.perf_counter()
            process.communicate(timeout=120)
            took = time.perf_counter() - began
        kept = [path for path in run.glob("checkpoints/step-*") if (path / "manifest.json").exists()]
        return took, process.returncode, len(kept)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rondo", default=str(REPOSITORY / "build" / "release" / "bin" / "rondo"))
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        write_training_text(text)
        for phase in options.phases:
            runs = [once(options.rondo, text, phase) for _ in range(options.runs)]
            times = [run[0] for run in runs]
            results.append({"phase": phase, "runs": len(runs), "p50_s": round(statistics.median(times), 3),
                            "max_s": round(max(times), 3), "exit_codes": sorted({run[1] for run in runs}),
                            "checkpoints": sorted({run[2] for run in runs}), "goal_s": GOAL_S})
            print_result(results[-1], options.json)
    write_results(results, options.json)


if __name__ == "__main__":
    main()
