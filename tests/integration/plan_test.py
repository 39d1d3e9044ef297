"""rondo plan and rondo simulate as a user calls them: results, files, pages, invalid input."""
import json
import math
import re
import signal

import pytest
from report_pages import (LOOKS, browser, canvas_of, expect_fits, expect_readable, is_power_of_two,  # noqa: F401  (fixtures)
                          open_page)

GPT = ("--synthetic", "gpt:layers=8,dim=1024,seq=512,rate=1e9", "--ranks", "8")
KEYS = {"feasible", "step_ms", "lower_bound_ms", "gap", "peak_bytes", "memory_limit_bytes", "ranks", "solve_s", "solver",
        "units", "segments", "baselines", "profile_hash"}
BASELINES = {"ddp", "zero1", "zero2", "zero3", "fsdp_prefetch_1", "fsdp_limit_2", "keep_last_k", "greedy_time_per_byte",
             "additive_dp", "earliest_deadline_first"}


@pytest.fixture
def plan(rondo):
    """rondo plan ... --json -: returns the result and the process."""

    def run_plan(*words, expect=0, time_limit="2s"):
        result = rondo("plan", *words, "--json", "-", "--quiet", "--plan-time-limit", time_limit)
        assert result.returncode == expect, result.stderr
        return json.loads(result.stdout) if result.stdout else None, result

    return run_plan


@pytest.fixture
def profile(plan, tmp_path):
    """Returns a profile as a dictionary, from a file that rondo plan wrote."""
    plan(*GPT, "--memory-limit", "4GiB", "--solver", "none", "--write-profile", "profile.json")
    return json.loads((tmp_path / "profile.json").read_text())


def test_a_plan_has_what_is_promised(plan, rondo, tmp_path):
    result, _ = plan(*GPT, "--memory-limit", "700MiB", "--plan-out", "plan.json", "--random", "50", "--seed", "7",
                     "--write-profile", "profile.json", "--fsdp2", "fsdp2.json", "--write-mps", "plan.mps")
    assert KEYS <= set(result)
    assert result["feasible"] and result["ranks"] == 8
    assert result["peak_bytes"] <= result["memory_limit_bytes"] == 700 << 20
    assert 0 < result["lower_bound_ms"] <= result["step_ms"]
    assert math.isclose(result["gap"], result["step_ms"] / result["lower_bound_ms"] - 1, abs_tol=1e-9)
    assert set(result["baselines"]) == BASELINES
    assert all(value is None or value >= result["step_ms"] for value in result["baselines"].values())
    assert [unit["name"] for unit in result["units"]] == [f"layers.{i}" for i in range(8)]
    assert {unit["strategy"] for unit in result["units"]} <= {"ddp", "zero1", "zero2", "zero3", "zero3_keep"}
    assert all(unit["reason"] for unit in result["units"])
    assert set(result["segments"][0]) >= {"collective", "unit", "index", "bytes", "slot"}
    assert result["random"]["faster_than_plan"] == 0
    assert json.loads((tmp_path / "plan.json").read_text())["step_ms"] == result["step_ms"]
    assert [unit["name"] for unit in json.loads((tmp_path / "fsdp2.json").read_text())["units"]] == \
        [unit["name"] for unit in result["units"]]
    assert "communicated_once[" in (tmp_path / "plan.mps").read_text()
    # The simulator has the same results for the file.
    simulated = rondo("simulate", "profile.json", "--ranks", "8", "--plan", "plan.json", "--memory-limit", "700MiB",
                      "--json", "-")
    assert simulated.returncode == 0, simulated.stderr
    answer = json.loads(simulated.stdout)
    assert math.isclose(answer["step_ms"], result["step_ms"], rel_tol=1e-9)
    assert answer["peak_bytes"] == result["peak_bytes"]
    # The plan is rejected for another profile.
    other = rondo("simulate", "--random-profile", "1", "--ranks", "8", "--plan", "plan.json")
    assert other.returncode == 2 and "plan.json" in other.stderr and result["profile_hash"] in other.stderr, other.stderr


def test_the_table_is_for_people(rondo):
    result = rondo("plan", *GPT, "--memory-limit", "700MiB", "--plan-time-limit", "1s", "--gap", "0.05")
    assert result.returncode == 0, result.stderr
    for word in ("step ", "bound ", "memory ", "binds ", "baseline", "zero3"):
        assert word in result.stdout, word


def test_an_infeasible_limit_names_the_smallest(plan):
    result, process = plan(*GPT, "--memory-limit", "20MiB", expect=1, time_limit="60s")
    assert result["feasible"] is False and result["step_ms"] is None
    smallest = result["smallest_limit_bytes"]
    assert f"{smallest} bytes" in process.stderr and "layers." in process.stderr
    assert plan(*GPT, "--memory-limit", f"{smallest}B")[0]["feasible"]
    assert not plan(*GPT, "--memory-limit", f"{smallest - 1}B", expect=1, time_limit="60s")[0]["feasible"]


@pytest.mark.parametrize("spoil, named", [
    (lambda p: p["units"][3].update(forward_s=-1), "units[3].forward_s: -1 is negative"),
    (lambda p: p["units"][3].pop("backward_s"), "units[3].backward_s: missing"),
    (lambda p: p["link"]["collectives"].update(all_gather=[[1, 2.0], [2, 1.0]]), "all_gather[1]"),
    (lambda p: p["link"]["collectives"].update(all_gather=[[2, 1.0], [1, 2.0]]), "sizes must ascend"),
    (lambda p: p["units"][0].update(name="layers.1"), "appears twice"),
    (lambda p: p.update(surprise=1), "surprise: unknown field"),
])
def test_a_bad_profile_is_named(rondo, profile, tmp_path, spoil, named):
    spoil(profile)
    (tmp_path / "bad.json").write_text(json.dumps(profile))
    result = rondo("plan", "bad.json", "--memory-limit", "1GiB")
    assert result.returncode == 1
    assert "bad.json" in result.stderr and named in result.stderr


def test_sizes_outside_of_the_measured_range_are_said(plan, profile, tmp_path):
    for curve in profile["link"]["collectives"].values():
        curve[:] = [[1000, 1e-5], [2000, 2e-5]]
    profile["link"] = {key: profile["link"][key] for key in ("ranks", "collectives")}
    (tmp_path / "narrow.json").write_text(json.dumps(profile))
    result, _ = plan("narrow.json", "--ranks", "8", "--memory-limit", "2GiB", "--solver", "none")
    assert any("extrapolated" in note for note in result["notes"])


def test_without_a_solver_the_plan_is_marked(plan):
    result, _ = plan(*GPT, "--memory-limit", "700MiB", "--solver", "none")
    assert result["heuristic"] and result["solver"].startswith("heuristic")
    assert result["feasible"] and result["gap"] >= 0


def test_out_of_time_gives_the_best_so_far(rondo):
    result = rondo("plan", *GPT, "--memory-limit", "700MiB", "--plan-time-limit", "0s", "--json", "-", "--quiet")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["feasible"] and answer["heuristic"] and "out of time" in answer["solver"]


def test_an_interrupt_gives_the_best_so_far(rondo):
    process = rondo.start("plan", "--random-profile", "3", "--ranks", "16", "--memory-limit", "34GiB", "--gap", "0",
                          "--plan-time-limit", "300s", "--json", "-")
    for line in process.stderr:
        if line.startswith("relaxation"):
            break
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(output)["feasible"]


@pytest.mark.parametrize("words, named", [
    (("--memory-limit", "2GiB"), "give one of PROFILE"),
    (("nothing.json", "--memory-limit", "2GiB"), "nothing.json"),
    ((*GPT, "--memory-limit", "much"), "--memory-limit"),
    ((*GPT, "--memory-limit", "2GiB", "--objective", "fun"), "--objective fun is not one of step-time, overlap"),
    ((*GPT, "--memory-limit", "2GiB", "--solver", "cplex"), "--solver cplex is not one of highs, none"),
    ((*GPT, "--memory-limit", "2GiB", "--shard-ranks", "3"), "--shard-ranks 3 does not divide --ranks 8"),
    ((*GPT, "--memory-limit", "2GiB", "--buffers", "none"), "--buffers none is not one of unit, segment"),
    (("--synthetic", "gpt:layer=3", "--memory-limit", "2GiB"), "'layer=3' is not KEY=VALUE"),
    ((*GPT,), "--memory-limit is required"),
])
def test_wrong_usage(rondo, words, named):
    result = rondo("plan", *words)
    assert result.returncode in (1, 2) and named in result.stderr, result.stderr


def test_largest_batch_per_strategy(plan):
    result, _ = plan(*GPT, "--memory-limit", "4GiB", "--max-batch")
    batches = {row["strategy"]: row["batch"] for row in result["batches"]}
    assert 0 < batches["ddp"] <= batches["zero3"] < batches["zero3 + checkpoint"]


def test_the_page_draws_the_plan(rondo, open_page, tmp_path):  # noqa: F811
    result = rondo("plan", *GPT, "--memory-limit", "700MiB", "--html", "plan.html", "--sweep", "3", "--gap", "0.05",
                   "--plan-time-limit", "3s")
    assert result.returncode == 0, result.stderr
    probe = open_page(tmp_path / "plan.html")
    assert {"Memory by slot, as planned", "Timeline of the step, as planned", "Step time against memory limit", "Baselines", "Units"} <= \
        set(probe["titles"])
    assert len(probe["canvases"]) == 3 and all(canvas["painted"] > 500 for canvas in probe["canvases"])
    assert "Written by rondo plan" in probe["foot"] and "rondo report" not in probe["foot"]
    assert "rondo plan --synthetic" in probe["head"] and "--memory-limit 700MiB" in probe["head"]
    # Lines are distinguishable without colours, and each has a name.
    looks = [" ".join(line["look"].split(" ")[1:]) for line in canvas_of(probe, "Step time of the plan")["datasets"]]
    assert len(looks) >= 5 and len(looks) == len(set(looks)), looks
    bytes_axis = canvas_of(probe, "Memory in use")["scales"]["y"]
    assert all(is_power_of_two(b[0] - a[0]) for a, b in zip(bytes_axis, bytes_axis[1:])), bytes_axis
    as_well = set(re.findall(r"\w+(?: \+ checkpoint)? is equally fast", probe["text"]))
    assert as_well, "a limit at which a baseline does as well"
    for said in as_well:
        assert len(re.findall(rf"(?<!\w){re.escape(said)}", probe["text"])) == 1, said


def test_plan_page_on_phone_and_in_dark_mode(rondo, open_page, tmp_path):  # noqa: F811
    result = rondo("plan", *GPT, "--memory-limit", "700MiB", "--html", "plan.html", "--sweep", "3", "--gap", "0.05",
                   "--plan-time-limit", "3s")
    assert result.returncode == 0, result.stderr
    for width, dark in (look.values for look in LOOKS):
        probe = open_page(tmp_path / "plan.html", width=width, dark=dark)
        assert len(probe["canvases"]) == 3
        expect_readable(probe)
        if width == 420:
            expect_fits(probe)
            assert any(table["hint"] for table in probe["tables"]), "the table of units is wider than a phone"


def simulate(rondo, *words):
    result = rondo("simulate", *words, "--json", "-")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_simulate_many_ranks(rondo):
    gpt = ("--synthetic", "gpt:layers=48,dim=4096")
    for ranks, topology in ((8, "host"), (64, "fat_tree"), (1024, "slow_groups"), (16384, "torus_3d")):
        answer = simulate(rondo, *gpt, "--ranks", ranks, "--topology", topology, "--strategy", "zero3", "--prefetch", 2)
        assert {"step_ms", "exposed_comm_ms", "peak_bytes", "ranks", "topology", "wall_s"} <= set(answer)
        assert answer["ranks"] == ranks
        assert math.isclose(answer["step_ms"], answer["equal_ranks_step_ms"], rel_tol=1e-9)
    slow = simulate(rondo, *gpt, "--ranks", 1024, "--topology", "fat_tree", "--jitter", 0.1, "--slow-ranks", 1,
                    "--slow-factor", 1.5, "--mtbf", "50000h")
    assert slow["step_ms"] > 1.3 * slow["compute_ms"]
    assert 0 < slow["failures"]["goodput"] < 1
    assert abs(slow["failures"]["goodput"] - slow["failures"]["simulated_goodput"]) < 0.02


def test_simulate_closed_forms(rondo):
    gpt = ("--synthetic", "gpt:layers=8,dim=1024")
    pipeline = simulate(rondo, *gpt, "--strategy", "pipeline", "--stages", 4, "--micro-batches", 12)
    assert math.isclose(pipeline["idle_share"], 3 / 15, abs_tol=0.02)
    servers = simulate(rondo, *gpt, "--strategy", "parameter_server", "--ranks", 16, "--servers", 2)
    assert servers["step_ms"] > 0


def test_simulate_prints_figures_for_people(rondo):
    """Values have units and few digits; --json has all digits."""
    words = ("--synthetic", "gpt:layers=8,dim=1024", "--ranks", 16, "--strategy", "zero2", "--topology", "fat_tree")
    shown = rondo("simulate", *words)
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"^step +[\d.]+ ms$", shown.stdout, re.M) and re.search(r"^peak +[\d.]+ [KMG]iB$", shown.stdout, re.M), shown.stdout
    assert "_ms" not in shown.stdout and "_bytes" not in shown.stdout
    assert max(len(figure.replace(".", "").lstrip("0")) for figure in re.findall(r"\d[\d.]*", shown.stdout)) <= 5, shown.stdout


@pytest.mark.parametrize("words, named", [
    (("--topology", "mesh"), "'mesh' is not one of host, fat_tree"),
    (("--algorithm", "ring"), "--algorithm needs --topology"),
    (("--topology", "host", "--algorithm", "torus_2d"), "'torus_2d' is not one of"),
    (("--strategy", "zero4"), "'zero4' is not one of ddp"),
    (("--plan", "missing.json"), "missing.json"),
])
def test_simulate_wrong_usage(rondo, words, named):
    result = rondo("simulate", *GPT, *words)
    assert result.returncode in (1, 2) and named in result.stderr, result.stderr
