#!/usr/bin/env python3
"""Plots the results of `rondo bench collectives --json FILE`: time by size with logarithmic axes, a line for each
algorithm and channel, one picture for each operation and number of ranks. Writes SVG without dependencies.

    rondo bench collectives --algorithm all --channel shm,tcp --ranks 4 --peers --json algorithms.json
    bench/plot_collectives.py algorithms.json docs/images/algorithms --channel shm
"""
import argparse
import json
import pathlib
import sys

from charts import times_by_size


def title_of(row):
    if row["system"] != "rondo":
        return f"{row['system']} {row['channel']}"
    if row["algorithm"] == "auto":
        through_work = row["registered"] and row["operation"] == "all_reduce" and row.get("call") == "work"
        return "rondo's engine" + (", registered" if row["registered"] else "") + (", Work" if through_work else "")
    return f"{row['algorithm']} {row['channel']}"


def curves_of(rows):
    """Returns {title: [(bytes, p50 in us)]}, in the order of the rows."""
    curves = {}
    for row in rows:
        if row["correct"] and row["p50_us"] > 0:
            curves.setdefault(title_of(row), []).append((row["bytes"], row["p50_us"]))
    return {title: sorted(points) for title, points in curves.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="what --json wrote")
    parser.add_argument("prefix", help="pictures are PREFIX-OPERATION-RANKS.svg")
    parser.add_argument("--channel", help="only algorithms over this channel, beside the engine and the peers")
    arguments = parser.parse_args()
    rows = json.loads(pathlib.Path(arguments.results).read_text())
    if arguments.channel:
        rows = [row for row in rows if row["algorithm"] == "auto" or row["channel"] == arguments.channel]
    groups = {}
    for row in rows:
        if row["operation"] != "barrier":
            groups.setdefault((row["operation"], row["ranks"]), []).append(row)
    if not groups:
        sys.exit(f"{arguments.results} has no rows to draw")
    for (operation, ranks), group in groups.items():
        curves = curves_of(group)
        if not curves:
            sys.exit(f"{arguments.results}: no correct result of {operation}")
        target = pathlib.Path(f"{arguments.prefix}-{operation}-{ranks}.svg")
        target.parent.mkdir(parents=True, exist_ok=True)
        engine = [title for title in curves if title.startswith("rondo's engine")]
        target.write_text(times_by_size(f"Median time of {operation} by size, {ranks} ranks on one host, {group[0]['dtype']}", curves, engine))
        print(target)


if __name__ == "__main__":
    main()
