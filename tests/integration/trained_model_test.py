"""`rondo evaluate`, `rondo predict`, `rondo export`, and exchange of models with other programs."""
import csv
import io
import json
import pathlib
import sys

import pytest
from marks import long
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mutate"))

from mutations import reseal  # noqa: E402


@pytest.fixture
def points(tmp_path):
    path = tmp_path / "points.csv"
    generator = torch.Generator().manual_seed(1)
    rows = ["x,y,kind"]
    for i in range(200):
        x, y = (torch.randn(2, generator=generator) * 0.5 + 4 * (i % 2)).tolist()
        rows.append(f"{x:.4f},{y:.4f},{['low', 'high'][i % 2]}")
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("The quick brown fox jumps over the lazy dog. " * 200)
    return path


def done(result):
    assert result.returncode == 0, result.stderr
    return result


SMALL_GPT = ["--model", "gpt", "--layers", 2, "--heads", 2, "--width", 32, "--seq-len", 16]


def test_predictions_have_a_row_for_each_sample(rondo, points, tmp_path):
    done(rondo("train", "--data", points, "--model", "mlp", "--epochs", 5, "--run-dir", "run", "--lr", 1e-2))
    result = done(rondo("predict", "run", "--data", points))
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    kinds = [line.split(",")[2] for line in points.read_text().splitlines()[1:]]
    assert [int(row["sample"]) for row in rows] == list(range(200))
    assert sum(row["class"] == kind for row, kind in zip(rows, kinds)) > 190
    for row in rows:
        assert float(row["p(high)"]) + float(row["p(low)"]) == pytest.approx(1, abs=1e-5)
    # The predicted column may be missing, and the rows few and in another order: properties of the data are those of
    # the training.
    few = tmp_path / "few.csv"
    few.write_text("x,y\n" + "".join(line.rsplit(",", 1)[0] + "\n" for line in points.read_text().splitlines()[11:13]))
    done(rondo("predict", "run", "--data", few, "--format", "jsonl", "-o", "out.jsonl"))
    again = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["class"] for row in again] == [rows[10]["class"], rows[11]["class"]]
    assert again[0]["probabilities"] == pytest.approx([float(rows[10]["p(high)"]), float(rows[10]["p(low)"])], abs=1e-6)

    # With 200 samples in batches of 32 on two or three ranks the last round leaves ranks with a part of a batch or
    # none.
    for ranks in (2, 3):
        done(rondo("predict", "run", "--data", points, "--nproc-per-node", ranks, "-o", "several.csv"))
        several = list(csv.DictReader((tmp_path / "several.csv").open()))
        assert [row["class"] for row in several] == [row["class"] for row in rows]
        assert [float(row["p(high)"]) for row in several] == pytest.approx([float(row["p(high)"]) for row in rows], abs=1e-6)
    assert "--output" in rondo("predict", "run", "--data", points, "--nproc-per-node", 2).stderr

    judged = json.loads(done(rondo("evaluate", "run", "--data", points, "--json", "-")).stdout)
    assert judged["samples"] == 200 and judged["figures"]["accuracy"] > 0.95
    done(rondo("evaluate", "run", "--data", points, "--nproc-per-node", 2, "--json", "two.json"))
    two = json.loads((tmp_path / "two.json").read_text())
    assert two["ranks"] == 2 and two["figures"] == pytest.approx(judged["figures"], rel=1e-6)


def test_numbers_are_learnt_and_predicted(rondo, tmp_path):
    rows = [f"{a},{b},{3 * a - 2 * b + 1}" for a in range(15) for b in range(15)]
    (tmp_path / "plane.csv").write_text("a,b,z\n" + "\n".join(rows) + "\n")
    result = done(rondo("train", "--data", "plane.csv", "--data-kind", "regression", "--model", "mlp", "--epochs", 60,
                        "--lr", 1e-2, "--run-dir", "run", "--json", "-"))
    validation = json.loads(result.stdout)["validation"]
    assert set(validation) == {"loss"} and validation["loss"] < 5
    (tmp_path / "new.csv").write_text("a,b\n3,4\n10,1\n")
    result = done(rondo("predict", "run", "--data", "new.csv", "--format", "jsonl"))
    values = [json.loads(line)["values"][0] for line in result.stdout.splitlines()]
    assert values == pytest.approx([2, 29], abs=4)
    judged = json.loads(done(rondo("evaluate", "run", "--json", "-")).stdout)
    assert judged["figures"]["loss"] == pytest.approx(validation["loss"], rel=1e-4)
    assert rondo("train", "--data", "plane.csv", "--data-kind", "regression", "--model", "mlp", "--loss", "l1", "--steps", 2,
                 "--run-dir", "l1").returncode == 0


def test_evaluates_with_the_runs_metrics(rondo, points, tmp_path):
    chosen = ["--metrics", "accuracy,f1", "--set", "class-weights=0.2,3"]
    result = done(rondo("train", "--data", points, "--model", "mlp", "--steps", 4, *chosen, "--run-dir", "run", "--json", "-"))
    validation = json.loads(result.stdout)["validation"]
    judged = json.loads(done(rondo("evaluate", "run", "--json", "-")).stdout)["figures"]
    assert set(judged) == set(validation) == {"loss", "accuracy", "f1"}
    assert judged == pytest.approx(validation, rel=1e-4)


def test_exports_open_without_rondo(rondo, points, tmp_path):
    done(rondo("train", "--data", points, "--model", "mlp", "--epochs", 2, "--run-dir", "run"))
    done(rondo("export", "run", "-o", "net.pt"))
    done(rondo("export", "run", "-o", "net.safetensors", "--format", "safetensors"))
    weights = load_file(tmp_path / "net.safetensors")
    net = torch.jit.load(str(tmp_path / "net.pt"))
    assert {name: value.tolist() for name, value in net.state_dict().items()} == {
        name: value.tolist() for name, value in weights.items()}
    x = torch.randn(7, 2)
    expected = x
    for i in range(3):
        expected = torch.nn.functional.linear(expected, weights[f"layers.{i}.weight"], weights[f"layers.{i}.bias"])
        expected = expected.relu() if i < 2 else expected
    assert torch.equal(net(x), expected)
    again = rondo("export", "run", "-o", "net.pt")
    assert again.returncode == 2 and "--overwrite" in again.stderr
    assert rondo("export", "run", "-o", "net.pt", "--overwrite").returncode == 0
    refused = rondo("export", "run", "-o", "folder", "--format", "huggingface")
    assert refused.returncode == 2 and "mlp" in refused.stderr and "gpt" in refused.stderr


def test_gpt_roundtrip_through_hugging_face(rondo, text, tmp_path):
    import transformers
    done(rondo("train", "--data", text, *SMALL_GPT, "--steps", 20, "--run-dir", "run"))
    done(rondo("export", "run", "-o", "net.pt"))
    done(rondo("export", "run", "-o", "hf", "--format", "huggingface"))
    tokens = torch.randint(256, (3, 11))
    with torch.no_grad():
        ours = torch.jit.load(str(tmp_path / "net.pt"))(tokens)
        theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "hf").eval()
        assert torch.allclose(theirs(tokens).logits, ours, atol=1e-4)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    sentence = "Grüße, “world”!\n"
    assert tokenizer(sentence)["input_ids"] == list(sentence.encode())
    assert tokenizer.decode(list(sentence.encode())) == sentence

    def weights_of(folder, *flags):
        done(rondo("train", "--data", text, "--model", "gpt", "--steps", 1, "--lr", 0, "--run-dir", folder, *flags))
        done(rondo("export", folder, "-o", f"{folder}.safetensors", "--format", "safetensors"))
        return load_file(tmp_path / f"{folder}.safetensors")

    first = {name: value for name, value in load_file(tmp_path / "hf" / "model.safetensors").items()}
    back = weights_of("back", "--from-pretrained", "hf")
    assert set(first) == set(back)
    for name, value in back.items():
        turned = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
        assert torch.equal(first[name].T if turned else first[name], value), name
    # The output of transformers itself, for a model with a tied head.
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=256, n_positions=24, n_embd=32, n_layer=2, n_head=4)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "tied")
    tied = weights_of("from_tied", "--from-pretrained", "tied")
    assert "lm_head.weight" not in tied and tied["transformer.wpe.weight"].shape == (24, 32)
    done(rondo("export", "from_tied", "-o", "tied.pt"))
    with torch.no_grad():
        theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "tied").eval()(tokens).logits
        assert torch.allclose(torch.jit.load(str(tmp_path / "tied.pt"))(tokens), theirs, atol=1e-4)
    done(rondo("evaluate", "from_tied"))
    for change, facts in [({"model_type": "llama"}, ["model_type", "llama", "gpt2"]), ({"vocab_size": 300}, ["256", "300"]),
                          ({"n_layer": 3}, ["transformer.h.2"])]:
        document = json.loads((tmp_path / "hf" / "config.json").read_text()) | change
        (tmp_path / "bad").mkdir(exist_ok=True)
        (tmp_path / "bad" / "config.json").write_text(json.dumps(document))
        (tmp_path / "bad" / "model.safetensors").write_bytes((tmp_path / "hf" / "model.safetensors").read_bytes())
        result = rondo("train", "--data", text, "--model", "gpt", "--from-pretrained", "bad", "--steps", 1)
        assert result.returncode in (1, 2)
        assert all(fact in result.stderr for fact in facts), result.stderr


def test_a_gpt_of_tokens_reads_what_transformers_reads(rondo, text, tmp_path):
    """A folder of GPT-2's kind with a tokenizer: the loss of the whole text equals Python's."""
    import transformers
    import tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator([text.read_text()], tokenizers.trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    torch.manual_seed(0)
    size = tokenizer.get_vocab_size()
    config = transformers.GPT2Config(vocab_size=size + 6, n_positions=16, n_embd=32, n_layer=2, n_head=4)
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(tmp_path / "folder")
    tokenizer.save(str(tmp_path / "folder" / "tokenizer.json"))
    done(rondo("train", "--data", text, "--model", "gpt", "--from-pretrained", "folder", "--steps", 1, "--lr", 0, "--run-dir", "run"))
    judged = json.loads(done(rondo("evaluate", "run", "--data", text, "--json", "-")).stdout)
    tokens = torch.tensor(tokenizer.encode(text.read_text()).ids)
    windows = (len(tokens) - 1) // 16
    with torch.no_grad():
        logits = model(tokens[:windows * 16].view(windows, 16)).logits
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:windows * 16 + 1])
    assert judged["samples"] == windows
    assert judged["figures"]["loss"] == pytest.approx(expected.item(), rel=1e-4)
    done(rondo("export", "run", "-o", "again", "--format", "huggingface"))
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (tmp_path / "folder" / "tokenizer.json").read_bytes()
    (tmp_path / "folder" / "tokenizer.json").unlink()
    result = rondo("train", "--data", text, "--model", "gpt", "--from-pretrained", "folder", "--steps", 1)
    assert result.returncode == 2 and "256" in result.stderr and str(size + 6) in result.stderr


def test_a_bert_goes_to_hugging_face(rondo, tmp_path):
    import transformers
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "very"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "reviews.tsv").write_text("pos\ta very good film\nneg\ta bad film\n" * 20)
    done(rondo("train", "--data", "reviews.tsv", "--model", "bert-tiny", "--vocabulary", "vocab.txt", "--seq-len", 16, "--steps", 5,
               "--run-dir", "run", timeout=120))
    done(rondo("export", "run", "-o", "net.pt"))
    done(rondo("export", "run", "-o", "hf", "--format", "huggingface"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
    assert theirs.config.id2label == {0: "neg", 1: "pos"}
    encoded = tokenizer(["a very good film"], padding="max_length", max_length=16, return_tensors="pt")
    packed = torch.stack([encoded["input_ids"], encoded["token_type_ids"], encoded["attention_mask"]], 1)
    with torch.no_grad():
        assert torch.allclose(torch.jit.load(str(tmp_path / "net.pt"))(packed), theirs(**encoded).logits, atol=1e-4)
    result = done(rondo("predict", "run", "--data", "reviews.tsv", "--format", "jsonl"))
    assert {json.loads(line)["class"] for line in result.stdout.splitlines()} <= {"pos", "neg"}


def said_by_ranks(result):
    return [line for line in result.stderr.splitlines() if line.startswith("[rank ")]


@pytest.mark.parametrize("program", ["evaluate", "predict"])
def test_an_error_of_all_ranks_is_said_once(rondo, points, tmp_path, program):
    needed = {"evaluate": ["--data", points], "predict": ["--data", points, "-o", "out.csv"]}[program]
    result = rondo(program, tmp_path, *needed, "--nproc-per-node", 2)
    assert result.returncode == 2, result.stderr
    said = said_by_ranks(result)
    assert len(said) == 1 and "config.json" in said[0], result.stderr


def test_output_that_cannot_be_written_is_said_once(rondo, points):
    done(rondo("train", "--data", points, "--model", "mlp", "--steps", 1, "--run-dir", "run"))
    for words in (["predict", "-o"], ["evaluate", "--json"]):
        result = rondo(words[0], "run", "--data", points, "--nproc-per-node", 2, words[1], "missing/out")
        assert result.returncode == 1, result.stderr
        said = said_by_ranks(result)
        assert len(said) == 1 and "missing/out" in said[0], result.stderr


@pytest.mark.parametrize("program", [long("evaluate"), "predict", "export"])
def test_wrong_usage(rondo, points, tmp_path, program):
    needed = {"evaluate": [], "predict": ["--data", points], "export": ["-o", "out.pt"]}[program]
    done(rondo("train", "--data", points, "--model", "mlp", "--steps", 1, "--run-dir", "run"))
    for words, facts in [([tmp_path, *needed], ["config.json"]), (["nowhere", *needed], ["nowhere"]),
                         (["run", *needed, "--checkpoint", "nowhere"], ["nowhere"])]:
        result = rondo(program, *words)
        assert result.returncode == 2, result.stderr
        assert all(fact in result.stderr for fact in facts), result.stderr
    assert rondo(program, "--help").returncode == 0
    if program == "export":
        return
    state = next((tmp_path / "run" / "checkpoints").glob("step-*")) / "state.json"
    (tmp_path / "wide.csv").write_text("a,b,c,kind\n1,2,3,low\n4,5,6,high\n")
    (tmp_path / "other.csv").write_text("x,y,kind\n1,2,middle\n4,5,high\n")
    for file, facts in [("wide.csv", ["3", "2", "features", "data.json"]), ("other.csv", ["line 2", "middle", "high, low", "data.json"])]:
        result = rondo(program, "run", "--data", tmp_path / file)
        assert result.returncode == 1, result.stderr
        assert all(fact in result.stderr for fact in facts), result.stderr
    # The checkpoint describes another model than the data's.
    content = json.loads(state.read_text())
    config = content["values"]["model"]["config"]
    assert config["input_shape"] == [2]
    config["input_shape"] = [None]
    state.write_text(json.dumps(content))
    reseal(state.parent)
    result = rondo(program, "run", "--data", points)
    assert result.returncode == 1 and all(fact in result.stderr for fact in ["points.csv", "[2]", "[null]", state.parent.name]), result.stderr
