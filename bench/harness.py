"""Shared code of the benchmark scripts: programs and jobs, plans, rows of a run, results as JSON, tables, sections of
documents."""
import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import textwrap

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests" / "integration"))
from hosts import linked_hosts  # noqa: E402,F401  (for those who import from here)

BIN = pathlib.Path(os.environ.get("RONDO_BIN", REPOSITORY / "build" / "release" / "bin"))
MIB = 2**20


def parser_of(doc, docs=None, json_file=True):
    """Returns a parser of arguments with the script's docstring as help; with --json, and with --docs for the page
    `docs`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if json_file:
        parser.add_argument("--json", metavar="FILE", help="write the results as JSON; - is standard output")
    if docs:
        parser.add_argument("--docs", action="store_true", help=f"write the results into docs/{docs}")
    return parser


def run(*command, may_fail=(), **more):
    """Runs a command to its end and returns its standard output. If it fails, ends this script and prints all output,
    except for the exit codes in `may_fail`."""
    words = list(map(str, command))
    result = subprocess.run(words, capture_output=True, text=True, **more)
    if result.returncode not in (0, *may_fail):
        raise SystemExit(f"failed: {' '.join(words)}\n{result.stdout}{result.stderr}")
    return result.stdout


def rondo(*words, **more):
    """Runs a command of `rondo`."""
    return run(BIN / "rondo", *words, **more)


def rondo_json(*words, **more):
    """Runs a command of `rondo` and returns its --json output."""
    return json.loads(rondo(*words, "--json", "-", **more))


def one_thread():
    """Returns the environment of ranks that have a core each."""
    return dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")


def on_both(hosts, port, *words):
    """Runs a program as one rank on each host."""
    # A core for each host: ranks that migrate disturb each other, and differently in each run.
    processes = [subprocess.Popen(list(map(str, host.command(
        "taskset", "-c", number % os.cpu_count(), BIN / "rondo", "run", "--nnodes", 2, "--node-rank", number,
        "--master-addr", hosts[0].address, "--master-port", port, "--interface", host.interface, "-n", 1, "--", *words))),
        env=one_thread(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for number, host in enumerate(hosts)]
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        raise SystemExit("\n".join([f"failed: {' '.join(map(str, words))}", *outputs]))


def profile_for_contest(hosts, model, batch_size, out):
    """Writes a model's profile between the hosts, for plans to compare in bench_step(): its ranks use PyTorch's matrix
    products."""
    on_both(hosts, 29600, BIN / "rondo-profile", "--matmul", "libtorch", "--model", model, "--batch-size", batch_size, "--largest", "16MiB",
            "--json", out)


def make_plan(profile, limit, out, seconds, *more, ranks=2):
    """Returns the plan that `rondo plan` writes to `out`."""
    rondo("plan", profile, "--ranks", ranks, "--memory-limit", f"{int(limit)}B", "--plan-out", out, "--quiet", "--plan-time-limit",
          f"{seconds}s", *more, may_fail=(1,))
    return json.loads(out.read_text())


def choice_of(unit):
    return unit["strategy"] + (" + checkpoint" if unit["checkpoint"] else "")


def choices_of(plan):
    """Returns the number of units of each strategy as text: "3 zero2, 6 zero3 + checkpoint"."""
    choices = [choice_of(unit) for unit in plan["units"]]
    return ", ".join(f"{choices.count(choice)} {choice}" for choice in sorted(set(choices)))


def bench_step(out, *words):
    """Returns the rows of `rondo bench step` in float32 between two emulated hosts, for a GPT or the model in
    `words`."""
    rondo("bench", "step", "--dtype", "float32", "--emulate-hosts", 2, "--track-memory", "--json", out, *words)
    return [row for row in json.loads(out.read_text()) if "system" in row]


TRAIN_QUIETLY = ["--validation-fraction", 0, "--trace-steps", 0, "--progress", "off"]


def step_rows(run_directory, name="metrics.jsonl"):
    """Returns the rows of the steps of a run's first rank, or of a worker that counts its own steps."""
    rows = [row for row in map(json.loads, (run_directory / name).read_text().splitlines()) if "loss" in row]
    return [row for row in rows if row["rank"] == rows[0]["rank"]]


def steps_per_s(rows, first):
    """Returns the rate of the steps after the first ones."""
    return (len(rows) - first) / (rows[-1]["elapsed_s"] - rows[first - 1]["elapsed_s"])


def joint_steps_per_s(run_directory, first):
    """Returns the sum of the rates of all workers that count their own steps."""
    names = ["metrics.jsonl", *sorted(path.name for path in run_directory.glob("metrics.worker-*.jsonl"))]
    return sum(steps_per_s(step_rows(run_directory, name), first) for name in names)


def write_training_text(path):
    """Writes rondo's own sources into one file."""
    path.write_text("".join(source.read_text() for source in sorted((REPOSITORY / "rondo").rglob("*.cpp"))))


def digits(folder, samples=4096):
    """Writes random images in MNIST's format."""
    source = random.Random(1)
    folder.mkdir()
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, samples, 28, 28) + source.randbytes(samples * 784))
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, samples) +
                                                     bytes(source.randrange(10) for _ in range(samples)))
    return folder


def say(text):
    print(text, file=sys.stderr, flush=True)


def show(text, target=None):
    """Prints text for the user: to standard error if --json - uses standard output."""
    print(text, file=sys.stderr if target == "-" else sys.stdout, flush=True)


def keep(target, results):
    """Writes results as JSON if --json was given."""
    text = json.dumps(results, indent=1) + "\n"
    if str(target) == "-":
        sys.stdout.write(text)
    elif target:
        pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(target).write_text(text)


def kept(target):
    """Returns the results that an earlier run wrote there, or {}."""
    path = pathlib.Path(target or "")
    return json.loads(path.read_text()) if path.is_file() else {}


def table(columns, rows):
    heading, *lines = ["| " + " | ".join(row) + " |" for row in [columns, *rows]]
    return [heading, "|" + "---|" * len(columns), *lines]


def wrapped(text, indent=""):
    """Lines of a paragraph of a page, or of a list's item."""
    return textwrap.wrap(text, 116, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def value_text(row, digits=3):
    """Returns a ratio, marked with * if it is a ratio of minima."""
    return f"{row['value']:.{digits}f}" + "*" * (row.get("by") == "min")


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return "unknown processor"


def write_section(page, name, lines):
    """Writes lines between the marks <!-- NAME --> and <!-- end of NAME --> of a page of docs/."""
    path = REPOSITORY / "docs" / page
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = path.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{path} has no place for {name}")
    path.write_text(before + begin + "\n".join(lines) + "\n" + end + after)


def finish(arguments, results, lines, page, name):
    """Prints the section, writes it into the page if --docs was given, and stores the results."""
    print("\n".join(lines))
    if arguments.docs:
        write_section(page, name, lines)
    keep(arguments.json, results)
