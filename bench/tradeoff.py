#!/usr/bin/env python3
"""The value of memory that is used for the schedule, and of memory that is used for keeping parameters.

Three planners have the same limits. One may only schedule (every unit zero3, gathers up to four slots ahead). One may
only keep parameters (zero3 or zero3_keep for each unit, gathers one slot ahead). One may do both. They run on real
hardware between two emulated hosts, and in the simulator for a GPT of 48 layers on 16 ranks at several rates of the
link. Nothing is checkpointed. Writes the section of docs/planner/quality.md and its pictures. The real part needs root and
about 8 minutes on an otherwise idle machine; the synthetic part does not.

  bench/tradeoff.py --json build/benchmarks/tradeoff.json
  bench/tradeoff.py --from build/benchmarks/tradeoff.json     only writes the section and the pictures
  bench/tradeoff.py --only synthetic --json FILE              adds this part to what FILE has
"""
import datetime
import json
import pathlib
import tempfile

from charts import line_chart
from harness import (MIB, REPOSITORY, bench_step, keep, kept, linked_hosts, make_plan, parser_of, profile_for_contest, rondo, rondo_json, say,
                     table, write_section)

# By name: allowed strategies of units, and the largest number of slots by which gathers may precede their use.
PLANNERS = {"schedule": (["zero3"], 4), "keep": (["zero3", "zero3_keep"], 1), "both": (["zero3", "zero3_keep"], 4)}
PREFETCH = [0, 1, 2, 4]
RATES = {"80 GB/s": 80e9, "40 GB/s": 40e9, "20 GB/s": 20e9}
GPT = "gpt:layers=48,dim=4096,rate={rate:g}"
RANKS = 16


def restricted(profile, strategies):
    """Returns the profile with only these strategies and without checkpointing. The part outside units is always
    kept."""
    result = json.loads(json.dumps(profile))
    for unit in result["units"]:
        fixed = "zero3" not in unit.get("strategies", ["zero3"])
        unit["strategies"] = ["zero3_keep"] if fixed else strategies
        unit["checkpointed_activation_bytes"] = unit["activation_bytes"]
        unit.pop("checkpointed_backward_workspace_bytes", None)
    return result


def plans_at(profile, ranks, limits, folder, seconds, share=1.0):
    """Returns {planner: [plan or None for each limit]}."""
    plans = {}
    for name, (strategies, window) in PLANNERS.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(restricted(profile, strategies)))
        plans[name] = []
        for number, limit in enumerate(limits):
            out = folder / f"{name}-{number}.json"
            plan = make_plan(path, limit * share, out, seconds, "--prefetch-window", window, ranks=ranks)
            plans[name].append(plan if plan["feasible"] else None)
    return plans


def need_of(profile, ranks, strategy, folder, prefetch=1):
    """Returns the predicted peak of a uniform strategy."""
    path = folder / "need.json"
    path.write_text(json.dumps(restricted(profile, [strategy])))
    answer = rondo_json("simulate", path, "--ranks", ranks, "--strategy", strategy, "--prefetch", prefetch)
    return {"step_ms": answer["equal_ranks_step_ms"], **{key: answer[key] for key in ("peak_bytes", "compute_ms", "comm_ms")}}


def limits_of(profile, ranks, folder, count):
    """Returns evenly spaced limits from the smallest need of zero3 to the need of keeping everything."""
    least = make_plan(write(folder / "lean.json", restricted(profile, ["zero3"])), 1, folder / "least.json", 1,
                      "--prefetch-window", 1, ranks=ranks)["smallest_limit_bytes"]
    most = need_of(profile, ranks, "zero3_keep", folder)["peak_bytes"]
    return [int(least + (most - least) * i / (count - 1)) for i in range(count)]


def write(path, document):
    path.write_text(json.dumps(document))
    return path


def synthetic(arguments, folder):
    series = []
    for name, rate in RATES.items():
        written = folder / "profile.json"
        rondo("plan", "--synthetic", GPT.format(rate=rate), "--ranks", RANKS, "--memory-limit", "1TiB", "--solver", "none",
              "--plan-time-limit", "0s", "--quiet", "--write-profile", written)
        profile = json.loads(written.read_text())
        limits = limits_of(profile, RANKS, folder, arguments.synthetic_limits)
        plans = plans_at(profile, RANKS, limits, folder, arguments.plan_seconds)
        series.append({"name": name, "limits": limits,
                       "steps": {planner: [plan and plan["step_ms"] for plan in of] for planner, of in plans.items()},
                       "gaps": {planner: [plan and plan["gap"] for plan in of] for planner, of in plans.items()},
                       "prefetch": {depth: need_of(profile, RANKS, "zero3", folder, depth) for depth in (1, 2, 3, 4, 8)},
                       "kept": need_of(profile, RANKS, "zero3_keep", folder)})
        say(f"synthetic, {name}: " + json.dumps(series[-1]["steps"]))
    return series


def real(arguments, folder):
    written = folder / "profile.json"
    with linked_hosts(arguments.rate) as hosts:
        profile_for_contest(hosts, arguments.model, 4, written)
    profile = json.loads(written.read_text())
    # Plans for 98 % of a limit keep it in practice; all planners get the same.
    limits = limits_of(profile, 2, folder, arguments.real_limits + 1)[1:]
    plans = plans_at(profile, 2, limits, folder, arguments.plan_seconds, share=0.98)
    words = ["--model", arguments.model, "--rate", arguments.rate, "--rounds", arguments.rounds, "--steps", arguments.steps,
             "--warm-up", 2]
    result = {"model": arguments.model, "rate": arguments.rate, "limits": limits, "steps": {}, "peaks": {}, "predicted": {}}
    for name in PLANNERS:
        result["predicted"][name] = [plan and plan["step_ms"] for plan in plans[name]]
        result["steps"][name], result["peaks"][name] = [None] * len(limits), [None] * len(limits)
    for number, limit in enumerate(limits):
        feasible = [name for name in PLANNERS if plans[name][number]]
        variants = [word for name in feasible for word in ("--variant", f"planned --plan {folder}/{name}-{number}.json")]
        rows = bench_step(folder / "contest.json", *words, "--strategy", "zero3", *variants)
        for name in feasible:
            row = next(row for row in rows if row["setting"] == f"{name}-{number}.json")
            result["steps"][name][number], result["peaks"][name][number] = row["step_ms_p50"], row["peak_tensor_bytes"]
        say(f"real, {limit / MIB:.0f} MiB: " + ", ".join(f"{name} {result['steps'][name][number]:.0f} ms" for name in feasible))
    variants = [word for depth in PREFETCH for word in ("--variant", f"zero3 --prefetch {depth}")]
    rows = bench_step(folder / "contest.json", *words, "--strategy", "zero3_keep", *variants)
    result["prefetch"] = [{"setting": row["setting"] or "kept", "step_ms": row["step_ms_p50"], "peak_bytes": row["peak_tensor_bytes"]}
                          for row in rows if row["strategy"] != "one_device"]
    return result


def known(values):
    return [value for value in values if value is not None]


def saved(values):
    """Returns the saving of the last known value over the first, as a share."""
    there = known(values)
    return 1 - there[-1] / there[0] if there else 0


def simulated_savings(series):
    """Returns a table with a row for each link: the time that memory saves."""
    rows = []
    for s in series:
        steps = known(s["steps"]["keep"])
        half = (steps[0] - steps[len(steps) // 2]) / max(steps[0] - steps[-1], 1e-9)
        ahead = [s["prefetch"][depth]["step_ms"] for depth in ("1", "2", "8")]
        rows.append([s["name"], f"{s['prefetch']['1']['comm_ms'] / s['prefetch']['1']['compute_ms']:.1f}",
                     *(f"{a / b - 1:.1%}" for a, b in zip(ahead, ahead[1:])),
                     *(f"{saved(s['steps'][name]):.1%}" for name in PLANNERS), f"{half:.0%}"])
    return table(["link", "communication / compute", "2 gathers ahead", "8 ahead", *PLANNERS, "keep with half"], rows)


def milliseconds(value):
    return "–" if value is None else f"{value:.0f}"


def page(result):
    lines = [f"<!-- {result['date']} -->", ""]
    if series := result.get("synthetic"):
        lines += ["Time saved in the simulator by all memory up to the largest limit, and the share of `keep` that half of it saves:", "",
                  *simulated_savings(series)]
    if run := result.get("real"):
        lines += ["", f"Real runs, {run['model']} on two emulated hosts, {run['rate']}: median step in ms, in brackets as predicted.", "",
                  *table(["limit, MiB", *PLANNERS],
                         [[f"{limit / MIB:.0f}", *(f"{milliseconds(run['steps'][name][i])} ({milliseconds(run['predicted'][name][i])})"
                                                  for name in PLANNERS)] for i, limit in enumerate(run["limits"])]),
                  "", "Without a plan:", "",
                  *table(["zero3 with", "step, ms", "peak, MiB"],
                         [[f"`{row['setting']}`" if row["setting"] != "kept" else "everything kept (zero3_keep)", f"{row['step_ms']:.0f}",
                           f"{row['peak_bytes'] / MIB:.0f}"] for row in run["prefetch"]]),
                  "", "![step time against memory limit, real runs](../images/tradeoff-real.svg)"]
    if result.get("synthetic"):
        lines += ["", "![step time against memory limit, synthetic GPT](../images/tradeoff-synthetic.svg)"]
    return lines


def pictures(result):
    drawn = {}
    if run := result.get("real"):
        curves = {name: [(limit / MIB, step) for limit, step in zip(run["limits"], run["steps"][name]) if step] for name in PLANNERS}
        drawn["tradeoff-real"] = line_chart(f"Step time if memory buys earlier gathers (schedule), kept parameters (keep), or both: {run['model']}, two hosts, {run['rate']}",
                                       "memory limit, MiB", "step time, ms", {name: points for name, points in curves.items() if points},
                                       emphasis=("both",))
    if series := result.get("synthetic"):
        curves = {f"{name}, {s['name']}": [(limit / 2**30, step) for limit, step in zip(s["limits"], s["steps"][name]) if step]
                  for s in series for name in PLANNERS}
        drawn["tradeoff-synthetic"] = line_chart("Step time if memory buys earlier gathers (schedule), kept parameters (keep), or both: GPT of 48 layers, 16 ranks", "memory limit, GiB",
                                            "step time, ms", curves)
    return drawn


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=["real", "synthetic"], help="one part; the other stays as --json FILE has it")
    parser.add_argument("--model", default="gpt-25m", choices=["gpt-25m", "gpt-tiny"])
    parser.add_argument("--rate", default="1gbit", help="between the hosts, as tc writes it")
    parser.add_argument("--real-limits", type=int, default=3, help="limits of real runs")
    parser.add_argument("--synthetic-limits", type=int, default=6, help="limits in the simulator, for each rate")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each system")
    parser.add_argument("--steps", type=int, default=3, help="steps in a turn; the first is not counted")
    parser.add_argument("--plan-seconds", type=int, default=3, help="time limit of the planner")
    parser.add_argument("--from", type=pathlib.Path, dest="results", help="do not measure: these results")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/ alone")
    arguments = parser.parse_args()
    if arguments.results:
        result = json.loads(arguments.results.read_text())
    else:
        result = kept(arguments.json) if arguments.only else {}
        result["date"] = str(datetime.date.today())
        with tempfile.TemporaryDirectory() as folder:
            if arguments.only != "real":
                result["synthetic"] = synthetic(arguments, pathlib.Path(folder))
            if arguments.only != "synthetic":
                result["real"] = real(arguments, pathlib.Path(folder))
    result = json.loads(json.dumps(result))  # with the keys that files have
    keep(arguments.json, result)
    print("\n".join(page(result)))
    if not arguments.no_docs:
        for name, picture in pictures(result).items():
            (REPOSITORY / "docs" / "images" / f"{name}.svg").write_text(picture)
        write_section("planner/quality.md", "tradeoff", page(result))


if __name__ == "__main__":
    main()
