#!/usr/bin/env python3
"""Measures rondo and its peers and writes docs/benchmarks.md and its plot.

    make build && make setup-peers && make build      # peers: Open MPI; PyTorch is in .venv
    bench/benchmarks.py                               # about twenty minutes on an otherwise idle machine
    bench/benchmarks.py --results build/benchmarks    # only writes the page, from existing results

Each group of results comes from one run of `rondo bench` in which all systems alternate. Groups with results in the
folder are not measured again. Measurements between hosts need root.
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

from charts import bar_chart, bytes_text
from harness import BIN, REPOSITORY, machine, parser_of, run, say, table, value_text, wrapped
from peers.peer_ratio import RULE, peer_ratio, ratio_text

GPT = ["--model", "gpt-25m", "--dtype", "float32"]
LINK = ["--emulate-hosts", "2", "--rate", "1gbit"]
GROUPS = {
    "fresh": ["bench", "collectives", "--peers", "--fresh", "--ranks", "2", "--sizes", "4B,1KiB,64KiB,1MiB,16MiB,25MiB"],
    "warm": ["bench", "collectives", "--peers", "--ranks", "2,4", "--sizes", "4B,1KiB,64KiB,1MiB,4MiB,16MiB,25MiB,64MiB"],
    "hosts": ["bench", "collectives", "--peers", "--hosts", "2", "--rate", "1gbit", "--ranks", "4", "--sizes", "25MiB", "--codec",
              "none,bfloat16,int8"],
    "algorithms": ["bench", "collectives", "--algorithm", "all", "--ranks", "4", "--sizes", "4B..16MiB"],
    "step": ["bench", "step", "--peers"],
    "sharded": ["bench", "step", "--peers", *GPT, "--strategy", "ddp", "zero1", "zero2", "zero3", "--peer-setting", "fastest"],
    "step_hosts": ["bench", "step", "--peers", *GPT, *LINK, "--strategy", "ddp", "zero3", "--peer-setting", "fastest"],
    "ablation": ["bench", "step", *GPT, *LINK, "--strategy", "zero2", "zero3", "--ablation"],
    "whole": ["bench", "step", "--peers", *GPT, "--matmul", "auto"],
    "startup": ["bench-dev", "startup", "--peers"],
    "pipeline": ["bench-dev", "pipeline", "--peers"],
    "pipeline_emulated": ["bench-dev", "pipeline", "--ranks", "4", "--emulate-accelerator", "10"],
    "pipeline_hosts": ["bench-dev", "pipeline", *LINK],
    "pipeline_hosts_400": ["bench-dev", "pipeline", "--emulate-hosts", "2", "--rate", "400mbit"],
}


def measure(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for group, words in GROUPS.items():
        target = folder / f"{group}.json"
        if target.exists():
            continue
        say(f"{group}: rondo {' '.join(words)}")
        result = subprocess.run([BIN / "rondo", *words, "--json", target])
        if result.returncode != 0 or not target.exists():
            target.unlink(missing_ok=True)
            say(f"{group}: not measured")


def read(folder, group):
    path = folder / f"{group}.json"
    return json.loads(path.read_text()) if path.exists() else []


def time_text(microseconds):
    return f"{microseconds:.3g} us" if microseconds < 1000 else f"{microseconds / 1000:.3g} ms"


def column_of(row):
    if row["system"] != "rondo":
        return row["system"]
    if not row["registered"]:
        return "rondo, ordinary"
    return "rondo, registered" if row["call"] == "direct" else "rondo, registered, Work"


def ratio_cell(of, peer):
    """Returns "42x, 14x": the ratios with registered and with ordinary memory."""
    ratios = [peer_ratio(of[ours]["p50_us"], of[ours]["min_us"], of[peer]["p50_us"], of[peer]["min_us"])
              for ours in ("rondo, registered", "rondo, ordinary")]
    return ", ".join(ratio_text(*ratio) for ratio in ratios)


def collectives(rows, ranks):
    rows = [row for row in rows if row["ranks"] == ranks and row["operation"] == "all_reduce"]
    columns = list(dict.fromkeys(column_of(row) for row in rows))
    lines = []
    for size in sorted({row["bytes"] for row in rows}):
        of = {column_of(row): row for row in rows if row["bytes"] == size}
        cells = [f"{time_text(of[c]['p50_us'])} ({time_text(of[c]['min_us'])})" if c in of else "" for c in columns]
        cells += [ratio_cell(of, peer) for peer in columns if not peer.startswith("rondo")]
        lines.append([bytes_text(size), *cells])
    peers = [f"over {c}: registered, ordinary" for c in columns if not c.startswith("rondo")]
    return table(["size", *columns, *peers], lines)


def hosts(rows):
    return table(["system", "codec", "rank order", "p50", "min"],
                 [[row["system"], row["codec"], row.get("rank_order", ""), time_text(row["p50_us"]), time_text(row["min_us"])]
                  for row in rows])


def memory_text(row):
    return f"{row['peak_resident_bytes'] / 2**20:.0f}" if row.get("peak_resident_bytes") else ""


def without_constants(columns, rows, constant):
    """Returns a table in which a sentence replaces those of the columns `constant` that have one value."""
    fixed = {name: rows[0][columns.index(name)] for name in constant
             if name in columns and len({row[columns.index(name)] for row in rows}) == 1}
    shown = [i for i, name in enumerate(columns) if name not in fixed]
    sentence = ["All rows: " + ", ".join(f"{name} {value}" for name, value in fixed.items()) + ".", ""] if fixed else []
    return sentence + table([columns[i] for i in shown], [[row[i] for i in shown] for row in rows])


# Headings of ratios; throughput is in tokens or samples per second.
RATIOS = {"tokens_per_s": "throughput", "samples_per_s": "throughput", "step_ms_p50": "step time",
          "peak_resident_bytes": "peak resident memory", "peak_rss_bytes": "peak RSS"}


def ratio_table(rows):
    """Returns one line for each pair of systems, with a column for each kind of ratio."""
    headings = list(dict.fromkeys(RATIOS[row["ratio"]] for row in rows))
    pairs = {}
    for row in rows:
        pairs.setdefault((row["model"], row["dtype"], row["of"], row["to"]), {})[RATIOS[row["ratio"]]] = value_text(row)
    # The table of times above says which model and dtype.
    return without_constants(["model", "dtype", "ratio of", "to", *headings],
                             [[*pair, *(found.get(heading, "") for heading in headings)] for pair, found in pairs.items()],
                             ["model", "dtype"])[-len(pairs) - 2:]


def steps(rows):
    figures = [row for row in rows if "step_ms_p50" in row]
    heading = ["model", "dtype", "system", "strategy", "setting", "ranks", "step p50 ms", "min ms", "tokens or samples/s",
               "peak resident MiB"]
    lines = [[row["model"], row["dtype"], row["system"], row["strategy"], row.get("setting") or "", str(row["ranks"]),
              f"{row['step_ms_p50']:.2f}", f"{row['step_ms_min']:.2f}",
              f"{row.get('tokens_per_s') or row.get('samples_per_s'):.0f}", memory_text(row)] for row in figures]
    if any(row["hosts"] > 1 for row in figures):
        heading.append("max(compute, line rate) ms")
        for line, row in zip(lines, figures):
            line.append(f"{row['bound_ms']:.0f}" if row.get("bound_ms") else "")
    return without_constants(heading, lines, ["model", "dtype", "system"]) + [""] + ratio_table([row for row in rows if "ratio" in row])


def ablation(rows):
    wins = ", ".join(f"`{row['policy']}` in {row['won']} of {row['tried']}" for row in rows if "won" in row)
    return [*steps(rows), "", *wrapped(f"Comparisons in which a policy was faster by more than 1 %: {wins}.")]


def listed(values):
    return ", ".join(f"{value:.1f}" for value in values or [])


def pipelines(rows):
    """Returns the measurements of `rondo bench-dev pipeline`, then its ratios."""
    figures = [row for row in rows if "step_ms_p50" in row]
    what = "samples/s" if figures[0]["emulated"] else "tokens/s"
    lines = [[row["system"], row["schedule"] or "ddp", f"{row['step_ms_p50']:.1f}", f"{row['step_ms_min']:.1f}",
              f"{row.get('tokens_per_s') or row.get('samples_per_s'):.0f}", listed(row.get("idle_ms")), listed(row.get("simulated_idle_ms"))]
             for row in figures]
    ratios = [[row["ratio"].replace("_", " "), row["of"], row["to"], value_text(row)]
              for row in rows if "ratio" in row and not row["to"].startswith("1.15 x simulated")]
    return without_constants(["system", "schedule", "step p50 ms", "min ms", what, "ranks idle, ms", "simulated"], lines,
                             ["system"]) + [""] + without_constants(["quantity", "of", "to", "ratio"], ratios, ["quantity"])


# Sections of the page that appear if they were measured: group, heading, text, function of the tables.
STEP_SECTIONS = [
    ("sharded", "Sharded training on one host", "Sharded strategies next to PyTorch's ZeroRedundancyOptimizer (zero1) and FSDP2, "
     "with the same matrix products.\nPeak resident memory counts pages that ranks share once ([cli.md](cli.md#rondo-bench-step)).",
     steps),
    ("step_hosts", "Training between two hosts, 1 Gbit", "One rank on each host. Compute is the step of one process in the same run. "
     "Line rate is the time that the link needs\nfor the least data that a strategy must send.", steps),
    ("ablation", "The communication scheduler's policies, two hosts, 1 Gbit", "Policies are enabled one after the other. "
     "Each is compared with the configuration before it.", ablation),
    ("whole", "With rondo's own choice of matrix products", "rondo with its own choice of [matrix products](precision.md#matrix-products) "
     "next to PyTorch. `one_device` without a\nsetting uses PyTorch's.", steps),
    ("pipeline", "Pipelines on one host", "gpt-25m in 2 stages, 8 samples in 8 micro-batches, next to PyTorch's torch.distributed.pipelining over Gloo. "
     "The last\ncolumns are the measured idle times of the ranks, and those of the simulated schedule with the measured times of forward\n"
     "and backward ([cli.md](cli.md#rondo-bench-dev-pipeline)).", pipelines),
    ("pipeline_emulated", "Pipelines of 4 ranks, emulated accelerators", "Two units a rank, 8 micro-batches. Forward, input gradient and weight "
     "gradient of a unit take 10 ms each, during which\nthe core is free. Everything else is real.", pipelines),
    ("pipeline_hosts", "Pipelines between two hosts, 1 Gbit", "gpt-25m in 2 stages, 8 samples in 8 micro-batches; ddp with 4 samples a rank.", pipelines),
    ("pipeline_hosts_400", "Pipelines between two hosts, 400 Mbit", "The same on a slower link.", pipelines),
]


def startup(rows):
    return table(["system", "ranks", "first step after, s"],
                 [[row["system"], str(row["ranks"]), f"{row['first_step_s']:.2f}"] for row in rows if "first_step_s" in row])


def written_by_others(path, name):
    """Returns a section of the page that another script writes, to keep it."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    kept = path.read_text().partition(begin)[2].partition(end)[0].strip("\n") if path.exists() else ""
    return [begin, kept, end] if kept else [begin, end]


def page(folder):
    parts = [
        "# Benchmarks", "",
        f"Measured on {machine()}, {os.cpu_count()} processors, by `bench/benchmarks.py`. <!-- {datetime.date.today()} -->",
        "All systems of a table took turns in one run. Ratios carry over to other machines better than absolute figures.",
        "Times are the median (minimum) of the slowest rank. A system may differ by some percent between two tables.",
        RULE,
        "", "## all_reduce on one host, data just written", "",
        "float32, four sets of buffers in rotation. Each owner writes its buffer before the timed call, as with gradients.",
        "Registered memory comes from libtorch's allocator under rondo; ordinary memory is any other. Both columns use the direct",
        "call; the third goes through `c10d::Work`.", "", *collectives(read(folder, "fresh"), 2)]
    for ranks in (2, 4):
        parts += ["", f"## all_reduce on one host, warm caches, {ranks} ranks", "", *collectives(read(folder, "warm"), ranks)]
    if read(folder, "algorithms"):
        parts += ["", "![all_reduce on 4 ranks by algorithm](images/algorithms-all_reduce-4.svg)"]
    parts += ["", "## all_reduce between two hosts, 2 ranks each, 1 Gbit, 25 MiB", "",
              "Hosts are network namespaces joined by a shaped link ([multi_host.md](multi_host.md)).", "", *hosts(read(folder, "hosts"))]
    parts += ["", "## Training steps", "", *steps(read(folder, "step"))]
    for group, heading, text, tables in STEP_SECTIONS:
        if rows := read(folder, group):
            parts += ["", f"## {heading}", "", *text.split("\n"), "", *tables(rows)]
    parts += ["", "## From the command to the first step", "", *startup(read(folder, "startup")), "",
              *written_by_others(REPOSITORY / "docs" / "benchmarks.md", "best mpi"), "",
              *written_by_others(REPOSITORY / "docs" / "benchmarks.md", "beside computing"), "",
              *written_by_others(REPOSITORY / "docs" / "benchmarks.md", "stopping"), ""]
    return "\n".join(parts)


def rows_of(text, heading):
    """Returns the first table of a section of the page as a list of {column: cell}."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.partition("\n|")[2].partition("\n\n")[0].splitlines()]
    return [dict(zip(cells[0], row)) for row in cells[2:]]


# Bars of the README: heading, section of the page, and the systems.
BARS = [
    ("Data parallel training on one host", "Training steps",
     [("rondo ddp", "ddp", "rondo", ""), ("PyTorch DDP, fastest setting", "ddp", "pytorch", "fastest setting"),
      ("PyTorch DDP", "ddp", "pytorch", "as usually written")]),
    ("Sharded training on one host", "Sharded training on one host",
     [("rondo zero3", "zero3", "rondo", ""), ("PyTorch FSDP2", "fsdp2", "pytorch", "fastest setting")]),
    ("Sharded training between two emulated hosts, 1 Gbit/s", "Training between two hosts, 1 Gbit",
     [("rondo zero3", "zero3", "rondo", ""), ("PyTorch FSDP2", "fsdp2", "pytorch", "fastest setting")]),
]


def readme_bars(text):
    """Returns the drawing of the README from the page's tables: tokens/s, and all-reduces per second."""
    groups = []
    for heading, section, systems in BARS:
        rows = [row for row in rows_of(text, section) if row.get("model", "gpt-25m") == "gpt-25m" and row.get("dtype", "float32") == "float32"]
        found = [next(row for row in rows if (row["strategy"], row["system"], row["setting"]) == of[1:]) for of in systems]
        groups.append((heading, [(of[0], float(row["tokens or samples/s"]), f"{row['tokens or samples/s']} tokens/s")
                                 for of, row in zip(systems, found)]))
    row = next(row for row in rows_of(text, "all_reduce on one host, data just written") if row["size"] == "1 MiB")
    fastest = {}
    for name, column in (("rondo", "rondo, registered"), ("Open MPI", "openmpi"), ("Gloo", "gloo")):
        value, unit = re.search(r"\((\S+) (\S+)\)", row[column]).groups()
        fastest[name] = (1 / (float(value) * {"us": 1, "ms": 1000}[unit]), f"{value} {unit}")
    groups.append(("All-reduce of 1 MiB on one host (bars: rate; minimum times)", [(name, *of) for name, of in fastest.items()]))
    return bar_chart("Speed next to other systems, two processes, float32, default matrix products", groups)


def main():
    parser = parser_of(__doc__, json_file=False)
    parser.add_argument("--results", type=pathlib.Path, default=REPOSITORY / "build" / "benchmarks", help="folder of the JSON results")
    parser.add_argument("--bars", type=pathlib.Path, help="only draw the bars of the README from the page, into this file")
    arguments = parser.parse_args()
    if arguments.bars:
        arguments.bars.write_text(readme_bars((REPOSITORY / "docs" / "benchmarks.md").read_text()))
        return
    measure(arguments.results)
    (REPOSITORY / "docs" / "benchmarks.md").write_text(page(arguments.results))
    (REPOSITORY / "docs" / "images" / "benchmarks.svg").write_text(readme_bars(page(arguments.results)))
    if (arguments.results / "algorithms.json").exists():
        run(sys.executable, REPOSITORY / "bench" / "plot_collectives.py", arguments.results / "algorithms.json",
            REPOSITORY / "docs" / "images" / "algorithms", "--channel", "shm")


if __name__ == "__main__":
    main()
