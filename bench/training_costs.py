#!/usr/bin/env python3
"""What a training costs beside computing: checkpoints, the Trainer's own time, reading samples. Writes their section of docs/benchmarks.md.

    bench/training_costs.py [--parts checkpoint trainer loader] [--docs] [--json FILE]

Each part is one run of `rondo bench` with its peers in it. RONDO_PYTHON names the Python of the peers, such as one with torchvision for
the loader. Parts that are not asked for keep what the file of --json has of them.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import tempfile

from benchmarks import goal_text, machine
from emulated_jobs import BIN, REPOSITORY, keep, table, write_section

# Words of `rondo bench`, and what stands in the environment besides.
PARTS = {
    "checkpoint": (["checkpoint", "--peers", "--runs", "8"], {}),
    # OpenMP's threads fall asleep while callbacks work: docs/cli.md.
    "trainer": (["trainer"], {"OMP_NUM_THREADS": "1"}),
    "loader": (["loader", "--peers"], {}),
}
TEXTS = {
    "checkpoint": "gpt-25m with AdamW, 306 MB; medians and minima of the runs. `disk_write` and `disk_read` are the disk without a file format and without the page cache; "
                  "`stall` is how long training stands still. PyTorch's is its distributed checkpoint (DCP). "
                  "Where the disk writes only 354 MB/s, both wait for it, and a save was 1.48 times as fast as PyTorch's (2026-11-24).",
    "trainer": "A step by the Trainer next to one by a loop by hand with the same model and optimizer and a loader of the same kind, in turns in one process. "
               "Values are medians over pairs of turns.",
    "loader": "One process that only reads. JPEGs of 500 x 375 pixels: RandomResizedCrop to 224, flip, normalise.",
}


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}g}"


def checkpoint_rows(rows):
    return table(["system", "operation", "p50, s", "fastest, s", "stall p50, s", "least stall, s"],
                 [[row["system"], row["operation"], *(number(row.get(key)) for key in ("seconds", "seconds_min", "stall_s", "stall_s_min"))]
                  for row in rows])


def trainer_rows(rows):
    return table(["model", "system", "fastest step, us", "p50, us", "processor time p50, us"],
                 [[row["model"], row["system"], number(row["step_us"], 5), number(row.get("p50_us"), 5), number(row.get("cpu_p50_us"), 5)]
                  for row in rows])


def loader_rows(rows):
    return table(["data", "system", "threads", "samples/s", "GB/s of batches"],
                 [[row["data"], ", ".join(filter(None, [row["system"], row.get("reader")])), str(row["threads"]), f"{row['samples_per_s']:.0f}",
                   f"{row['bytes_per_s'] / 1e9:.2f}"] for row in rows])


ROWS = {"checkpoint": checkpoint_rows, "trainer": trainer_rows, "loader": loader_rows}


def ratios(rows):
    lines = []
    for row in rows:
        met = row["goal"] is None or (row["value"] <= row["goal"] if row["better"] == "lower" else row["value"] >= row["goal"])
        what = " / ".join(filter(None, [row["of"], row.get("to")]))
        lines.append([row["ratio"], what, f"{row['value']:.2f}{'*' * (row.get('by') == 'min')}", goal_text(row),
                      "" if row["goal"] is None else "yes" if met else "**no**"])
    return table(["of what", "of / to", "value", "goal", "reached"], lines)


def section(results):
    lines = ["## Beside computing", ""]
    for part, result in results.items():
        rows = result["rows"]
        lines += [f"### {part.capitalize()}", "", TEXTS[part], "",
                  f"Measured on {result['date']} on {result['machine']}, {result['processors']} processors, by "
                  f"`{' '.join([*(f'{k}={v}' for k, v in PARTS[part][1].items()), 'rondo', 'bench', *PARTS[part][0]])}`.", "",
                  *ROWS[part]([row for row in rows if "ratio" not in row]), "", *ratios([row for row in rows if "ratio" in row]), ""]
    return lines[:-1]


def measure(part):
    words, more = PARTS[part]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "rows.json"
        subprocess.run([BIN / "rondo", "bench", *words, "--json", out], check=True, env=os.environ | more)
        return {"date": str(datetime.date.today()), "machine": machine(), "processors": os.cpu_count(), "rows": json.loads(out.read_text())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), help="none: writes what FILE has")
    parser.add_argument("--docs", action="store_true", help="write the section of docs/benchmarks.md")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    results = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    for part in options.parts:
        results[part] = measure(part)
        keep(options.json, results)
    if options.docs:
        write_section(REPOSITORY / "docs" / "benchmarks.md", "beside computing", section(results))


if __name__ == "__main__":
    main()
