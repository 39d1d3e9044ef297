"""Ways of training by strategy, as docs/support.md shows them: the Trainer, a custom loop, train_and_evaluate.

`python tests/integration/support_loops.py` runs every cell and writes the table (`make support` does, too);
support_loops_test.py runs every cell and compares. With RONDO_SUPPORT_DEVICE=sim and RONDO_SUPPORT_RANKS=1,2,4 every
cell runs on the simulated accelerator (tests/sim) with each of these numbers of ranks, and must agree with the
table."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from support import PAGE, REPOSITORY

TWO_RANKS, SERVED = ["-n", 2], ["--ps", 1, "--workers", 2]
STRATEGIES = {
    "default": [["-n", 1]],
    "one_device": [["-n", 1]],
    "data_parallel": [["-n", 1], "replicas=2"],
    "mirrored": [["-n", 1], "replicas=2"],
    "central_storage": [["-n", 1], "replicas=2"],
    "ddp": [TWO_RANKS],
    "multi_worker_mirrored": [TWO_RANKS, "replicas=2"],
    "tpu": [TWO_RANKS],
    "zero1": [TWO_RANKS],
    "zero2": [TWO_RANKS],
    "zero3": [TWO_RANKS],
    "zero3_keep": [TWO_RANKS],
    "hsdp": [TWO_RANKS, "shard-ranks=1"],
    "random": [TWO_RANKS],
    "planned": [TWO_RANKS],
    "local_sgd": [TWO_RANKS, "sync-period=2"],
    "pipeline": [TWO_RANKS],
    "tensor": [TWO_RANKS],
    "context": [TWO_RANKS],
    "expert": [TWO_RANKS],
    "parameter_server": [SERVED],
    "grouped": [["--ps", 1, "--workers", 4], "ps-groups=2"],
}
MEASURES_LINKS = "planned"  # plan_for() rejects one rank, which has no link
# The program's argument by way, and the cell by the program's answer.
WAYS = {"Trainer": "trainer", "custom loop": "loop", "`train_and_evaluate`": "train_and_evaluate"}
CELLS = {"the trainer": "yes", "prepare": "yes", "train_step": "`train_step`", "train_and_evaluate": "yes"}
BEGIN, END = "<!-- loops -->\n", "<!-- end of loops -->"


def job_of(strategy, ranks=None):
    """Returns the launcher's flags for a job of a strategy, and its options; with `ranks` ranks if it has several."""
    flags, *options = STRATEGIES[strategy]
    if ranks is None or flags == ["-n", 1]:
        return flags, options
    return [*flags[:-1], ranks], [f"ps-groups={max(1, ranks // 2)}" if option.startswith("ps-groups=") else option for option in options]


def cell(bin_folder, strategy, way, environment=None, ranks=None):
    """Returns the cell of the page: the way of training, or "refused" if it ends with an error that names the
    strategy."""
    ranks, options = job_of(strategy, ranks)
    with tempfile.TemporaryDirectory() as scratch:
        words = [bin_folder / "rondo", "run", *ranks, "--", bin_folder / "training_loops", WAYS[way], f"{scratch}/run", strategy, *options]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, env=environment, cwd=scratch)
    if done.returncode == 0:
        return CELLS[re.search(r"trained by (.+)", done.stdout)[1]]
    assert done.returncode == 2 and strategy in done.stderr, f"{strategy}, {way}: {done.returncode}\n{done.stdout}{done.stderr}"
    return "refused"


def table_of(cells):
    """Returns the table. `cells` is {strategy: {way: cell}}."""
    lines = ["| strategy | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
    lines += [f"| `{strategy}` | " + " | ".join(cells[strategy][way] for way in WAYS) + " |" for strategy in cells]
    return "\n".join(lines) + "\n"


def read_table():
    return PAGE.read_text().split(BEGIN)[1].split(END)[0]


def compare_on(device, folder, strategies):
    """Runs all cells on a device with each of RONDO_SUPPORT_RANKS; returns differences from the page."""
    page = {row.split("|")[1].strip(" `"): row for row in read_table().splitlines()[2:]}
    numbers = [int(number) for number in os.environ.get("RONDO_SUPPORT_RANKS", "2").split(",")]
    environment = os.environ | {"RONDO_SIM_MODULE": str(folder.parent / "lib" / "rondo_sim.so"), "RONDO_SIM_DEVICES": "8"}

    def row(strategy, ranks):
        try:
            cells = {way: cell(folder, strategy, way, environment, ranks) for way in WAYS}
        except (AssertionError, subprocess.TimeoutExpired) as failure:
            return str(failure)
        found = table_of({strategy: cells}).splitlines()[2]
        return "" if found == page[strategy] else f"{found}, and the page says {page[strategy]}"

    jobs = [(strategy, ranks) for strategy in strategies for ranks in (numbers if STRATEGIES[strategy][0] != ["-n", 1] else [1])
            if (strategy, ranks) != (MEASURES_LINKS, 1)]
    failures = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for (strategy, ranks), wrong in zip(jobs, pool.map(lambda job: row(*job), jobs)):
            print(f"{strategy:22} {ranks} ranks {wrong or 'as the page says'}", flush=True)
            if wrong:
                failures.append(f"{strategy} with {ranks} ranks on {device}: {wrong}")
    print(f"{len(jobs) - len(failures)} of {len(jobs)} rows of ways of training are on {device} as docs/support.md says")
    return failures


def main():
    folder = pathlib.Path(os.environ.get("RONDO_BIN", REPOSITORY / "build" / "release" / "bin")).resolve()
    if device := os.environ.get("RONDO_SUPPORT_DEVICE"):
        failures = compare_on(device, folder, sys.argv[1:] or STRATEGIES)
        print("\n".join(failures), file=sys.stderr)
        return 1 if failures else 0
    cells = {strategy: {way: cell(folder, strategy, way) for way in WAYS} for strategy in STRATEGIES}
    head, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(head + BEGIN + table_of(cells) + END + rest.split(END)[1])
    print(table_of(cells))


if __name__ == "__main__":
    sys.exit(main())
