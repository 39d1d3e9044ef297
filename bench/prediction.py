#!/usr/bin/env python3
"""How well plans predict training: real runs between two emulated hosts, each planned from a profile that was measured
before and apart from it.

For every model and rate: one `rondo profile`; for every memory limit between what the leanest plan and what ddp need:
one `rondo plan`, one `rondo train --plan`. What the run's prediction.json says is printed, with the median and the
worst error, and written into docs/planner.md with --docs. Needs root (network namespaces); everything else on the machine should rest meanwhile.

  bench/prediction.py                          18 runs: 3 models x 2 rates x 3 limits
  bench/prediction.py --models 0 --rates 1gbit --json result.json
  bench/prediction.py --models 0 --rates --one-host 2 4 8     no emulated hosts: ranks that share memory
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

from emulated_jobs import BIN, REPOSITORY, keep, linked_hosts, make_plan, on_both, table, write_section

# Settings of gpt, samples a rank.
MODELS = [({"layers": 6, "width": 256, "heads": 4, "context": 128}, 6),
          ({"layers": 10, "width": 192, "heads": 4, "context": 128}, 6),
          ({"layers": 4, "width": 384, "heads": 6, "context": 64}, 8)]
GOALS = {"step_ms": ("step time", 0.05), "peak_bytes": ("peak memory", 0.03)}


def limits_between(profile, folder, count, ranks):
    """Evenly from a little above what the leanest plan needs to what ddp needs."""
    lean = make_plan(profile, 1, folder / "lean.json", 1, ranks=ranks)
    simulated = subprocess.run([BIN / "rondo", "simulate", profile, "--ranks", str(ranks), "--strategy", "ddp", "--json", "-"],
                               capture_output=True, text=True, check=True)
    low, high = lean["smallest_limit_bytes"], json.loads(simulated.stdout)["peak_bytes"]
    return [int(low + (high - low) * (0.08 + 0.84 * i / max(count - 1, 1))) for i in range(count)]


class TwoHosts:
    """A rank on each of two hosts, joined by a link of `rate`."""

    ranks = 2

    def __init__(self, hosts, rate):
        self.hosts, self.name, self.port = hosts, rate, 29600

    def run(self, program, *words):
        self.port += 1  # the last one's connections may linger
        on_both(self.hosts, self.port, BIN / program, *words)


class OneHost:
    """Some ranks on this host: the engine that works in shared memory."""

    def __init__(self, ranks):
        self.ranks, self.name = ranks, f"{ranks} ranks here"

    def run(self, program, *words):
        command = [BIN / "rondo", "run", "-n", self.ranks, "--", BIN / program, *words]
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
        result = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=300)
        if result.returncode != 0:
            raise SystemExit(f"failed: {' '.join(map(str, command))}\n{result.stdout}{result.stderr}")


def run_model(number, place, text, folder, arguments):
    config, batch = MODELS[number]
    rows = []
    profile = folder / "profile.json"
    place.run("rondo-profile", "--model", "gpt", "--model-config", json.dumps(config), "--batch-size", batch, "--largest",
              "16MiB", "--json", profile)
    for index, limit in enumerate(limits_between(profile, folder, arguments.limits, place.ranks)):
        name = folder / f"{index}"
        planned = make_plan(profile, limit, folder / f"plan-{index}.json", arguments.plan_seconds, ranks=place.ranks)
        place.run("rondo-train-worker", "--data", text, "--model", "gpt", "--model-config", json.dumps(config), "--batch-size",
                  batch, "--steps", arguments.steps, "--validation-fraction", 0, "--trace-steps", 0, "--strategy", "planned",
                  "--plan", folder / f"plan-{index}.json", "--profile", profile, "--run-dir", name, "--progress", "off")
        result = json.loads((name / "prediction.json").read_text())
        choices = {f"{u['strategy']}{' + checkpoint' if u['checkpoint'] else ''}" for u in planned["units"]}
        row = {"model": number, "place": place.name,
               "ranks_on_host": place.ranks if isinstance(place, OneHost) else 0, "memory_limit_bytes": limit, "choices": sorted(choices), **result}
        row["errors"] = {key: result["measured"][key] / result["predicted"][key] - 1 for key in GOALS}
        rows.append(row)
        waits = "exposed {predicted:5.1f} -> {measured:5.1f} ms".format(
            **{side: result[side]["exposed_comm_ms"] for side in ("predicted", "measured")})
        print(f"model {number} {place.name:>8} limit {limit / 2**20:7.1f} MiB  step {result['predicted']['step_ms']:7.1f} -> "
              f"{result['measured']['step_ms']:7.1f} ms ({row['errors']['step_ms']:+.1%})  {waits}  peak "
              f"{result['predicted']['peak_bytes'] / 2**20:6.1f} -> {result['measured']['peak_bytes'] / 2**20:6.1f} MiB "
              f"({row['errors']['peak_bytes']:+.1%})  {', '.join(sorted(choices))}", flush=True)
    return rows


def name_of(number):
    config, batch = MODELS[number]
    return f"{config['layers']} blocks of {config['width']}, batch {batch}"


def summary(rows):
    """A row of the table for each goal."""
    lines = []
    for key, (name, goal) in GOALS.items():
        errors = [abs(row["errors"][key]) for row in rows]
        within = sum(error <= goal for error in errors)
        lines.append([name, f"{statistics.median(errors):.1%}", f"{max(errors):.1%}", f"{goal:.0%}", f"{within} of {len(errors)}"])
    return lines


def page(rows):
    mixed = sum(len(row["choices"]) > 1 for row in rows)
    lines = [f"Measured on {datetime.date.today()}; {mixed} of {len(rows)} plans mix strategies; medians of the steps behind the first",
             "few, peaks by the books.", "", *table(["", "median error", "worst", "goal", "within it"], summary(rows)), ""]
    details = []
    for row in rows:
        predicted, measured = row["predicted"], row["measured"]
        details.append([name_of(row["model"]), row["place"], f"{row['memory_limit_bytes'] / 2**20:.0f}",
                        f"{predicted['step_ms']:.0f}", f"{measured['step_ms']:.0f} ({row['errors']['step_ms']:+.1%})",
                        f"{predicted['exposed_comm_ms']:.0f}", f"{measured['exposed_comm_ms']:.0f}",
                        f"{predicted['peak_bytes'] / 2**20:.1f}",
                        f"{measured['peak_bytes'] / 2**20:.1f} ({row['errors']['peak_bytes']:+.1%})", ", ".join(row["choices"])])
    return lines + table(["model", "place", "limit, MiB", "step predicted, ms", "measured", "exposed predicted, ms", "measured",
                          "peak predicted, MiB", "measured", "choices"], details)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, nargs="+", default=list(range(len(MODELS))), help="numbers of models")
    parser.add_argument("--rates", nargs="*", default=["1gbit", "500mbit"], help="between the hosts, as tc writes them")
    parser.add_argument("--limits", type=int, default=3, help="memory limits for each model and rate")
    parser.add_argument("--steps", type=int, default=14, help="training steps of each run")
    parser.add_argument("--plan-seconds", type=int, default=4, help="time limit of the planner")
    parser.add_argument("--json", type=pathlib.Path, help="all rows, as JSON")
    parser.add_argument("--keep", type=pathlib.Path, help="leave profiles, plans and run directories in this folder")
    parser.add_argument("--docs", action="store_true", help="write the results into docs/planner.md")
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
        text.write_text("".join(p.read_text() for p in sorted((REPOSITORY / "rondo").rglob("*.cpp"))))
        for number in arguments.models:
            for rate in arguments.rates:
                with linked_hosts(rate) as hosts:
                    rows += run_model(number, TwoHosts(hosts, rate), text, make(root / f"{number}-{rate}"), arguments)
            for ranks in arguments.one_host:
                rows += run_model(number, OneHost(ranks), text, make(root / f"{number}-{ranks}"), arguments)
    for section, chosen in (("prediction", [row for row in rows if row["ranks_on_host"] == 0]),
                            ("prediction on one host", [row for row in rows if row["ranks_on_host"] > 0])):
        if chosen:
            print("\n".join(["", section, *page(chosen)]))
        if chosen and arguments.docs:
            write_section(REPOSITORY / "docs" / "planner.md", section, page(chosen))
    keep(arguments.json, rows)


if __name__ == "__main__":
    main()
