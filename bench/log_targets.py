#!/usr/bin/env python3
"""What a log target costs a training: the small MLP on images of MNIST's form, with and without it, in turns.

Each pair is two trainings, of which the one with the target comes first in every second pair. The figure of a training is the median
wall time of its steps behind the first 100; that of a target is the median of the pairs' ratios. OTLP goes to a collector in this
process.

  bench/log_targets.py [--targets otlp,tensorboard] [--pairs 10] [--steps 2000] [--nproc-per-node 1] [--json FILE]
"""
import os
import pathlib
import statistics
import sys
import tempfile

from harness import REPOSITORY, TRAIN_QUIETLY, digits, keep, parser_of, rondo, show, step_rows, table

sys.path.insert(0, str(REPOSITORY / "tests" / "integration"))
from otlp_receiver import Receiver  # noqa: E402

WARM_UP = 100


def step_ms(folder, data, name, flags, environment):
    run = folder / name
    rondo("train", "--data", data, "--model", "mlp", "--run-dir", run, *TRAIN_QUIETLY, *flags, env=environment)
    return statistics.median(row["step_ms"] for row in step_rows(run)[WARM_UP:])


def ratios(folder, data, target, flags, pairs, environment):
    found, base = [], []
    for pair in range(pairs):
        order = ["none", target] if pair % 2 == 0 else [target, "none"]
        took = {each: step_ms(folder, data, f"{target}-{pair}-{each}", [*flags, "--log-to", each], environment) for each in order}
        found.append(took[target] / took["none"])
        base.append(took["none"])
        print(f"{target}, pair {pair + 1}: {took['none']:.4f} ms a step, {found[-1]:.4f}", file=sys.stderr, flush=True)
    return {"step_ms": statistics.median(base), "ratios": found, "median": statistics.median(found)}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--targets", default="otlp")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--nproc-per-node", type=int, default=1)
    arguments = parser.parse_args()
    collector = Receiver()
    # A request with metrics every second: sixty times as often as without this variable.
    environment = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
    flags = ["--steps", max(arguments.steps, 2 * WARM_UP), "--nproc-per-node", arguments.nproc_per_node, "--checkpoint-every", 10**9]
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            data = digits(folder / "digits")
            results = {target: ratios(folder, data, target, flags, arguments.pairs, environment) for target in arguments.targets.split(",")}
    finally:
        collector.close()
    rows = [[target, f"{found['step_ms']:.3f}", f"{found['median']:.4f}", f"{min(found['ratios']):.3f} to {max(found['ratios']):.3f}"]
            for target, found in results.items()]
    show("\n".join(table(["target", "ms a step without", "ratio with it, median of pairs", "least to most"], rows)), arguments.json)
    keep(arguments.json, results)


if __name__ == "__main__":
    main()
