"""What measurements of plans share: jobs on two emulated hosts, plans, and places in the documents for what was measured."""
import json
import os
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests" / "integration"))
from hosts import linked_hosts  # noqa: E402,F401  (for those who import from here)

BIN = pathlib.Path(os.environ.get("RONDO_BIN", REPOSITORY / "build" / "release" / "bin"))


def on_both(hosts, port, *words):
    """Runs a program as one rank on each host."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
    # A core for each host: ranks that wander disturb one another, and never twice alike.
    processes = [subprocess.Popen(list(map(str, host.command(
        "taskset", "-c", number % os.cpu_count(), BIN / "rondo", "run", "--nnodes", 2, "--node-rank", number,
        "--master-addr", hosts[0].address, "--master-port", port, "--interface", host.interface, "-n", 1, "--", *words))), env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for number, host in enumerate(hosts)]
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        raise SystemExit("\n".join([f"failed: {' '.join(map(str, words))}", *outputs]))


def profile_for_contest(hosts, model, batch_size, out):
    """Writes the profile of a model between the hosts, for plans whose contest is `bench_step`: its ranks multiply as PyTorch's do."""
    on_both(hosts, 29600, BIN / "rondo-profile", "--matmul", "libtorch", "--model", model, "--batch-size", batch_size, "--largest", "16MiB",
            "--json", out)


def make_plan(profile, limit, out, seconds, *more, ranks=2):
    """What `rondo plan` writes to `out`."""
    result = subprocess.run([BIN / "rondo", "plan", profile, "--ranks", str(ranks), "--memory-limit", f"{int(limit)}B", "--plan-out",
                             out, "--quiet", "--plan-time-limit", f"{seconds}s", *map(str, more)], capture_output=True, text=True)
    if result.returncode not in (0, 1):
        raise SystemExit(result.stderr)
    return json.loads(out.read_text())


def choices_of(plan):
    """How many units have which strategy, in words: "3 zero2, 6 zero3 + checkpoint"."""
    counts = {}
    for unit in plan["units"]:
        choice = unit["strategy"] + (" + checkpoint" if unit["checkpoint"] else "")
        counts[choice] = counts.get(choice, 0) + 1
    return ", ".join(f"{count} {choice}" for choice, count in sorted(counts.items()))


def bench_step(out, *words):
    """Rows of `rondo bench step` between two emulated hosts, GPT or what else is asked for, in float32."""
    command = [BIN / "rondo", "bench", "step", "--dtype", "float32", "--emulate-hosts", "2", "--track-memory", "--json", out,
               *words]
    result = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise SystemExit(f"failed: {' '.join(map(str, command))}\n{result.stderr}")
    return [row for row in json.loads(out.read_text()) if "system" in row]


def keep(path, result):
    """Writes results as JSON where `--json` asks for it."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")


def table(heading, rows):
    return ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading), *("| " + " | ".join(row) + " |" for row in rows)]


def write_section(page, name, lines):
    """Puts lines between the page's marks <!-- NAME --> and <!-- end of NAME -->."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{page} has no place for {name}")
    page.write_text(before + begin + "\n".join(lines) + "\n" + end + after)
