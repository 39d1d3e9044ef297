"""rondo bench step, and with it: data parallelism next to one process and to PyTorch's own DDP, step by step."""
import json
import subprocess

import pytest


@pytest.fixture
def bench(rondo_bin, clean_environment, tmp_path):
    def run(*words, timeout=300, **variables):
        command = [str(rondo_bin / "rondo-bench"), *map(str, words)]
        return subprocess.run(command, env=clean_environment | variables, text=True, capture_output=True, timeout=timeout,
                              cwd=tmp_path)

    return run


def results(finished):
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def largest_difference(a, b):
    assert len(a) == len(b)
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


@pytest.mark.parametrize("model, optimizer, rate", [("gpt-tiny", "adamw", 1e-3), ("mlp", "sgd", 0.05)])
@pytest.mark.parametrize("backend", ["native", "gloo"])
def test_losses_equal_pytorchs_over_100_steps(bench, model, optimizer, rate, backend):
    rows = results(bench("step", "--model", model, "--peers", "--losses", "--backend", backend, "--batch-size", 2,
                         "--optimizer", optimizer, "--learning-rate", rate, "--rounds", 1, "--steps", 100, "--warm-up", 0,
                         "--json", "-"))
    losses = {(row["system"], row["setting"]): row["losses"] for row in rows if row.get("strategy") == "ddp"}
    ours = losses["rondo", ""]
    assert len(ours) == 100
    if model == "gpt-tiny":  # the mlp's labels are random
        assert sum(ours[-10:]) < sum(ours[:10])
    # With AdamW, PyTorch's fused kernel is the one that computes in the same order of operations.
    assert largest_difference(ours, losses["pytorch", "fastest setting"]) < 1e-5
    if optimizer == "sgd":
        assert largest_difference(ours, losses["pytorch", "as usually written"]) < 1e-5


@pytest.mark.parametrize("model", ["gpt-tiny", "mlp"])
def test_two_ranks_equal_one_process_on_the_joint_batch(bench, model):
    """Rank r draws rows of its own for every step; --ranks 1 with --joint-batch draws those of both."""
    options = ["step", "--model", model, "--losses", "--optimizer", "sgd", "--learning-rate", 0.05, "--rounds", 1, "--steps",
               100, "--warm-up", 0, "--json", "-"]
    rows = results(bench(*options, "--batch-size", 2))
    together = next(row["losses"] for row in rows if row.get("strategy") == "ddp")
    rows = results(bench(*options, "--batch-size", 2, "--ranks", 1, "--joint-batch", 2))
    alone = next(row["losses"] for row in rows if row.get("strategy") == "one_device")
    assert largest_difference(together, alone) < 1e-4


def test_json_has_the_documented_keys(bench):
    rows = results(bench("step", "--model", "mlp", "--rounds", 2, "--steps", 20, "--warm-up", 5, "--json", "-"))
    contestants = [row for row in rows if "ratio" not in row]
    ratios = [row for row in rows if "ratio" in row]
    assert [(row["system"], row["strategy"], row["ranks"]) for row in contestants] == [
        ("rondo", "one_device", 1), ("rondo", "one_device", 2), ("rondo", "ddp", 2)]
    for row in contestants:
        for key in ("setting model ranks hosts rate dtype step_ms_p50 step_ms_min samples_per_s compute_ms comm_ms "
                    "exposed_comm_ms peak_bytes peak_rss_bytes final_loss").split():
            assert key in row, key
        assert 0 < row["step_ms_min"] <= row["step_ms_p50"]
    assert {row["to"] for row in ratios} == {"rondo one_device", "rondo one_device, independent"}
    for row in ratios:
        assert row.keys() == {"ratio", "model", "dtype", "of", "to", "value", "goal"}


@pytest.mark.parametrize("words, complaint", [
    (["--model", "resnet"], "--model"),
    (["--ranks", "0"], "--ranks"),
    (["--dtype", "float8"], "--dtype"),
    (["--bucket-bytes", "lots"], "--bucket-bytes"),
    (["--peers", "--joint-batch", "2"], "--joint-batch"),
    (["--speed", "1"], "--speed"),
])
def test_wrong_usage(bench, words, complaint):
    finished = bench("step", *words)
    assert finished.returncode == 2
    assert complaint in finished.stderr
    assert finished.stdout == ""


def test_a_python_without_torch_is_named_and_the_rest_measured(bench, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    finished = bench("step", "--model", "mlp", "--peers", "--rounds", 1, "--steps", 1, "--json", "-",
                     RONDO_PYTHON=str(python))
    assert str(python) in finished.stderr and "PyTorch" in finished.stderr
    assert {row["system"] for row in results(finished) if "system" in row} == {"rondo"}


def test_a_worker_that_fails_is_named(bench):
    finished = bench("step", "--model", "mlp", "--rounds", 1, "--steps", 1, "--backend", "gloo",
                     GLOO_SOCKET_IFNAME="nothing0")
    assert finished.returncode == 1
    assert "of 'rondo ddp' ended with exit code" in finished.stderr
