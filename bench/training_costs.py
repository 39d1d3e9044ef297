#!/usr/bin/env python3
"""The overhead of training besides computing: checkpoints, the Trainer, reading samples. Writes its section of
docs/benchmarks.md.

    bench/training_costs.py [--parts checkpoint trainer loader] [--docs] [--json FILE]

Each part is one run of `rondo bench` or `rondo bench-dev` with its peers. RONDO_PYTHON is the peers' Python, such as
one with torchvision for the loader. Parts that are not requested keep their results in the file of --json.
"""
import datetime
import os

from harness import keep, kept, machine, parser_of, rondo_json, table, value_text, write_section

# Words after `rondo`, and additional environment variables.
PARTS = {
    "checkpoint": (["bench", "checkpoint", "--peers", "--runs", "8"], {}),
    # OpenMP's threads must sleep while callbacks work: docs/cli.md.
    "trainer": (["bench-dev", "trainer"], {"OMP_NUM_THREADS": "1"}),
    "loader": (["bench-dev", "loader", "--peers"], {}),
}
TEXTS = {
    "checkpoint": "gpt-25m with AdamW, 306 MB. `disk_write` and `disk_read` are plain file access without the page cache. `stall` is the\n"
                  "time that training waits. PyTorch's system is its distributed checkpoint (DCP). On a disk that writes 354 MB/s both wait\n"
                  "for the disk; there a save was 1.48 times as fast as PyTorch's.",
    "trainer": "A step of the Trainer next to one of a hand-written loop with the same model, optimizer and kind of loader. They take\n"
               "turns in one process. Values are medians over pairs of turns.",
    "loader": "One process that only reads. JPEGs have 500 x 375 pixels: RandomResizedCrop to 224, flip, normalize.",
}


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}g}"


def checkpoint_rows(rows):
    return table(["system", "operation", "p50, s", "fastest, s", "stall p50, s", "least stall, s"],
                 [[row["system"], row["operation"], *(number(row.get(key)) for key in ("seconds", "seconds_min", "stall_s", "stall_s_min"))]
                  for row in rows])


def trainer_rows(rows):
    return [*table(["model", "system", "fastest step, us", "p50, us", "processor time p50, us"],
                   [[row["model"], row["system"], number(row["step_us"], 5), number(row.get("p50_us"), 5), number(row.get("cpu_p50_us"), 5)]
                    for row in rows if "model" in row]),
            "", *table(["progress", "ns"], [[row["progress"], f"{row['ns']:.0f}"] for row in rows if "progress" in row])]


def loader_rows(rows):
    return table(["data", "system", "threads", "samples/s", "GB/s of batches"],
                 [[row["data"], ", ".join(filter(None, [row["system"], row.get("reader")])), str(row["threads"]), f"{row['samples_per_s']:.0f}",
                   f"{row['bytes_per_s'] / 1e9:.2f}"] for row in rows])


ROWS = {"checkpoint": checkpoint_rows, "trainer": trainer_rows, "loader": loader_rows}


def ratios(rows):
    lines = []
    for row in rows:
        what = " / ".join(filter(None, [row["of"], row.get("to")]))
        lines.append([row["ratio"], what, value_text(row, 2)])
    return table(["of what", "of / to", "value"], lines)


def section(results):
    lines = ["## Beside computing", ""]
    for part, result in results.items():
        rows = result["rows"]
        lines += [f"### {part.capitalize()}", "", TEXTS[part], "",
                  f"Measured on {result['machine']}, {result['processors']} processors, by "
                  f"`{' '.join([*(f'{k}={v}' for k, v in PARTS[part][1].items()), 'rondo', *PARTS[part][0]])}`. <!-- {result['date']} -->", "",
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
