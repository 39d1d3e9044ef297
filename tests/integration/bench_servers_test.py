"""`rondo bench-dev servers` and `rondo bench-dev strategies` at their smallest size: they run and write their
results."""
import json
import math

import pytest


@pytest.mark.alone
def test_servers(rondo, tmp_path):
    done = rondo("bench-dev", "servers", "--runs", 20, "--light-workers", 4, "--seconds", 0.3, "--json", tmp_path / "servers.json")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "servers.json").read_text())
    assert 0 < result["sparse_push"]["push_min_us"] <= result["sparse_push"]["push_median_us"]
    assert result["mlp"]["workers"] == 2 and result["mlp"]["steps_per_s"] > 0
    assert result["light"]["workers"] == 4 and 0 <= result["light"]["slowest_of_mean"] <= 1


@pytest.mark.alone
def test_strategies(rondo, tmp_path):
    """docs/benchmarks/strategies.md has the measured growth of rates with the workers, and the effect of a slow worker."""
    done = rondo("bench-dev", "strategies", "--workers", "1,2", "--seconds", 1, "--unit-ms", 1, "--json", tmp_path / "strategies.json",
                 timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "strategies.json").read_text())
    assert result["emulated_accelerator"] and result["unit_ms"] == 1
    rows = {(row["study"], row["name"]): row for row in result["rows"]}
    processes = {place: (row["workers"], row["servers"]) for place, row in rows.items()}
    assert processes == {
        ("scaling", "ddp, 1"): (1, 0),
        ("scaling", "parameter_server, 1W1PS"): (1, 1),
        ("scaling", "ddp, 2"): (2, 0),
        ("scaling", "parameter_server, 2W1PS"): (2, 1),
        ("slow worker", "ddp"): (2, 0),
        ("slow worker", "servers, sync"): (2, 1),
        ("slow worker", "servers, sync, 1 backup worker"): (2, 1),
        ("slow worker", "servers, async"): (2, 1),
        ("slow worker", "servers, ssp, staleness 8"): (2, 1),
        ("slow worker", "local SGD, period 8"): (2, 0),
        ("slow worker", "DiLoCo, period 8"): (2, 0)}
    for row in rows.values():
        assert row["samples_per_s"] > 0 and math.isfinite(row["loss"]) and row["largest_peak_bytes"] > 0
        # The final loss of a training counts as reached.
        assert row["seconds_to_target"] is not None or row["loss"] > result["target_loss"]
    assert result["target_loss"] == rows["scaling", "ddp, 1"]["loss"]
