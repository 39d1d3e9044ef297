"""Strategies with several replicas per process as a user runs them: `rondo train --strategy mirrored --replicas 2`."""
import json

import pytest
from marks import long

SMALL = ["--model", "gpt-tiny", "--layers", 2, "--heads", 2, "--width", 32, "--seq-len", 32, "--log-every", 1, "--seed", 3,
         "--progress", "off", "--matmul", "libtorch"]


@pytest.fixture(scope="module")
def text(tmp_path_factory, repository):
    file = tmp_path_factory.mktemp("text") / "sources.txt"
    file.write_text("".join(source.read_text() for source in sorted((repository / "rondo").rglob("*.h")))[:40_000])
    return file


@pytest.fixture
def train(rondo, tmp_path, text):
    def run_train(*flags, run_dir="run"):
        return rondo("train", "--data", text, "--run-dir", tmp_path / run_dir, *SMALL, *flags, timeout=120)

    return run_train


def rows(run_directory, key):
    lines = [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]
    return [line[key] for line in lines if line["rank"] == 0 and key in line]


@pytest.fixture
def alone(rondo, text, tmp_path_factory):
    """Returns the losses of one process on the joint batch of 8."""
    directory = tmp_path_factory.mktemp("alone")
    rondo("train", "--data", text, "--run-dir", directory, *SMALL, "--steps", 6, "--batch-size", 8, timeout=120).check_returncode()
    return rows(directory, "loss"), rows(directory, "validation_loss")


@pytest.mark.parametrize("flags, processes, replicas", [
    long(["--strategy", "mirrored", "--replicas", 2, "--batch-size", 4], 1, 2),
    (["--strategy", "mirrored", "--replicas", 4, "--global-batch-size", 8, "--cross-device-ops", "hierarchical_copy"], 1, 4),
    (["--strategy", "central_storage", "--replicas", 2, "--batch-size", 4], 1, 2),
    (["--strategy", "data_parallel", "--set", "devices=cpu,cpu", "--batch-size", 4], 1, 2),
    (["--strategy", "multi_worker_mirrored", "--nproc-per-node", 2, "--replicas", 2, "--batch-size", 2], 2, 4),
    (["--strategy", "multi_worker_mirrored", "--nproc-per-node", 2, "--batch-size", 4], 2, 2),
], ids=lambda value: " ".join(str(word) for word in value[1:4]) if isinstance(value, list) else "")
def test_losses_equal_one_process(train, tmp_path, alone, flags, processes, replicas):
    result = tmp_path / "result.json"
    finished = train("--steps", 6, "--json", result, *flags)
    assert finished.returncode == 0, finished.stderr
    assert rows(tmp_path / "run", "loss") == pytest.approx(alone[0], rel=1e-4)
    assert rows(tmp_path / "run", "validation_loss") == pytest.approx(alone[1], rel=1e-4)
    summary = json.loads(result.read_text())
    assert (summary["ranks"], summary["replicas"]) == (processes, replicas)
    if replicas > processes:
        ranks = json.loads((tmp_path / "run" / "memory.json").read_text())["ranks"]
        peaks = [peak for rank in ranks for peak in rank["replica_peak_bytes"]]
        assert len(ranks) == processes and len(peaks) == replicas and min(peaks) > 0
        if "data_parallel" in flags:
            assert peaks[0] > 1.3 * peaks[1]  # gradients, outputs and the optimizer are on the first


def test_a_run_resumes_under_another_number_of_replicas(train, tmp_path, alone):
    train("--steps", 3, "--strategy", "mirrored", "--replicas", 2, "--batch-size", 4, "--checkpoint-every", 3).check_returncode()
    resumed = train("--steps", 6, "--strategy", "central_storage", "--replicas", 4, "--batch-size", 2, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert rows(tmp_path / "run", "loss") == pytest.approx(alone[0], rel=1e-4)


@pytest.mark.parametrize("flags, facts", [
    (["--strategy", "mirrored", "--replicas", 0], ["--replicas", "0", "above 0"]),
    (["--strategy", "mirrored", "--set", "devices=cpu,gpu"], ["gpu", "cuda:N"]),
    (["--strategy", "mirrored", "--cross-device-ops", "ring"], ["--cross-device-ops", "ring", "hierarchical_copy", "nccl"]),
    (["--strategy", "mirrored", "--replicas", 2, "--device", "cpu", "--cross-device-ops", "nccl"],
     ["--cross-device-ops nccl", "replica 0", "CPU", "--device cuda"]),
    (["--strategy", "multi_worker_mirrored", "--set", "mwm-implementation=mpi"], ["mwm-implementation", "mpi", "nccl", "ring"]),
    (["--strategy", "multi_worker_mirrored", "--device", "cpu", "--set", "mwm-implementation=nccl"],
     ["mwm-implementation nccl", "CPU", "--device cuda"]),
    (["--strategy", "multi_worker_mirrored", "--device", "cpu", "--set", "mwm-implementation=nccl", "--nproc-per-node", 2],
     ["mwm-implementation nccl", "native", "--backend nccl"]),
    (["--strategy", "multi_worker_mirrored", "--device", "cpu", "--set", "mwm-implementation=nccl", "--replicas", 2],
     ["mwm-implementation nccl", "replica 0", "CPU"]),
    (["--strategy", "mirrored", "--replicas", 3, "--global-batch-size", 8], ["--global-batch-size 8", "3", "9"]),
    (["--strategy", "ddp", "--replicas", 2], ["--replicas", "--strategy ddp", "mirrored"]),
    (["--strategy", "central_storage", "--replicas", 2, "--precision", "O2"], ["central_storage", "master weights", "mirrored"]),
    (["--strategy", "mirrored", "--replicas", 2, "--nproc-per-node", 2], ["mirrored", "2", "multi_worker_mirrored"]),
    (["--strategy", "multi_worker_mirrored", "--replicas", 2, "--bucket-size", "1MiB"],
     ["--bucket-size", "multi_worker_mirrored", "ddp"]),
    (["--strategy", "multi_worker_mirrored", "--replicas", 2, "--codec", "int8", "--set", "mwm-implementation=ring"],
     ["--codec int8", "mwm-implementation ring"]),
])
def test_what_cannot_be_is_refused(train, flags, facts):
    refused = train("--steps", 1, *flags)
    assert refused.returncode == 2, refused.stderr
    for fact in facts:
        assert fact in refused.stderr, refused.stderr


def test_sync_batch_norm_needs_one_replica_per_process(rondo, tmp_path):
    (tmp_path / "data.csv").write_text("a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(100)))
    refused = rondo("train", "--data", tmp_path / "data.csv", "--model", "mlp", "--run-dir", tmp_path / "run", "--steps", 1,
                    "--strategy", "mirrored", "--replicas", 2, "--sync-batch-norm", "--matmul", "libtorch")
    assert refused.returncode == 2 and "--sync-batch-norm" in refused.stderr and "ddp" in refused.stderr, refused.stderr
