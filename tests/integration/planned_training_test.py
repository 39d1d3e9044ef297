"""From a limit to a running training: `rondo train --strategy planned`, with a plan file and in a single command."""
import json
import re

import pytest
from marks import long
from report_pages import browser, open_page  # noqa: F401  (fixtures)
from sharded_test import SMALL, losses, text, train  # noqa: F401  (fixtures)

CONFIG = {"layers": 2, "heads": 2, "width": 32, "context": 32}
GLOO = ["--backend", "gloo"]


@pytest.fixture(scope="module")
def profile(rondo_bin, tmp_path_factory):
    """Returns a handwritten profile of these tests' model: enough for a plan, independent of this machine."""
    block = {"forward_s": 0.001, "backward_s": 0.002, "activation_bytes": 200_000, "checkpointed_activation_bytes": 16_384}
    sizes = {"root": 69_888, "transformer.h.0": 50_816, "transformer.h.1": 50_816}
    units = [{"name": name, "parameter_bytes": size, "gradient_bytes": size, "optimizer_bytes": 2 * size, **block}
             for name, size in sizes.items()]
    del units[0]["checkpointed_activation_bytes"]
    units[1]["strategies"] = ["zero3"]
    link = {"ranks": 2, "collectives": {name: [[4096, 0.0002], [1 << 20, 0.02]]
                                        for name in ("all_reduce", "reduce_scatter", "all_gather")}}
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    path.write_text(json.dumps({"format": "rondo-profile-1", "model": "gpt-tiny", "batch_size": 4, "units": units,
                                "link": link}))
    return path


@pytest.fixture
def plan(rondo, profile, tmp_path):
    def run_plan(limit, name, words, ranks):
        return rondo("plan", profile, "--ranks", ranks, "--memory-limit", f"{int(limit)}B", "--plan-out", tmp_path / name,
                     "--quiet", "--plan-time-limit", "30s", "--segment-size", "16KiB", *words)

    def make(share, name="plan.json", *words, ranks=2):
        """Makes a plan for `share` times the smallest feasible memory."""
        run_plan(1, "least.json", words, ranks)
        least = json.loads((tmp_path / "least.json").read_text())["smallest_limit_bytes"]
        result = run_plan(share * least, name, words, ranks)
        assert result.returncode == 0, result.stderr
        return tmp_path / name

    return make


def planned(file, *more):
    return ["--strategy", "planned", "--plan", file, *more]


@pytest.mark.long  # test_a_hybrid_plan_trains_as_ddp_does follows a plan, too
def test_a_whole_plan_trains_as_ddp_does(train, plan, tmp_path):  # noqa: F811
    train("--strategy", "ddp", "--steps", 5, run_dir="ddp").check_returncode()
    file = plan(1.02)
    units = json.loads(file.read_text())["units"]
    assert any(unit["checkpoint"] for unit in units) and any("zero3" in unit["strategy"] for unit in units), units
    for name, engine in (("gloo", GLOO), ("shared-memory", [])):
        train(*planned(file), *engine, "--steps", 5, run_dir=name).check_returncode()
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "ddp"), rel=1e-5)
    prediction = json.loads((tmp_path / "gloo" / "prediction.json").read_text())
    assert prediction["predicted"]["step_ms"] == json.loads(file.read_text())["step_ms"]
    assert prediction["measured"]["step_ms"] > 0 and prediction["measured"]["peak_bytes"] > 0
    assert [unit["name"] for unit in prediction["units"]] == [unit["name"] for unit in units]
    for unit in prediction["units"]:
        assert unit["predicted"].keys() == {"exposed_comm_ms", "peak_bytes"}, "the plan came without its profile"
        assert 0 <= unit["measured"]["exposed_comm_ms"] <= prediction["measured"]["step_ms"]
        if unit["name"] != "root":
            assert 0 < unit["measured"]["peak_bytes"] <= prediction["measured"]["peak_bytes"]
    waits = {side: [unit[side]["exposed_comm_ms"] for unit in prediction["units"]] for side in ("predicted", "measured")}
    # In the plan the units' waits add up to all waits; measured values are separate medians.
    assert sum(waits["predicted"]) == pytest.approx(prediction["predicted"]["exposed_comm_ms"])
    assert max(waits["measured"]) <= prediction["measured"]["exposed_comm_ms"] * 2 + 1


def test_accumulated_passes_as_planned(train, plan, tmp_path):  # noqa: F811
    file = plan(1.1, "plan.json", "--gradient-accumulation-steps", 2)
    train("--strategy", "ddp", "--gradient-accumulation-steps", 2, "--steps", 3, run_dir="ddp").check_returncode()
    train(*planned(file), *GLOO, "--gradient-accumulation-steps", 2, "--steps", 3).check_returncode()
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-5)


def test_a_hybrid_plan_trains_as_ddp_does(train, plan, tmp_path):  # noqa: F811
    """Two replicas of a model that two ranks share, each unit with its planned strategy."""
    train("--strategy", "ddp", *GLOO, "--steps", 3, run_dir="ddp", ranks=4).check_returncode()
    file = plan(1.05, "plan.json", "--shard-ranks", 2, ranks=4)
    document = json.loads(file.read_text())
    assert document["shard_group"] == 2 and any("zero" in unit["strategy"] for unit in document["units"])
    train(*planned(file), *GLOO, "--steps", 3, ranks=4).check_returncode()
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-5)


def test_a_plan_for_something_else_is_named(train, plan, profile, tmp_path):  # noqa: F811
    file = plan(2)

    def expect(says, *words, ranks=2, change=None):
        chosen = file
        if change:
            document = json.loads(file.read_text())
            change(document)
            chosen = tmp_path / "changed.json"
            chosen.write_text(json.dumps(document))
        wrong = train(*planned(chosen), *words, "--steps", 1, run_dir="wrong", ranks=ranks)
        assert wrong.returncode == 2, wrong.stderr
        assert says in wrong.stderr and wrong.stderr.count("] rondo train:") == 1, wrong.stderr

    expect("was made for a batch of 4 samples a rank, and this job has 2", "--batch-size", 2)
    expect("was made for 1 accumulated passes a step, and --gradient-accumulation-steps is 2", "--gradient-accumulation-steps", 2)
    expect("was made for model other, and this job trains gpt-tiny", change=lambda p: p.update(model="other"))
    expect("defines which units are checkpointed", "--activation-checkpointing", "all")
    other = json.loads(profile.read_text())
    other["units"][0]["forward_s"] *= 2
    (tmp_path / "other.json").write_text(json.dumps(other))
    expect("was made from a profile with hash", "--profile", tmp_path / "other.json")


def test_refuses_plan_for_other_ranks_or_sizes(train, plan, tmp_path):  # noqa: F811
    file = plan(2)
    wrong = train(*planned(file), "--steps", 1, ranks=3)
    assert wrong.returncode == 2 and "was made for 2 ranks, and this job has 3" in wrong.stderr, wrong.stderr
    wrong = train(*planned(file), "--steps", 1, "--width", 64, run_dir="wide")
    assert wrong.returncode == 2 and "has other sizes for units: root" in wrong.stderr, wrong.stderr


def test_ranks_with_different_plans_stop_by_name(rondo, rondo_bin, plan, text, tmp_path):  # noqa: F811
    plan(2, "plan-0.json")
    plan(1.02, "plan-1.json")
    words = " ".join(map(str, [rondo_bin / "rondo-train-worker", "--data", text, "--run-dir", tmp_path / "run", *SMALL,
                               *planned("plan-$RANK.json"), "--steps", 1]))
    result = rondo("run", "-n", 2, "bash", "-c", words, timeout=120)
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("] rondo train: the ranks have different plans") == 1, result.stderr
    assert "rank 0 has" in result.stderr and "rank 1 has" in result.stderr, result.stderr


def test_one_go_measures_plans_and_trains(train, rondo, open_page, tmp_path):  # noqa: F811
    train("--strategy", "ddp", "--steps", 4, run_dir="ddp").check_returncode()
    one_go = train("--strategy", "planned", "--memory-limit", "3MB", "--plan-time-limit", "1s", "--steps", 4, *GLOO,
                   "--json", tmp_path / "result.json")
    assert one_go.returncode == 0, one_go.stderr
    assert re.search(r"planned: measuring gpt-tiny.*planned: measured in .*planned: a step of [\d.]+ ms.* for \w",
                     one_go.stderr, re.S), one_go.stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-5)
    made = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert made["feasible"] and made["ranks"] == 2 and made["memory_limit_bytes"] == 0.99 * 3_000_000
    assert "batch 4 a rank" in json.loads((tmp_path / "run" / "profile.json").read_text())["made_for"]
    assert json.loads((tmp_path / "result.json").read_text())["prediction"] == \
        json.loads((tmp_path / "run" / "prediction.json").read_text())
    prediction = json.loads((tmp_path / "run" / "prediction.json").read_text())
    figures = {"exposed_comm_ms", "peak_bytes", "forward_ms", "backward_ms"}
    for unit in prediction["units"]:
        assert unit["predicted"].keys() == figures
        assert unit["measured"].keys() == ({"exposed_comm_ms"} if unit["name"] == "root" else figures)
    assert rondo("report", tmp_path / "run").returncode == 0
    assert {"Plan and measurement", "Units, predicted and measured", "Waits and memory of units, predicted and measured",
            "Memory by slot, as planned", "Timeline of the step, as planned", "Step time against memory limit"} <= \
        set(open_page(tmp_path / "run" / "report.html")["titles"])


@pytest.mark.parametrize("loss", [long("auto"), "l1"])
def test_one_go_plans_for_numbers(rondo, loss, tmp_path):
    rows = [f"{a},{b},{3 * a - 2 * b + 1}" for a in range(15) for b in range(15)]
    (tmp_path / "plane.csv").write_text("a,b,z\n" + "\n".join(rows) + "\n")
    result = rondo("train", "--data", "plane.csv", "--data-kind", "regression", "--model", "mlp", "--unit-rules", "type:Linear",
                   "--loss", loss, "--batch-size", 8, "--nproc-per-node", 2, "--strategy", "planned", "--memory-limit", "1GiB",
                   "--plan-time-limit", "1s", "--steps", 4, "--run-dir", "run", *GLOO, timeout=120)
    assert result.returncode == 0, result.stderr
    profile = json.loads((tmp_path / "run" / "profile.json").read_text())
    assert profile["made_for"].endswith("loss " + {"auto": "mse"}.get(loss, loss))
    assert len(losses(tmp_path / "run")) == 4
    # A profile of another loss belongs to another job.
    again = rondo("train", "--config", "run/config.json", "--loss", "smooth_l1", "--profile", "run/profile.json", "--steps", 1,
                  "--run-dir", "again", timeout=120)
    assert again.returncode == 2 and "was measured for mlp" in again.stderr, again.stderr
    assert "smooth_l1" in again.stderr
    # So does one with other matrix products.
    own, other = ("fast", "default") if "fast matrix products" in profile["made_for"] else ("default", "fast")
    profile["made_for"] = profile["made_for"].replace(f"{own} matrix", f"{other} matrix")
    (tmp_path / "other.json").write_text(json.dumps(profile))
    products = rondo("train", "--config", "run/config.json", "--profile", "other.json", "--steps", 1, "--run-dir", "products", timeout=120)
    assert products.returncode == 2 and f"{other} matrix products" in products.stderr, products.stderr


def test_the_smallest_limit_holds_a_whole_run(train, tmp_path):  # noqa: F811
    """With the limit that an error names as feasible: training, validation, saving checkpoints and resuming."""
    wide = ["--layers", 6, "--width", 64, "--strategy", "planned", "--plan-time-limit", "1s"]
    wrong = train(*wide, "--memory-limit", "1500kB", "--steps", 4)
    assert wrong.returncode == 2, wrong.stderr
    smallest = re.search(r"the smallest limit that any plan fits is (\d+B)", wrong.stderr).group(1)
    watched = [*wide, "--memory-limit", smallest, "--eval-every", 2, "--checkpoint-every", 2]
    tight = train(*watched, "--steps", 4)
    assert tight.returncode == 0, tight.stderr
    resumed = train(*watched, "--steps", 6, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    plain = train("--layers", 6, "--width", 64, "--steps", 6, run_dir="plain")
    assert plain.returncode == 0, plain.stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "plain"), rel=1e-4)


def test_an_infeasible_limit_is_named_before_training(train, tmp_path):  # noqa: F811
    wrong = train("--strategy", "planned", "--memory-limit", "100kB", "--steps", 1, *GLOO)
    assert wrong.returncode == 2, wrong.stderr
    assert "--memory-limit 100kB" in wrong.stderr, wrong.stderr
    # Names a sufficient limit as a number that can be copied.
    assert any(int(bytes_) > 100_000 for bytes_ in re.findall(r"\b(\d+)B\b", wrong.stderr)), wrong.stderr
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    # A profile of another job is rejected, and this job's own is not measured again.
    again = train("--strategy", "planned", "--memory-limit", "100kB", "--batch-size", 2, "--steps", 1, *GLOO, "--profile",
                  tmp_path / "run" / "profile.json")
    assert again.returncode == 2 and "was measured for gpt-tiny" in again.stderr, again.stderr
