#!/usr/bin/env python3
"""The accuracy of plans of meshes: profiles, plans and trains each model on ranks of this host, on every mesh in turn.
Prints predicted and measured steps and peaks; --docs writes them into docs/planner/accuracy.md. Needs an otherwise idle machine.
Fixed work is timed around each profile and run, as in bench/prediction.py: a row is measured again if that time changed
by more than 3 %, and the step's error is also given at the run's own speed. With --emulate four ranks have emulated
accelerators, since two cores cannot run four computing ranks; emulated work takes fixed times, so no correction is
needed.

  bench/mesh_prediction.py --models 0 4 --meshes pipeline=2 tensor=2     number 4 is gpt-25m
  bench/mesh_prediction.py --ranks 4 --models 0 --meshes "data=4 shard-group=2"    hybrid sharding: the peak is meaningful
  bench/mesh_prediction.py --emulate
"""
import datetime
import json
import pathlib
import tempfile

from harness import BIN, TRAIN_QUIETLY, finish, make_plan, one_thread, parser_of, rondo, table, wrapped, write_training_text
from prediction import MODELS, OneHost, STEADY, add_errors, machine_seconds

QUANTITIES = ("step_ms", "peak_bytes")
PLENTY = 64 << 30
MESHES = ["pipeline=2", "tensor=2", "data=2"]
EMULATED_MESHES = ["pipeline=4", "pipeline=2,data=2", "data=4", "all"]


def run_mesh(model, place, mesh, text, folder, arguments):
    """Runs one plan immediately after a profile of its own: the machine's speed changes within minutes."""
    before = machine_seconds()
    profile = folder / "profile.json"
    place.run("rondo-profile", "--model", "gpt", "--model-config", model.config(), "--batch-size", model.batch, "--largest", "4MiB",
              "--json", profile)
    profiled = machine_seconds()
    which, *more = mesh.split()
    words = ["--mesh", which, *(word for each in more for word in f"--{each}".split("="))]
    planned = make_plan(profile, PLENTY, folder / "plan.json", arguments.plan_seconds, *words, ranks=place.ranks)
    place.run("rondo-train-worker", "--data", text, "--model", "gpt", "--model-config", model.config(), "--batch-size",
              planned["batch_size"], "--steps", arguments.steps, *TRAIN_QUIETLY, "--strategy", "planned", "--plan", folder / "plan.json",
              "--profile", profile, "--run-dir", folder / "run")
    after = machine_seconds()
    result = json.loads((folder / "run" / "prediction.json").read_text())
    row = {"model": model.name(), "mesh": " ".join([planned["mesh"], *more]), "plan": planned.get("pipeline", {}),
           "predicted": result["predicted"], "measured": result["measured"]}
    add_errors(row, before, profiled, after, QUANTITIES)
    print("  ".join(cells(row)), flush=True)
    return row


def run_model(model, place, meshes, text, folder, arguments):
    """Returns a row for every mesh: the first try with a steady machine, else the steadiest try."""
    rows = []
    for mesh in meshes:
        tries = []
        while len(tries) < arguments.tries and (not tries or tries[-1]["machine_change"] > STEADY):
            place_of_try = folder / f"{mesh} {len(tries)}"
            place_of_try.mkdir(parents=True)
            tries.append(run_mesh(model, place, mesh, text, place_of_try, arguments))
        rows.append(min(tries, key=lambda row: row["machine_change"]))
    return rows


def run_emulated(arguments):
    """Runs four ranks whose units sleep as long as an accelerator would compute."""
    said = rondo("run", "-n", 4, "--", BIN / "rondo-bench-dev", "plan-worker", "--steps", arguments.steps, "--sample-ms",
                 arguments.sample_ms, "--mesh", *(arguments.meshes or EMULATED_MESHES), env=one_thread(), timeout=300)
    rows = []
    for line in said.splitlines():
        row = json.loads(line[line.index("{"):])  # after the rank's name
        row["model"] = "8 units" + (", mesh chosen" if row["asked"] == "all" else "")
        add_errors(row, 1, 1, 1, QUANTITIES)
        rows.append(row)
    return rows


def cells(row):
    errors, pipeline = row["errors"], row["plan"]
    schedule = f" {pipeline['schedule']} x {pipeline['micro_batches']}" if pipeline else ""
    return [row["model"], f"`{row['mesh']}`{schedule}", f"{row['measured']['step_ms']:.0f}", f"{errors['step_ms']:+.1%}",
            f"{errors['peak_bytes']:+.1%}"]


def page(rows, where):
    return [*wrapped(f"{where}:"), f"<!-- {datetime.date.today()} -->", "",
            *table(["model", "mesh", "step, ms", "its error", "error of the peak"], [cells(row) for row in rows])]


def main():
    parser = parser_of(__doc__, docs="planner/accuracy.md")
    parser.add_argument("--models", type=int, nargs="+", default=[0, 2], help="numbers of bench/prediction.py's models")
    parser.add_argument("--meshes", nargs="+", help=f"default: {' '.join(MESHES)}; emulated {' '.join(EMULATED_MESHES)}")
    parser.add_argument("--ranks", type=int, default=2, help="of this host")
    parser.add_argument("--emulate", action="store_true", help="four ranks with emulated accelerators instead of models")
    parser.add_argument("--sample-ms", type=float, default=5,
                        help="emulated time of a unit's pass over one sample; a block of gpt-25m takes 5 to 10 ms of one core")
    parser.add_argument("--steps", type=int, default=14, help="training steps of each run")
    parser.add_argument("--tries", type=int, default=3, help="of each row, until the machine is steady meanwhile")
    parser.add_argument("--plan-seconds", type=int, default=2, help="time limit of the planner")
    parser.add_argument("--keep", type=pathlib.Path, help="leave profiles, plans and run directories in this folder")
    arguments = parser.parse_args()
    section, where = "prediction on meshes", f"{arguments.ranks} ranks of one host, 2 cores"
    if arguments.emulate:
        section, where = "prediction on emulated meshes", f"4 ranks with emulated accelerators: 8 units, 4 samples a rank; each pass of a unit takes {arguments.sample_ms:g} ms a sample"
    rows = run_emulated(arguments) if arguments.emulate else []
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.keep or pathlib.Path(temporary)
        text = root / "text.txt"
        for number in [] if arguments.emulate else arguments.models:
            folder = root / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            write_training_text(text)
            rows += run_model(MODELS[number], OneHost(arguments.ranks), arguments.meshes or MESHES, text, folder, arguments)
    finish(arguments, rows, page(rows, where), "planner/accuracy.md", section)


if __name__ == "__main__":
    main()
