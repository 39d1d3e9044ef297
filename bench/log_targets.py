#!/usr/bin/env python3
"""Cost of a log target for a training: the small MLP on images of MNIST's form, with and without it, in turns.

Each pair is two trainings, of which the one with the target comes first in every second pair. The figure of a training is the wall
time of ten consecutive steps, the rhythm of --log-every, behind the first 100: its median, and its 10th percentile, which other load
on the machine disturbs less. That of a target is the median of the pairs' ratios. OTLP goes to a collector in this process.

  bench/log_targets.py [--targets otlp,tensorboard] [--pairs 10] [--steps 2000] [--nproc-per-node 1] [--json FILE]
"""
import os
import pathlib
import statistics
import sys
import tempfile

from harness import REPOSITORY, TRAIN_QUIETLY, digits, keep, parser_of, rondo, say, show, step_rows, table

sys.path.insert(0, str(REPOSITORY / "tests" / "integration"))
from otlp_receiver import Receiver  # noqa: E402

WARM_UP = 100
WINDOW = 10


def window_ms(folder, data, name, flags, environment):
    """Returns the percentiles 50 and 10 of the time of WINDOW steps."""
    run = folder / name
    rondo("train", "--data", data, "--model", "mlp", "--run-dir", run, *TRAIN_QUIETLY, *flags, env=environment)
    times = [row["elapsed_s"] for row in step_rows(run)][WARM_UP:]
    windows = sorted(1e3 * (end - begin) for begin, end in zip(times, times[WINDOW:]))
    return windows[len(windows) // 2], windows[len(windows) // 10]


def compare(folder, data, target, flags, pairs, environment):
    found = {"p50": [], "p10": [], "without_ms": []}
    for pair in range(pairs):
        order = ["none", target] if pair % 2 == 0 else [target, "none"]
        took = {each: window_ms(folder, data, f"{target}-{pair}-{each}", [*flags, "--log-to", each], environment) for each in order}
        for name, with_it, without in zip(("p50", "p10"), took[target], took["none"]):
            found[name].append(with_it / without)
        found["without_ms"].append(took["none"][1])
        say(f"{target}, pair {pair + 1}: ten steps take {took['none'][1]:.3f} ms without, p50 {found['p50'][-1]:.3f}, p10 {found['p10'][-1]:.3f}")
    return found


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
            results = {target: compare(folder, data, target, flags, arguments.pairs, environment) for target in arguments.targets.split(",")}
    finally:
        collector.close()
    rows = [[target, f"{statistics.median(found['without_ms']):.2f}",
             *(f"{statistics.median(found[name]):.3f} ({min(found[name]):.3f} to {max(found[name]):.3f})" for name in ("p50", "p10"))]
            for target, found in results.items()]
    show("\n".join(table(["target", "ms of ten steps without, p10", "ratio with it, p50", "p10"], rows)), arguments.json)
    keep(arguments.json, results)


if __name__ == "__main__":
    main()
