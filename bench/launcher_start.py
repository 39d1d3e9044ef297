#!/usr/bin/env python3
"""How long it takes to start two processes and see them end: rondo run, next to torchrun and the bare fork.

    .venv/bin/python bench/launcher_start.py [--runs 50] [--no-peer] [--json FILE|-]

Each run starts two `true`. Results: a list of {system, processes, runs, p50_ms, min_ms}, then the ratio to torchrun.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

from peers.peer_ratio import peer_ratio

ROOT = pathlib.Path(__file__).resolve().parents[1]
GOAL_MS = 30


def measure(name, command, runs):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append((time.perf_counter() - start) * 1e3)
    return {"system": name, "processes": 2, "runs": runs, "p50_ms": round(statistics.median(times), 2),
            "min_ms": round(min(times), 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--rondo", default=str(ROOT / "build" / "release" / "bin" / "rondo"))
    parser.add_argument("--no-peer", action="store_true", help="leave torchrun out")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()

    results = [measure("sh", ["sh", "-c", "true & true & wait"], options.runs),
               measure("rondo", [options.rondo, "run", "-n", "2", "true"], options.runs)]
    if not options.no_peer:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2", "true"]
        peer = measure("torchrun", torchrun, 3)
        value, of_minima = peer_ratio(results[1]["p50_ms"], results[1]["min_ms"], peer["p50_ms"], peer["min_ms"])
        ratio = {"ratio": "start of two processes", "of": "torchrun", "to": "rondo", "value": round(value, 1),
                 "by": "min" if of_minima else "p50"}
        results += [peer, ratio]
    for result in results:
        print(json.dumps(result), file=sys.stderr if options.json == "-" else sys.stdout)
    print(f"goal: p50 of rondo <= {GOAL_MS} ms: {'met' if results[1]['p50_ms'] <= GOAL_MS else 'missed'}", file=sys.stderr)
    if options.json:
        text = json.dumps(results, indent=2) + "\n"
        sys.stdout.write(text) if options.json == "-" else pathlib.Path(options.json).write_text(text)


if __name__ == "__main__":
    main()
