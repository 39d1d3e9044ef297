"""`rondo bench servers` and `rondo bench strategies`, as small as they go: that they run, and what they write."""
import json

import pytest


@pytest.mark.alone
def test_servers(rondo, tmp_path):
    done = rondo("bench", "servers", "--runs", 20, "--light-workers", 4, "--seconds", 0.3, "--json", tmp_path / "servers.json")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "servers.json").read_text())
    assert 0 < result["sparse_push"]["push_min_us"] <= result["sparse_push"]["push_median_us"]
    assert result["mlp"]["workers"] == 2 and result["mlp"]["steps_per_s"] > 0
    assert result["light"]["workers"] == 4 and 0 <= result["light"]["slowest_of_mean"] <= 1


@pytest.mark.alone
def test_strategies_grow_with_workers_whose_accelerators_are_emulated(rondo, tmp_path):
    done = rondo("bench", "strategies", "--workers", "1,2", "--seconds", 3, "--json", tmp_path / "strategies.json", timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "strategies.json").read_text())
    assert result["emulated_accelerator"]
    # By how much: docs/strategies.md.
    rate = {(row["study"], row["name"]): row["samples_per_s"] for row in result["rows"]}
    assert rate["scaling", "ddp, 2"] > rate["scaling", "ddp, 1"]
    assert rate["scaling", "parameter_server, 2W1PS"] > rate["scaling", "parameter_server, 1W1PS"]
    # Of a worker that is four times slower only those suffer who wait for it.
    assert rate["slow worker", "servers, async"] > rate["slow worker", "ddp"]
