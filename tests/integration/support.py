"""Compatibility of features: every strategy with every other option of a training, as docs/support.md shows it.

`python tests/integration/support.py` runs each cell separately and writes the table (`make support`, some minutes).
support_test.py runs for each strategy all working features at once, and each refusal, and compares them with the table.
With RONDO_SUPPORT_DEVICE=sim each cell runs on the simulated accelerator (tests/sim), and must agree with the table; a
training also runs on the CPU and must have the same losses.
With RONDO_SUPPORT_RANKS=1,2,4 each `yes` runs with each of these numbers of ranks, or of replicas per process."""
import concurrent.futures
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "support.md"

STRATEGIES = {
    "default": [],
    "one_device": [],
    "data_parallel": ["--replicas", 2],
    "mirrored": ["--replicas", 2],
    "central_storage": ["--replicas", 2],
    "ddp": ["--nproc-per-node", 2],
    "multi_worker_mirrored": ["--nproc-per-node", 2, "--replicas", 2],
    "tpu": ["--nproc-per-node", 2],
    "zero1": ["--nproc-per-node", 2],
    "zero2": ["--nproc-per-node", 2],
    "zero3": ["--nproc-per-node", 2],
    "zero3_keep": ["--nproc-per-node", 2],
    "hsdp": ["--nproc-per-node", 2, "--shard-ranks", 1],
    "random": ["--nproc-per-node", 2],
    "planned": ["--nproc-per-node", 2, "--memory-limit", "1GiB", "--plan-time-limit", "1s"],
    "local_sgd": ["--nproc-per-node", 2, "--sync-period", 2],
    "parameter_server": ["--workers", 2],
    "grouped": ["--nproc-per-node", 2, "--ps-groups", 1],
}
# Strategies of which support_test.py runs all in `make test`; support_loops_test.py runs the others, make nightly all in both.
SAMPLE = "default mirrored ddp zero2 planned local_sgd parameter_server".split()
FEATURES = {
    "bf16, autocast (O1)": ["--precision", "O1"],
    "bf16, master weights (O2)": ["--precision", "O2"],
    "accumulation": ["--gradient-accumulation-steps", 2],
    "clipping": ["--max-grad-norm", 0.5],
    "activation checkpointing": ["--activation-checkpointing", "all"],
    "codec": ["--codec", "bfloat16"],
    "sync-batch-norm": ["--sync-batch-norm"],
    "resume": [],  # a second run that continues
    "resume under another": [],  # the other strategy continues, and then the first one again
}
EXCLUDES = {"bf16, master weights (O2)": "bf16, autocast (O1)"}  # one --precision per run
ALONE = "resume under another"  # the other strategy need not have all features of the first
UNITS = "activation checkpointing"  # for models with units, which are trained separately from others
WORKS = "yes"
BROKEN = "broken"  # neither trained nor refused
# Largest relative differences of a device's losses from the CPU's.
EXACT, ROUNDED = 1e-4, 2e-2
ASYNCHRONOUS = ("parameter_server",)  # its losses depend on the order in which gradients arrive


def flags_of(strategy, ranks):
    """Returns the flags of a strategy with `ranks` processes or replicas, which are its first flag."""
    flags = STRATEGIES[strategy]
    return [flags[0], ranks, *flags[2:]] if flags else []


def write_images(folder):
    """Writes 64 images of 8 x 8 in two classes."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(1)
    labels = bytes(i % 2 for i in range(64))
    images = bytes(min(255, 40 * label + generator.randrange(200)) for label in labels for _ in range(64))
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 64, 8, 8) + images)
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 64) + labels)
    return folder


class Runs:
    """Trainings of a small convolutional net with batch norms, or of a small GPT if units are needed."""

    def __init__(self, program, folder, environment=None, device="auto", ranks=2):
        self.program, self.folder, self.environment, self.device, self.ranks = program, folder, environment, device, ranks
        self.images, self.text = write_images(folder / "images"), folder / "text.txt"
        self.text.write_text("the quick brown fox jumps over the lazy dog. " * 200)
        self.count, self.losses = 0, []

    def train(self, strategy, features, steps, run_dir, *more):
        model = ["--model", "convnet", "--data", self.images, "--model-config", '{"batch_norm": true}']
        if UNITS in features:
            model = ["--model", "gpt-tiny", "--data", self.text, "--layers", 2, "--heads", 2, "--width", 32, "--seq-len", 32]
        words = ["train", "--strategy", strategy, *flags_of(strategy, self.ranks), *model, "--batch-size", 4, "--optimizer", "sgd", "--lr", 0.01, "--steps", steps,
                 "--run-dir", run_dir, "--progress", "off", "--trace-steps", 0, "--eval-batches", 1, "--matmul", "libtorch", "--device", self.device]
        for feature in features:
            words += FEATURES[feature]
        return subprocess.run([str(self.program), *map(str, words), *more], capture_output=True, text=True, timeout=120, cwd=self.folder,
                              env=self.environment)

    def outcome(self, strategy, features):
        """Returns WORKS, or the sentence of the refusal. `losses` are then rank 0's, by step."""
        self.count += 1
        run_dir = self.folder / f"run-{strategy}-{self.count}"
        stations = [strategy]
        if "resume" in features:
            stations = [strategy, strategy]
        elif ALONE in features:
            stations = [strategy, "zero3" if strategy == "ddp" else "ddp", strategy]
        for number, station in enumerate(stations):
            more = ["--resume"] if number else []
            if number == 2 and "--nproc-per-node" not in STRATEGIES[station]:
                more += ["--nproc-per-node", "1"]  # replaces the other strategy's value, which the run has stored
            done = self.train(station, features, 2 * (number + 1), run_dir, *more)
            if done.returncode != 0:
                errors = done.stderr.strip()
                assert done.returncode in (2, 1), f"{strategy} {features}: {done.returncode}\n{errors}"
                return errors
        rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]
        steps = [row["step"] for row in rows if row.get("rank", 0) == 0]
        assert steps == list(range(1, 2 * len(stations) + 1)), f"{strategy} {features}: {steps}"
        assert all(row["loss"] is not None for row in rows), rows
        self.losses = [row["loss"] for row in rows if row.get("rank", 0) == 0]
        return WORKS


def is_refusal_by_name(strategy, feature, errors):
    """Returns true if the error names both sides: the strategy, and the flag or its value."""
    words = ["O2", "master weights"] if feature in EXCLUDES else [str(word) for word in FEATURES[feature] or ["--resume"]]
    return not errors.startswith(BROKEN) and strategy in errors and any(word in errors for word in words)


def read_table():
    """Returns {strategy: {feature: cell}} of the page."""
    table = PAGE.read_text().split("<!-- support -->")[1].split("<!-- end of support -->")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    if not lines:
        return {}
    head, _, *body = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(head[1:], row[1:])) for row in body}


def write_table(table):
    lines = ["| strategy | " + " | ".join(FEATURES) + " |", "|---" * (len(FEATURES) + 1) + "|"]
    for strategy, cells in table.items():
        lines.append(f"| `{strategy}` | " + " | ".join(cells.get(feature, "") for feature in FEATURES) + " |")
    text = PAGE.read_text()
    begin, end = "<!-- support -->\n", "<!-- end of support -->"
    head, rest = text.split(begin)
    PAGE.write_text(head + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1])


def unlike_the_cpu(runs, strategy, feature):
    """Repeats a training on the CPU; returns a sentence if the losses of the device differ."""
    device, on_device = runs.device, runs.losses
    runs.device = "cpu"
    assert runs.outcome(strategy, [feature]) == WORKS, f"{strategy} with {feature} is refused on the CPU"
    runs.device = device
    bound = ROUNDED if any(word in str(FEATURES[feature]) for word in ("precision", "bfloat16")) else EXACT
    near = all(math.isclose(one, other, rel_tol=bound) for one, other in zip(on_device, runs.losses, strict=True))
    return "" if near else f"{BROKEN}: losses {on_device} instead of {runs.losses}"


def cells_of(program, strategy, features, device="auto", ranks=2):
    """Returns {feature: outcome}, each in a separate training. A device is named to compare it with the CPU."""
    environment = os.environ | {"RONDO_SIM_DEVICES": "8"}  # one for each of two replicas of four ranks
    with tempfile.TemporaryDirectory() as scratch:
        runs = Runs(program, pathlib.Path(scratch), environment, device, ranks)
        said = {}
        for feature in features:
            try:
                said[feature] = runs.outcome(strategy, [feature])
                if device != "auto" and said[feature] == WORKS and (strategy not in ASYNCHRONOUS or ranks == 1):
                    said[feature] = unlike_the_cpu(runs, strategy, feature) or WORKS
            except (AssertionError, subprocess.TimeoutExpired) as failure:
                said[feature] = f"{BROKEN}: {failure}"
        return said


def compare_on(device, program, strategies):
    """Runs the cells on a device with each of RONDO_SUPPORT_RANKS; returns differences from the page."""
    page = read_table()
    numbers = [int(number) for number in os.environ.get("RONDO_SUPPORT_RANKS", "2").split(",")]
    jobs, failures, cells = {}, [], 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for strategy in strategies:
            for ranks in numbers if STRATEGIES[strategy] else [1]:
                if (strategy, ranks) == ("planned", 1):
                    continue  # it plans for several processes
                # Refusals are equal for all numbers except one, for which some do not apply.
                features = [feature for feature in FEATURES if ranks == 2 or not STRATEGIES[strategy] or page[strategy][feature] == WORKS]
                jobs[pool.submit(cells_of, program, strategy, features, device, ranks)] = strategy, ranks
        for done in concurrent.futures.as_completed(jobs):
            strategy, ranks = jobs[done]
            for feature, said in done.result().items():
                cells += 1
                is_right = said == WORKS if page[strategy][feature] == WORKS else is_refusal_by_name(strategy, feature, said)
                if not is_right:
                    failures.append(f"{strategy} with {feature}, {ranks} ranks on {device}: {said}")
                print(f"{strategy:22} {ranks} ranks {feature:26} {said.splitlines()[-1] if said else said}", flush=True)
    print(f"{cells - len(failures)} of {cells} cells are on {device} with {', '.join(map(str, numbers))} ranks as docs/support.md says")
    return failures


def main():
    program = pathlib.Path(os.environ.get("RONDO_BIN", REPOSITORY / "build" / "release" / "bin")).resolve() / "rondo"
    if device := os.environ.get("RONDO_SUPPORT_DEVICE"):
        failures = compare_on(device, program, sys.argv[1:] or STRATEGIES)
        print("\n".join(failures), file=sys.stderr)
        return 1 if failures else 0
    failures, table = [], read_table()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        chosen = {pool.submit(cells_of, program, strategy, FEATURES): strategy for strategy in sys.argv[1:] or STRATEGIES}
        for done in concurrent.futures.as_completed(chosen):
            strategy = chosen[done]
            table[strategy] = {}
            for feature, said in done.result().items():
                table[strategy][feature] = WORKS if said == WORKS else "refused"
                if said != WORKS and not is_refusal_by_name(strategy, feature, said):
                    failures.append(f"{strategy} with {feature} is not refused by name: {said}")
                print(f"{strategy:22} {feature:26} {said.splitlines()[-1] if said else said}", flush=True)
            write_table({name: table[name] for name in STRATEGIES if name in table})
    print("\n".join(failures), file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
