"""`rondo bench collectives` and `rondo bench-dev startup`: their output is complete and correct. Speed is not
tested."""
import json
import shutil
import time

import pytest
from marks import long
from hosts import why_no_namespaces
from measured import peer_ratio

KEYS = {"system", "operation", "algorithm", "channel", "registered", "fresh", "ranks", "hosts", "dtype", "codec", "bytes",
        "p50_us", "min_us", "algbw_gbps", "busbw_gbps", "correct", "samples", "longest_gap_us"}
OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all",
              "send_recv", "barrier"]
SHORT = ["--bursts", "1", "--burst-time", "1ms"]


def results(run, rondo_bin, *flags, kind=("bench", "collectives")):
    result = run(rondo_bin / "rondo", *kind, *flags, "--json", "-", timeout=120)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_operation_is_right_on_every_system(run, rondo_bin, ranks):
    rows = results(run, rondo_bin, *SHORT, "--operations", "all", "--sizes", "48B,96KiB", "--ranks", ranks, "--peers")
    for row in rows:
        assert KEYS <= set(row)
        assert row["correct"] is True, row
        assert row["ranks"] == ranks and row["hosts"] == 1 and row["dtype"] == "float32"
        assert 0 < row["min_us"] <= row["p50_us"]
    assert [name for name in OPERATIONS if name not in {row["operation"] for row in rows}] == []
    systems = {(row["system"], row["registered"]) for row in rows}
    assert {("rondo", True), ("rondo", False)} <= systems
    if (rondo_bin / "rondo-bench-openmpi").exists() and shutil.which("mpirun"):
        assert ("openmpi", False) in systems


def test_bandwidths_and_ratios_follow_from_the_times(run, rondo_bin):
    rows = results(run, rondo_bin, *SHORT, "--sizes", "64KiB", "--peers")
    for row in rows:
        assert row["algbw_gbps"] == pytest.approx(row["bytes"] / row["p50_us"] / 1e3)
        assert row["busbw_gbps"] == pytest.approx(row["algbw_gbps"])  # 2(n-1)/n is 1 for two ranks
    # The program and the scripts have one rule; the branch that a run takes depends on the machine.
    gloo = next(row for row in rows if row["system"] == "gloo")
    for row in rows:
        if row["system"] == "rondo":
            value, of_minima = peer_ratio(row["p50_us"], row["min_us"], gloo["p50_us"], gloo["min_us"])
            assert row["speedup_over_gloo"] == pytest.approx(value)
            assert row["speedup_over_gloo_by"] == ("min" if of_minima else "p50")


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes(run, rondo_bin, dtype):
    rows = results(run, rondo_bin, *SHORT, "--operations", "all_reduce,reduce_scatter", "--sizes", "1KiB", "--dtype", dtype)
    assert {row["dtype"] for row in rows} == {dtype}
    assert all(row["correct"] for row in rows)


def test_size_ranges_go_in_steps_of_four(run, rondo_bin):
    rows = results(run, rondo_bin, *SHORT, "--sizes", "4B..100B,1KiB")
    assert sorted({row["bytes"] for row in rows}) == [4, 16, 64, 100, 1024]


def test_data_just_written(run, rondo_bin):
    rows = results(run, rondo_bin, *SHORT, "--sizes", "4KiB", "--fresh", "--peers")
    assert all(row["fresh"] and row["correct"] for row in rows)


def test_between_two_emulated_hosts(run, rondo_bin):
    reason = why_no_namespaces()
    if reason:
        print(reason)
        pytest.skip(reason)
    rows = results(run, rondo_bin, "--hosts", 2, "--rate", "1gbit", "--ranks", 4, "--sizes", "256KiB", "--codec",
                   "none,bfloat16,int8", "--peers", "--bursts", 1)
    for row in rows:
        assert KEYS <= set(row)
        assert row["hosts"] == 2 and row["channel"] == "tcp" and row["correct"] is True, row
    assert {(row["system"], row["codec"], row["rank_order"]) for row in rows} == {
        (system, codec, order) for order in ("by host", "in turns")
        for system, codec in (("rondo", "none"), ("rondo", "bfloat16"), ("rondo", "int8"), ("gloo", "none"))}


def test_the_table_and_the_file(run, rondo_bin, tmp_path):
    result = run(rondo_bin / "rondo", "bench", "collectives", *SHORT, "--sizes", "4B", "--json", "out.json")
    assert result.returncode == 0, result.stderr
    assert "all_reduce, 2 ranks, float32" in result.stdout and "rondo (registered)" in result.stdout
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [(row["registered"], row["call"]) for row in rows] == [(True, "direct"), (True, "work"), (False, "direct")]


@pytest.mark.parametrize("flags, named", [
    (["--operations", "all_reduse"], ["--operations", "all_reduse", "all_gather"]),
    (["--sizes", "4Q"], ["--sizes", "4Q"]),
    (["--sizes", "64KiB..4B"], ["--sizes", "64KiB..4B"]),
    (["--sizes", "0B"], ["--sizes", "0B"]),
    (["--ranks", "0"], ["--ranks", "0"]),
    (["--ranks", "two"], ["--ranks", "two"]),
    (["--dtype", "int7"], ["--dtype", "int7", "bfloat16"]),
    (["--bursts", "0"], ["--bursts"]),
    (["--burst-time", "soon"], ["--burst-time", "soon"]),
    (["--speed"], ["--speed"]),
    (["--hosts", "3"], ["--hosts", "3"]),
    (["--hosts", "2", "--ranks", "3"], ["--ranks 3"]),
    (["--hosts", "2", "--codec", "zip"], ["zip", "int8"]),
    (["--hosts", "2", "--rate", "1; true"], ["--rate", "1; true"]),
])
def test_wrong_usage_names_the_flag_and_the_value(run, rondo_bin, flags, named):
    result = run(rondo_bin / "rondo", "bench", "collectives", *flags)
    assert result.returncode == 2
    for word in named:
        assert word in result.stderr


def test_a_file_that_cannot_be_written_is_named(run, rondo_bin):
    result = run(rondo_bin / "rondo", "bench", "collectives", *SHORT, "--sizes", "4B", "--json", "/nowhere/out.json")
    assert result.returncode == 1
    assert "/nowhere/out.json" in result.stderr


@pytest.mark.parametrize("flags", [[], long(["--peers"])])
def test_startup(run, rondo_bin, flags):
    began = time.monotonic()
    rows = results(run, rondo_bin, "--runs", "1", *flags, kind=("bench-dev", "startup"))
    took = time.monotonic() - began
    assert rows[0]["system"] == "rondo"
    for row in rows:
        assert row["ranks"] == 2 and row["runs"] == 1
        assert 0 < row["first_step_s_min"] <= row["first_step_s"] < took


def test_help_has_examples(run, rondo_bin):
    for command in (["bench", "--help"], ["bench", "collectives", "--help"], ["bench-dev", "--help"], ["bench-dev", "startup", "--help"]):
        result = run(rondo_bin / "rondo", *command)
        assert result.returncode == 0
        assert "Examples:" in result.stdout
