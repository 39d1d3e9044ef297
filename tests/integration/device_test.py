"""Devices and engines that are not here, as a user meets them: each is one error, with exit code 2, before anything is trained."""
import pytest


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(60)))
    return file


@pytest.fixture
def train(rondo, tmp_path, table):
    def run_train(*flags):
        return rondo("train", "--data", table, "--model", "mlp", "--run-dir", tmp_path / "run", "--steps", 1, "--batch-size", 8,
                     "--progress", "off", "--matmul", "default", *flags, env={"CUDA_VISIBLE_DEVICES": ""})

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
    (["--strategy", "mirrored", "--devices", "cpu,cuda:0"], ["cuda:0", "libtorch sees is 0"]),
    (["--backend", "nccl"], ["NCCL"]),
    (["--backend", "hierarchical(native, nccl)"], ["hierarchical(native, nccl)", "--backend nccl"]),
])
def test_a_device_or_engine_that_is_not_here_is_refused(train, tmp_path, flags, facts):
    refused(train(*flags), *facts)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_build_without_nccl_says_what_it_takes(train):
    result = train("--backend", "nccl")
    if "no GPU" not in result.stderr:  # what a build with NCCL says
        refused(result, "no NCCL", "libtorch with CUDA", "headers")


def test_other_programs_take_the_same_names(train, rondo, table, tmp_path):
    trained = train("--device", "auto", "--checkpoint-every", 1)
    assert trained.returncode == 0, trained.stderr
    for program in ("evaluate", "predict"):
        words = [program, tmp_path / "run", "--data", table]
        refused(rondo(*words, "--device", "cuda:0", env={"CUDA_VISIBLE_DEVICES": ""}), "--device cuda:0", "--device cpu")
        refused(rondo(*words, "--device", "cuda:x"), "cuda:x", "cuda:N")
