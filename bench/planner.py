#!/usr/bin/env python3
"""The planner on random profiles: distance from its bound, time, and comparison with its baselines.

    bench/planner.py [--profiles 200] [--plan-time-limit 10s] [--gap 0.01] [--units 48] [--json FILE]

Each profile gets a limit strictly between the smallest feasible one and the largest need of the uniform strategies.
Ends with one line of results; exits with 1 if a plan is slower than a baseline or exceeds its limit.
"""
import statistics
import sys

from harness import keep, parser_of, rondo_json, show


def run_plan(words):
    return rondo_json("plan", *words, "--quiet", may_fail=(1,))


def limits_of(source):
    """Returns the smallest feasible limit, and the largest need of a uniform strategy, from a sweep without search."""
    words = [*source, "--memory-limit", "1TiB", "--solver", "none", "--plan-time-limit", "0s", "--sweep", "2"]
    points = run_plan(words)["sweep"]
    return points[0]["memory_limit_bytes"], points[-1]["memory_limit_bytes"]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--profiles", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first profile")
    parser.add_argument("--units", type=int, default=48)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--plan-time-limit", default="10s")
    parser.add_argument("--gap", default="0.01")
    arguments = parser.parse_args()
    rows = []
    for seed in range(arguments.first, arguments.first + arguments.profiles):
        source = ["--random-profile", seed, "--random-units", arguments.units, "--ranks", arguments.ranks]
        low, high = limits_of(source)
        limit = int(low + (0.1 + 0.8 * ((seed * 37) % 100) / 100) * (high - low))
        plan = run_plan([*source, "--memory-limit", f"{limit}B", "--plan-time-limit", arguments.plan_time_limit,
                         "--gap", arguments.gap])
        fitting = {name: value for name, value in plan["baselines"].items() if value is not None}
        best = min(fitting, key=fitting.get)
        row = {"seed": seed, "memory_limit_bytes": limit, "step_ms": plan["step_ms"], "lower_bound_ms": plan["lower_bound_ms"],
               "gap": plan["gap"], "solve_s": plan["solve_s"], "best_baseline": best, "best_baseline_ms": fitting[best],
               "sound": plan["feasible"] and plan["peak_bytes"] <= limit and plan["step_ms"] <= fitting[best] * (1 + 1e-12)}
        rows.append(row)
        show(f"seed {seed:4d}: {plan['step_ms']:9.2f} ms, gap {100 * plan['gap']:6.3f} %, {plan['solve_s']:5.2f} s, "
             f"{best} {fitting[best] / plan['step_ms']:.3f} x{'' if row['sound'] else '   NOT SOUND'}", arguments.json)
    gaps = [row["gap"] for row in rows]
    wanted = float(arguments.gap)
    show(f"{len(rows)} profiles of {arguments.units} units: gap median {100 * statistics.median(gaps):.3f} %, worst "
         f"{100 * max(gaps):.3f} %, within {100 * wanted:g} %: {sum(gap <= wanted for gap in gaps)}; solve median "
         f"{statistics.median(row['solve_s'] for row in rows):.2f} s, worst {max(row['solve_s'] for row in rows):.2f} s; "
         f"never worse than a baseline: {all(row['sound'] for row in rows)}; best baseline against plan, median "
         f"{statistics.median(row['best_baseline_ms'] / row['step_ms'] for row in rows):.3f} x", arguments.json)
    keep(arguments.json, rows)
    return 0 if all(row["sound"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
