#!/usr/bin/env python3
"""The time that a training on two processes needs from the kill of a rank to new steps, with and without
memory checkpoints.

    .venv/bin/python bench/recovery.py [--runs 3] [--model gpt-25m] [--every 20] [--json FILE|-]

All save to disk every EVERY steps, in parts and in the background; `memory` also has a memory checkpoint after each step. A rank
is killed just before a save. Results: a row for each of `disk` and `memory` with recovery_p50_s and
recovery_min_s (including the restart of the processes), lost_steps that were repeated, and step_p50_s before the kill
(the cost of memory checkpoints).
"""
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import time

from harness import BIN, keep, parser_of, show, write_training_text


def rows_of(run):
    try:
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]
    except OSError:
        return []


def newest_step(run):
    return max((row["step"] for row in rows_of(run)), default=0)


def wait_for(condition, process):
    while not (value := condition()):
        if process.poll() is not None:
            raise SystemExit(f"the training ended: {process.stderr.read()}")
        time.sleep(0.005)
    return value


def victim(launcher):
    """Returns the pid of rank 1 below the launcher."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"rondo-train-worker" not in (folder / "cmdline").read_bytes() or b"\0RANK=1\0" not in (folder / "environ").read_bytes():
                continue
            parent = int(folder.name)
            while parent > 1 and parent != launcher:
                parent = int(pathlib.Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == launcher:
                return int(folder.name)
        except OSError:
            continue
    return None


def once(options, text, in_memory):
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = [options.rondo, "train", "--data", text, "--model", options.model, "--batch-size", 1, "--seq-len", 16, "--run-dir", run,
                   "--nproc-per-node", 2, "--max-restarts", 1, "--log-every", 1, "--validation-fraction", 0, "--trace-steps", 0,
                   "--steps", 3 * options.every, "--checkpoint-every", options.every, "--checkpoint-async",
                   *(["--memory-checkpoint-every", 1] if in_memory else [])]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            pid = wait_for(lambda: victim(process.pid), process)
            wait_for(lambda: newest_step(run) >= 2 * options.every - 1, process)
            os.kill(pid, signal.SIGKILL)
            began = time.perf_counter()
            reached = newest_step(run)
            step_s = statistics.median(row["step_ms"] for row in rows_of(run)[8:]) / 1e3
            wait_for(lambda: newest_step(run) > reached, process)
            took = time.perf_counter() - began
            _, said = process.communicate(timeout=300)
        with_rows = [row["step"] for row in rows_of(run) if row["rank"] == 0 and "step_ms" in row]
        if process.returncode != 0 or with_rows != sorted(set(with_rows)):
            raise SystemExit("the training did not continue")
        resumed = re.search(r"memory checkpoint, step-(\d+)", said)
        from_step = int(resumed[1]) if resumed else options.every  # the next save had not begun
        return {"took": took, "step": step_s, "lost": reached - from_step}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model", default="gpt-25m")
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--rondo", default=str(BIN / "rondo"))
    options = parser.parse_args()
    runs = {"disk": [], "memory": []}
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        write_training_text(text)
        for _ in range(options.runs):
            for system, taken in runs.items():
                taken.append(once(options, text, system == "memory"))
    results = []
    for system, taken in runs.items():
        times = [one["took"] for one in taken]
        results.append({"system": system, "runs": len(taken), "recovery_p50_s": round(statistics.median(times), 3),
                        "recovery_min_s": round(min(times), 3), "lost_steps": statistics.median(one["lost"] for one in taken),
                        "step_p50_s": round(statistics.median(one["step"] for one in taken), 4)})
        show(json.dumps(results[-1]), options.json)
    keep(options.json, results)


if __name__ == "__main__":
    main()
