"""Missing devices and engines as a user meets them: each is one error with exit code 2, before any training."""
import json

import pytest
import safetensors.torch
import torch


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(60)))
    return file


@pytest.fixture
def train(rondo, tmp_path, table):
    def run_train(*flags):
        return rondo("train", "--data", table, "--model", "mlp", "--run-dir", tmp_path / "run", "--steps", 1, "--batch-size", 8,
                     "--progress", "off", "--matmul", "libtorch", *flags, env={"CUDA_VISIBLE_DEVICES": ""})

    return run_train


def refused(result, *facts):
    assert result.returncode == 2, (result.returncode, result.stderr)
    for fact in facts:
        assert fact in result.stderr, result.stderr
    assert "Traceback" not in result.stderr and "c10::" not in result.stderr, result.stderr


@pytest.mark.parametrize("flags, facts", [
    (["--device", "cuda"], ["--device cuda", "--device cpu"]),
    (["--device", "cuda:7"], ["--device cuda:7", "--device cpu"]),
    (["--device", "cuda", "--nproc-per-node", 2], ["--device cuda", "--device cpu"]),
    (["--device", "cuda", "--strategy", "mirrored", "--replicas", 2], ["--device cuda", "--device cpu"]),
    (["--device", "gpu"], ["--device gpu", "auto", "cpu", "cuda:N"]),
    (["--device", "cuda:"], ["--device cuda:", "cuda:N"]),
    (["--device", "cuda:300"], ["--device cuda:300", "cuda:N"]),
    (["--strategy", "mirrored", "--set", "devices=cpu,cuda:0"], ["cuda:0", "libtorch sees is 0", "built without CUDA"]),
    (["--backend", "nccl"], ["NCCL"]),
    (["--backend", "hierarchical(native, nccl)"], ["hierarchical(native, nccl)", "--backend nccl"]),
])
def test_refuses_unavailable_device_or_engine(train, tmp_path, flags, facts):
    refused(train(*flags), *facts)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_build_without_nccl_says_what_it_takes(train):
    result = train("--backend", "nccl")
    if "no GPU" not in result.stderr:  # a build with NCCL has this message
        refused(result, "no NCCL", "libtorch with CUDA", "headers")


def test_other_programs_take_the_same_names(train, rondo, table, tmp_path):
    trained = train("--device", "auto", "--checkpoint-every", 1)
    assert trained.returncode == 0, trained.stderr
    for program in ("evaluate", "predict"):
        words = [program, tmp_path / "run", "--data", table]
        refused(rondo(*words, "--device", "cuda:0", env={"CUDA_VISIBLE_DEVICES": ""}), "--device cuda:0", "--device cpu")
        refused(rondo(*words, "--device", "cuda:x"), "cuda:x", "cuda:N")


def test_reads_archive_of_unavailable_device(rondo, train, tmp_path):
    """torch.save writes the device of each tensor; only the values matter."""
    torch.serialization.register_package(0, lambda storage: "cuda:3", lambda storage, location: None)
    try:
        module = torch.nn.Linear(3, 2)
        torch.save(module.state_dict(), tmp_path / "cuda.pt")
    finally:
        torch.serialization._package_registry = [entry for entry in torch.serialization._package_registry if entry[0] != 0]
    assert b"cuda:3" in (tmp_path / "cuda.pt").read_bytes()
    converted = rondo("checkpoint", "convert", tmp_path / "cuda.pt", tmp_path / "there.safetensors")
    assert converted.returncode == 0, converted.stderr
    there = safetensors.torch.load_file(tmp_path / "there.safetensors")
    assert there.keys() == module.state_dict().keys()
    assert all(torch.equal(there[name], tensor) for name, tensor in module.state_dict().items())


def test_resumes_on_another_device(train, tmp_path):
    """The run directory stores --device, as every flag."""
    assert train("--checkpoint-every", 1).returncode == 0
    configuration = tmp_path / "run" / "config.json"
    flags = json.loads(configuration.read_text())
    configuration.write_text(json.dumps(flags | {"device": "cuda:1"}))
    refused(train("--resume", "--steps", 2), "--device cuda:1", "--device cpu")
    resumed = train("--resume", "--steps", 2, "--device", "cpu")
    assert resumed.returncode == 0, resumed.stderr
