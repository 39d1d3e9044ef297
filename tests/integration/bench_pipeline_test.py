"""`rondo bench-dev pipeline` at its smallest size: it runs and writes its results."""
import json

import pytest
from marks import long

SHORT = ["--rounds", 1, "--steps", 3, "--warm-up", 1, "--json", "-"]


def results(rondo, *flags):
    done = rondo("bench-dev", "pipeline", *flags, *SHORT, timeout=600)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    return {(row["system"], row["schedule"]): row for row in rows if "system" in row}, [row for row in rows if "ratio" in row]


@pytest.mark.alone
@pytest.mark.parametrize("schedules", [["1f1b"], long(["gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"])], ids=len)
def test_schedules_stand_beside_their_simulation_and_pytorch(rondo, schedules):
    rows, ratios = results(rondo, "--model", "gpt-tiny", "--peers", "--pipeline-schedule", *schedules)
    assert set(rows) == {(system, schedule) for system in ("rondo", "pytorch") for schedule in schedules}
    assert {row["matmul"] for (system, _), row in rows.items() if system == "pytorch"} == {"libtorch"}
    for (system, schedule), row in rows.items():
        assert row["step_ms_p50"] >= row["step_ms_min"] > 0 and row["tokens_per_s"] > 0
        # All train the same model on the same batches.
        assert row["final_loss"] == pytest.approx(rows["rondo", "1f1b"]["final_loss"], rel=1e-3)
        if system == "rondo":
            stages = 4 if schedule in ("interleaved", "zb_v") else 2
            assert len(row["idle_ms"]) == len(row["simulated_idle_ms"]) == 2
            assert all(idle >= 0 for idle in row["simulated_idle_ms"])
            assert len(row["forward_ms"]) == stages and all(time > 0 for time in row["forward_ms"])
            splits = schedule.startswith("zb")
            assert all((time > 0) == splits for time in row["weight_gradient_ms"])
    # One ratio per schedule to its simulation, one to its peer, and one of the fastest of both if they differ.
    assert sum(ratio["ratio"] == "idle" for ratio in ratios) == len(schedules)
    assert sum(ratio["ratio"] == "tokens_per_s" for ratio in ratios) in (len(schedules), len(schedules) + 1)


@pytest.mark.alone
def test_stages_of_emulated_accelerators(rondo):
    rows, ratios = results(rondo, "--ranks", 4, "--emulate-accelerator", 8, "--pipeline-schedule", "1f1b", "zb_v")
    assert {row["emulated"] for row in rows.values()} == {True}
    one, zero = rows["rondo", "1f1b"], rows["rondo", "zb_v"]
    # Two units per rank: forward takes 16 ms in a stage of 1f1b, 8 ms in one of zb_v. A busy machine can only make it
    # longer.
    assert len(one["forward_ms"]) == 4 and min(one["forward_ms"]) > 15
    assert len(zero["weight_gradient_ms"]) == 8 and min(zero["weight_gradient_ms"]) > 7.5
    # 1f1b is idle for (p - 1) (t_F + t_B + t_W) = 144 ms.
    assert max(one["simulated_idle_ms"]) > 135
    assert max(zero["simulated_idle_ms"]) < max(one["simulated_idle_ms"]) and min(zero["idle_ms"] + one["idle_ms"]) > 0
    assert [ratio["to"] for ratio in ratios if ratio["of"] == "rondo zb_v"][-1] == "rondo 1f1b"


@pytest.mark.parametrize("flags, named", [
    (["--pipeline-schedule", "2f2b"], ["2f2b"]),
    (["--matmul", "slow"], ["--matmul", "slow"]),
    (["--batch-size", 3], ["3", "2"]),
    (["--peers", "--emulate-accelerator", 3], ["--peers", "--emulate-accelerator"]),
    (["--emulate-hosts", 2, "--ranks", 3], ["3", "2"]),
])
def test_what_cannot_be_is_refused(rondo, flags, named):
    done = rondo("bench-dev", "pipeline", *flags)
    assert done.returncode == 2
    for fact in named:
        assert fact in done.stderr
