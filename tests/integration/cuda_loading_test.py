"""Loading of libtorch's CUDA library: only if a device is requested and the driver has a GPU. Both the library and the
driver are small fakes, so that neither a GPU nor a CUDA build is needed."""
import subprocess

import pytest
from building import cached

CUDA = """
#include <stdio.h>
__attribute__((constructor)) static void begin(void) { fputs("the library of CUDA is loaded\\n", stderr); }
"""
LOADED = "the library of CUDA is loaded"
DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* count) { *count = CARDS; return 0; }
"""


def library(path, source, *flags):
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-shared", "-fPIC", *flags, "-x", "c", "-", "-x", "none", "-o", path], input=source, text=True, check=True)


@pytest.fixture
def torch(rondo_bin, tmp_path):
    """Links to the build's libtorch, with an additional CUDA library."""
    folder = tmp_path / "torch"
    (folder / "lib").mkdir(parents=True)
    real = cached(rondo_bin, "FIND_PACKAGE_MESSAGE_DETAILS_Libtorch").split("]")[0].strip("[")
    (folder / "include").symlink_to(f"{real}/include")
    for path in sorted((folder / "include").resolve().parent.joinpath("lib").iterdir()):
        if path.name != "libtorch_cuda.so":
            (folder / "lib" / path.name).symlink_to(path)
    library(folder / "lib" / "libtorch_cuda.so", CUDA)
    return folder


@pytest.fixture
def train(rondo, torch, tmp_path):
    def run_train(device, *flags, cards=None):
        table = tmp_path / "data.csv"
        table.write_text("a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(60)))
        env = {"LIBTORCH": str(torch)}
        if cards is not None:
            library(tmp_path / "driver" / "libcuda.so.1", DRIVER, f"-DCARDS={cards}")
            env["LD_LIBRARY_PATH"] = str(tmp_path / "driver")
        return rondo("train", "--data", table, "--model", "mlp", "--run-dir", tmp_path / "run", "--steps", 1, "--batch-size", 8,
                     "--progress", "off", "--matmul", "libtorch", "--device", device, *flags, env=env)

    return run_train


@pytest.mark.parametrize("device, cards", [("cpu", 2), ("auto", 0), ("auto", None)])
def test_cpu_training_does_not_load_cuda(train, device, cards):
    result = train(device, cards=cards)
    assert result.returncode == 0 and LOADED not in result.stderr, result.stderr


def test_without_a_card_it_is_not_loaded(train):
    result = train("cuda", cards=0)
    assert result.returncode == 2 and LOADED not in result.stderr, result.stderr
    assert "--device cuda" in result.stderr and "libtorch sees no CUDA device" in result.stderr


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_with_a_card_it_is_loaded(train, device):
    """The library provides no devices, like one of another libtorch."""
    result = train(device, cards=2)
    assert result.returncode == 2 and result.stderr.count(LOADED) == 1, result.stderr
    assert f"--device {device}" in result.stderr and "libtorch_cuda.so was loaded, but it registered no CUDA devices" in result.stderr


def test_the_engine_between_cards_loads_it(train):
    result = train("cpu", "--backend", "nccl")
    assert result.returncode == 2, result.stderr
    assert "no NCCL" in result.stderr or LOADED in result.stderr, result.stderr


@pytest.mark.parametrize("device, code", [("auto", 2), ("cuda", 2), ("cpu", 0)])
def test_a_library_that_it_needs_is_missing(train, torch, tmp_path, device, code):
    library(tmp_path / "libnccl.so.2", "int of_nccl;", "-Wl,-soname,libnccl.so.2")
    library(torch / "lib" / "libtorch_cuda.so", CUDA, "-Wl,--no-as-needed", tmp_path / "libnccl.so.2")
    result = train(device, cards=1)
    assert result.returncode == code and LOADED not in result.stderr, result.stderr
    if code != 0:
        for fact in (f"--device {device}", "cannot be loaded", "libnccl.so.2", "--device cpu"):
            assert fact in result.stderr, result.stderr


def test_required_nccl_names_missing_headers(repository, torch, tmp_path):
    result = subprocess.run(["cmake", "-S", repository, "-B", tmp_path / "build", "-G", "Ninja", f"-DLIBTORCH={torch}", "-DRONDO_NCCL=REQUIRED",
                             "-DRONDO_BUILD_TESTS=OFF", "-DRONDO_BUILD_PYTHON=OFF"], capture_output=True, text=True, timeout=300)
    said = " ".join(result.stderr.split())
    assert result.returncode != 0 and "NCCL is required (-DRONDO_NCCL=REQUIRED)" in said, said
    assert "nccl.h (package nvidia-nccl-cu13 of PyPI, or a CUDA toolkit)" in said, said
