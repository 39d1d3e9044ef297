#!/usr/bin/env python3
"""The tables of docs/benchmarks/strategies.md: strategies on up to eight workers with emulated accelerators (`rondo bench-dev
strategies`); two workers or replicas that compute; the same compared with TensorFlow, alternately.

  bench/strategies.py [--parts emulated,computed,tensorflow] [--seconds 10] [--docs] [--json FILE]

Creates an environment with TensorFlow in build/tensorflow. With --parts only these are measured; the others are taken
from FILE.
"""
import datetime
import json
import os
import pathlib
import sys
import tempfile

from harness import (BIN, REPOSITORY, TRAIN_QUIETLY, digits, finish, joint_steps_per_s, kept, parser_of, rondo, rondo_json, run, table,
                     wrapped)

TENSORFLOW = "2.21"
# The flags of each strategy in rondo.
PLACES = {
    "parameter_server": ["--ps", 1, "--workers", 2],
    "mirrored": ["--replicas", 2],
    "multi_worker_mirrored": ["--nproc-per-node", 2],
    "one_device": [],
    "data_parallel": ["--replicas", 2],
    "central_storage": ["--replicas", 2],
    "ddp": ["--nproc-per-node", 2],
    "local_sgd": ["--nproc-per-node", 2, "--sync-period", 8],
    "grouped": ["--nproc-per-node", 2, "--ps-groups", 2],
}
BESIDE = [("parameter_server", "mlp"), ("parameter_server", "embedding"), ("mirrored", "mlp"), ("mirrored", "convnet"),
          ("multi_worker_mirrored", "mlp"), ("multi_worker_mirrored", "convnet")]
STEPS = {"mlp": 4000, "convnet": 600}
BATCH = 32


def tensorflow_environment():
    """Returns the Python of an environment with TensorFlow, which is created if it does not exist."""
    python = REPOSITORY / "build" / "tensorflow" / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", python.parents[1])
        run(python, "-m", "pip", "install", "-q", f"tensorflow-cpu=={TENSORFLOW}.*")
    return python


def rondo_steps(strategy, directory, data, steps, *more, threads=None):
    """Returns the steps per second of `rondo train`, summed over a server's workers; its first steps do not count."""
    environment = dict(os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {}))
    rondo("train", "--data", data, "--batch-size", BATCH, "--steps", steps, *TRAIN_QUIETLY, "--log-every", 1000, "--lr", 0.01, "--run-dir",
          directory, "--strategy", strategy, *PLACES[strategy], *more, env=environment)
    return joint_steps_per_s(directory, steps // 10)


def embedding_steps(folder, seconds):
    """Returns the steps per second of two workers together, for a model with an embedding of 10 MB."""
    folder.mkdir()
    rondo("run", "--ps", 1, "--workers", 2, "--", BIN / "rondo-bench-dev", "strategies-worker", "--strategy", "parameter_server",
          "--embedding", "--lr", 0.01, "--seconds", seconds, "--results", folder)
    workers = [json.loads(path.read_text())["rows"] for path in folder.iterdir()]
    assert len(workers) == 2, workers
    return sum(len(rows) / rows[-1][0] for rows in workers)


def beside_tensorflow(turns, seconds):
    """Returns the steps per second of both systems: the best of `turns` alternating turns."""
    python, result = tensorflow_environment(), []
    peer = REPOSITORY / "bench" / "peers" / "tensorflow_strategies.py"
    for strategy, model in BESIDE:
        rates = {"rondo": [], "tensorflow": [], "one_thread": []}
        for turn in range(turns):
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                if model == "embedding":
                    rates["rondo"].append(embedding_steps(folder / "rows", seconds))
                else:
                    data, how = digits(folder / "data"), ["--model", model, "--optimizer", "sgd"]
                    rates["rondo"].append(rondo_steps(strategy, folder / "run", data, STEPS[model], *how))
                if model == "convnet":
                    rates["one_thread"].append(rondo_steps("one_device", folder / "alone", data, STEPS[model], *how, threads=1))
            said = run(python, peer, strategy, "--model", model, "--seconds", seconds)
            rates["tensorflow"].append(json.loads(said.splitlines()[-1])["steps_per_s"])
            print(f"{strategy}, {model}: " + ", ".join(f"{name} {each[-1]:.0f} steps/s" for name, each in rates.items() if each), flush=True)
        result.append({"strategy": strategy, "model": model, **{name: max(each) for name, each in rates.items() if each}})
    return result


def side_by_side(steps):
    """Returns samples per second and the peak of each rank or replica, for every strategy with two of them, and for one
    device."""
    result = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        data = digits(folder / "data")
        for strategy in PLACES:
            directory = folder / strategy
            rate = rondo_steps(strategy, directory, data, steps, "--model", "mlp", "--model-config", '{"hidden": [512, 512]}', "--optimizer", "sgd",
                               "--momentum", 0.9)
            # Each worker of a server takes its own step; the ranks of all other strategies take one step together.
            alone = strategy in ("parameter_server", "grouped", "one_device")
            result.append({"strategy": strategy, "samples_per_s": rate * BATCH * (1 if alone else 2), "peaks": peaks_of(directory)})
            print(f"{strategy}: {result[-1]['samples_per_s']:.0f} samples/s, peaks {result[-1]['peaks']}", flush=True)
    return result


def peaks_of(directory):
    """Returns the peak bytes of each rank, or of each of its replicas; for a server's workers those of the chief."""
    ranks = json.loads((directory / "memory.json").read_text())["ranks"]
    return [peak for rank in ranks for peak in rank.get("replica_peak_bytes", [rank["peak_bytes"]])]


def emulated_tables(result):
    alone = next(row for row in result["rows"] if row["workers"] == 1)
    lines = ["## Emulated accelerators", "",
             *wrapped(f"The forward pass, the input gradient and the weight gradient of each of a worker's three units take {result['unit_ms']:g} ms, in "
                      f"which the core is free. Each training takes {result['seconds']:g} s; the target is the loss that one worker reaches in that "
                      f"time. Rates are relative to one worker ({alone['samples_per_s']:.0f} samples/s). Peaks are those of the worker that needs most, in MiB.")]
    titles = {"scaling": "equal workers", "slow worker": f"four workers, one {result['slow_by']:g} times slower"}
    for study, title in titles.items():
        rows = []
        for row in (row for row in result["rows"] if row["study"] == study):
            reached = row["seconds_to_target"]
            rows.append([row["name"], f"{row['samples_per_s'] / alone['samples_per_s']:.2f}",
                         f"{reached:.1f}" if reached else "not reached", f"{row['largest_peak_bytes'] / 2**20:.1f}"])
        lines += ["", *table([title, "rate", f"s to loss {result['target_loss']:.2f}", "peak"], rows)]
    return lines


def page(result):
    lines = [f"Measured on two cores by `bench/strategies.py`. <!-- {datetime.date.today()} -->"]
    if "rows" in result:
        lines += ["", *emulated_tables(result)]
    if "side_by_side" in result:
        rows = [[f"`{row['strategy']}`", f"{row['samples_per_s']:.0f}", ", ".join(f"{peak / 2**20:.1f}" for peak in row["peaks"])]
                for row in result["side_by_side"]]
        lines += ["", "## Real computation", "",
                  *wrapped("An MLP 784-512-512-10 with momentum, batch 32 a replica, two workers or replicas (`one_device`: one). Peaks are those of each "
                           "rank or replica; with servers, of the chief worker."), "", *table(["strategy", "samples/s", "peaks, MiB"], rows)]
    if "beside_tensorflow" in result:
        rows = []
        for row in result["beside_tensorflow"]:
            # Two replicas take the samples of two steps of one thread.
            of_one = f"{2 * row['rondo'] / row['one_thread']:.2f}" if "one_thread" in row else ""
            rows.append([f"`{row['strategy']}`", row["model"], f"{row['rondo']:.0f}", f"{row['tensorflow']:.0f}",
                         f"{row['rondo'] / row['tensorflow']:.1f}", of_one])
        lines += ["", f"## TensorFlow {TENSORFLOW}", "",
                  *wrapped("Steps per second in turns with TensorFlow's custom loop, batch 32 a replica, two workers or replicas; steps of a server's "
                           "workers are added up. `mlp` is 784-128-64-10, `convnet` has blocks of 16 and 32 channels, `embedding` is 40,000 x 64 "
                           "(10 MB), of which a step touches 640 rows. The last column is the rate in samples relative to one thread."),
                  "", *table(["strategy", "model", "rondo", "TensorFlow", "ratio", "to one thread"], rows)]
    return lines


def main():
    parser = parser_of(__doc__, docs="benchmarks/strategies.md")
    parser.add_argument("--seconds", type=float, default=10, help="of each training")
    parser.add_argument("--turns", type=int, default=2, help="measurements beside TensorFlow")
    parser.add_argument("--parts", default="emulated,computed,tensorflow", help="which of these to measure; others are taken from --json")
    parser.add_argument("--workers", default="1,2,4,8", help="with emulated accelerators")
    parser.add_argument("--steps", type=int, default=1500, help="of each training that is computed")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    result = kept(arguments.json)
    if "emulated" in parts:
        result.update(rondo_json("bench-dev", "strategies", "--seconds", arguments.seconds, "--workers", arguments.workers))
    if "computed" in parts:
        result["side_by_side"] = side_by_side(arguments.steps)
    if "tensorflow" in parts:
        result["beside_tensorflow"] = beside_tensorflow(arguments.turns, min(5, arguments.seconds))
    finish(arguments, result, page(result), "benchmarks/strategies.md", "strategies")


if __name__ == "__main__":
    main()
