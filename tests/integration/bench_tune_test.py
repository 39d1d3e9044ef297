"""The chooser: measurements of `rondo bench collectives --tune`, and their use by the native engine."""
import json
import os
import subprocess

import pytest


OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")


@pytest.fixture
def bench(rondo, tmp_path):
    """Runs `rondo bench collectives` with its own tuning table."""

    def run(*words, **variables):
        environment = {**os.environ, "RONDO_TUNING": str(tmp_path / "figures.json"), "RONDO_LOG_LEVEL": "info", **variables}
        return subprocess.run([rondo.program, "bench", "collectives", "--bursts", "2", "--burst-time", "1ms", *words],
                              env=environment, capture_output=True, text=True, timeout=120)

    return run


def picked(cell):
    times = cell["p50_us"]
    fastest = min(times, key=times.get)
    return "engine" if times["engine"] <= 1.05 * times[fastest] else fastest


def test_figures_are_kept_and_picked_by(bench, tmp_path):
    result = bench("--tune", "--sizes", "8B,64KiB", "--json", str(tmp_path / "rows.json"))
    assert result.returncode == 0, result.stderr
    assert "all_reduce of 64.0 KiB on 2 ranks: " in result.stdout and "next best" in result.stdout
    cells = json.loads((tmp_path / "figures.json").read_text())["cells"]
    assert {(cell["operation"], cell["bytes"]) for cell in cells} == {
        (operation, size) for operation in OPERATIONS for size in (8, 65536)}
    rows = json.loads((tmp_path / "rows.json").read_text())
    for cell in cells:
        same = [row for row in rows if (row["operation"], row["bytes"]) == (cell["operation"], cell["bytes"]) and "best" in row]
        assert len(same) == len(cell["p50_us"]) > 2
        # Chosen by the measurements of this run: the best of each, or the engine if it is as good within noise.
        assert sum(row["best"] for row in same) == 1
        chosen = [row["algorithm"] for row in same if row["chosen"]]
        assert chosen == [picked(cell).replace("engine", "auto")]


def test_compares_picks_with_fresh_measurements(bench, tmp_path):
    result = bench("--check-chooser", "--operations", "all_reduce,reduce_scatter", "--sizes", "64KiB",
                   "--json", str(tmp_path / "rows.json"))
    assert result.returncode == 0, result.stderr
    assert "the pick takes at most " in result.stdout
    kept = json.loads((tmp_path / "figures.json").read_text())["cells"]
    rows = [row for row in json.loads((tmp_path / "rows.json").read_text()) if "best" in row]
    for cell in kept:
        same = {row["algorithm"]: row for row in rows if row["operation"] == cell["operation"]}
        chosen = [name for name, row in same.items() if row["chosen"]]
        assert chosen == [picked(cell).replace("engine", "auto")]
        best = min(row["p50_us"] for row in same.values())
        assert all(abs(row["ratio_to_best"] - row["p50_us"] / best) < 1e-9 for row in same.values())
        assert {name: row["p50_us"] for name, row in same.items()} != cell["p50_us"], "measured anew"


def test_the_engine_uses_a_kept_table(bench, tmp_path):
    assert bench("--tune", "--sizes", "1KiB").returncode == 0
    table = json.loads((tmp_path / "figures.json").read_text())
    for cell in table["cells"]:
        cell["p50_us"] = {"engine": 10, "ring": 1}
    (tmp_path / "figures.json").write_text(json.dumps(table))
    chosen = bench("--sizes", "1KiB")
    assert chosen.returncode == 0
    assert "algorithm ring for all_reduce(256 x float32, SUM): all_reduce of 1.0 KiB on 2 ranks: ring 1 us" in chosen.stderr
    assert "algorithm ring" not in bench("--sizes", "1KiB", RONDO_ALGORITHM="engine").stderr
    table["machine"] = "another machine"
    (tmp_path / "figures.json").write_text(json.dumps(table))
    assert "algorithm ring" not in bench("--sizes", "1KiB").stderr
    (tmp_path / "figures.json").write_text("{")
    broken = bench("--sizes", "1KiB")
    assert broken.returncode == 1 and "figures.json is not a table of measurements" in broken.stderr


@pytest.mark.parametrize("value, words", [
    ("rign", ["RONDO_ALGORITHM", "'rign'", "halving_doubling"]),
    ("all_gather=double_binary_tree", ["RONDO_ALGORITHM", "all_gather=double_binary_tree"]),
    ("all_redoce=ring", ["RONDO_ALGORITHM", "'all_redoce'"]),
])
def test_a_wrong_hand_set_algorithm(bench, value, words):
    result = bench("--sizes", "1KiB", RONDO_ALGORITHM=value)
    assert result.returncode == 1
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling", "double_binary_tree", "reduce_broadcast", "direct"])
def test_every_plan_behind_the_engines_interface(rondo_bin, algorithm):
    """Runs the tests of the public collectives on one host with plans instead of the engine."""
    tests = "*Reduce*:*Gather*:*Broadcast*:-*Mismatch*:Deterministic*:Hierarchical*:LostSend*"
    result = subprocess.run([rondo_bin / "backend_test", f"--gtest_filter={tests}", "--gtest_brief=1"],
                            env={**os.environ, "RONDO_ALGORITHM": algorithm}, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout[-3000:]
