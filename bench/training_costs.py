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
    # OpenMP's threads must sleep while callbacks work: docs/cli/bench-dev.md.
    "trainer": (["bench-dev", "trainer"], {"OMP_NUM_THREADS": "1"}),
    "loader": (["bench-dev", "loader", "--peers"], {}),
}
TEXTS = {
    "checkpoint": "gpt-25m with AdamW, 306 MB; PyTorch's system is its distributed checkpoint (DCP). Training waits for the time `stall`.\n"
                  "On a disk that writes 354 MB/s both wait for the disk; there a save was 1.48 times as fast as PyTorch's.",
    "trainer": "A step of the Trainer and one of a hand-written loop take turns in one process. `more` is the median of pairs.",
    "loader": "One process that only reads. JPEGs have 500 x 375 pixels: RandomResizedCrop to 224, flip, normalize.",
}


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}g}"


def checkpoint_rows(rows):
    """Returns a row for each operation of rondo; other systems' times on the disk and in memory are in a sentence."""
    times = {(row["system"], row["operation"]): row for row in rows if "ratio" not in row}
    ratios = {row["of"].removeprefix("pytorch "): value_text(row, 2) for row in rows if "ratio" in row and row["of"].startswith("pytorch")}

    def cells(system, operation):
        row = times.get((system, operation), {})
        return [number(row.get("seconds")), number(row.get("stall_s"))]

    lines = [[f"`{operation}`", *cells(system, operation), *cells("pytorch", operation), ratios.get(operation, "")]
             for system, operation in times if system == "rondo" and operation != "memcpy"]
    plain = [number(times[key]["seconds"]) for key in (("disk", "disk_write"), ("disk", "disk_read"), ("rondo", "memcpy"))]
    return [*table(["operation", "rondo, s", "stall, s", "PyTorch, s", "stall, s", "PyTorch / rondo"], lines), "",
            f"The same bytes take {plain[0]} s to write to the disk, {plain[1]} s to read from it and {plain[2]} s to copy in memory."]


def trainer_rows(rows):
    lines, steps = [], [row for row in rows if "model" in row]
    for row in (row for row in steps if row["system"].startswith("trainer")):
        by_hand = next(r for r in steps if (r["model"], r["system"]) == (row["model"], f"by hand, beside {row['system']}"))
        more = [f"{value_text(r, 2)} {r['ratio'].split()[0]}" for r in rows if r.get("of") == f"{row['model']}, {row['system']}"]
        lines.append([row["model"], row["system"].partition(", ")[2] or "none", *(milliseconds(r["p50_us"]) for r in (row, by_hand)), *more])
    return [*table(["model", "callbacks", "Trainer, ms", "by hand, ms", "more", "more processor time"], lines),
            "", *table(["progress", "ns"], [[row["progress"], f"{row['ns']:.0f}"] for row in rows if "progress" in row])]


def milliseconds(microseconds):
    return number(microseconds / 1e3, 4)


def loader_rows(rows):
    ratios = {row["of"]: value_text(row, 2) for row in rows if row.get("ratio") == "samples over pytorch"}
    names = [(row, ", ".join(filter(None, [row["system"], row.get("reader")]))) for row in rows if "ratio" not in row]
    return table(["data", "system", "samples/s", "GB/s of batches", "to PyTorch"],
                 [[row["data"], name, f"{row['samples_per_s']:.0f}", f"{row['bytes_per_s'] / 1e9:.2f}", ratios.get(f"{row['data']}, {name}", "")]
                  for row, name in names])


ROWS = {"checkpoint": checkpoint_rows, "trainer": trainer_rows, "loader": loader_rows}


def section(results):
    lines = ["## Beside computing", ""]
    for part, result in results.items():
        command = " ".join([*(f"{k}={v}" for k, v in PARTS[part][1].items()), "rondo", *PARTS[part][0]])
        lines += [f"### {part.capitalize()}", "", TEXTS[part], "",
                  f"Measured by `{command}`: <!-- {result['date']}, {result['machine']}, {result['processors']} processors -->", "",
                  *ROWS[part](result["rows"]), ""]
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
