#!/usr/bin/env python3
"""How well plans predict training: real runs between two emulated hosts, each planned from a profile that was measured
before and apart from it.

For every model and rate: one `rondo profile`; for every memory limit between what the leanest plan and what ddp need:
one `rondo plan`, one `rondo train --plan`. What the run's prediction.json says is printed, with the median and the
worst error. Needs root (network namespaces); everything else on the machine should rest meanwhile.

  bench/prediction.py                          18 runs: 3 models x 2 rates x 3 limits
  bench/prediction.py --models 0 --rates 1gbit --json result.json
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from emulated_jobs import BIN, REPOSITORY, linked_hosts, make_plan, on_both

# Settings of gpt, samples a rank.
MODELS = [({"layers": 6, "width": 256, "heads": 4, "context": 128}, 6),
          ({"layers": 10, "width": 192, "heads": 4, "context": 128}, 6),
          ({"layers": 4, "width": 384, "heads": 6, "context": 64}, 8)]
GOALS = {"step_ms": 0.05, "peak_bytes": 0.03}


def limits_between(profile, folder, count):
    """Evenly from a little above what the leanest plan needs to what ddp needs."""
    lean = make_plan(profile, 1, folder / "lean.json", 1)
    simulated = subprocess.run([BIN / "rondo", "simulate", profile, "--ranks", "2", "--strategy", "ddp", "--json", "-"],
                               capture_output=True, text=True, check=True)
    low, high = lean["smallest_limit_bytes"], json.loads(simulated.stdout)["peak_bytes"]
    return [int(low + (high - low) * (0.08 + 0.84 * i / (count - 1))) for i in range(count)]


def run_model(number, rate, text, folder, arguments):
    config, batch = MODELS[number]
    rows = []
    with linked_hosts(rate) as hosts:
        profile = folder / "profile.json"
        on_both(hosts, 29600, BIN / "rondo-profile", "--model", "gpt", "--model-config", json.dumps(config),
                "--batch-size", batch, "--largest", "16MiB", "--json", profile)
        for index, limit in enumerate(limits_between(profile, folder, arguments.limits)):
            name = folder / f"{index}"
            planned = make_plan(profile, limit, folder / f"plan-{index}.json", arguments.plan_seconds)
            on_both(hosts, 29610 + index, BIN / "rondo-train-worker", "--data", text, "--model", "gpt", "--model-config",
                    json.dumps(config), "--batch-size", batch, "--steps", arguments.steps, "--validation-fraction", 0,
                    "--trace-steps", 0, "--strategy", "planned", "--plan", folder / f"plan-{index}.json", "--profile",
                    profile, "--run-dir", name, "--progress", "off")
            result = json.loads((name / "prediction.json").read_text())
            choices = {f"{u['strategy']}{' + checkpoint' if u['checkpoint'] else ''}" for u in planned["units"]}
            row = {"model": number, "rate": rate, "memory_limit_bytes": limit, "choices": sorted(choices), **result}
            row["errors"] = {key: result["measured"][key] / result["predicted"][key] - 1 for key in GOALS}
            rows.append(row)
            print(f"model {number} {rate:>8} limit {limit / 2**20:7.1f} MiB  step {result['predicted']['step_ms']:7.1f} -> "
                  f"{result['measured']['step_ms']:7.1f} ms ({row['errors']['step_ms']:+.1%})  peak "
                  f"{result['predicted']['peak_bytes'] / 2**20:6.1f} -> {result['measured']['peak_bytes'] / 2**20:6.1f} MiB "
                  f"({row['errors']['peak_bytes']:+.1%})  {', '.join(sorted(choices))}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, nargs="+", default=list(range(len(MODELS))), help="numbers of models")
    parser.add_argument("--rates", nargs="+", default=["1gbit", "500mbit"], help="between the hosts, as tc writes them")
    parser.add_argument("--limits", type=int, default=3, help="memory limits for each model and rate")
    parser.add_argument("--steps", type=int, default=14, help="training steps of each run")
    parser.add_argument("--plan-seconds", type=int, default=4, help="time limit of the planner")
    parser.add_argument("--json", type=pathlib.Path, help="all rows, as JSON")
    parser.add_argument("--keep", type=pathlib.Path, help="leave profiles, plans and run directories in this folder")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.keep or pathlib.Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        text = root / "text.txt"
        text.write_text("".join(p.read_text() for p in sorted((REPOSITORY / "rondo").rglob("*.cpp"))))
        for number in arguments.models:
            for rate in arguments.rates:
                folder = root / f"{number}-{rate}"
                folder.mkdir(exist_ok=True)
                rows += run_model(number, rate, text, folder, arguments)
    for key, goal in GOALS.items():
        errors = [abs(row["errors"][key]) for row in rows]
        print(f"{key}: {len(errors)} runs, error median {statistics.median(errors):.1%}, worst {max(errors):.1%} "
              f"(goal: within {goal:.0%})")
    mixed = sum(len(row["choices"]) > 1 for row in rows)
    print(f"mixed plans: {mixed}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
