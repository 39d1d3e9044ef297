"""Options of sharded units as a user sets them: mixed precision compared with PyTorch's, resharding, offload to
files."""
import json
import re
import subprocess

import pytest

SMALL = ["--model", "gpt-tiny", "--layers", 2, "--heads", 2, "--width", 32, "--seq-len", 32, "--log-every", 1,
         "--seed", 3, "--batch-size", 4, "--trace-steps", 0, "--progress", "off"]


@pytest.fixture
def train(rondo, tmp_path, repository):
    def run_train(*flags, run_dir="run", ranks=2):
        return rondo("train", "--data", repository / "README.md", "--run-dir", tmp_path / run_dir, *SMALL,
                     "--nproc-per-node", ranks, *flags, timeout=120)

    return run_train


def losses(run_directory):
    rows = [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["rank"] == 0 and "loss" in row]


# test_weights_stay_float32_from_checkpoint_to_checkpoint and MixedPrecision in tests/parallel compare with float32.
@pytest.mark.long
@pytest.mark.parametrize("policy, tolerance", [("param=bfloat16,reduce=float32,output=float32", 5e-3), ("param=bfloat16", 2e-2)])
def test_losses_equal_fsdp2_with_same_policy(rondo_bin, clean_environment, tmp_path, policy, tolerance):
    """Both over Gloo, with the same weights and tokens. bfloat16 has three digits, and the kernels round at different
    places."""
    command = [rondo_bin / "rondo-bench", "step", "--model", "gpt-tiny", "--strategy", "zero3", "--peers", "--losses",
               "--backend", "gloo", "--batch-size", 2, "--lr", 1e-3, "--rounds", 1, "--steps", 20,
               "--warm-up", 0, "--mixed-precision", policy, "--json", "-"]
    finished = subprocess.run([str(word) for word in command], env=clean_environment, text=True, capture_output=True,
                              timeout=200, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    rows = {(row["system"], row["strategy"]): row.get("losses") for row in json.loads(finished.stdout) if "strategy" in row}
    ours, theirs = rows["rondo", "zero3"], rows["pytorch", "fsdp2"]
    assert len(ours) == len(theirs) == 20
    assert ours == pytest.approx(theirs, rel=tolerance)
    assert ours[-1] < ours[0] - 0.2


def test_weights_stay_float32_from_checkpoint_to_checkpoint(train, tmp_path):
    flags = ["--strategy", "zero3", "--mixed-precision", "param=bfloat16,reduce=float32,output=float32"]
    train(*flags, "--steps", 6, run_dir="whole").check_returncode()
    train(*flags, "--steps", 4).check_returncode()
    train("--resume", "--steps", 6).check_returncode()  # the policy comes from the run's own configuration
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    train("--strategy", "ddp", "--steps", 6, run_dir="float32").check_returncode()
    exact = losses(tmp_path / "float32")
    assert losses(tmp_path / "run") == pytest.approx(exact, rel=0.02) and losses(tmp_path / "run") != exact


def test_float16_units_scale_the_loss(train, tmp_path):
    train("--strategy", "zero3", "--backend", "gloo", "--mixed-precision", "param=float16,output=float32", "--steps",
          3).check_returncode()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(row["loss_scale"] > 0 for row in rows if "loss" in row)


def test_opt_level_o2_with_shards(train, tmp_path):
    for strategy in ["ddp", "zero2", "zero3"]:
        train("--strategy", strategy, "--precision", "O2", "--steps", 5, run_dir=strategy).check_returncode()
    assert losses(tmp_path / "zero2") == losses(tmp_path / "zero3")
    assert losses(tmp_path / "zero3") == pytest.approx(losses(tmp_path / "ddp"), rel=5e-3)


def test_resharding_to_fewer_ranks(train, tmp_path):
    for value in ["true", "2", "false"]:
        train("--strategy", "zero3", "--backend", "gloo", "--reshard-after-forward", value, "--steps", 3, run_dir=value,
              ranks=4).check_returncode()
    assert losses(tmp_path / "true") == losses(tmp_path / "2") == losses(tmp_path / "false")


def test_offload_changes_nothing_and_leaves_nothing(train, tmp_path):
    train("--strategy", "zero3", "--steps", 4, run_dir="memory").check_returncode()
    train("--strategy", "zero3", "--steps", 4, "--offload", tmp_path / "disk").check_returncode()
    assert losses(tmp_path / "run") == losses(tmp_path / "memory")
    assert list((tmp_path / "disk").iterdir()) == []


def test_full_disk_error_names_needed_space(train, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"nobody may mount a small tmpfs here ({mounted.stderr.strip()}); file_memory_test covers the message")
    try:
        full = train("--strategy", "zero1", "--steps", 2, "--offload", disk, "--set", "offload-what=optimizer")
        assert full.returncode == 1
        assert re.search(rf"the file {disk}/rondo-offload-\S+ for the optimizer's state needs \d+\.\d KiB, of which "
                         r"\S+ [KM]iB are free: No space left on device", full.stderr), full.stderr
        assert "name another directory" in full.stderr
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("flags, says", [
    (["--strategy", "ddp", "--mixed-precision", "bfloat16"], "--mixed-precision has no effect with --strategy ddp"),
    (["--strategy", "zero3", "--mixed-precision", "param=int8"], "param"),
    (["--strategy", "zero3", "--mixed-precision", "bfloat16", "--precision", "O2"], "use one of them"),
    (["--strategy", "ddp", "--offload", "/tmp"], "--offload has no effect with --strategy ddp"),
    (["--strategy", "zero3", "--offload", "/proc/here"], "offload: /proc/here is no directory"),
    (["--strategy", "zero3", "--reshard-after-forward", "0"], "--reshard-after-forward 0 is neither true, false nor"),
    (["--strategy", "zero3", "--reshard-after-forward", "3"], "reshard_after_forward 3 does not divide the 2 ranks"),
    (["--strategy", "zero3", "--set", "offload-what=gradients"], "offload-what"),
])
def test_mistakes_are_named(train, flags, says):
    wrong = train(*flags, "--steps", 1)
    assert wrong.returncode == 2, wrong.stderr
    assert says in wrong.stderr
