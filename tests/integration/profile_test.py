"""`rondo profile`: writes the input of `rondo plan --profile`."""
import json

import pytest


def test_a_profile_has_every_unit_and_the_link(run, rondo_bin, tmp_path):
    config = {"layers": 3, "heads": 2, "width": 64}
    result = run(rondo_bin / "rondo", "profile", "--model", "gpt-tiny", "--model-config", json.dumps(config), "--seq-len", 32,
                 "--passes", 3, "--largest", "1MiB", "--json", "profile.json")
    assert result.returncode == 0, result.stderr
    for stage in ("units", "layers", "link"):  # each takes minutes for a larger model
        assert f"profile: measuring {stage}" in result.stderr, result.stderr
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["format"] == "rondo-profile-2" and profile["model"] == "gpt-tiny" and profile["batch_size"] == 4
    assert [unit["name"] for unit in profile["units"]] == ["root"] + [f"transformer.h.{i}" for i in range(3)]
    for unit in profile["units"]:
        for time in ("forward_s", "backward_s", "recompute_s", "optimizer_s"):
            assert unit[time] > 0
        assert unit["gradient_bytes"] == unit["parameter_bytes"] > 0
        assert unit["optimizer_bytes"] == pytest.approx(2 * unit["parameter_bytes"], rel=0.05)
        assert unit["checkpointed_activation_bytes"] <= unit["activation_bytes"]
    for block in profile["units"][1:]:
        assert block["parameter_bytes"] == 4 * (12 * 64 * 64 + 13 * 64)
        # A checkpointed block keeps its input (counted in the block that created it, so one output per block), and the
        # state of the random generators.
        assert 4 * 32 * 64 * 4 <= block["checkpointed_activation_bytes"] < 1.2 * 4 * 32 * 64 * 4
        assert block["activation_bytes"] > 5 * block["checkpointed_activation_bytes"]

    link = profile["link"]
    # If ranks of one host work in place, there is no communication overhead besides the units.
    assert "overhead_s" not in profile
    assert link["ranks"] == 2 and 0 <= link["contention"] < 1 and link["parameters_in_place"]
    assert profile["made_for"].startswith("gpt-tiny {") and "batch 4 a rank of 32 tokens, adamw, 2 ranks" in profile["made_for"]
    for collective in ("all_reduce", "reduce_scatter", "all_gather"):
        points = link["collectives"][collective]
        assert [size for size, _ in points] == [4096 * 4**i for i in range(5)]
        assert all(0 < a[1] <= b[1] for a, b in zip(points, points[1:]))


def test_profile_between_hosts_has_overhead(run, rondo_bin, tmp_path):
    """If communication progresses in the background, real steps are measured, and the plan's step includes the overhead
    outside units."""
    config = {"layers": 3, "heads": 2, "width": 64, "context": 32}
    # The overhead is a difference, which a disturbed measurement may reduce to zero.
    for _ in range(5):
        result = run(rondo_bin / "rondo", "profile", "--model", "gpt-tiny", "--model-config", json.dumps(config), "--backend",
                     "gloo", "--passes", 3, "--largest", "256KiB", "--json", "profile.json")
        assert result.returncode == 0, result.stderr
        profile = json.loads((tmp_path / "profile.json").read_text())
        if "overhead_s" in profile:
            break
    assert profile["overhead_s"] > 0

    def simulated(profile):
        path = tmp_path / "changed.json"
        path.write_text(json.dumps(profile))
        result = run(rondo_bin / "rondo", "simulate", path, "--ranks", 2, "--strategy", "zero2", "--json", "-")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    # Compute grows by exactly the overhead; hidden communication may make the step grow slightly less.
    more = simulated({**profile, "overhead_s": profile["overhead_s"] + 10})
    less = simulated(profile)
    assert more["compute_ms"] - less["compute_ms"] == pytest.approx(10_000, rel=1e-3)
    del profile["overhead_s"]
    assert any("overhead_s" in note for note in simulated(profile)["notes"])


def test_a_profile_is_of_a_loss(run, rondo_bin, tmp_path):
    result = run(rondo_bin / "rondo", "profile", "--model", "mlp", "--loss", "mse", "--passes", 2, "--largest", "64KiB", "--json",
                 "profile.json", "--matmul", "libtorch")
    assert result.returncode == 0, result.stderr
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["made_for"].endswith("default matrix products, loss mse")
    # Images, and a number for each class.
    assert profile["base_bytes"] >= 4 * 4 * (28 * 28 + 10)


@pytest.mark.parametrize("flags, expected", [
    (["--model", "gpt-tiny"], "--json"),
    (["--json", "-"], "--json -"),
    (["--json", "p.json", "--largest", "much"], "--largest"),
    (["--json", "p.json", "--model", "resnet"], "--model"),
    (["--json", "p.json", "--nproc-per-node", "1"], "--nproc-per-node"),
    (["--json", "p.json", "--loss", "distance"], "--loss"),
    (["--json", "p.json", "--model", "gpt-tiny", "--seq-len", "0"], "--seq-len"),
    (["--json", "p.json", "--model", "mlp", "--seq-len", "8"], "--seq-len"),
])
def test_wrong_usage(run, rondo_bin, flags, expected):
    result = run(rondo_bin / "rondo-profile", *flags)
    assert result.returncode == 2, result.stderr
    assert expected in result.stderr
