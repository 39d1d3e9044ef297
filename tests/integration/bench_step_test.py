"""`rondo bench step`, and with it data parallelism compared with one process and with PyTorch's DDP, step by step."""
import json
import os
import signal
import subprocess

import pytest
from hosts import why_no_namespaces
from launching import below, wait_until


@pytest.fixture
def bench(rondo_bin, clean_environment, tmp_path):
    def run(*words, timeout=600, **variables):
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


@pytest.mark.long  # test_between_emulated_hosts and test_variants_and_their_memory compare a few steps
@pytest.mark.parametrize("backend, model, optimizer, rate", [
    ("gloo", "mlp", "sgd", 0.05),
    ("native", "gpt-tiny", "adamw", 1e-3),
    ("gloo", "gpt-tiny", "adamw", 1e-3),
    ("native", "mlp", "sgd", 0.05)])
def test_losses_equal_pytorchs_over_100_steps(bench, backend, model, optimizer, rate):
    rows = results(bench("step", "--model", model, "--peers", "--losses", "--backend", backend, "--batch-size", 2,
                         "--optimizer", optimizer, "--lr", rate, "--rounds", 1, "--steps", 100, "--warm-up", 0,
                         "--json", "-"))
    losses = {(row["system"], row["setting"]): row["losses"] for row in rows if row.get("strategy") == "ddp"}
    ours = losses["rondo", ""]
    assert len(ours) == 100
    if model == "gpt-tiny":  # the mlp's labels are random
        assert sum(ours[-10:]) < sum(ours[:10])
    # With AdamW, PyTorch's fused kernel has the same order of operations.
    assert largest_difference(ours, losses["pytorch", "fastest setting"]) < 1e-5
    if optimizer == "sgd":
        assert largest_difference(ours, losses["pytorch", "as usually written"]) < 1e-5


# At larger rates the gpt amplifies a difference in the last bit of a product, which depends on the batch, by 1.2 per
# step.
@pytest.mark.parametrize("model, rate", [pytest.param("gpt-tiny", 0.01, marks=pytest.mark.long), ("mlp", 0.05)])
def test_two_ranks_equal_one_process(bench, model, rate):
    """Rank r draws its own rows for every step; --ranks 1 with --joint-batch draws the rows of both ranks."""
    options = ["step", "--model", model, "--losses", "--optimizer", "sgd", "--lr", rate, "--rounds", 1, "--steps",
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
                    "exposed_comm_ms peak_bytes peak_rss_bytes peak_pss_bytes peak_resident_bytes final_loss").split():
            assert key in row, key
        assert 0 < row["step_ms_min"] <= row["step_ms_p50"]
        assert 0 < row["peak_pss_bytes"] <= row["peak_resident_bytes"] and 0 < row["peak_bytes"], row
    assert {row["to"]: row["goal"] for row in ratios} == {"rondo one_device": None, "rondo one_device, independent": 0.93}
    for row in ratios:
        assert row.keys() == {"ratio", "model", "dtype", "of", "to", "value", "goal", "better", "by"}
        assert row["better"] == "higher"


@pytest.mark.parametrize("words, complaint", [
    (["--model", "resnet"], "--model"),
    (["--ranks", "0"], "--ranks"),
    (["--dtype", "float8"], "--dtype"),
    (["--bucket-size", "lots"], "--bucket-size"),
    (["--peers", "--joint-batch", "2"], "--joint-batch"),
    (["--speed", "1"], "--speed"),
    (["--strategy", "zero7"], "unknown strategy 'zero7'; known are: central_storage"),
    (["--strategy", "one_device", "--ablation"], "--ablation"),
    (["--comm-schedule", "lifo"], "--comm-schedule"),
    (["--segment-size", "some"], "segment-size"),
    (["--in-flight-bytes", "-1"], "--in-flight-bytes"),
    (["--prefetch", "two"], "--prefetch"),
    (["--fuse-bytes", "small"], "fuse-bytes"),
    (["--matmul", "slow"], "--matmul"),
    (["--peer", "horovod"], "--peer"),
    (["--emulate-hosts", "2", "--ranks", "3"], "--ranks 3"),
    (["--emulate-hosts", "2", "--rate", "1; true"], "--rate 1; true"),
    (["--max-grad-norm", "-1"], "--max-grad-norm"),
    (["--variant", "zero3 --prefetch two"], "--prefetch two"),
    (["--variant", "zero3 --speed 1"], "--variant 'zero3 --speed 1' is not STRATEGY [FLAGS]"),
    (["--variant", "planned"], "planned takes --plan FILE"),
    (["--experts", "4", "--peers"], "--experts"),
])
def test_wrong_usage(bench, words, complaint):
    finished = bench("step", *words)
    assert finished.returncode == 2
    assert complaint in finished.stderr
    assert finished.stdout == ""


def test_skips_python_without_torch(bench, tmp_path):
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


QUICK = ["--rounds", 1, "--steps", 2, "--warm-up", 0, "--batch-size", 2, "--json", "-"]


@pytest.mark.long  # test_variants_and_their_memory compares fully_shard's first losses
def test_pytorchs_sharded_strategies_learn_the_same(bench):
    """ZeroRedundancyOptimizer and fully_shard as peers: same weights and batches, so the same losses as rondo's ddp."""
    rows = results(bench("step", "--model", "gpt-tiny", "--peer", "zero1", "fsdp2", "--losses", "--batch-size", 2,
                         "--lr", 1e-3, "--max-grad-norm", 0.5, "--rounds", 1, "--steps", 8, "--warm-up", 0, "--json", "-"))
    losses = {(row["system"], row["strategy"]): row["losses"] for row in rows if row.get("setting") == "fastest setting"}
    assert set(losses) == {("pytorch", "zero1"), ("pytorch", "fsdp2")}
    ours = next(row["losses"] for row in rows if row.get("strategy") == "ddp")
    for theirs in losses.values():
        assert largest_difference(ours, theirs) < 1e-5


def test_variants_and_their_memory(bench, tmp_path):
    """A handwritten plan, and zero3 with its own flags. Variants that keep more have a higher peak; FSDP2's tensors are
    counted, too, and its losses are those of ddp."""
    plan = {"units": [{"name": "root", "strategy": "ddp"},
                      *({"name": f"transformer.h.{i}", "strategy": "zero3"} for i in range(4))]}
    (tmp_path / "by-hand.json").write_text(json.dumps(plan))
    rows = results(bench("step", "--model", "gpt-tiny", "--backend", "gloo", "--strategy", "ddp", "--variant",
                         "fsdp --prefetch 1", "planned --plan by-hand.json", "--track-memory", "--peer", "fsdp2", "--losses", *QUICK))
    of = {(row["system"], row["strategy"], row["setting"]): row for row in rows if "system" in row}
    bytes_of = {key: row["peak_tensor_bytes"] for key, row in of.items()}
    sharded, planned = ("rondo", "zero3", "--prefetch 1"), ("rondo", "planned", "by-hand.json")
    assert 0 < bytes_of[sharded] < bytes_of[planned] < bytes_of["rondo", "ddp", ""]
    assert bytes_of["pytorch", "fsdp2", "fastest setting"] > 0
    assert largest_difference(of["rondo", "ddp", ""]["losses"], of["pytorch", "fsdp2", "fastest setting"]["losses"]) < 1e-5
    assert of[sharded]["final_loss"] == pytest.approx(of["rondo", "ddp", ""]["final_loss"], rel=1e-5)
    assert of[planned]["final_loss"] == pytest.approx(of["rondo", "ddp", ""]["final_loss"], rel=1e-5)


def test_a_strategy_by_its_alias(bench):
    rows = results(bench("step", "--model", "mlp", "--strategy", "one_device", "fsdp", "zero3", *QUICK))
    assert [(row["strategy"], row["setting"]) for row in rows if "system" in row] == [
        ("one_device", ""), ("one_device", "independent"), ("zero3", "")]


def test_between_emulated_hosts(bench):
    if reason := why_no_namespaces():
        print(reason)
        pytest.skip(reason)
    rows = results(bench("step", "--model", "gpt-tiny", "--emulate-hosts", 2, "--rate", "100mbit", "--peers", "--peer-setting",
                         "fastest", "--losses", *QUICK))
    systems = {(row["system"], row["strategy"]): row for row in rows if row.get("setting") != "independent" and "system" in row}
    alone, ours, theirs = (systems[key] for key in [("rondo", "one_device"), ("rondo", "ddp"), ("pytorch", "ddp")])
    assert largest_difference(ours["losses"], theirs["losses"]) < 1e-5
    for row in (ours, theirs):
        assert (row["hosts"], row["rate"]) == (2, "100mbit")
        # Each host sends every gradient once; 12.5 MB take 1 s.
        assert row["line_rate_ms"] * 12500 <= row["link_bytes"] < row["line_rate_ms"] * 12500 * 1.2
        assert row["bound_ms"] == max(row["line_rate_ms"], alone["step_ms_p50"])
    assert alone["link_bytes"] == 0 and alone["bound_ms"] is None
    bounds = [row for row in rows if row.get("to") == "max(compute, line rate)"]
    assert [(row["ratio"], row["of"], row["better"]) for row in bounds] == [
        ("step_ms_p50", "rondo ddp", "lower"), ("step_ms_p50", "pytorch ddp, fastest setting", "lower")]
    assert bounds[0]["value"] == pytest.approx(ours["step_ms_p50"] / ours["bound_ms"])
    memory = next(row for row in rows if row.get("ratio") == "peak_resident_bytes")
    assert memory["value"] == pytest.approx(ours["peak_resident_bytes"] / theirs["peak_resident_bytes"])
    assert (memory["of"], memory["to"], memory["better"]) == ("rondo ddp", "pytorch ddp, fastest setting", "lower")


def interfaces_of(pid):
    """Returns the active interfaces on the emulated hosts of the processes below `pid`, with their address families."""
    found = {}
    for process in below(pid):
        shown = subprocess.run(["nsenter", f"--net=/proc/{process}/ns/net", "ip", "-json", "addr"], capture_output=True)
        for interface in json.loads(shown.stdout or "[]"):
            families = {address["family"] for address in interface["addr_info"]}
            if interface["ifname"].startswith("host") and "inet" in families and interface["operstate"] == "UP":
                found[interface["ifname"]] = families
    return found


def test_only_the_job_sends_between_emulated_hosts(rondo_bin, clean_environment, tmp_path):
    """The kernel would send router solicitations on an interface with an IPv6 address, and the link's bytes are
    counted."""
    if reason := why_no_namespaces():
        print(reason)
        pytest.skip(reason)
    process = subprocess.Popen([rondo_bin / "rondo-bench", "step", "--model", "mlp", "--emulate-hosts", "2", "--rounds", "1",
                                "--steps", "100000"], env=clean_environment, cwd=tmp_path, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        def both():
            assert process.poll() is None
            found = interfaces_of(process.pid)
            return found if len(found) == 2 else None
        assert wait_until(both, "both hosts are up") == {"host0": {"inet"}, "host1": {"inet"}}
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_ranks_on_more_than_two_emulated_hosts(bench):
    if reason := why_no_namespaces():
        print(reason)
        pytest.skip(reason)
    rows = results(bench("step", "--model", "mlp", "--emulate-hosts", 3, "--ranks", 3, *QUICK))
    assert next(row for row in rows if row.get("strategy") == "ddp")["link_bytes"] > 0


def test_ablation_switches_policies_on_in_turn(bench):
    rows = results(bench("step", "--model", "mlp", "--strategy", "ddp", "--ablation", *QUICK))
    names = ["fifo", "+priority", "+partitioning", "+in_flight_limit", "+prefetch", "+fusion"]
    assert [row["setting"] for row in rows if row.get("strategy") == "ddp"] == names
    steps = [row for row in rows if "wins" in row]
    assert [(row["of"], row["to"]) for row in steps] == [
        (f"rondo ddp, {name}", f"rondo ddp, {before}") for before, name in zip(names, names[1:])]
    policies = [row for row in rows if "won" in row]
    assert [row["policy"] for row in policies] == ["priority", "partitioning", "in_flight_limit", "prefetch", "fusion"]
    assert [row["won"] for row in policies] == [int(row["wins"]) for row in steps]


def test_the_whole_product_is_compared_apart(bench):
    rows = results(bench("step", "--model", "mlp", "--matmul", "auto", "--dtype", "float32", "bfloat16", *QUICK))
    settings = [(row["strategy"], row["setting"]) for row in rows if "system" in row and row["dtype"] == "float32"]
    assert settings == [("one_device", ""), ("one_device", "independent"), ("one_device", "matmul auto"),
                        ("one_device", "independent, matmul auto"), ("ddp", "matmul auto")]
    last = rows[-1]
    assert (last["of"], last["to"]) == ("rondo ddp, matmul auto, bfloat16", "rondo ddp, matmul auto, float32")


@pytest.mark.parametrize("strategy, experts", [("expert", ["--experts", 2]), ("context", [])])
def test_experts_and_divided_sequences_stand_beside_independent_processes(bench, strategy, experts):
    rows = results(bench("step", "--model", "gpt-tiny", "--dtype", "float32", "--strategy", strategy, *experts, *QUICK))
    of = {(row["strategy"], row["setting"]): row for row in rows if "system" in row}
    assert of[strategy, ""]["ranks"] == of["one_device", "independent"]["ranks"] == 2
    assert of[strategy, ""]["tokens_per_s"] > 0
    assert any((row["of"], row["to"]) == (f"rondo {strategy}", "rondo one_device, independent") for row in rows if "ratio" in row)
