#!/usr/bin/env python3
"""The accuracy of plans: real runs between two emulated hosts, each planned from a profile that was measured before and
separately.

For every model and rate it runs one `rondo profile`. For every memory limit between the needs of the leanest plan and
of ddp it runs one `rondo plan` and one `rondo train --plan`. Prints the run's prediction.json with the median and the
largest error, and writes it into docs/planner/accuracy.md with --docs. Needs root (network namespaces) and an otherwise idle
machine.
With --random the models, rates and limits are random, and each plan has a profile of its own.
A machine whose speed changes between profile and run invalidates a prediction. Fixed work is timed before the
profile and around each run; if that time changed by more than 3 %, the row is measured again. If no try was steady, the
step's error is also given at the run's own speed: the prediction is scaled by the ratio of the fixed work's time around
the run to that around the profile.

  bench/prediction.py                          18 runs: 3 models x 2 rates x 3 limits
  bench/prediction.py --models 0 --rates 1gbit --json result.json
  bench/prediction.py --models 0 --rates --one-host 2 4 8     no emulated hosts: ranks that share memory
  bench/prediction.py --random 8 --seed 1      8 runs: depth, width, context, batch, rate and limit drawn
"""
import dataclasses
import datetime
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile

from harness import (BIN, MIB, REPOSITORY, TRAIN_QUIETLY, choice_of, keep, linked_hosts, make_plan, on_both, one_thread, parser_of, rondo,
                     rondo_json, table, write_section, write_training_text)

@dataclasses.dataclass
class Model:
    """Settings of gpt; samples per rank."""

    layers: int
    width: int
    heads: int
    context: int
    batch: int

    def config(self):
        return json.dumps({"layers": self.layers, "width": self.width, "heads": self.heads, "context": self.context})

    def name(self):
        return f"{self.layers} blocks of {self.width}, batch {self.batch} x {self.context}"


# Not among the 18 runs: number 3, deep and narrow, with the largest share of overhead outside units, and 4, which is
# gpt-25m.
MODELS = [Model(6, 256, 4, 128, 6), Model(10, 192, 4, 128, 6), Model(4, 384, 6, 64, 8), Model(12, 160, 4, 64, 10), Model(8, 512, 8, 128, 4)]
GOALS = {"step_ms": ("step time", 0.05), "peak_bytes": ("peak memory", 0.03)}


@dataclasses.dataclass
class Draw:
    """A random run: `fraction` places the limit between the leanest plan's need and ddp's."""

    model: Model
    rate: str
    fraction: float


def draws(count, seed):
    """Yields the first `count` random runs of `seed`; a larger count begins with the same ones. Steps compute for 0.1
    to 0.5 s on a core with 1e11 operations per second."""
    chance = random.Random(seed)
    drawn = []
    while len(drawn) < count:
        width = 32 * chance.randint(4, 12)
        heads = chance.choice([heads for heads in (2, 4, 6, 8) if width % heads == 0 and width // heads >= 32])
        model = Model(chance.randint(3, 16), width, heads, chance.choice([32, 48, 64, 96, 128]), chance.randint(4, 16))
        rate, fraction = f"{50 * chance.randint(8, 24)}mbit", chance.uniform(0.08, 0.92)
        tokens = model.batch * model.context
        operations = 6 * 12 * model.layers * model.width**2 * tokens
        if 384 <= tokens <= 1024 and 1e10 <= operations <= 5e10:
            drawn.append(Draw(model, rate, round(fraction, 3)))
    return drawn


def limits_between(profile, folder, fractions, ranks):
    """Returns the limits at these fractions between the needs of the leanest plan and of ddp."""
    lean = make_plan(profile, 1, folder / "lean.json", 1, ranks=ranks)
    low, high = lean["smallest_limit_bytes"], rondo_json("simulate", profile, "--ranks", ranks, "--strategy", "ddp")["peak_bytes"]
    return [int(low + (high - low) * fraction) for fraction in fractions]


def evenly(count):
    """Returns fractions from slightly above the leanest plan's need to slightly below ddp's."""
    return [0.08 + 0.84 * i / max(count - 1, 1) for i in range(count)]


class TwoHosts:
    """One rank on each of two hosts, joined by a link of `rate`."""

    ranks = 2

    def __init__(self, hosts, rate):
        self.hosts, self.name, self.port = hosts, rate, 29600

    def run(self, program, *words):
        self.port += 1  # connections of the previous run may linger
        on_both(self.hosts, self.port, BIN / program, *words)


class OneHost:
    """Several ranks on this host, with the engine in shared memory."""

    def __init__(self, ranks):
        self.ranks, self.name = ranks, f"{ranks} ranks here"

    def run(self, program, *words):
        rondo("run", "-n", self.ranks, "--", BIN / program, *words, env=one_thread(), timeout=300)


# Float32 products on both cores at once, as ranks compute; prints the seconds of the slower core.
FIXED_WORK = """
import os, sys, time, torch
os.sched_setaffinity(0, {int(sys.argv[1])})
torch.set_num_threads(1)
a = torch.ones(512, 512)
for _ in range(20): a @ a
begin = time.perf_counter()
for _ in range(300): a @ a
print(time.perf_counter() - begin)
"""
STEADY = 0.03


def machine_seconds():
    """Returns the current time of the fixed work."""
    python = REPOSITORY / ".venv" / "bin" / "python"
    cores = sorted(os.sched_getaffinity(0))[:2]
    workers = [subprocess.Popen([python, "-c", FIXED_WORK, str(core)], stdout=subprocess.PIPE, text=True) for core in cores]
    return max(float(worker.communicate()[0]) for worker in workers)


def change(seconds):
    return max(seconds) / min(seconds) - 1


def add_errors(row, before, profiled, after, keys):
    """Adds the errors of the row's values, and for the step also the error at the run's own speed. The other arguments
    are the times of the fixed work before the profile, after it, and after the run; keys are the names of the
    values."""
    row["errors"] = {key: row["measured"][key] / row["predicted"][key] - 1 for key in keys}
    row["machine_change"] = change([before, profiled, after])
    row["slower_than_profiled"] = (profiled + after) / (before + profiled) - 1
    row["step_error_at_its_speed"] = (1 + row["errors"]["step_ms"]) / (1 + row["slower_than_profiled"]) - 1


def steady_rows(model, place, fractions, text, folder, arguments):
    """Repeats run_model() until the machine was steady from profile to run; the last try counts in any case, with the
    change in speed."""
    for attempt in range(1, arguments.tries + 1):
        place_of_try = folder / f"try-{attempt}"
        place_of_try.mkdir()
        rows = run_model(model, place, fractions, text, place_of_try, arguments)
        worst = max(row["machine_change"] for row in rows)
        if worst <= STEADY:
            break
        print(f"the machine's speed changed by {worst:.1%} meanwhile (try {attempt} of {arguments.tries})", flush=True)
    return rows


def run_model(model, place, fractions, text, folder, arguments):
    rows = []
    before = machine_seconds()
    profile = folder / "profile.json"
    place.run("rondo-profile", "--model", "gpt", "--model-config", model.config(), "--batch-size", model.batch, "--largest",
              "16MiB", "--json", profile)
    known = json.loads(profile.read_text())
    figures = {"overhead_ms": 1e3 * known.get("overhead_s", 0), "contention": known["link"]["contention"],
               "spread": known.get("spread", 0)}
    profiled = machine_seconds()
    for index, limit in enumerate(limits_between(profile, folder, fractions, place.ranks)):
        name = folder / f"{index}"
        planned = make_plan(profile, limit, folder / f"plan-{index}.json", arguments.plan_seconds, ranks=place.ranks)
        place.run("rondo-train-worker", "--data", text, "--model", "gpt", "--model-config", model.config(), "--batch-size",
                  model.batch, "--steps", arguments.steps, *TRAIN_QUIETLY, "--strategy", "planned", "--plan",
                  folder / f"plan-{index}.json", "--profile", profile, "--run-dir", name)
        result = json.loads((name / "prediction.json").read_text())
        choices = {choice_of(unit) for unit in planned["units"]}
        after = machine_seconds()
        row = {"model": model.name(), "place": place.name, "ranks_on_host": place.ranks if isinstance(place, OneHost) else 0, "memory_limit_bytes": limit,
               "choices": sorted(choices), "profile": figures, **result}
        add_errors(row, before, profiled, after, GOALS)
        rows.append(row)
        waits = "exposed {predicted:5.1f} -> {measured:5.1f} ms".format(
            **{side: result[side]["exposed_comm_ms"] for side in ("predicted", "measured")})
        print(f"{model.name()} {place.name:>8} limit {limit / MIB:7.1f} MiB  step {result['predicted']['step_ms']:7.1f} -> "
              f"{result['measured']['step_ms']:7.1f} ms ({row['errors']['step_ms']:+.1%}, at its speed {row['step_error_at_its_speed']:+.1%})  {waits}  peak "
              f"{result['predicted']['peak_bytes'] / MIB:6.1f} -> {result['measured']['peak_bytes'] / MIB:6.1f} MiB "
              f"({row['errors']['peak_bytes']:+.1%})  {', '.join(sorted(choices))}", flush=True)
    return rows


def summary(rows):
    """Returns a row of the table for each goal."""
    steps, peaks = GOALS.values()
    lines = []
    for name, goal, errors in ((steps[0], steps[1], [row["errors"]["step_ms"] for row in rows]),
                               (f"{steps[0]} at the machine's speed", steps[1], [row["step_error_at_its_speed"] for row in rows]),
                               (peaks[0], peaks[1], [row["errors"]["peak_bytes"] for row in rows])):
        errors = [abs(error) for error in errors]
        lines.append([name, f"{statistics.median(errors):.1%}", f"{max(errors):.1%}",
                      f"{goal:.0%}: {sum(error <= goal for error in errors)} of {len(errors)}"])
    return lines


def extent(values, form):
    """Returns "-2.9% to -0.9%", or one value if both are the same."""
    least, most = format(min(values), form), format(max(values), form)
    return least if least == most else f"{least} to {most}"


def page(rows):
    """Returns a summary, then a row for each model and place; its limits share a cell."""
    mixed = sum(len(row["choices"]) > 1 for row in rows)
    groups = {}
    for row in rows:
        groups.setdefault((row["model"], row["place"]), []).append(row)
    details = [[*which, extent([row["measured"]["step_ms"] for row in found], ".0f"),
                extent([row["errors"]["step_ms"] for row in found], "+.1%")] for which, found in groups.items()]
    lines = [f"{mixed} of {len(rows)} plans mix strategies. <!-- {datetime.date.today()} -->", "",
             *table(["", "median error", "largest", "within"], summary(rows))]
    # If all rows are of different models, the summary is sufficient.
    return lines + (["", *table(["model", "place", "step, ms", "its error"], details)] if len(groups) < len(rows) else [])


def main():
    parser = parser_of(__doc__, docs="planner/accuracy.md")
    parser.add_argument("--models", type=int, nargs="+", default=[0, 1, 2], help="numbers of models")
    parser.add_argument("--rates", nargs="*", default=["1gbit", "500mbit"], help="between the hosts, as tc writes them")
    parser.add_argument("--limits", type=int, default=3, help="memory limits for each model and rate")
    parser.add_argument("--steps", type=int, default=14, help="training steps of each run")
    parser.add_argument("--plan-seconds", type=int, default=4, help="time limit of the planner")
    parser.add_argument("--keep", type=pathlib.Path, help="leave profiles, plans and run directories in this folder")
    parser.add_argument("--tries", type=int, default=4, help="of a profile and its runs, until the machine is steady meanwhile")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N runs drawn by chance instead of the table's")
    parser.add_argument("--seed", type=int, default=1, help="of --random")
    parser.add_argument("--one-host", type=int, nargs="+", default=[], metavar="RANKS",
                        help="also (with --rates and nothing behind it: only) so many ranks on this host")
    arguments = parser.parse_args()

    def make(folder):
        folder.mkdir(exist_ok=True)
        return folder

    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.keep or pathlib.Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        text = root / "text.txt"
        write_training_text(text)
        for number, draw in enumerate(draws(arguments.random, arguments.seed)):
            with linked_hosts(draw.rate) as hosts:
                rows += steady_rows(draw.model, TwoHosts(hosts, draw.rate), [draw.fraction], text, make(root / f"draw-{number}"),
                                  arguments)
        for number in [] if arguments.random else arguments.models:
            model, fractions = MODELS[number], evenly(arguments.limits)
            for rate in arguments.rates:
                with linked_hosts(rate) as hosts:
                    rows += steady_rows(model, TwoHosts(hosts, rate), fractions, text, make(root / f"{number}-{rate}"), arguments)
            for ranks in arguments.one_host:
                rows += steady_rows(model, OneHost(ranks), fractions, text, make(root / f"{number}-{ranks}"), arguments)
    between = "prediction of drawn runs" if arguments.random else "prediction"
    for section, chosen in ((between, [row for row in rows if row["ranks_on_host"] == 0]),
                            ("prediction on one host", [row for row in rows if row["ranks_on_host"] > 0])):
        if chosen:
            print("\n".join(["", section, *page(chosen)]))
        if chosen and arguments.docs:
            write_section("planner/accuracy.md", section, page(chosen))
    keep(arguments.json, rows)


if __name__ == "__main__":
    main()
