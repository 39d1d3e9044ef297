"""Custom models in every program: a shared module and TorchScript, in train, profile, plan, evaluate, predict,
export."""
import json

import pytest
from marks import long
import torch
from safetensors.torch import load_file


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """Returns a table of three classes of points in the plane."""
    path = tmp_path_factory.mktemp("table") / "points.csv"
    generator = torch.Generator().manual_seed(1)
    rows = ["x,y,kind"]
    for i in range(300):
        kind = i % 3
        x, y = (torch.randn(2, generator=generator) * 0.3 + torch.tensor([[0.0, 3.0], [3.0, 0.0], [-3.0, -3.0]][kind])).tolist()
        rows.append(f"{x:.4f},{y:.4f},{['ant', 'bee', 'cow'][kind]}")
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="session")
def module(rondo_bin):
    path = rondo_bin.parent / "lib" / "libown_model.so"
    assert path.exists(), "build target own_model"
    return path


@pytest.fixture(scope="session")
def script(tmp_path_factory):
    """Returns a TorchScript model of points, saved by Python."""
    path = tmp_path_factory.mktemp("script") / "net.pt"
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    torch.jit.script(net).save(str(path))
    return path


@pytest.fixture
def train(rondo, table):
    def run_train(model, *flags, data=table, **options):
        return rondo("train", "--data", data, "--model", model, "--lr", 1e-2, "--run-dir", "run", *flags, timeout=120,
                     **options)

    return run_train


STRATEGIES = [[], ["--nproc-per-node", 2], ["--nproc-per-node", 2, "--strategy", "zero3"],
              ["--nproc-per-node", 2, "--strategy", "zero2", "--precision", "O2", "--activation-checkpointing", "all"]]


@pytest.mark.parametrize("flags", [STRATEGIES[0], *map(long, STRATEGIES[1:3]), STRATEGIES[3]])
def test_a_module_trains_and_is_judged(train, rondo, module, tmp_path, flags):
    result = train(f"{module}:make_model", "--epochs", 6, "--unit-rules", "type:Linear", "--json", "result.json", *flags)
    assert result.returncode == 0, result.stderr
    trained = json.loads((tmp_path / "result.json").read_text())
    assert trained["model"]["name"] == "libown_model.so:make_model"
    assert trained["validation"]["accuracy"] > 0.9
    judged = rondo("evaluate", "run", "--json", "-")
    assert judged.returncode == 0, judged.stderr
    figures = json.loads(judged.stdout)["figures"]
    # The weights are the same; at O2 training rounded them.
    assert figures["accuracy"] == pytest.approx(trained["validation"]["accuracy"], abs=0.04)
    assert figures["loss"] == pytest.approx(trained["validation"]["loss"], rel=1e-4 if "--precision" not in flags else 0.1)


@pytest.mark.parametrize("flags", [*map(long, STRATEGIES[:2]), STRATEGIES[2]])
def test_torchscript_trains_and_is_exported(train, rondo, script, tmp_path, flags):
    result = train(script, "--epochs", 4, *flags)
    assert result.returncode == 0, result.stderr
    exported = rondo("export", "run", "-o", "trained.pt", "--json", "-")
    assert exported.returncode == 0, exported.stderr
    assert json.loads(exported.stdout)["model"] == "net.pt"
    judged = rondo("evaluate", "run", "--json", "figures.json", "--nproc-per-node", 2)
    assert judged.returncode == 0, judged.stderr
    assert json.loads((tmp_path / "figures.json").read_text())["figures"]["accuracy"] > 0.9
    before, after = torch.jit.load(str(script)), torch.jit.load(str(tmp_path / "trained.pt"))
    assert after(torch.ones(5, 2)).shape == (5, 3)
    assert not torch.equal(before(torch.ones(5, 2)), after(torch.ones(5, 2)))


def test_relative_paths_serve_from_any_folder(train, rondo, module, tmp_path):
    (tmp_path / "libmine.so").symlink_to(module)
    assert train("./libmine.so:make_model", "--steps", 2).returncode == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["model"] == f"{tmp_path}/libmine.so:make_model"
    # Without --run-dir the folder has only the file's name.
    assert rondo("train", "--config", "run/config.json", "--steps", 1).returncode == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()][0].endswith("-libmine")


@pytest.fixture(params=["module", long("script")])
def own(request, module, script):
    """Returns for a model of each kind: the value of --model, its units, and flags for units."""
    if request.param == "script":
        return script, ["root"], []
    return f"{module}:make_model", ["root", "block0", "block1", "output.0"], ["--unit-rules", "name:output.*"]


def test_profile_and_plan(rondo, own, train, tmp_path):
    model, units, flags = own
    shape = json.dumps({"input_shape": [2], "classes": 3})
    result = rondo("profile", "--model", model, "--model-config", shape, *flags, "--batch-size", 32, "--passes", 2, "--largest",
                   "64KiB", "--json", "profile.json")
    assert result.returncode == 0, result.stderr
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert [unit["name"] for unit in profile["units"]] == units
    planned = rondo("plan", "profile.json", "--memory-limit", "1GiB", "--plan-out", "plan.json", "--quiet")
    assert planned.returncode == 0, planned.stderr
    result = train(model, *flags, "--nproc-per-node", 2, "--strategy", "planned", "--plan", "plan.json", "--steps", 3)
    assert result.returncode == 0, result.stderr


def test_plans_and_trains_custom_model(own, train, tmp_path):
    model, units, flags = own
    result = train(model, *flags, "--nproc-per-node", 2, "--strategy", "planned", "--memory-limit", "1GiB", "--plan-time-limit",
                   "1s", "--epochs", 6, "--json", "result.json")
    assert result.returncode == 0, result.stderr
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["feasible"] and [unit["name"] for unit in plan["units"]] == units
    assert json.loads((tmp_path / "result.json").read_text())["validation"]["accuracy"] > 0.9


def test_a_module_predicts_and_is_exported(rondo, module, train, tmp_path):
    (tmp_path / "new.csv").write_text("x,y\n0,3\n3,0\n-3,-3\n")
    assert train(f"{module}:make_model", "--epochs", 6).returncode == 0
    predicted = rondo("predict", "run", "--data", "new.csv", "--format", "jsonl")
    assert predicted.returncode == 0, predicted.stderr
    rows = [json.loads(line) for line in predicted.stdout.splitlines()]
    assert [row["class"] for row in rows] == ["ant", "bee", "cow"]
    exported = rondo("export", "run", "-o", "net.pt", "--json", "-")
    assert exported.returncode == 0, exported.stderr
    said = json.loads(exported.stdout)
    # Its forward depends on the number of samples.
    assert said["model"] == "libown_model.so:make_model" and said["samples"] == 2
    exported = rondo("export", "run", "-o", "net.safetensors", "--format", "safetensors")
    assert exported.returncode == 0, exported.stderr
    weights, x = load_file(tmp_path / "net.safetensors"), torch.randn(2, 2)
    value = torch.nn.functional.linear(x, weights["input.weight"], weights["input.bias"])
    for block in ("block0", "block1"):
        value = value + torch.nn.functional.linear(value, weights[f"{block}.linear.weight"], weights[f"{block}.linear.bias"]).relu()
    expected = torch.nn.functional.linear(value, weights["output.0.weight"], weights["output.0.bias"])
    assert torch.allclose(torch.jit.load(str(tmp_path / "net.pt"))(x), expected, atol=1e-5)


BURNT_MS = 40  # hundreds of times the model's need: on no machine the other rank computes as long


def test_a_rank_that_is_slow_is_named(train, rondo, module, tmp_path):
    """The other rank waits as long for it, and waiting does not count as compute."""
    slow = json.dumps({"slow_rank": 1, "burnt_ms": BURNT_MS})
    trained = train(f"{module}:make_model", "--model-config", slow, "--nproc-per-node", 2, "--batch-size", 4, "--steps", 20)
    assert trained.returncode == 0, trained.stderr
    report = rondo("report", "run", "--json", "-")
    assert report.returncode == 0, report.stderr
    straggler = json.loads(report.stdout)["straggler"]
    assert straggler["rank"] == 1 and straggler["part"] == "forward of block1", straggler
    assert straggler["compute_ms"] > BURNT_MS and straggler["others_ms"] < straggler["compute_ms"] / 2, straggler
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    waited = [row["exposed_comm_ms"] for row in steps if row["rank"] == 0 and "exposed_comm_ms" in row]
    assert sum(waited) / len(waited) > BURNT_MS / 2
    assert json.loads(rondo("top", "run", "--json", "-").stdout)["straggler"].startswith("rank 1 ")


@pytest.mark.parametrize("model, rules, units", [
    long("mlp", "type:Linear", ["layers.0", "layers.1", "layers.2"]),
    ("mlp", "parameters:10000", ["root", "layers.0"]),
    ("convnet", "all", ["features.0", "features.3", "classifier.0", "classifier.2"]),
])
def test_built_in_models_have_units_by_rules(rondo, tmp_path, model, rules, units):
    result = rondo("profile", "--model", model, "--unit-rules", rules, "--passes", 2, "--largest", "64KiB", "--json", "p.json")
    assert result.returncode == 0, result.stderr
    assert [unit["name"] for unit in json.loads((tmp_path / "p.json").read_text())["units"]] == units


def test_text_trains_a_module_of_tokens(rondo, script, tmp_path):
    """Data of any kind: the model is built from the data's properties."""
    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(256, 256)

        def forward(self, tokens):
            return self.table(tokens)

    torch.jit.script(Tokens()).save(str(tmp_path / "bigram.pt"))
    (tmp_path / "text.txt").write_text("abcabcabc " * 500)
    result = rondo("train", "--data", "text.txt", "--model", "bigram.pt", "--seq-len", 16, "--steps", 20, "--lr", 0.1,
                   "--run-dir", "run", "--json", "-")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["validation"]["perplexity"] < 20
    predicted = rondo("predict", "run", "--data", "text.txt", "--format", "jsonl")
    assert predicted.returncode == 0, predicted.stderr
    assert len(json.loads(predicted.stdout.splitlines()[0])["tokens"]) == 16


def save(path, forward):
    """Writes a TorchScript file of a class with this forward."""
    namespace = {"torch": torch}
    source = f"import torch\nfrom typing import Dict, Tuple\nclass Odd(torch.nn.Module):\n{forward}\n"
    (path.parent / "odd_model.py").write_text(source)
    import importlib.util
    spec = importlib.util.spec_from_file_location("odd_model", path.parent / "odd_model.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    torch.jit.script(loaded.Odd()).save(str(path))


def test_what_cannot_be_a_model(train, rondo_bin, module, script, tmp_path, repository):
    (tmp_path / "text.pt").write_text("no archive")
    (tmp_path / "text.so").write_text("no module")
    save(tmp_path / "two.pt", "    def forward(self, x, y):\n        return x + y")
    save(tmp_path / "dict.pt", "    def forward(self, x) -> Dict[str, torch.Tensor]:\n        return {'x': x}")
    archive = script.read_bytes()
    assert b"return" in archive
    (tmp_path / "damaged.pt").write_bytes(archive.replace(b"return", b"retur("))
    stale = rondo_bin.parent / "lib" / "libstale_model.so"
    engine = rondo_bin.parent / "lib" / "store_backend.so"
    for model, facts in [
        (f"{module}:make_another", ["libown_model.so", "make_another", "ModelRequest"]),
        (f"{module}:make_nothing", ["make_nothing", "module and forward"]),
        (f"{module}:", ["libown_model.so", "FACTORY"]),
        (f"{stale}:make_model", ["libstale_model.so", "libtorch 1.0.0", f"libtorch {torch.__version__.split('+')[0]}"]),
        (f"{engine}:make_model", ["store_backend.so", "rondo_model("]),
        ("text.so:make_model", ["text.so", "rondo_model("]),
        ("none.so:make_model", ["none.so", "no such file"]),
        ("none.pt", ["none.pt", "no such file"]),
        ("text.pt", ["text.pt", "TorchScript"]),
        ("damaged.pt", ["damaged.pt", "TorchScript"]),
        ("two.pt", ["two.pt", "Tensor y", "forward(self, x: Tensor)"]),
        ("dict.pt", ["dict.pt", "Dict", "tuple or list"]),
        ("resnet", ["--model resnet", "mlp", "FILE.so:FACTORY"]),
    ]:
        result = train(model, "--steps", 1)
        assert result.returncode == 2, (model, result.stderr)
        for fact in facts:
            assert fact in result.stderr, (model, fact, result.stderr)
        assert not (tmp_path / "run").exists() or list((tmp_path / "run").iterdir()) == []
    # The factory's own error.
    result = train(f"{module}:make_model", "--model-config", '{"width": 0}')
    assert result.returncode == 2 and "own_model: width is 0" in result.stderr
    result = train(f"{module}:make_model", "--unit-rules", "type:Conv2d")
    assert result.returncode == 2 and "--unit-rules" in result.stderr and "output.0" in result.stderr
    # Rules cannot match inside TorchScript.
    result = train(script, "--unit-rules", "type:Linear")
    assert result.returncode == 2 and "--unit-rules" in result.stderr and "net.pt" in result.stderr
    result = train(f"{module}:make_model", "--unit-rules", "kind:Conv2d")
    assert result.returncode == 2 and "parameters:COUNT" in result.stderr
    result = train(f"{module}:make_model", "--layers", 3)
    assert result.returncode == 2 and "--layers" in result.stderr


class Unused(torch.nn.Module):
    """A model of points with an unused layer."""

    def __init__(self):
        super().__init__()
        self.used, self.spare = torch.nn.Linear(2, 3), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.used(x)


@pytest.mark.parametrize("flags", [["--strategy", "ddp"], long(["--strategy", "zero1"])])
def test_unused_parameter_error_names_the_flag(train, tmp_path, flags):
    torch.jit.script(Unused()).save(str(tmp_path / "unused.pt"))
    words = ["--steps", 2, "--nproc-per-node", 2, *flags]
    refused = train("unused.pt", *words)
    assert refused.returncode == 2 and "spare.weight" in refused.stderr, refused.stderr
    assert "--find-unused-parameters" in refused.stderr
    ways = [["--find-unused-parameters"], *([["--set", "static-graph=true"]] if "ddp" in flags else [])]
    for way in ways:
        result = rondo_result(train("unused.pt", *words, *way, "--run-dir", tmp_path / way[-1].strip("-")))
        assert "after step 2" in result


def rondo_result(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


class WordClassifier(torch.nn.Module):
    """A classifier of texts by the mean of their tokens: the input is tokens, token types and the mask."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.embedding(x[:, 0]).mean(1))


def test_custom_model_reads_labelled_text(train, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]) + "\n")
    (tmp_path / "reviews.tsv").write_text("label\ttext\n" + "yes\ta good film\nno\tbad film\n" * 20)
    torch.jit.script(WordClassifier()).save(str(tmp_path / "words.pt"))
    words = ["--data-kind", "labelled_text", "--seq-len", 8, "--steps", 2, "--batch-size", 4]
    asked = train("words.pt", *words, data="reviews.tsv")
    assert asked.returncode == 2 and "--vocabulary" in asked.stderr and "DataOptions::vocabulary_file" in asked.stderr
    assert "after step 2" in rondo_result(train("words.pt", *words, "--vocabulary", "vocab.txt", data="reviews.tsv"))
