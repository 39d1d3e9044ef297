"""`--device sim`, the accelerator of rondo's tests (tests/sim), as a user runs it; tests/sim/*_test.cpp test its
trainings."""
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from launching import all_gone, wait_until
from marks import long
from train_test import worker_pids

SMALL = ["--model", "gpt-tiny", "--width", 32, "--seq-len", 32, "--log-every", 1, "--seed", 3,
         "--progress", "off", "--eval-batches", 1, "--loader-threads", 0]


@pytest.fixture
def train(rondo, tmp_path, repository):
    def run_train(*flags, run_dir="run", env=None, steps=12):
        others = [] if "--layers" in flags else ["--layers", 1]
        others += [] if "--trace-steps" in flags else ["--trace-steps", 0]
        others += [] if {"--batch-size", "--global-batch-size"} & set(flags) else ["--global-batch-size", 16]
        return rondo("train", "--data", repository / "README.md", "--run-dir", tmp_path / run_dir, *SMALL, "--steps", steps, *others, *flags,
                     env={"OMP_NUM_THREADS": "1"} | (env or {}))

    return run_train


def losses(run_directory):
    rows = [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["rank"] == 0 and "loss" in row]


@pytest.mark.parametrize("device, backend", [long("sim", "auto"), long("sim:0", "auto"), ("sim", "nccl")])
def test_planned_training_as_on_cpu(train, tmp_path, device, backend):
    """Over nccl, which does not support CPU tensors, also link measurements, and the ranks' exchange of metrics, clocks
    and signals."""
    flags = ["--nproc-per-node", 2, "--strategy", "planned", "--memory-limit", "1GiB", "--plan-time-limit", "1s", "--trace-steps", 2,
             "--checkpoint-every", 4]
    train(*flags, "--device", "cpu", run_dir="cpu").check_returncode()
    train(*flags, "--device", device, "--backend", backend, run_dir="device").check_returncode()
    assert losses(tmp_path / "device") == pytest.approx(losses(tmp_path / "cpu"), rel=1e-4)


def test_replicas_of_a_process_have_a_device_each(train, tmp_path):
    flags = ["--strategy", "mirrored", "--replicas", 2]
    for env, facts in (({"RONDO_SIM_DEVICES": "1"}, ["2 replicas", "sim:1"]), ({}, ["sim:0 twice"])):
        more = ["--set", "devices=sim:0,sim:0"] if not env else []
        refused = train(*(flags if env else flags[:2]), *more, "--device", "sim", env=env)
        assert refused.returncode == 2, refused.stderr
        assert all(fact in refused.stderr for fact in facts), refused.stderr


def test_replicas_of_several_ranks_share_no_device(train, tmp_path):
    flags = ["--strategy", "multi_worker_mirrored", "--nproc-per-node", 2, "--replicas", 2]
    train(*flags, "--device", "cpu", run_dir="cpu").check_returncode()
    trained = train(*flags, "--device", "sim", "--backend", "nccl", run_dir="device")
    assert trained.returncode == 0, trained.stderr
    assert losses(tmp_path / "device") == pytest.approx(losses(tmp_path / "cpu"), rel=1e-4)
    refused = train(*flags, "--device", "sim", env={"RONDO_SIM_DEVICES": "3"})
    assert refused.returncode == 2, refused.stderr
    assert all(fact in refused.stderr for fact in ("2 ranks", "2 replicas", "takes 4 devices", "is 3")), refused.stderr
    # For all ranks together the number is that of the first device.
    assert train(*flags, "--device", "sim:0", env={"RONDO_SIM_DEVICES": "2"}, steps=1).returncode == 0


# tests/sim trains on the others, too.
@pytest.mark.parametrize("mesh", [long("pipeline=2,context=2"), "pipeline=2,tensor=2", long("pipeline=2,data=2")])
def test_meshes_train_over_nccl_as_on_the_cpu(train, tmp_path, mesh):
    flags = ["--nproc-per-node", 4, "--mesh", mesh, "--micro-batches", 4, "--layers", 2]
    train(*flags, "--device", "cpu", run_dir="cpu").check_returncode()
    trained = train(*flags, "--device", "sim", "--backend", "nccl", run_dir="device")
    assert trained.returncode == 0, trained.stderr
    assert losses(tmp_path / "device") == pytest.approx(losses(tmp_path / "cpu"), rel=1e-4)


@pytest.mark.parametrize("flags", [["--strategy", "parameter_server", "--workers", 2, "--ps-mode", "sync"],
                                   ["--strategy", "grouped", "--nproc-per-node", 2, "--ps-groups", 1],
                                   ["--strategy", "data_parallel", "--replicas", 2]], ids=lambda flags: flags[1])
def test_other_strategies_train_as_on_the_cpu(train, tmp_path, flags):
    """Strategies that tests/sim/strategies_test.cpp leaves out: their ranks are workers and servers, or replicas."""
    flags = [*flags, "--max-grad-norm", 1, "--activation-checkpointing", "all", "--batch-size", 4]
    for device in ("cpu", "sim"):
        train(*flags, "--device", device, run_dir=device).check_returncode()
    assert losses(tmp_path / "sim") == pytest.approx(losses(tmp_path / "cpu"), rel=1e-4)


CALLBACKS = ["--eval-every", 2, "--early-stopping-patience", 20, "--set", "restore-best=true", "--set", "lr-plateau-patience=20",
             "--set", "terminate-on-nan=true", "--set", "gradient-norm-every=2", "--warmup-steps", 2,
             "--lr-schedule", "cosine", "--log-to", "csv,jsonl,tensorboard", "--trace-steps", 2, "--checkpoint-every", 4]


@pytest.mark.parametrize("device, flags", [("sim:0", ["--memory-checkpoint-every", 3, "--max-restarts", 1, "--set", "checkpoint-incremental=true",
                                                      "--set", "check-parameters-every=3"]),
                                           ("sim", ["--ema-decay", 0.9, "--strategy", "zero2", "--checkpoint-async"])], ids=["memory", "average"])
def test_callbacks_and_checkpoints_as_on_cpu(train, tmp_path, device, flags):
    flags = ["--nproc-per-node", 2, *CALLBACKS, *flags]
    for where in ("cpu", device):
        train(*flags, "--device", where, run_dir=where).check_returncode()
    rows = [[json.loads(line) for line in (tmp_path / where / "metrics.jsonl").read_text().splitlines()] for where in ("cpu", device)]
    for key in ("loss", "validation_loss", "gradient_norm"):
        on_cpu, on_device = ([row[key] for row in run if key in row] for run in rows)
        assert len(on_cpu) >= 6 and on_device == pytest.approx(on_cpu, rel=1e-4), key


def test_counts_work_and_evaluates_on_both_devices(train, rondo, tmp_path):
    counts = tmp_path / "counts"
    counts.mkdir()
    train("--device", "sim", env={"RONDO_SIM_COUNTS": str(counts)}).check_returncode()
    counted = json.loads((counts / "rank-0.json").read_text())
    # Each batch copies its inputs and targets, and each step reports a loss.
    assert counted["host_to_device"] >= 24 and counted["device_to_host"] >= 12
    assert counted["synchronisations"] > 0 and counted["operators"]["aten::_fused_adamw_"] == 12
    found = {device: json.loads(rondo("evaluate", tmp_path / "run", "--device", device, "--json", "-").stdout)["figures"]["loss"]
             for device in ("cpu", "sim:1")}
    assert found["sim:1"] == pytest.approx(found["cpu"], rel=1e-4)


@pytest.mark.parametrize("device, facts", [("sim:4", ["sim:0 to sim:3", "RONDO_SIM_DEVICES"]), ("sim:x", ["sim:x", "auto, cpu, cuda"]),
                                           ("gpu", ["gpu", "auto, cpu, cuda"])])
def test_a_device_that_is_not_there_is_refused(train, device, facts):
    refused = train("--device", device)
    assert refused.returncode == 2
    assert all(fact in refused.stderr for fact in facts), refused.stderr


@pytest.mark.parametrize("ranks, device, devices, facts", [(2, "sim:0", 4, ["2 ranks of host", "share 1 card (sim:0)"]),
                                                           (3, "sim", 2, ["3 ranks of host", "share 2 cards (sim:0, sim:1)"])])
def test_shared_devices_warn_or_fail_over_nccl(train, ranks, device, devices, facts):
    flags = ["--device", device, "--nproc-per-node", ranks, "--global-batch-size", 4 * ranks]
    refused = train(*flags, "--backend", "nccl", env={"RONDO_SIM_DEVICES": str(devices)})
    assert refused.returncode == 2
    assert all(fact in refused.stderr for fact in [*facts, "--backend nccl", "one rank per GPU", "--backend native"]), refused.stderr
    trained = train(*flags, env={"RONDO_SIM_DEVICES": str(devices)}, steps=1)
    assert trained.returncode == 0, trained.stderr
    assert all(fact in trained.stderr for fact in facts), trained.stderr


@pytest.mark.parametrize("flags", [["--dropout", 0.1], ["--nproc-per-node", 2, "--strategy", "zero2", "--checkpoint-sharded"]],
                         ids=["whole", "parts"])
def test_device_checkpoint_resumes_on_cpu(train, tmp_path, flags):
    """The second program has not loaded the accelerator, as on a machine without a GPU."""
    train("--device", "cpu", *flags, run_dir="cpu").check_returncode()
    train("--device", "sim:1" if len(flags) == 2 else "sim", *flags, steps=6).check_returncode()
    resumed = train("--device", "cpu", "--resume", *flags)
    assert resumed.returncode == 0, resumed.stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "cpu"), rel=1e-4)


def test_an_installed_program_has_none(installed, clean_environment, repository, tmp_path):
    words = [installed / "bin" / "rondo", "train", "--data", repository / "README.md", "--run-dir", tmp_path / "run", *SMALL, "--steps", 1, "--device",
             "sim"]
    refused = subprocess.run([str(word) for word in words], env=clean_environment, text=True, capture_output=True, timeout=120)
    assert refused.returncode == 2
    assert "--device sim" in refused.stderr and "tests" in refused.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.tooling
def test_gpu_check_runs_without_gpu(rondo_bin, clean_environment, repository, tmp_path):
    """Loaded libraries, trainings over the simulated NCCL; times are only measured on GPUs."""
    found = tmp_path / "found.json"
    command = [sys.executable, repository / "scripts" / "gpu_check", "--programs", rondo_bin, "--peers", repository / "bench" / "peers",
               "--device", "sim", "--only", "loading", "--only", "nccl", "--only", "speed", "--json", found]
    finished = subprocess.run([str(word) for word in command], env=clean_environment, text=True, capture_output=True, timeout=240)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    checks = json.loads(found.read_text())["checks"]
    assert {check["status"] for check in checks if check["part"] in ("loading", "nccl")} == {"ok"}
    assert {check["status"] for check in checks if check["part"] == "speed"} == {"skipped"}


# Over the simulated NCCL a collective with a failed peer never ends.


def start_over_nccl(rondo, tmp_path, repository, *flags):
    process = rondo.start("train", "--data", repository / "README.md", "--run-dir", tmp_path / "run", *SMALL, "--layers", 1, "--trace-steps", 0,
                          "--global-batch-size", 16, "--nproc-per-node", 2, "--device", "sim", "--backend", "nccl", *flags)
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") >= 8, "some steps are done")
    return process, worker_pids(process.pid)


@pytest.mark.parametrize("name", ["KILL", "STOP"])
def test_lost_rank_ends_job_over_nccl(rondo, repository, tmp_path, name):
    process, ranks = start_over_nccl(rondo, tmp_path, repository, "--steps", 100000)
    os.kill(ranks[1], getattr(signal, f"SIG{name}"))
    _, err = process.communicate(timeout=240)
    assert process.returncode not in (0, 2, 3)
    assert re.search(r"rank 1\b", err), err
    all_gone(ranks.values())


@pytest.mark.parametrize("every", [long("--checkpoint-every"), "--memory-checkpoint-every"])
def test_nccl_job_resumes_from_checkpoint(rondo, train, repository, tmp_path, every):
    flags = [every, 4, "--strategy", "zero3", "--max-restarts", 1]
    train("--nproc-per-node", 2, *flags, run_dir="undisturbed", steps=60).check_returncode()
    process, ranks = start_over_nccl(rondo, tmp_path, repository, "--steps", 60, *flags)
    os.kill(ranks[1], signal.SIGKILL)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert losses(tmp_path / "run")[-1] == pytest.approx(losses(tmp_path / "undisturbed")[-1], rel=1e-4)
