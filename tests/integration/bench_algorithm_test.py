"""Algorithms set by RONDO_ALGORITHM, in place of the native engine."""
import os
import subprocess

import pytest
from marks import long


@pytest.fixture
def bench(rondo):
    """Runs `rondo bench collectives` with variables."""

    def run(*words, **variables):
        environment = {**os.environ, "RONDO_LOG_LEVEL": "info", **variables}
        return subprocess.run([rondo.program, "bench", "collectives", "--bursts", "2", "--burst-time", "1ms", *words],
                              env=environment, capture_output=True, text=True, timeout=120)

    return run


def test_the_selected_algorithm_runs(bench):
    selected = bench("--sizes", "1KiB", RONDO_ALGORITHM="all_reduce=ring")
    assert selected.returncode == 0, selected.stderr
    assert "algorithm ring for all_reduce(256 x float32, SUM)" in selected.stderr
    engine = bench("--sizes", "1KiB", RONDO_ALGORITHM="engine")
    assert engine.returncode == 0 and "algorithm ring" not in engine.stderr


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


@pytest.mark.parametrize("algorithm", ["ring", long("halving_doubling"), long("double_binary_tree"), long("reduce_broadcast"), long("direct")])
def test_every_plan_behind_the_engines_interface(rondo_bin, algorithm):
    """Runs the tests of the public collectives on one host with plans instead of the engine."""
    tests = "*Reduce*:*Gather*:*Broadcast*:-*Mismatch*:Deterministic*:Hierarchical*:LostSend*"
    result = subprocess.run([rondo_bin / "backend_test", f"--gtest_filter={tests}", "--gtest_brief=1"],
                            env={**os.environ, "RONDO_ALGORITHM": algorithm}, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout[-3000:]
