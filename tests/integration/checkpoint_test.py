"""rondo checkpoint on files that are made here byte by byte, as another program would make them."""
import json
import struct

import numpy
import pytest
from safetensors_files import read_safetensors, write_safetensors


@pytest.fixture
def checkpoint(run, rondo_bin):
    return lambda *arguments: run(rondo_bin / "rondo-checkpoint", *arguments)


@pytest.fixture
def weights(tmp_path):
    tensors = {"body.0.weight": numpy.arange(6, dtype="float32").reshape(2, 3),
               "body.0.bias": numpy.ones(2, dtype="float32"), "count": numpy.array(7, dtype="int64")}
    write_safetensors(tmp_path / "weights.safetensors", tensors)
    return tensors


def test_convert_there_and_back(checkpoint, weights, tmp_path):
    for source, destination in [("weights.safetensors", "model.pt"), ("model.pt", "checkpoints/"),
                                ("checkpoints", "back.safetensors")]:
        result = checkpoint("convert", source, destination)
        assert result.returncode == 0, result.stderr
    back = read_safetensors(tmp_path / "back.safetensors")
    assert set(back) == set(weights)
    for name, array in weights.items():
        assert numpy.array_equal(back[name], array)
    assert checkpoint("diff", "weights.safetensors", "checkpoints").returncode == 0
    assert checkpoint("verify", "checkpoints").stdout.endswith("step-00000000: intact\n")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit announces its deprecation
def test_weights_of_python(checkpoint, weights, tmp_path):
    torch = pytest.importorskip("torch", reason="the Python package that carries libtorch is not in this environment")
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    torch.save(dict(module.state_dict()), tmp_path / "dict.pt")
    torch.jit.save(torch.jit.script(module), tmp_path / "script.pt")
    torch.save(module.state_dict(), tmp_path / "ordered.pt")
    for name in ("dict.pt", "script.pt", "ordered.pt"):
        result = checkpoint("convert", name, "python.safetensors", "--overwrite")
        assert result.returncode == 0, result.stderr
        converted = read_safetensors(tmp_path / "python.safetensors")
        assert set(converted) == set(module.state_dict())
        assert numpy.array_equal(converted["0.weight"], module[0].weight.detach().numpy())
    # dtypes without a storage type, which Python writes with an untyped storage.
    rare = {str(dtype): torch.tensor([0, 1, 2]).to(dtype) for dtype in (torch.uint16, torch.uint32, torch.uint64)}
    torch.save(rare | {"float8": torch.ones(3).to(torch.float8_e5m2)}, tmp_path / "rare.pt")
    for source, destination in (("rare.pt", "rare.safetensors"), ("rare.safetensors", "again.pt"), ("again.pt", "again.safetensors")):
        result = checkpoint("convert", source, destination)
        assert result.returncode == 0, result.stderr
    assert checkpoint("diff", "rare.safetensors", "again.safetensors").returncode == 0
    torch.save(dict(module.state_dict()), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    result = checkpoint("convert", "old.pt", "x.safetensors")
    assert result.returncode == 1 and "before PyTorch 1.6" in result.stderr and "torch.save" in result.stderr
    # Other pickled objects are no weights, and their classes are not looked up.
    torch.save(torch.nn.ModuleList(), tmp_path / "objects.pt")
    result = checkpoint("convert", "objects.pt", "x.safetensors")
    assert result.returncode == 1
    assert "objects.pt" in result.stderr
    assert not (tmp_path / "x.safetensors").exists()


def test_inspect_lists_what_is_there(checkpoint, weights, tmp_path):
    checkpoint("convert", "weights.safetensors", "run/checkpoints")
    result = checkpoint("inspect", "run", "--json", "-")
    listing = json.loads(result.stdout)
    assert listing["step"] == 0
    model = listing["files"][0]
    assert model["elements"] == 9
    assert {t["name"]: t["shape"] for t in model["tensors"]}["body.0.weight"] == [2, 3]
    text = checkpoint("inspect", "weights.safetensors").stdout
    assert "body.0.weight" in text and "float32" in text and "[2, 3]" in text


def test_diff_measures(checkpoint, weights, tmp_path):
    other = dict(weights, count=numpy.array(9, dtype="int64"), extra=numpy.zeros(1, dtype="float32"))
    other["body.0.weight"] = weights["body.0.weight"] + numpy.float32(0.5)
    other["body.0.bias"] = numpy.ones(3, dtype="float32")
    write_safetensors(tmp_path / "other.safetensors", other)
    result = checkpoint("diff", "weights.safetensors", "other.safetensors", "--json", "diff.json")
    assert result.returncode == 1
    differences = {d["name"]: d for d in json.loads((tmp_path / "diff.json").read_text())["differences"]}
    assert differences["body.0.weight"]["largest_difference"] == 0.5
    assert differences["body.0.weight"]["elements_that_differ"] == 6
    assert differences["body.0.bias"]["difference"] == "shape or dtype"
    assert differences["extra"]["difference"] == "only in right"
    assert "count: values: 1 of 1 elements, by up to 2.0" in result.stdout


def test_verify_names_the_damaged_tensor(checkpoint, weights, tmp_path):
    checkpoint("convert", "weights.safetensors", "checkpoints/")
    path = tmp_path / "checkpoints" / "step-00000000" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = checkpoint("verify", "checkpoints", "--json", "-")
    assert result.returncode == 1
    assert "model.safetensors, tensor 'body.0.bias'" in result.stderr
    assert json.loads(result.stdout)["intact"] is False


@pytest.mark.parametrize("arguments, code, expected", [
    (["inspect", "missing"], 2, "missing: No such file"),
    (["inspect", "."], 1, "holds no manifest.json"),
    (["inspect", "garbage.safetensors"], 1, "garbage.safetensors: "),
    (["convert", "weights.safetensors", "x.onnx"], 2, "x.onnx"),
    (["convert", "weights.safetensors", "weights.safetensors"], 2, "--overwrite"),
    (["convert", "garbage.safetensors", "x.pt"], 1, "garbage.safetensors: "),
    (["verify"], 2, "CHECKPOINT is required"),
    (["reverse"], 2, "'reverse' is not a command"),
    ([], 2, "subcommand"),
])
def test_bad_input(checkpoint, weights, tmp_path, arguments, code, expected):
    (tmp_path / "garbage.safetensors").write_bytes(b"not a safetensors file at all")
    result = checkpoint(*arguments)
    assert result.returncode == code, result.stderr
    assert expected in result.stderr
    assert not (tmp_path / "x.pt").exists()
