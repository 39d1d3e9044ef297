"""BERT compared with `transformers`: equal tokens and logits for the same files, and fine-tuning from its folders."""
import json
import os
import random
import struct
import unicodedata

import numpy
import pytest
from marks import long

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

WORDS = ("the a film book was is good bad fine poor slow great dull story long play , . ! ? ' ##s ##ing ##ed un ##able "
         "##aff c ##a ##f ##e cafe naive 你 好 안 α β").split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CONTEXT = 64


def make_folder(folder, head, vocabulary=tuple(WORDS), **overrides):
    """Writes a Hugging Face folder with a small model of random weights; returns the model and its tokenizer."""
    import torch
    import transformers

    tokens = SPECIAL + list(vocabulary)
    config = transformers.BertConfig(vocab_size=len(tokens), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                     intermediate_size=48, max_position_embeddings=CONTEXT, **overrides)
    torch.manual_seed(7)
    model = getattr(transformers, head)(config).eval()
    with torch.no_grad():  # the initial norms and biases would hide an error
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    tokenizer = transformers.BertTokenizer(vocab={token: i for i, token in enumerate(tokens)}, model_max_length=CONTEXT)
    return model, tokenizer


@pytest.fixture
def predict(run, rondo_bin, clean_environment):
    """predict(folder, task, lines) returns the output of the example bert_predict for each line."""

    def run_predict(folder, task, lines):
        result = run(rondo_bin / "examples" / "bert_predict", folder, task, env=clean_environment, input="\n".join(lines) + "\n",
                     encoding="utf-8")
        assert result.returncode == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    return run_predict


TEXTS = ["The film was good.", "a DULL, long story!!", "café naïve CAFÉ", "你好 the book", "안 α Β", "", "unaffable films",
         "the book\tthe film is bad", "  tabs and   spaces ", "the " * 80, "a " * 50 + "\t" + "film " * 40,
         "film " * 5 + "\t" + "a " * 90, "x" * 101 + " film", "[MASK] film [SEP] book"]


def encode(tokenizer, text):
    first, tab, second = text.partition("\t")
    return tokenizer(first, second if tab else None, truncation="longest_first", max_length=CONTEXT, return_tensors="pt")


@pytest.mark.parametrize("activation", ["gelu", long("gelu_new"), long("relu")])
def test_logits_of_a_classifier_equal_those_of_transformers(predict, tmp_path, activation):
    model, tokenizer = make_folder(tmp_path, "BertForSequenceClassification", hidden_act=activation)
    for text, ours in zip(TEXTS, predict(tmp_path, "classify", TEXTS), strict=True):
        theirs = encode(tokenizer, text)
        assert ours["tokens"] == theirs["input_ids"][0].tolist(), text
        numpy.testing.assert_allclose(ours["logits"], model(**theirs).logits[0].detach().numpy(), atol=1e-5, rtol=0, err_msg=text)


def test_language_model_logits_equal_transformers(predict, tmp_path):
    model, tokenizer = make_folder(tmp_path, "BertForMaskedLM")
    texts = ["the [MASK] was good", "[MASK] [MASK]\tthe [MASK] film", "no mask"]
    for text, ours in zip(texts, predict(tmp_path, "mlm", texts), strict=True):
        theirs = encode(tokenizer, text)
        logits = model(**theirs).logits[0][theirs["input_ids"][0] == tokenizer.mask_token_id].detach().numpy()
        assert len(ours["logits"]) == len(logits) == text.count("[MASK]")
        if len(logits):
            numpy.testing.assert_allclose(ours["logits"], logits, atol=1e-5, rtol=0, err_msg=text)


def test_files_with_the_old_names_load(predict, tmp_path):
    """gamma and beta, both names of the tied output layer, and leftover weights of other heads."""
    import torch
    from safetensors.torch import load_file, save_file

    model, tokenizer = make_folder(tmp_path, "BertForMaskedLM")
    tensors = load_file(tmp_path / "model.safetensors")
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
           for name, value in tensors.items()}
    old["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.seq_relationship.weight"] = torch.zeros(2, 32)
    old["bert.embeddings.position_ids"] = torch.arange(CONTEXT)
    save_file(old, tmp_path / "model.safetensors")
    text = "the [MASK] was good"
    theirs = encode(tokenizer, text)
    logits = model(**theirs).logits[0][2].detach().numpy()
    numpy.testing.assert_allclose(predict(tmp_path, "mlm", [text])[0]["logits"][0], logits, atol=1e-5, rtol=0)


def odd_texts(count):
    """Returns random texts of characters of all scripts, spaces, marks, punctuation and control characters."""
    source = random.Random(5)
    blocks = [(0x20, 0x7F), (0xA0, 0x250), (0x250, 0x530), (0x530, 0x800), (0x900, 0x1100), (0x1100, 0x1200),
              (0x1D00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2C00), (0x3000, 0x3400), (0x4E00, 0x4F00), (0xA640, 0xA830),
              (0xAC00, 0xD7B0), (0xF900, 0xFB50), (0xFE00, 0x10000), (0x10400, 0x10500), (0x1D400, 0x1D800), (0x1F300, 0x1F700),
              (0x20000, 0x20100), (0x2F800, 0x2FA20), (0x300, 0x370), (0xE0000, 0xE0100), (0x0, 0x20)]
    texts = []
    for _ in range(count):
        characters = []
        for _ in range(source.randrange(1, 40)):
            low, high = source.choice(blocks[:3] if source.random() < 0.3 else blocks)
            characters.append(chr(source.randrange(low, high)))
            if source.random() < 0.2:
                characters.append(" ")
        texts.append("".join(c for c in characters if c not in "\n\r\t"))
    return texts


def test_odd_texts_are_cut_as_transformers_cuts_them(predict, tmp_path):
    from tokenizers.normalizers import BertNormalizer

    texts = odd_texts(500)
    # The vocabulary has every character, alone and inside a word, except for a tenth of them.
    normalized = "".join(BertNormalizer().normalize_str(text) for text in texts)
    characters = sorted(set(normalized) - set(" ") - {"[", "]"})
    vocabulary = [piece for i, c in enumerate(characters) if i % 10 for piece in (c, "##" + c)]
    _, tokenizer = make_folder(tmp_path, "BertForSequenceClassification", vocabulary)
    for text, ours in zip(texts, predict(tmp_path, "classify", texts), strict=True):
        names = " ".join(unicodedata.name(c, hex(ord(c))) for c in text)
        assert ours["tokens"] == encode(tokenizer, text)["input_ids"][0].tolist(), names


def test_the_unicode_tables_are_those_of_the_reference(repository):
    """Compares a sample of the output of scripts/make_unicode_tables.py: every 37th character and all of the first
    page."""
    from tokenizers.normalizers import BertNormalizer

    source = (repository / "rondo" / "data" / "unicode_tables.cpp").read_text()
    normalizer = BertNormalizer(handle_chinese_chars=False)
    entries = {}
    for line in source[source.index("Single lowered_to_one"):].splitlines():
        for entry in line.strip().strip("{},").split("},{"):
            numbers = entry.replace("{", "").replace("}", "").split(",")
            if all(n.startswith("0x") for n in numbers):
                entries[int(numbers[0], 16)] = "".join(chr(int(n, 16)) for n in numbers[1:])
    assert len(entries) > 3000
    for point in [*range(0x20, 0x2000), *range(0x2000, 0x20000, 37)]:
        if 0xAC00 <= point < 0xE000:
            continue
        expected = normalizer.normalize_str(chr(point))
        if expected not in ("", " ", chr(point)):
            assert entries.get(point) == expected, hex(point)
        else:
            assert point not in entries, hex(point)


# Training


@pytest.fixture
def labelled(tmp_path):
    """Writes a file of texts whose class says whether they contain good or bad words."""
    source = random.Random(3)
    lines = []
    for _ in range(120):
        label = source.choice(["pos", "neg"])
        telling = ["good", "great", "fine"] if label == "pos" else ["bad", "poor", "dull"]
        words = source.choices(["the", "a", "film", "book", "was", "is", "story"], k=6) + source.choices(telling, k=2)
        source.shuffle(words)
        lines.append(f"{label}\t{' '.join(words)}")
    (tmp_path / "labelled.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path / "labelled.tsv"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "init").mkdir()
    make_folder(tmp_path / "init", "BertForMaskedLM")
    return tmp_path / "init"


def rows(run_directory):
    return [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]


def losses(run_directory):
    return [row["loss"] for row in rows(run_directory) if row["rank"] == 0 and "loss" in row]


BERT = ["--model", "bert", "--seq-len", 16, "--log-every", 1, "--lr", 1e-3, "--seed", 2]


def test_fine_tuning_becomes_distributed_by_a_flag(rondo, labelled, folder, tmp_path):
    flags = [*BERT, "--task", "classify", "--data", labelled, "--from-pretrained", folder, "--freeze", "embeddings", "--epochs", 10,
             "--global-batch-size", 12, "--eval-batch-size", 64, "--validation-fraction", 0.2]
    results = {}
    for name, more in {"one": ["--strategy", "one_device"], "two": ["--strategy", "ddp", "--nproc-per-node", 2]}.items():
        result = rondo("train", *flags, *more, "--run-dir", tmp_path / name, "--json", tmp_path / f"{name}.json")
        assert result.returncode == 0, result.stderr
        assert result.stderr.count("newly initialised") == 1 and "classifier. bert.pooler." in result.stderr
        assert "not used of" in result.stderr and "cls.predictions.bias" in result.stderr
        results[name] = json.loads((tmp_path / f"{name}.json").read_text())
    assert losses(tmp_path / "two")[:24] == pytest.approx(losses(tmp_path / "one")[:24], rel=2e-4, abs=1e-5)
    assert results["one"]["validation"]["accuracy"] == results["two"]["validation"]["accuracy"] > 0.9
    assert len(losses(tmp_path / "one")) == 80

    # The embeddings' weights are still those of the file.
    from safetensors.torch import load_file

    trained = load_file(sorted((tmp_path / "two" / "checkpoints").iterdir())[-1] / "model.safetensors")
    initial = load_file(folder / "model.safetensors")
    assert trained["bert.embeddings.word_embeddings.weight"].equal(initial["bert.embeddings.word_embeddings.weight"])
    assert not trained["bert.encoder.layer.0.output.dense.weight"].equal(initial["bert.encoder.layer.0.output.dense.weight"])


def test_a_fine_tuned_model_opens_in_transformers(rondo, labelled, folder, tmp_path):
    import shutil

    import torch
    import transformers

    # A folder from transformers 5 has no vocab.txt.
    vocabulary = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").unlink()
    transformers.BertTokenizer(vocab={token: i for i, token in enumerate(vocabulary)}).save_pretrained(folder)
    result = rondo("train", *BERT, "--data", labelled, "--from-pretrained", folder, "--steps", 3, "--batch-size", 12, "--run-dir",
                   tmp_path / "run")
    assert result.returncode == 0, result.stderr
    checkpoint = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1] / "model.safetensors"
    opened = tmp_path / "opened"
    opened.mkdir()
    shutil.copy(checkpoint, opened / "model.safetensors")
    shutil.copy(folder / "config.json", opened / "config.json")
    model, info = transformers.BertForSequenceClassification.from_pretrained(opened, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    from safetensors.torch import load_file
    for name, value in load_file(checkpoint).items():
        assert torch.equal(dict(model.state_dict())[name], value), name


def test_masked_tokens_depend_on_epoch_only(rondo, folder, tmp_path):
    source = random.Random(1)
    text = "\n".join(" ".join(source.choices(WORDS[:16], k=12)) for _ in range(40))
    (tmp_path / "text.txt").write_text(text)
    flags = [*BERT, "--task", "mlm", "--data", tmp_path / "text.txt", "--vocabulary", folder / "vocab.txt", "--layers", 1,
             "--heads", 2, "--width", 16, "--model-config", '{"intermediate": 32}', "--epochs", 2, "--global-batch-size", 6]
    for name, more in {"one": [], "two": ["--nproc-per-node", 2]}.items():
        result = rondo("train", *flags, *more, "--run-dir", tmp_path / name)
        assert result.returncode == 0, result.stderr
        assert "validation loss" in result.stdout and "perplexity" in result.stdout
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)


def test_fine_tuning_resumes_bit_for_bit(rondo, labelled, folder, tmp_path):
    flags = [*BERT, "--data", labelled, "--from-pretrained", folder, "--freeze", "embeddings,layer.0", "--batch-size", 16,
             "--checkpoint-every", 3]
    assert rondo("train", *flags, "--steps", 6, "--run-dir", tmp_path / "whole").returncode == 0
    assert rondo("train", *flags, "--steps", 3, "--run-dir", tmp_path / "parts").returncode == 0
    result = rondo("train", "--run-dir", tmp_path / "parts", "--resume", "--steps", 6)
    assert result.returncode == 0, result.stderr
    assert losses(tmp_path / "parts")[-3:] == losses(tmp_path / "whole")[-3:]


def write_images(folder):
    """Writes images of bright bands: the class is the row."""
    source = numpy.random.default_rng(1)
    labels = source.integers(0, 4, 64).astype(numpy.uint8)
    images = source.integers(0, 60, (64, 8, 8)).astype(numpy.uint8)
    for image, label in zip(images, labels):
        image[2 * label:2 * label + 2] += 150
    folder.mkdir()
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 64, 8, 8) + images.tobytes())
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 64) + labels.tobytes())
    return folder


def test_synchronised_batch_norm_trains_as_one_process_does(rondo, tmp_path):
    flags = ["train", "--model", "convnet", "--data", write_images(tmp_path / "images"), "--model-config",
             '{"batch_norm": true, "features": [8]}', "--dropout", 0.2, "--sync-batch-norm", "--epochs", 2,
             "--global-batch-size", 8, "--log-every", 1, "--optimizer", "sgd", "--lr", 0.05]
    assert rondo(*flags, "--run-dir", tmp_path / "one").returncode == 0
    result = rondo(*flags, "--run-dir", tmp_path / "two", "--nproc-per-node", 2)
    assert result.returncode == 0, result.stderr
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-3, abs=1e-4)

    result = rondo("train", "--model", "convnet", "--data", tmp_path / "images", "--sync-batch-norm")
    assert result.returncode == 2 and "has no batch normalisation" in result.stderr


def break_tensor(folder, change):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("change, message, code", [
    (lambda f: break_tensor(f, lambda t: t.pop("bert.encoder.layer.1.output.dense.bias")),
     "tensor 'bert.encoder.layer.1.output.dense.bias' of the model is missing", 1),
    (lambda f: break_tensor(f, lambda t: t.update({"bert.embeddings.LayerNorm.bias": t["cls.predictions.bias"].clone()})),
     "tensor 'bert.embeddings.LayerNorm.bias' has shape", 1),
    (lambda f: (f / "model.safetensors").write_bytes(b"nonsense"), "model.safetensors", 1),
    (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors", 1),
    (lambda f: (f / "config.json").unlink(), "config.json: No such file", 1),
    (lambda f: (f / "config.json").write_text('{"model_type": "gpt2"}'), 'model_type is "gpt2", expected "bert"', 1),
    (lambda f: (f / "vocab.txt").unlink(), "vocab.txt", 1),
    (lambda f: (f / "vocab.txt").rename(f / "tokenizer.json"), "tokenizer.json': expected the tokenizer.json of a BERT", 1),
    (lambda f: (f / "vocab.txt").write_text("\n".join(SPECIAL + [f"w{i}" for i in range(500)])),
     "the vocabulary has 505 tokens", 2),
])
def test_names_bad_pretrained_folder_once(rondo, labelled, folder, tmp_path, change, message, code):
    change(folder)
    result = rondo("train", *BERT, "--data", labelled, "--from-pretrained", folder, "--run-dir", tmp_path / "run")
    assert result.returncode == code, result.stderr
    assert message in result.stderr and not (tmp_path / "run").exists()


@pytest.mark.parametrize("flags, message", [
    (["--model", "gpt-tiny", "--task", "mlm"], "--task has no effect with --model gpt-tiny"),
    (["--model", "mlp", "--from-pretrained", "."], "--from-pretrained has no effect with --model mlp"),
    (["--model", "bert"], "--vocabulary"),
    (["--model", "bert", "--from-pretrained", "/nowhere"], "--from-pretrained: /nowhere: No such file"),
    (["--model", "bert", "--from-pretrained", "INIT", "--seq-len", 65], "the model of --from-pretrained has 64 positions"),
    (["--model", "bert", "--from-pretrained", "INIT", "--freeze", "embedding"], "cannot freeze 'embedding'"),
    (["--model", "bert", "--from-pretrained", "INIT", "--data-kind", "csv"], "trains on labelled_text"),
    (["--model", "bert", "--task", "translate"], "--task"),
])
def test_flags_that_do_not_go_together(rondo, labelled, folder, tmp_path, flags, message):
    flags = [str(folder) if flag == "INIT" else flag for flag in flags]
    result = rondo("train", "--data", labelled, "--run-dir", tmp_path / "run", *flags)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr


def test_a_bad_line_is_named(rondo, labelled, folder, tmp_path):
    labelled.write_text(labelled.read_text() + "no label here\n")
    result = rondo("train", *BERT, "--data", labelled, "--from-pretrained", folder)
    assert result.returncode == 1 and f"'{labelled}', line 121: no tab" in result.stderr


def test_the_fine_tuning_example(run, rondo, rondo_bin, labelled, folder, clean_environment):
    program = rondo_bin / "examples" / "finetune_bert"
    one = run(program, folder, labelled, "one_device", env=clean_environment)
    two = rondo("run", "-n", 2, program, folder, labelled, "ddp")
    assert one.returncode == 0 and two.returncode == 0, one.stderr + two.stderr
    numbers = [[float(word) for line in out.splitlines() for word in line.split()[-3::2]] for out in (one.stdout, two.stdout)]
    assert len(numbers[0]) == 6 and numbers[0] == pytest.approx(numbers[1], rel=1e-3)
