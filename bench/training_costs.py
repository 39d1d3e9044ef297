#!/usr/bin/env python3
"""The overhead of training besides computing: checkpoints, the Trainer, reading samples. Writes its section of
docs/benchmarks.md.

    bench/training_costs.py [--parts checkpoint trainer loader] [--docs] [--json FILE]

Each part is one run of `rondo bench` or `rondo bench-dev` with its peers. RONDO_PYTHON is the peers' Python, such as
one with torchvision for the loader. Parts that are not requested keep their results in the file of --json.
"""
import datetime
import os

from harness import goal_text, keep, kept, machine, parser_of, rondo_json, table, value_text, write_section

# Words after `rondo`, and additional environment variables.
PARTS = {
    "checkpoint": (["bench", "checkpoint", "--peers", "--runs", "8"], {}),
    # OpenMP's threads must sleep while callbacks work: docs/cli.md.
    "trainer": (["bench-dev", "trainer"], {"OMP_NUM_THREADS": "1"}),
    "loader": (["bench-dev", "loader", "--peers"], {}),
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
        lines.append([row["ratio"], what, value_text(row, 2), goal_text(row),
                      "" if row["goal"] is None else "yes" if met else "**no**"])
    return table(["of what", "of / to", "value", "goal", "reached"], lines)


def section(results):
    lines = ["## Beside computing", ""]
    for part, result in results.items():
        rows = result["rows"]
        lines += [f"### {part.capitalize()}", "", TEXTS[part], "",
                  f"Measured on {result['date']} on {result['machine']}, {result['processors']} processors, by "
                  f"`{' '.join([*(f'{k}={v}' for k, v in PARTS[part][1].items()), 'rondo', *PARTS[part][0]])}`.", "",
                  *ROWS[part]([row for row in rows if "ratio" not in row]), "", *ratios([row for row in rows if "ratio" in row]), ""]
    return lines[:-1]


def measure(part):
    words, more = PARTS[part]
    return {"date": str(datetime.date.today()), "machine": machine(), "processors": os.cpu_count(),
            "rows": rondo_json(*words, env=os.environ | more)}


def main():
    parser = parser_of(__doc__, docs="benchmarks.md")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), help="none: writes what FILE has")
    options = parser.parse_args()
    results = kept(options.json)
    for part in options.parts:
        results[part] = measure(part)
        keep(options.json, results)
    if options.docs:
        write_section("benchmarks.md", "beside computing", section(results))


if __name__ == "__main__":
    main()
