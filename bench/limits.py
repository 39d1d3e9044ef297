#!/usr/bin/env python3
"""Step time by memory limit: planned training compared with every uniform strategy and PyTorch's FSDP2, between two
emulated hosts.

Profiles once and measures the memory that each system needs. Then tries limits from the need of zero3 to the need of
ddp, and FSDP2's peak. For each limit it plans, and alternates short bursts of the plan and every uniform strategy that
fits. Memory is that of tensors and buffers, to the byte, on both sides. Writes the table into docs/planner/quality.md and
docs/images/limits.svg. Needs root (network namespaces) and about 25 minutes on an otherwise idle machine.

  bench/limits.py --json build/benchmarks/limits.json
  bench/limits.py --resume build/benchmarks/limits.json    measures the limits that are not in it yet
  bench/limits.py --from build/benchmarks/limits.json      only writes table and picture
  bench/limits.py --quick --no-docs                        a small model, few steps: does it run?
"""
import datetime
import json
import pathlib
import tempfile

from charts import line_chart
from harness import (MIB, REPOSITORY, bench_step, choices_of, keep, linked_hosts, make_plan, parser_of, profile_for_contest, say, table,
                     write_section)
from peers.peer_ratio import peer_ratio

UNIFORM = ["ddp", "zero1", "zero2", "zero3", "zero3_keep"]
# Share of a limit to plan for, as in `rondo train --strategy planned`: predicted peaks are slightly inexact.
PLANNED_SHARE = 0.99


def name_of(row):
    return "FSDP2" if row["system"] == "pytorch" else row["strategy"]


def figures_of(row):
    return {"step_ms": row["step_ms_p50"], "step_ms_min": row["step_ms_min"], "tokens_per_s": row["tokens_per_s"],
            "peak_tensor_bytes": row["peak_tensor_bytes"], "peak_resident_bytes": row["peak_resident_bytes"]}


def contest(folder, arguments, strategies, variants, with_fsdp2, rounds, steps):
    words = ["--model", arguments.model, "--rate", arguments.rate, "--batch-size", arguments.batch_size, "--rounds", rounds,
             "--steps", steps, "--warm-up", 2, "--strategy", *strategies]
    for variant in variants:
        words += ["--variant", variant]
    if with_fsdp2:
        words += ["--peers", "--peer", "fsdp2"]
    rows = bench_step(folder / "contest.json", *words)
    return {name_of(row): figures_of(row) for row in rows if row["strategy"] != "one_device"}


def measure(arguments, folder):
    profile = folder / "profile.json"
    known = json.loads(arguments.resume.read_text()) if arguments.resume else {"limits": []}
    say("profile")
    with linked_hosts(arguments.rate) as hosts:
        profile_for_contest(hosts, arguments.model, arguments.batch_size, profile)
    say("what every system needs")
    needs = known.get("needs") or {name: row["peak_tensor_bytes"] for name, row in
                                   contest(folder, arguments, UNIFORM, [], True, rounds=1, steps=2).items()}
    say(", ".join(f"{name} {need / MIB:.0f} MiB" for name, need in needs.items()))
    low, high = needs["zero3"], needs["ddp"]
    limits = {int(low + (high - low) * i / (arguments.limits - 1)): "" for i in range(arguments.limits)}
    limits[needs["FSDP2"]] = "FSDP2's own peak"
    result = {"date": str(datetime.date.today()), "model": arguments.model, "rate": arguments.rate,
              "batch_size": arguments.batch_size, "spread": json.loads(profile.read_text()).get("spread", 0),
              "needs": needs, "limits": []}
    for number, limit in enumerate(sorted(limits)):
        measured = [entry for entry in known["limits"] if entry["memory_limit_bytes"] == limit]
        if measured:
            result["limits"] += measured
            continue
        at_fsdp2 = limits[limit] != ""
        plan = make_plan(profile, PLANNED_SHARE * limit, folder / f"plan-{number}.json", arguments.plan_seconds)
        fitting = [name for name in UNIFORM if needs[name] <= limit]
        runs = contest(folder, arguments, fitting or ["zero3"], [f"planned --plan {folder}/plan-{number}.json"], at_fsdp2,
                       arguments.rounds, arguments.steps)
        entry = {"memory_limit_bytes": limit, "what": limits[limit], "choices": choices_of(plan), "gap": plan["gap"],
                 "predicted": {key: plan[key] for key in ("step_ms", "peak_bytes")}, "runs": runs}
        result["limits"].append(entry)
        keep(arguments.json, result)  # keeps the results if a later limit fails
        say(f"limit {limit / MIB:.0f} MiB {limits[limit]}: " + ", ".join(f"{name} {run['step_ms']:.0f} ms"
                                                                        for name, run in runs.items()))
    return result


def fits(entry, name):
    return entry["runs"][name]["peak_tensor_bytes"] <= entry["memory_limit_bytes"]


def rival(entry):
    """Returns name and results of the fastest uniform strategy that kept the limit."""
    runs = {name: run for name, run in entry["runs"].items() if name in UNIFORM and fits(entry, name)}
    return min(runs.items(), key=lambda item: item[1]["step_ms"], default=(None, None))


def uniform_choice(entry):
    """Returns the strategy if all units have the same; a difference is then due to the machine and the schedule."""
    words = entry["choices"].split()
    return words[1] if len(words) == 2 else None


def verdicts(result):
    won = []
    for entry in result["limits"]:
        _, best = rival(entry)
        won.append(fits(entry, "planned") and (best is None or entry["runs"]["planned"]["step_ms"] <= best["step_ms"]))
    lines = [f"The planned run kept its limit and was the fastest at {sum(won)} of {len(won)} limits."]
    for entry in result["limits"]:
        twin = entry["runs"].get(uniform_choice(entry))
        if twin:
            lines.append(f"At {entry['memory_limit_bytes'] / MIB:.0f} MiB it did what {uniform_choice(entry)} does, and took "
                         f"{entry['runs']['planned']['step_ms'] / twin['step_ms'] - 1:+.1%} of its time.")
    for entry in result["limits"]:
        if "FSDP2" in entry["runs"]:
            planned, peer = entry["runs"]["planned"], entry["runs"]["FSDP2"]
            ratio, of_minima = peer_ratio(planned["step_ms"], planned["step_ms_min"], peer["step_ms"], peer["step_ms_min"])
            lines.append(f"At FSDP2's own peak it had {ratio:.2f} x its tokens a second"
                         + (", by minima." if of_minima else "."))
    return lines


def page(result):
    systems = [*UNIFORM, "FSDP2"]
    rows = [["needed", "", "", *(f"{result['needs'][name] / MIB:.0f}" for name in systems)]]
    for entry in result["limits"]:
        runs = entry["runs"]
        rows.append([f"{entry['memory_limit_bytes'] / MIB:.0f}", f"**{runs['planned']['step_ms']:.0f}**",
                     f"{runs['planned']['peak_tensor_bytes'] / MIB:.0f}",
                     *(f"{runs[name]['step_ms']:.0f}" if name in runs and (fits(entry, name) or name == "FSDP2") else "" for name in systems)])
    return [f"{result['model']}, {result['batch_size']} samples a rank, float32, one rank on each of two emulated hosts, {result['rate']}. "
            "Steps are medians in ms.",
            f"Memory is that of tensors and buffers of the larger rank, in MiB. <!-- {result['date']} -->", "",
            *table(["limit", "planned", "its peak", *systems], rows), "",
            *verdicts(result), "", "![step time against memory limit](../images/limits.svg)"]


def picture(result):
    def curve(name):
        return [(entry["memory_limit_bytes"] / MIB, entry["runs"][name]["step_ms"]) for entry in result["limits"]
                if name in entry["runs"] and (name == "FSDP2" or fits(entry, name))]

    curves = {name: curve(name) for name in ["planned", *UNIFORM, "FSDP2"]}
    return line_chart(f"Step time by memory limit: {result['model']} on two hosts, {result['rate']}", "memory limit, MiB",
                      "step time, ms", {name: points for name, points in curves.items() if points}, emphasis=("planned",))


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--model", default="gpt-25m", choices=["gpt-25m", "gpt-tiny"])
    parser.add_argument("--rate", default="1gbit", help="between the hosts, as tc writes it")
    parser.add_argument("--batch-size", type=int, default=4, help="samples a rank")
    parser.add_argument("--limits", type=int, default=5, help="from what zero3 to what ddp needs; FSDP2's peak comes on top")
    parser.add_argument("--rounds", type=int, default=6, help="turns of each system at a limit")
    parser.add_argument("--steps", type=int, default=4, help="steps in a turn; the first is not counted")
    parser.add_argument("--plan-seconds", type=int, default=6, help="time limit of the planner")
    parser.add_argument("--quick", action="store_true", help="gpt-tiny, two limits, one round")
    parser.add_argument("--resume", type=pathlib.Path, help="results of a run that was cut off: only what they lack is measured")
    parser.add_argument("--from", type=pathlib.Path, dest="results", help="do not measure: these results")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/ alone")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.model, arguments.limits, arguments.rounds, arguments.steps, arguments.plan_seconds = "gpt-tiny", 2, 1, 2, 1
    if arguments.results:
        result = json.loads(arguments.results.read_text())
    else:
        with tempfile.TemporaryDirectory() as folder:
            result = measure(arguments, pathlib.Path(folder))
    keep(arguments.json, result)
    print("\n".join(page(result)))
    if not arguments.no_docs:
        (REPOSITORY / "docs" / "images" / "limits.svg").write_text(picture(result))
        write_section("planner/quality.md", "limits", page(result))


if __name__ == "__main__":
    main()
