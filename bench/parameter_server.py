#!/usr/bin/env python3
"""Steps a second of parameter_server: MLP 784-128-64-10, batch 32, two workers and a server, summed over the workers.

  bench/parameter_server.py [--turns 3] [--steps 3000] [--json FILE]
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
RONDO = REPOSITORY / "build" / "release" / "bin" / "rondo"
FIRST = 200


def digits(folder, samples=4096):
    """Random images in MNIST's format."""
    source = random.Random(1)
    folder.mkdir()
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, samples, 28, 28) + source.randbytes(samples * 784))
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, samples) +
                                                     bytes(source.randrange(10) for _ in range(samples)))
    return folder


def steps_per_second(run, workers, first):
    total = 0
    for worker in range(workers):
        name = "metrics.jsonl" if worker == 0 else f"metrics.worker-{worker}.jsonl"
        rows = [row for row in map(json.loads, (run / name).read_text().splitlines()) if "loss" in row]
        total += (len(rows) - first) / (rows[-1]["elapsed_s"] - rows[first - 1]["elapsed_s"])
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rates = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        data = digits(folder / "data")
        for turn in range(arguments.turns):
            run = folder / str(turn)
            subprocess.run(list(map(str, [
                RONDO, "train", "--data", data, "--model", "mlp", "--batch-size", 32, "--steps", arguments.steps,
                "--validation-fraction", 0, "--trace-steps", 0, "--progress", "off", "--log-every", 1000, "--optimizer",
                arguments.optimizer, "--lr", 0.01, "--run-dir", run, "--strategy", "parameter_server", "--ps", 1, "--workers",
                arguments.workers])), check=True, stdout=subprocess.DEVNULL)
            rates.append(steps_per_second(run, arguments.workers, min(FIRST, arguments.steps // 3)))
            print(f"{arguments.workers} workers, 1 server: {rates[-1]:.0f} steps/s together", flush=True)
    result = {"workers": arguments.workers, "optimizer": arguments.optimizer, "steps_per_s": rates, "best": max(rates)}
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
