"""A C++ program trains alike under every launcher: rondo run, torchrun and mpirun."""
import importlib.util
import json
import re
import shutil
import subprocess
import sys

import pytest
from marks import long

RANKS = 2
LAUNCHERS = {
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", RANKS],
    "mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", RANKS],
}


def losses(output):
    """Returns rank 0's losses as text: to the last digit."""
    return re.findall(r"loss ([-\d.e+]+)", output)


@pytest.fixture
def launcher(request):
    if request.param == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("Open MPI is not installed (make setup-peers)")
    if request.param == "torchrun" and importlib.util.find_spec("torch") is None:
        pytest.skip("torchrun comes with the Python package torch, which this Python has not")
    return LAUNCHERS[request.param]


@pytest.mark.parametrize("launcher", [long("torchrun"), "mpirun"], indirect=True)
def test_losses_are_those_of_rondo_run(launcher, rondo, rondo_bin, clean_environment, tmp_path):
    program = rondo_bin / "examples" / "minimal"
    own = rondo("run", "-n", RANKS, program, timeout=180)
    assert own.returncode == 0, own.stderr
    other = subprocess.run([*map(str, launcher), program], env=clean_environment, cwd=tmp_path, capture_output=True, text=True,
                           timeout=300)
    assert other.returncode == 0, other.stderr
    assert len(losses(own.stdout)) == 6
    assert losses(other.stdout) == losses(own.stdout)
    alone = subprocess.run([program], env=clean_environment, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert losses(alone.stdout) != losses(own.stdout), "the ranks did not train together"


@pytest.fixture
def other_kernels_are_faster(clean_environment, matmul_measurements, tmp_path):
    """If a processor has a choice of kernels for matrix products, makes the non-default ones the measured choice,
    unless a flag disables them."""
    measured = json.loads(matmul_measurements.read_text()) if matmul_measurements.exists() else {"measurements": []}
    for measurement in measured["measurements"]:
        measurement["default"]["gflops"], measurement["fast"]["gflops"] = 1.0, 100.0
    path = tmp_path / "matmul.json"
    path.write_text(json.dumps(measured))
    clean_environment["RONDO_MATMUL_MEASUREMENTS"] = str(path)


@pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
@pytest.mark.usefixtures("other_kernels_are_faster")
def test_the_training_program_trains_alike(launcher, rondo, rondo_bin, clean_environment, tmp_path):
    """`rondo train`'s worker, which `rondo run` also starts; --matmul reaches it under every launcher."""
    table = tmp_path / "table.csv"
    table.write_text("a,b,label\n" + "".join(f"{i},{i * 0.5},{i % 2}\n" for i in range(32)))
    flags = ["--model", "mlp", "--data", table, "--data-kind", "csv", "--label-column", "label", "--steps", "4",
             "--batch-size", "2", "--seed", "1", "--matmul", "libtorch", "--run-dir"]

    def rows(run):
        lines = map(json.loads, (tmp_path / run / "metrics.jsonl").read_text().splitlines())
        return sorted((row["step"], row["rank"], row["loss"]) for row in lines if "loss" in row)

    own = rondo("train", *flags, tmp_path / "own", "--nproc-per-node", RANKS, timeout=180)
    assert own.returncode == 0, own.stderr
    command = [*launcher, rondo_bin / "rondo-train-worker", *flags, tmp_path / "other"]
    other = subprocess.run(list(map(str, command)), env=clean_environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert other.returncode == 0, other.stderr
    assert {step for step, _, _ in rows("own")} == {1, 2, 3, 4}
    assert rows("other") == rows("own")
