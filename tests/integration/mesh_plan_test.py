"""Planned meshes: `rondo plan --plan-search`, `--mesh`, `rondo simulate --mesh`, and training that follows such
plans."""
import json
import subprocess

import pytest
from marks import long
from sharded_test import losses, SMALL, text, train  # noqa: F401  (fixtures)

CONFIG = {"layers": 2, "heads": 2, "width": 32, "context": 32}
GPT = ("--synthetic", "gpt:layers=8,dim=512,seq=128,heads=8,rate=1e9,batch=4")
TRAINED = ["--eval-every", 0, "--max-grad-norm", 1]


@pytest.fixture(scope="module")
def profile(rondo_bin, tmp_path_factory):
    """Returns a measured profile of these tests' model."""
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    result = subprocess.run([rondo_bin / "rondo", "profile", "--model", "gpt-tiny", "--model-config", json.dumps(CONFIG), "--passes",
                             "3", "--largest", "64KiB", "--json", path], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return path


@pytest.fixture
def plan(rondo, profile, tmp_path):
    def make(*words, ranks=2, expect=0):
        result = rondo("plan", profile, "--ranks", ranks, "--memory-limit", "1GiB", "--quiet", "--plan-time-limit", "2s",
                       "--plan-out", tmp_path / "plan.json", *words)
        assert result.returncode == expect, result.stderr
        return json.loads((tmp_path / "plan.json").read_text())

    return make


def test_a_profile_knows_layers_and_messages(profile):
    document = json.loads(profile.read_text())
    assert [layer["name"] for layer in document["layers"]] == ["embeddings", "transformer.h.0", "transformer.h.1", "head"]
    assert [layer["unit"] for layer in document["layers"]] == ["root", "transformer.h.0", "transformer.h.1", "root"]
    for layer in document["layers"]:
        divided = [(part["dimension"], part["ranks"]) for part in layer["parts"]]
        assert divided == [("tensor", 1), ("tensor", 2), ("context", 2), ("context", 4)], "two heads: four ranks do not divide them"
        whole, half = layer["parts"][:2]
        assert [passes["samples"] for passes in whole["passes"]] == [1, 4]
        assert all(passes[key] >= 0 for passes in whole["passes"] for key in passes)
        assert 0 < half["parameter_bytes"] < whole["parameter_bytes"] and layer["output_bytes"] > 0
    block = document["layers"][1]
    assert block["output_bytes"] == 4 * 32 * 32 * 4
    # Attention and perceptron each have one all-reduce in forward and one in backward, of a sample's full width.
    assert block["parts"][1]["forward_messages"] == block["parts"][1]["backward_messages"] == 2
    assert block["parts"][1]["forward_message_bytes"] == 2 * block["output_bytes"]
    # Among four ranks keys and values of each part go to the three others; in backward their gradients do so, too, and
    # return.
    ring = block["parts"][3]
    held = 2 * block["output_bytes"] // 4
    assert (ring["forward_messages"], ring["forward_message_bytes"]) == (3, 3 * held)
    assert (ring["backward_messages"], ring["backward_message_bytes"]) == (7, 7 * held)
    assert ring["parameter_bytes"] == block["parts"][0]["parameter_bytes"]
    kept = [block["parts"][i]["passes"][-1]["activation_bytes"] for i in (0, 2, 3)]
    assert 0.4 < kept[1] / kept[0] < 0.6 and 0.2 < kept[2] / kept[0] < 0.3
    # Both parts of a split backward pass compute; between them the products' inputs and received tensors are kept. At
    # least one of four measurements is free of disturbances.
    batch = block["parts"][0]["passes"][-1]
    blocks = [part["passes"][-1] for layer in document["layers"][1:3] for part in layer["parts"]]
    shares = [each["backward_input_s"] / (each["backward_input_s"] + each["backward_weight_s"]) for each in blocks]
    assert any(0.02 < share < 0.98 for share in shares), shares
    assert block["output_bytes"] < batch["deferred_bytes"] < 2 * batch["activation_bytes"]
    of_units = sum(unit["forward_s"] + unit["backward_s"] for unit in document["units"])
    of_layers = sum(layer["parts"][0]["passes"][-1][key] for layer in document["layers"] for key in ("forward_s", "backward_s"))
    assert of_layers == pytest.approx(of_units)
    for exchange in ("send_recv", "all_to_all"):
        points = document["link"]["collectives"][exchange]
        assert len(points) >= 2 and all(0 < a[1] <= b[1] for a, b in zip(points, points[1:]))


def test_all_meshes_are_compared(rondo):
    result = rondo("plan", *GPT, "--ranks", 4, "--memory-limit", "8GiB", "--plan-search", "all", "--quiet", "--plan-time-limit", "30s",
                   "--json", "-")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    best, others = answer["candidates"][0], answer["candidates"][1:]
    assert best["mesh"] == answer["mesh"] and best["step_ms"] == pytest.approx(answer["step_ms"])
    assert {each["mesh"] for each in answer["candidates"]} == {
        "data=4", "data=2,tensor=2", "data=1,tensor=4", "pipeline=2,data=2", "pipeline=2,data=1,tensor=2", "pipeline=4,data=1",
        "data=2,context=2", "data=1,context=4", "pipeline=2,data=1,context=2"}
    assert any(each.get("shard_group") == 2 and each["mesh"] == "data=4" for each in answer["candidates"])
    for each in others:
        assert each["why"]
        if each["fits"]:
            assert each["step_ms"] >= best["step_ms"]
            assert each["lower_bound_ms"] <= each["step_ms"] * (1 + 1e-9)
        elif each["peak_bytes"] is None and each["lower_bound_ms"] is not None:
            assert each["lower_bound_ms"] >= best["step_ms"] * (1 - 1e-9)
    table = rondo("plan", *GPT, "--ranks", 4, "--memory-limit", "8GiB", "--mesh", "pipeline=4", "--quiet")
    assert table.returncode == 0 and "pipeline=4,data=1 1f1b x" in table.stdout and "layers.7" in table.stdout


@pytest.mark.parametrize("mesh, ranks", [
    long("pipeline=2", 2), ("tensor=2", 2), ("pipeline=2,data=2", 4), long("data=2,tensor=2", 4), long("context=2", 2),
    long("pipeline=2,context=2", 4)])
def test_training_follows_a_plan_of_a_mesh(train, plan, tmp_path, mesh, ranks):  # noqa: F811
    document = plan("--mesh", mesh, "--global-batch-size", 8, ranks=ranks)
    replica = document["batch_size"]
    assert replica * (2 if "data=2" in mesh else 1) == 8
    train("--strategy", "ddp", "--batch-size", 4, "--steps", 3, *TRAINED, run_dir="ddp").check_returncode()
    result = train("--strategy", "planned", "--plan", tmp_path / "plan.json", "--batch-size", replica, "--steps", 3, *TRAINED,
                   "--json", tmp_path / "summary.json", ranks=ranks)
    assert result.returncode == 0, result.stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-4)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["replicas"] == (2 if "data=2" in mesh else 1)
    prediction = json.loads((tmp_path / "run" / "prediction.json").read_text())
    assert prediction["predicted"]["step_ms"] == document["step_ms"] and prediction["measured"]["step_ms"] > 0
    assert prediction["measured"]["peak_bytes"] == pytest.approx(document["peak_bytes"], rel=0.12)


@pytest.fixture(scope="module")
def experts_profile(rondo_bin, tmp_path_factory):
    """Returns a profile of the same model with experts."""
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    config = {**CONFIG, "experts": 4, "experts_per_token": 2, "capacity_factor": 0}
    result = subprocess.run([rondo_bin / "rondo", "profile", "--model", "gpt-tiny", "--model-config", json.dumps(config), "--passes",
                             "3", "--largest", "64KiB", "--json", path], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return path


@pytest.mark.parametrize("mesh, ranks", [long("expert=2", 2), ("pipeline=2,expert=2", 4)])
def test_training_follows_a_plan_of_experts(train, rondo, experts_profile, tmp_path, mesh, ranks):  # noqa: F811
    block = json.loads(experts_profile.read_text())["layers"][1]
    spread = next(part for part in block["parts"] if (part["dimension"], part["ranks"]) == ("expert", 2))
    experts = 4 * (2 * 32 * 128 + 128 + 32) * 4  # float32 bytes of four experts
    assert spread["expert_parameter_bytes"] == experts / 2
    assert spread["parameter_bytes"] == block["parts"][0]["parameter_bytes"] - experts / 2
    # Each rank sends counts of its tokens; then two choices of each of 4 x 32 tokens go to the experts and back.
    assert spread["forward_messages"] == 3 and spread["backward_messages"] == 2
    sent = 2 * 4 * 32 * 32 * 4  # a rank receives as many, or fewer if other experts are chosen more often
    assert sent <= spread["backward_message_bytes"] <= 3 * sent
    result = rondo("plan", experts_profile, "--ranks", ranks, "--memory-limit", "1GiB", "--quiet", "--plan-time-limit", "2s", "--mesh", mesh,
                   "--global-batch-size", 8, "--plan-out", tmp_path / "plan.json")
    assert result.returncode == 0, result.stderr
    document = json.loads((tmp_path / "plan.json").read_text())
    assert {unit["strategy"] for unit in document["units"]} == {"ddp"}
    model = ["--experts", 4, "--set", "experts-per-token=2", "--set", "capacity-factor=0"]
    train("--strategy", "ddp", *model, "--mesh", "expert=2", "--batch-size", 4, "--steps", 3, *TRAINED, run_dir="ddp").check_returncode()
    result = train("--strategy", "planned", "--plan", tmp_path / "plan.json", *model, "--batch-size", 4, "--steps", 3, *TRAINED,
                   "--json", tmp_path / "summary.json", ranks=ranks)
    assert result.returncode == 0, result.stderr
    # Micro-batches are balanced separately.
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-4 if ranks == 2 else 1e-3)
    prediction = json.loads((tmp_path / "run" / "prediction.json").read_text())
    assert prediction["measured"]["peak_bytes"] == pytest.approx(document["peak_bytes"], rel=0.12)


@pytest.mark.parametrize("words", [long(["--mesh", "expert=2", "--experts", 4]), ["--mesh", "context=2"]])
def test_plans_and_trains_mesh_with_context(train, tmp_path, words):  # noqa: F811
    model = words[2:] + ["--batch-size", 4 if "expert=2" in words else 8]
    train("--strategy", "ddp", *words[:2], *model, "--steps", 3, *TRAINED, run_dir="ddp").check_returncode()
    result = train("--strategy", "planned", *words[:2], *model, "--memory-limit", "1GiB", "--plan-time-limit", "2s", "--steps", 3, *TRAINED)
    assert result.returncode == 0, result.stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-4)
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["mesh"] == f"data=1,{words[1]}"


@pytest.mark.parametrize("mesh", ["pipeline=2", long("tensor=2")])
def test_accumulated_passes_are_planned(train, plan, tmp_path, mesh):  # noqa: F811
    document = plan("--mesh", mesh, "--global-batch-size", 16, "--gradient-accumulation-steps", 2)
    assert (document["micro_batches"], document["batch_size"]) == (2, 8)
    train("--strategy", "ddp", "--batch-size", 4, "--gradient-accumulation-steps", 2, "--steps", 3, *TRAINED, run_dir="ddp").check_returncode()
    result = train("--strategy", "planned", "--plan", tmp_path / "plan.json", "--batch-size", 8, "--gradient-accumulation-steps", 2, "--steps", 3,
                   *TRAINED)
    assert result.returncode == 0, result.stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-4)


def test_checkpointing_and_stages_are_as_planned(train, plan, tmp_path):  # noqa: F811
    document = plan("--mesh", "pipeline=2", "--global-batch-size", 8)
    document["pipeline"].update(schedule="1f1b", micro_batches=4, stage_cuts=["transformer.h.1"])
    for unit in document["units"]:
        unit["checkpoint"] = unit["name"] == "transformer.h.0"
    (tmp_path / "changed.json").write_text(json.dumps(document))
    train("--strategy", "ddp", "--batch-size", 4, "--steps", 3, *TRAINED, run_dir="ddp").check_returncode()
    result = train("--strategy", "planned", "--plan", tmp_path / "changed.json", "--batch-size", 8, "--steps", 3, *TRAINED)
    assert result.returncode == 0, result.stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-4)
    stored = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert stored["pipeline"]["stage_cuts"] == ["transformer.h.1"]


@pytest.mark.parametrize("words", [["--plan-search", "all", "--batch-size", 4], long(["--mesh", "pipeline=2", "--batch-size", 8])])
def test_plans_and_trains_mesh(train, tmp_path, words):  # noqa: F811
    """A step has the same samples on every mesh."""
    train("--strategy", "ddp", "--batch-size", 4, "--steps", 3, *TRAINED, run_dir="ddp").check_returncode()
    result = train("--strategy", "planned", *words, "--memory-limit", "1GiB", "--plan-time-limit", "2s",
                   "--steps", 3, *TRAINED)
    assert result.returncode == 0, result.stderr
    assert "mesh " in result.stderr and "batches of " in result.stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "ddp"), rel=1e-4)
    document = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert document["candidates"] and (words[0] == "--plan-search" or document["mesh"] == "pipeline=2,data=1")


def test_ranks_of_the_launcher_profile_plan_and_train(rondo, rondo_bin, text, tmp_path):  # noqa: F811
    """Each command separately, on ranks that `rondo run` has started."""
    words = [*SMALL, "--data", text, "--steps", 3, *TRAINED, "--progress", "off"]
    for worker, more in (("rondo-profile", ["--model", "gpt-tiny", "--model-config", json.dumps(CONFIG), "--passes", 3, "--largest", "64KiB",
                                            "--json", tmp_path / "profile.json"]),
                         ("rondo-train-worker", [*words, "--strategy", "planned", "--mesh", "pipeline=2", "--batch-size", 8, "--memory-limit",
                                                 "1GiB", "--plan-time-limit", "2s", "--run-dir", tmp_path / "one-go"])):
        result = rondo("run", "-n", 2, "--", rondo_bin / worker, *more, timeout=120)
        assert result.returncode == 0, result.stderr
    for mesh in ("pipeline=2", "context=2"):
        planned = rondo("plan", tmp_path / "profile.json", "--ranks", 2, "--memory-limit", "1GiB", "--quiet", "--plan-time-limit", "2s", "--mesh",
                        mesh, "--global-batch-size", 8, "--plan-out", tmp_path / f"{mesh}.json")
        assert planned.returncode == 0, planned.stderr
        result = rondo("run", "-n", 2, "--", rondo_bin / "rondo-train-worker", *words, "--batch-size", 8, "--strategy", "planned", "--plan",
                       tmp_path / f"{mesh}.json", "--run-dir", tmp_path / mesh, timeout=120)
        assert result.returncode == 0, result.stderr
        assert losses(tmp_path / mesh) == pytest.approx(losses(tmp_path / "one-go"), rel=1e-4)
        prediction = json.loads((tmp_path / mesh / "prediction.json").read_text())
        assert prediction["predicted"]["peak_bytes"] > 0 and prediction["measured"]["step_ms"] > 0


def test_prediction_worker_trains_its_plan(rondo, rondo_bin):
    """`bench/mesh_prediction.py --emulate` on two ranks with units of negligible time."""
    asked = ["pipeline=2", "data=2", "all"]
    result = rondo("run", "-n", 2, "--", rondo_bin / "rondo-bench-dev", "plan-worker", "--sample-ms", 0.1, "--units", 4, "--steps", 5,
                   "--mesh", *asked, timeout=120)
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line[line.index("{"):]) for line in result.stdout.splitlines() if "{" in line]
    assert [row["asked"] for row in rows] == asked
    assert [row["mesh"] for row in rows[:2]] == ["pipeline=2,data=1", "data=2"]
    pipeline = rows[0]["plan"]
    assert len(pipeline["stage_cuts"]) >= 1 and [len(rank["layers"]) > 0 for rank in pipeline["ranks"]] == [True, True]
    for row in rows:
        for side in ("predicted", "measured"):
            assert row[side]["step_ms"] > 0 and row[side]["peak_bytes"] > 0, row
        # For such small units a plan overestimates memory.
        assert row["measured"]["peak_bytes"] <= 1.12 * row["predicted"]["peak_bytes"], row
    assert rows[2]["predicted"]["step_ms"] <= min(row["predicted"]["step_ms"] for row in rows[:2]) * 1.05


@pytest.mark.parametrize("words, named", [
    (["--mesh", "pipeline=3"], ["3", "4"]),
    (["--mesh", "rows=4"], ["rows"]),
    (["--mesh", "tensor=4,pipeline=1", "--global-batch-size", 3, "--gradient-accumulation-steps", 2], ["3", "2"]),
    (["--micro-batches", 4], ["--micro-batches", "--gradient-accumulation-steps"]),
    (["--mesh", "pipeline=2,tensor=2", "--sweep", 3], ["--sweep"]),
    (["--plan-search", "some"], ["--plan-search", "some"]),
    (["--global-batch-size", 8], ["--global-batch-size"]),
])
def test_what_cannot_be_planned_is_named(rondo, words, named):
    result = rondo("plan", *GPT, "--ranks", 4, "--memory-limit", "8GiB", "--quiet", *words)
    assert result.returncode == 2, result.stderr
    assert all(fact in result.stderr for fact in named), result.stderr


def test_infeasible_limit_names_smallest_mesh(rondo):
    result = rondo("plan", *GPT, "--ranks", 4, "--memory-limit", "1MiB", "--quiet", "--plan-search", "all")
    assert result.returncode == 1 and "needs" in result.stderr and "pipeline=" in result.stderr, result.stderr


def test_what_cannot_be_trained_is_named(train, plan, tmp_path):  # noqa: F811
    plan("--mesh", "pipeline=2", "--global-batch-size", 8)
    base = ["--strategy", "planned", "--plan", tmp_path / "plan.json", "--steps", 1]
    for words, named, ranks in ((["--batch-size", 4], ["8", "4", "replica"], 2), (["--batch-size", 8], ["2 ranks", "4"], 4),
                                (["--batch-size", 8, "--mesh", "pipeline=2"], ["--mesh"], 2)):
        result = train(*base, *words, run_dir="wrong", ranks=ranks)
        assert result.returncode == 2 and all(fact in result.stderr for fact in named), result.stderr


@pytest.mark.parametrize("mesh", ["pipeline=4,data=2,tensor=2", "data=4,tensor=4", "pipeline=16", "data=4,context=4",
                                  "pipeline=4,context=4"])
def test_a_step_on_a_mesh_is_simulated(rondo, mesh):
    words = ["simulate", "--synthetic", "gpt:layers=16,dim=1024,seq=512,heads=16,batch=16", "--ranks", 16, "--mesh", mesh]
    more = [*(["--micro-batches", 16] if "pipeline" in mesh else []), "--topology", "fat_tree", "--strategy", "zero1", "--json", "-"]
    result, twice = (rondo(*words, *more, "--gradient-accumulation-steps", passes) for passes in (1, 2))
    assert result.returncode == twice.returncode == 0, result.stderr + twice.stderr
    answer = json.loads(result.stdout)
    assert 1.5 < json.loads(twice.stdout)["step_ms"] / answer["step_ms"] <= 2, "one update for two passes"
    assert answer["step_ms"] > answer["compute_ms"] > 0 and answer["peak_bytes"] > 0 and answer["samples_per_s"] > 0
    refused = rondo(*words[:-1], "expert=16")
    assert refused.returncode == 2 and "expert=16" in refused.stderr, "a model without experts"
