"""`rondo bench-dev memory-tracking`: its output is complete. Speed is not tested."""
import json

import pytest


def test_both_processes_take_their_turns(run, rondo_bin):
    result = run(rondo_bin / "rondo", "bench-dev", "memory-tracking", "--model", "gpt-tiny", "--rounds", "2", "--steps", "2",
                 "--warm-up", "1", "--json", "-", timeout=120)
    assert result.returncode == 0, result.stderr
    without, tracked, of_medians, of_rounds = json.loads(result.stdout)
    assert (without["tracked"], tracked["tracked"]) == (False, True)
    for row in (without, tracked):
        assert row["steps"] == 4 and 0 < row["step_ms_min"] <= row["step_ms_p50"]
    assert of_medians["value"] == pytest.approx(tracked["step_ms_p50"] / without["step_ms_p50"])
    assert of_rounds["value"] > 0 and of_rounds["goal"] == 1.01
