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
from harness import BIN, REPOSITORY, machine, parser_of, run, say, table, value_text
from peers.peer_ratio import RULE, peer_ratio, ratio_text

GPT = ["--model", "gpt-25m", "--dtype", "float32"]
LINK = ["--emulate-hosts", "2", "--rate", "1gbit"]
GROUPS = {
    "fresh": ["bench", "collectives", "--peers", "--fresh", "--ranks", "2", "--sizes", "4B,1KiB,64KiB,1MiB,16MiB,25MiB"],
    "warm": ["bench", "collectives", "--peers", "--ranks", "4", "--sizes", "4B,64KiB,1MiB,16MiB,64MiB"],
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


def median_and_minimum(row):
    """Returns "3.31 ms (0.353)": both times in the unit of the median."""
    scale = 1 if row["p50_us"] < 1000 else 1000
    return f"{time_text(row['p50_us'])} ({row['min_us'] / scale:.3g})"


REGISTERED, ORDINARY, WORK = "rondo, registered", "rondo, ordinary", "rondo, registered, Work"


def column_of(row):
    if row["system"] != "rondo":
        return row["system"]
    if not row["registered"]:
        return ORDINARY
    return REGISTERED if row["call"] == "direct" else WORK


def ratio_cell(of, peer):
    """Returns "42x, 14x": the ratios with registered and with ordinary memory."""
    ratios = [peer_ratio(of[ours]["p50_us"], of[ours]["min_us"], of[peer]["p50_us"], of[peer]["min_us"])
              for ours in (REGISTERED, ORDINARY)]
    return ", ".join(ratio_text(*ratio) for ratio in ratios)


def collectives(rows, ranks):
    rows = [row for row in rows if row["ranks"] == ranks and row["operation"] == "all_reduce"]
    columns = [column for column in dict.fromkeys(column_of(row) for row in rows) if column != WORK]
    peers = [column for column in columns if not column.startswith("rondo")]
    lines, of_work = [], []
    for size in sorted({row["bytes"] for row in rows}):
        of = {column_of(row): row for row in rows if row["bytes"] == size}
        lines.append([bytes_text(size), *(median_and_minimum(of[c]) if c in of else "" for c in columns),
                      *(ratio_cell(of, peer) for peer in peers)])
        if WORK in of and size <= 2**16:
            of_work.append(of[WORK]["p50_us"] - of[REGISTERED]["p50_us"])
    note = ["", f"Up to 64 KiB a call through `c10d::Work` takes at most {max(of_work):.1g} us more."] if of_work else []
    return table(["size", *columns, *(f"over {peer}: registered, ordinary" for peer in peers)], lines) + note


def hosts(rows):
    orders = list(dict.fromkeys(row["rank_order"] for row in rows))
    times = {}
    for row in rows:
        times.setdefault((row["system"], row["codec"]), {})[row["rank_order"]] = median_and_minimum(row)
    return table(["system", "codec", *(f"ranks {order}" for order in orders)],
                 [[*which, *(found.get(order, "") for order in orders)] for which, found in times.items()])


def milliseconds(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def step_cell(row):
    return f"{milliseconds(row['step_ms_p50'])} ({milliseconds(row['step_ms_min'])})"


def memory_text(row):
    return f"{row['peak_resident_bytes'] / 2**20:.0f}" if row.get("peak_resident_bytes") else ""


def without_constants(columns, rows, constant):
    """Returns a table in which a line replaces those of the columns `constant` that have one value. Empty columns are
    dropped."""
    values = {name: {row[i] for row in rows} for i, name in enumerate(columns)}
    fixed = {name: rows[0][columns.index(name)] for name in constant if len(values[name]) == 1}
    shown = [i for i, name in enumerate(columns) if name not in fixed and values[name] != {""}]
    sentence = [", ".join(fixed.values()) + ":", ""] if fixed else []
    return sentence + table([columns[i] for i in shown], [[row[i] for i in shown] for row in rows])


def system_of(row):
    """Returns the system as ratios name it: "pytorch ddp, fastest setting"."""
    return ", ".join(filter(None, [f"{row['system']} {row['strategy']}", row.get("setting")]))


INDEPENDENT = "rondo one_device, independent"
# Columns of ratios: heading, kind of ratio, beginning of the other system's name.
RATIOS = [("to its bound", ["step_ms_p50"], "max("),
          ("to independent", ["tokens_per_s", "samples_per_s"], INDEPENDENT),
          ("to PyTorch", ["tokens_per_s", "samples_per_s"], "pytorch"),
          ("memory to PyTorch", ["peak_resident_bytes"], "pytorch")]


def steps(rows, everything=False):
    """Returns a table of the systems that are compared, or of all. Ratios to several settings of a peer are listed in
    their order."""
    lines, compared = [], set()
    for row in (row for row in rows if "step_ms_p50" in row):
        own = [r for r in rows if "ratio" in r and (r["model"], r["dtype"], r["of"]) == (row["model"], row["dtype"], system_of(row))]
        if row["strategy"] != "one_device":
            compared |= {system_of(row)} | {r["to"] for r in own if r["to"].startswith((INDEPENDENT, "pytorch"))}
        lines.append([f"{row['model']}, {row['dtype']}", system_of(row), step_cell(row),
                      f"{row.get('tokens_per_s') or row.get('samples_per_s'):.0f}", memory_text(row),
                      f"{row['bound_ms']:.0f}" if row.get("bound_ms") else "",
                      *(", ".join(value_text(r) for r in own if r["ratio"] in kinds and r["to"].startswith(to)) for _, kinds, to in RATIOS)])
    lines = [line for line in lines if everything or line[1] in compared]
    return without_constants(["model", "system", "step, ms", "tokens or samples/s", "peak, MiB", "bound, ms",
                              *(name for name, _, _ in RATIOS)], lines, ["model"])


def ablation(rows):
    figures = [row for row in rows if "step_ms_p50" in row and row["strategy"] != "one_device"]
    strategies = list(dict.fromkeys(row["strategy"] for row in figures))
    cells = {}
    for row in figures:
        cells.setdefault(row["setting"], {})[row["strategy"]] = [step_cell(row), memory_text(row)]
    bounds = {row["strategy"]: f"{row['bound_ms']:.0f} ms for {row['strategy']}" for row in figures}
    return [f"The bound is {' and '.join(bounds.values())}.", "",
            *table(["policies", *(heading for name in strategies for heading in (f"{name}, ms", "peak, MiB"))],
                   [[policy, *(cell for name in strategies for cell in found[name])] for policy, found in cells.items()])]


def longest(values):
    return f"{max(values):.1f}" if values else ""


def pipelines(rows):
    """Returns a table with a row for each schedule of `rondo bench-dev pipeline`."""
    times = {(row["system"], row["schedule"] or "ddp"): row for row in rows if "step_ms_p50" in row}
    ratios = {(row["ratio"], row["of"].removeprefix("rondo "), row["to"].split(" ")[-1 if row["to"].startswith("rondo") else 0]): value_text(row)
              for row in rows if "ratio" in row}
    lines, between_hosts = [], ("rondo", "ddp") in times
    for (system, schedule), row in times.items():
        if system != "rondo":
            continue
        peer = times.get(("pytorch", schedule))
        lines.append([schedule, *(f"{one['step_ms_p50']:.1f}" if one else "" for one in (row, peer)),
                      *(ratios.get((kind, schedule, to), "") for kind, to in
                        (("tokens_per_s", "pytorch"), ("tokens_per_s", "ddp"), ("step", "computation"))),
                      *("" if between_hosts else longest(row.get(key)) for key in ("idle_ms", "simulated_idle_ms"))])
    return without_constants(["schedule", "step, ms", "PyTorch, ms", "tokens/s to PyTorch", "tokens/s to ddp", "step to simulated",
                              "idle, ms", "simulated"], lines, [])


# Sections of the page that appear if they were measured: group, heading, text, function of the tables.
STEP_SECTIONS = [
    ("sharded", "Sharded training on one host", "With the same matrix products as PyTorch. zero1 and zero2 are compared with "
     "ZeroRedundancyOptimizer (zero1), zero3 with\nFSDP2. Peaks count pages that ranks share once ([keys](cli/bench.md#rondo-bench-step)).",
     steps),
    ("step_hosts", "Training between two hosts, 1 Gbit", "One rank on each host. The bound is the larger of the step of one process and the "
     "time that the link needs for the least\ndata that the strategy must send.", steps),
    ("ablation", "The communication scheduler's policies, two hosts, 1 Gbit", "gpt-25m in float32. Each row enables one more policy.", ablation),
    ("whole", "With rondo's own choice of matrix products", "`matmul auto` is rondo's own choice of "
     "[matrix products](precision.md#matrix-products). The ratios are those of ddp.", steps),
    ("pipeline", "Pipelines on one host", "gpt-25m in 2 stages, 8 samples in 8 micro-batches; PyTorch runs torch.distributed.pipelining over Gloo. "
     "Idle is the time\nof the rank that waits longest; the simulation has the measured times of forward and backward\n"
     "([keys](cli/bench-dev.md#rondo-bench-dev-pipeline)).", pipelines),
    ("pipeline_emulated", "Pipelines of 4 ranks, emulated accelerators", "Two units a rank, 8 micro-batches. Forward, input gradient and weight "
     "gradient of a unit take 10 ms each, during which\nthe core is free.", pipelines),
    ("pipeline_hosts", "Pipelines between two hosts, 1 Gbit", "As on one host; ddp has 4 samples a rank.", pipelines),
    ("pipeline_hosts_400", "Pipelines between two hosts, 400 Mbit", "", pipelines),
]


def startup(rows):
    times = [f"{row['first_step_s']:.2f} s with {row['system'].replace('pytorch', 'PyTorch')}" for row in rows if "first_step_s" in row]
    return [f"The first step on two processes ends {' and '.join(times)} after the command."]


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
        "2 ranks, float32. Each rank writes its buffer before the timed call, as with gradients. Registered memory comes from",
        "libtorch's allocator under rondo; ordinary memory is any other.", "", *collectives(read(folder, "fresh"), 2),
        "", "## all_reduce on one host, warm caches, 4 ranks", "",
        *collectives(read(folder, "warm"), 4), "", "[All algorithms by size](algorithms/performance.md)",
        "", "## all_reduce between two hosts, 2 ranks each, 1 Gbit, 25 MiB", "",
        "Hosts are network namespaces joined by a shaped link ([multi_host.md](multi_host.md)).", "", *hosts(read(folder, "hosts")),
        "", "## Training steps", "",
        "`one_device` is one process, `independent` two that do not communicate; all others are two ranks. `to independent` and",
        "`to PyTorch` compare throughput, with PyTorch's settings in the order of their rows.", "", *steps(read(folder, "step"), everything=True)]
    for group, heading, text, tables in STEP_SECTIONS:
        if rows := read(folder, group):
            parts += ["", f"## {heading}", "", *(f"{text}\n".splitlines() + [""] if text else []), *tables(rows)]
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
     [("rondo ddp", "rondo ddp"), ("PyTorch DDP, fastest setting", "pytorch ddp, fastest setting"),
      ("PyTorch DDP", "pytorch ddp, as usually written")]),
    ("Sharded training on one host", "Sharded training on one host",
     [("rondo zero3", "rondo zero3"), ("PyTorch FSDP2", "pytorch fsdp2, fastest setting")]),
    ("Sharded training between two emulated hosts, 1 Gbit/s", "Training between two hosts, 1 Gbit",
     [("rondo zero3", "rondo zero3"), ("PyTorch FSDP2", "pytorch fsdp2, fastest setting")]),
]


def readme_bars(text):
    """Returns the drawing of the README from the page's tables: tokens/s, and all-reduces per second."""
    groups = []
    for heading, section, systems in BARS:
        rows = [row for row in rows_of(text, section) if row.get("model", "gpt-25m, float32") == "gpt-25m, float32"]
        found = {row["system"]: row["tokens or samples/s"] for row in rows}
        groups.append((heading, [(name, float(found[system]), f"{found[system]} tokens/s") for name, system in systems]))
    row = next(row for row in rows_of(text, "all_reduce on one host, data just written") if row["size"] == "1 MiB")
    fastest = {}
    for name, column in (("rondo", REGISTERED), ("Open MPI", "openmpi"), ("Gloo", "gloo")):
        unit, value = re.search(r"(us|ms) \((\S+)\)", row[column]).groups()
        minimum = float(value) * {"us": 1, "ms": 1000}[unit]
        fastest[name] = (1 / minimum, time_text(minimum))
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
