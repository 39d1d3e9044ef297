"""Files of tokens, folders and tar files of images, mixtures: from files to a resumed training."""
import io
import json
import math
import pathlib
import random
import struct
import sys
import tarfile
import unicodedata

import pyarrow
import pyarrow.parquet
import pytest
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPT = ["--model", "gpt", "--layers", 1, "--heads", 2, "--width", 16, "--seq-len", 16, "--batch-size", 4]
CONVNET = ["--model", "convnet", "--image-size", 16, "--batch-size", 4, "--validation-fraction", 0.25]


def done(result):
    assert result.returncode == 0, result.stderr
    return result


def words(count, seed=1):
    return " ".join(["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"][(i * i * seed + i // 7) % 9]
                    for i in range(count))


def tokens_of(folder):
    said = json.loads((folder / "tokens.json").read_text())
    code, width = ("H", 2) if said["type"] == "uint16" else ("I", 4)
    data = b"".join((folder / shard["file"]).read_bytes() for shard in said["shards"])
    return said, list(struct.unpack(f"<{len(data) // width}{code}", data))


def losses(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if row["rank"] == 0 and "loss" in row}


@pytest.fixture(scope="session")
def images():
    return {image["name"]: bytes.fromhex(image["file"])
            for image in json.loads((ROOT / "tests" / "data" / "image_reference.json").read_text())["images"]}


def test_tokenizes_as_hugging_face_and_trains(rondo, tmp_path):
    texts = [words(300, seed) for seed in (1, 2, 3)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|endoftext|>"]))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps({"body": text, "other": 1}) + "\n\n" for text in texts))
    done(rondo("tokenize", "pages.jsonl", "-o", "tokens", "--documents", "jsonl", "--field", "body", "--tokenizer",
               "tokenizer.json", "--shard-tokens", 500, "--threads", 3))
    said, found = tokens_of(tmp_path / "tokens")
    end = tokenizer.token_to_id("<|endoftext|>")
    assert found == [token for text in texts for token in [*tokenizer.encode(text).ids, end]]
    assert (said["documents"], said["vocabulary"], said["end_of_document"]) == (3, tokenizer.get_vocab_size(), end)
    assert len(said["shards"]) > 1 and all(shard["tokens"] <= 500 for shard in said["shards"])

    # The tokens in the files equal those of the text itself.
    (tmp_path / "one.txt").write_text(texts[0])
    done(rondo("tokenize", "one.txt", "-o", "one", "--tokenizer", "tokenizer.json", "--eos-token", "none"))
    done(rondo("train", *GPT, "--data", "one", "--steps", 4, "--run-dir", "a", "--log-every", 1))
    done(rondo("train", *GPT, "--data", "one.txt", "--tokenizer", "tokenizer.json", "--steps", 4, "--run-dir", "b", "--log-every", 1))
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    judged = json.loads(done(rondo("evaluate", "a", "--json", "-")).stdout)
    assert judged["samples"] > 0
    done(rondo("train", *GPT, "--data", "tokens", "--steps", 4, "--set", "document-boundaries=masked", "--nproc-per-node", 2))


def test_qwen2_normalizer_equals_hugging_face(rondo, tmp_path):
    """Characters with marks in any order, of any script: all that decompose, and random texts of them."""
    generator = random.Random(11)
    marks = [chr(point) for point in range(0x300, 0x1E950) if unicodedata.combining(chr(point))]
    others = [chr(point) for point in range(0xC0, 0x2FA1E) if unicodedata.decomposition(chr(point))]
    others += [chr(generator.randrange(0xAC00, 0xD7A4)) for _ in range(200)] + [chr(point) for point in range(0x1100, 0x1200)]
    texts = ["".join(others)]
    for _ in range(3000):
        texts.append("".join(generator.choice((marks, marks, others, "aeiou AEO")[generator.randrange(4)])
                             for _ in range(generator.randrange(1, 12))))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    split = tokenizers.Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
                             r"\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(split, behavior="isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.train_from_iterator(texts[:500], tokenizers.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|endoftext|>"]))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    done(rondo("tokenize", "pages.jsonl", "-o", "tokens", "--documents", "jsonl", "--tokenizer", "tokenizer.json"))
    end = tokenizer.token_to_id("<|endoftext|>")
    assert tokens_of(tmp_path / "tokens")[1] == [token for text in texts for token in [*tokenizer.encode(text).ids, end]]


def test_tokens_without_a_description_need_their_vocabulary(rondo, tmp_path):
    (tmp_path / "nano").mkdir()
    (tmp_path / "nano" / "train.bin").write_bytes(struct.pack("<2000H", *(i * i % 61 for i in range(2000))))
    (tmp_path / "nano" / "val.bin").write_bytes(struct.pack("<200H", *(i % 61 for i in range(200))))
    words_of = ["train", *GPT, "--data", "nano", "--data-kind", "tokens", "--steps", 3, "--run-dir"]
    result = rondo(*words_of, "unknown")
    assert result.returncode == 2 and "vocabulary-size" in result.stderr
    done(rondo(*words_of, "known", "--set", "vocabulary-size=61"))
    result = rondo(*words_of, "wrong", "--set", "vocabulary-size=40")
    assert result.returncode == 1 and "train.bin" in result.stderr and "token " in result.stderr
    result = rondo("train", "--model", "mlp", "--data", "nano", "--data-kind", "tokens", "--set", "vocabulary-size=61")
    assert result.returncode == 2 and "gpt" in result.stderr
    result = rondo("tokenize", "nano/val.bin", "-o", "nano")
    assert result.returncode == 2 and "nano" in result.stderr and "empty" in result.stderr
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": 3}\n')
    result = rondo("tokenize", "bad.jsonl", "-o", "out", "--documents", "jsonl")
    assert result.returncode == 1 and "bad.jsonl" in result.stderr and "line 2" in result.stderr
    assert not (tmp_path / "out" / "tokens.json").exists()


def test_mixture_resumes_in_another_world_size(rondo, tmp_path):
    for name, seed in (("a.txt", 1), ("b.txt", 5)):
        (tmp_path / name).write_text(words(1500, seed))
    mixed = ["train", *GPT[:-2], "--data", "a.txt,b.txt", "--data-weights", "0.7,0.3", "--validation-fraction", 0.1, "--log-every", 1]
    done(rondo(*mixed, "--global-batch-size", 12, "--nproc-per-node", 2, "--steps", 12, "--run-dir", "whole"))
    done(rondo(*mixed, "--global-batch-size", 12, "--nproc-per-node", 2, "--steps", 5, "--run-dir", "parts"))
    # On three ranks with the same global batch the training is the same.
    done(rondo("train", "--run-dir", "parts", "--resume", "--steps", 12, "--nproc-per-node", 3))
    whole, parts = losses(tmp_path / "whole"), losses(tmp_path / "parts")
    assert whole.keys() == parts.keys() and all(parts[step] == pytest.approx(whole[step], rel=1e-4) for step in whole)
    # A global batch that does not divide the samples so far: the rest of the epoch is divided again, up to the epoch's
    # end.
    done(rondo("train", "--run-dir", "parts", "--resume", "--nproc-per-node", 3, "--global-batch-size", 21, "--epochs", 1, "--json",
               "end.json"))
    sizes = [(tmp_path / name).stat().st_size for name in ("a.txt", "b.txt")]
    left = sum((size - round(size * 0.1) - 1) // 16 for size in sizes) - 12 * 12
    assert abs(json.loads((tmp_path / "end.json").read_text())["step"] - (12 + -(-left // 21))) <= 1
    done(rondo("evaluate", "whole"))
    done(rondo("evaluate", "whole", "--data", "a.txt"))
    result = rondo(*mixed[:-2], "--data-weights", "1,2,3")
    assert result.returncode == 2 and "has 5 numbers" in result.stderr and "names 2 files" in result.stderr


def folder_of(images, path):
    for name in ("cat", "dog"):
        (path / name).mkdir(parents=True)
        for i, (file, content) in enumerate(sorted(images.items())):
            (path / name / f"{i}{pathlib.Path(file).suffix}").write_bytes(content)


def test_image_folder_resumes_at_the_same_image(rondo, images, tmp_path):
    folder_of(images, tmp_path / "data")
    words_of = ["train", *CONVNET, "--data", "data", "--loader-threads", 2, "--log-every", 1, "--seed", 3]
    done(rondo(*words_of, "--epochs", 3, "--run-dir", "whole"))
    done(rondo(*words_of, "--steps", 5, "--run-dir", "parts"))
    done(rondo("train", "--run-dir", "parts", "--resume", "--epochs", 3, "--loader-threads", 0))
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    rows = done(rondo("predict", "whole", "--data", "data", "--format", "jsonl")).stdout.splitlines()
    assert len(rows) == 2 * len(images) and {json.loads(row)["class"] for row in rows} <= {"cat", "dog"}
    again = done(rondo("predict", "whole", "--data", "data", "--format", "jsonl")).stdout.splitlines()
    assert rows == again, "what is judged is not augmented"


def test_corrupt_image_is_error_or_skipped(rondo, images, tmp_path):
    folder_of(images, tmp_path / "data")
    (tmp_path / "data" / "dog" / "0.jpg").write_bytes(images["plain.jpg"][:600])
    words_of = ["train", *CONVNET, "--data", "data", "--epochs", 2, "--seed", 2]
    result = rondo(*words_of)
    assert result.returncode == 1 and "dog/0.jpg" in result.stderr
    result = done(rondo(*words_of, "--set", "corrupt-images=skip"))
    said = [line for line in result.stderr.splitlines() if "dog/0.jpg" in line]
    assert 1 <= len(said) <= 2 and "1 skipped" in said[0]
    result = rondo(*words_of, "--set", "corrupt-images=maybe")
    assert result.returncode == 2 and "skip" in result.stderr


def test_tar_shards_train_and_resume(rondo, images, tmp_path):
    (tmp_path / "shards").mkdir()
    content = [images[name] for name in sorted(images) if name.endswith(".jpg")]
    for shard in range(3):
        with tarfile.open(tmp_path / "shards" / f"train-{shard}.tar", "w") as archive:
            for i in range(8):
                for name, data in ((f"{i}.jpg", content[(i + shard) % 5]), (f"{i}.cls", str(i % 2).encode())):
                    member = tarfile.TarInfo(f"{shard}/{name}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    words_of = ["train", *CONVNET[:4], "--global-batch-size", 4, "--data", "shards", "--set", "shuffle-window=5", "--nproc-per-node", 2,
                "--log-every", 1]
    done(rondo(*words_of, "--epochs", 2, "--run-dir", "whole"))
    done(rondo(*words_of, "--steps", 4, "--run-dir", "parts"))
    done(rondo("train", "--run-dir", "parts", "--resume", "--epochs", 2, "--nproc-per-node", 1))
    whole, parts = losses(tmp_path / "whole"), losses(tmp_path / "parts")
    assert whole.keys() == parts.keys() and all(parts[step] == pytest.approx(whole[step], rel=1e-3) for step in whole)
    done(rondo("evaluate", "whole"))


@pytest.mark.parametrize("form", ["gnu", "pax", "ustar"])
def test_archives_of_tar_itself_lose_no_sample(rondo, run, images, tmp_path, form):
    """Hard and symbolic links, capital letters, files of a Mac: every member is either in a sample or named."""
    folder = tmp_path / "files"
    folder.mkdir()
    for i in range(6):
        (folder / f"{i}.PNG").write_bytes(images["plain.png"])
        (folder / f"{i}.cls").write_text(str(i % 2))
        (folder / f"._{i}.cls").write_bytes(b"\0\5\26\7")
    for name, target in (("6", "0"), ("7", "1")):
        (folder / f"{name}.PNG").hardlink_to(folder / f"{target}.PNG")
        (folder / f"{name}.cls").hardlink_to(folder / f"{target}.cls")
    (folder / "8.jpg").symlink_to("0.PNG")
    (folder / "8.cls").write_text("1")
    (folder / "README").write_text("what this is")
    done(run("tar", f"--format={form}", "--sort=name", "-cf", "x.tar", "-C", folder, "."))
    words_of = ["train", *CONVNET[:4], "--data", "x.tar", "--validation-fraction", 0, "--steps", 1]
    result = rondo(*words_of, "--batch-size", 10)
    assert result.returncode == 2 and "9 samples for training" in result.stderr, result.stderr
    result = done(rondo(*words_of, "--batch-size", 9))
    assert "7 members" in result.stderr and "._0.cls" in result.stderr, result.stderr


def test_workers_read_files_of_their_own(rondo, tmp_path):
    (tmp_path / "tables").mkdir()
    for part, rows in enumerate((30, 50, 28)):
        (tmp_path / "tables" / f"part-{part}.csv").write_text("a,b,label\n" + "".join(f"{i},{-i},{i % 2}\n" for i in range(rows)))
    words_of = ["train", "--data", "tables", "--model", "mlp", "--batch-size", 4, "--validation-fraction", 0, "--progress", "off", "--log-every", 1,
                "--input-sharding", "file"]
    done(rondo(*words_of, "--nproc-per-node", 2, "--epochs", 1, "--run-dir", "whole"))
    # The first and the third file have 58 rows together, the second 50: the first worker takes 15 batches. Divided by
    # sample it would be 14.
    assert len(losses(tmp_path / "whole")) == 15
    # Other readers read the rest of an epoch once: 3 workers have read 5 batches of 4 rows each of 108 rows; the other
    # 48 are 12 batches.
    done(rondo(*words_of, "--nproc-per-node", 3, "--steps", 5, "--run-dir", "parts"))
    done(rondo("train", "--run-dir", "parts", "--resume", "--nproc-per-node", 1, "--epochs", 1))
    assert len(losses(tmp_path / "parts")) == 5 + 12
    few = rondo(*words_of, "--nproc-per-node", 4, "--steps", 1, "--run-dir", "few")
    assert few.returncode == 2 and "4 processes" in few.stderr and "3 of" in few.stderr


def test_world_size_does_not_change_batches(rondo, tmp_path):
    """This is the default, even if files divide evenly among the processes."""
    (tmp_path / "tables").mkdir()
    for part in range(2):
        rows = "".join(f"{i},{(-1) ** part * i},{(i + part) % 2}\n" for i in range(40))
        (tmp_path / "tables" / f"part-{part}.csv").write_text("a,b,label\n" + rows)
    found = []
    for processes in (1, 2):
        done(rondo("train", "--data", "tables", "--model", "mlp", "--global-batch-size", 8, "--validation-fraction", 0, "--progress", "off",
                   "--log-every", 1, "--nproc-per-node", processes, "--steps", 6, "--run-dir", f"run-{processes}"))
        found.append(losses(tmp_path / f"run-{processes}"))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_parquet_becomes_what_rondo_reads(rondo, run, images, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"text": [words(200, 1), None, words(200, 2)], "x": [1, 2, 3], "kind": ["a", "b", "a"]}),
                                tmp_path / "texts.parquet")
    names = [name for name in sorted(images) if name.endswith(".png")] * 6
    pyarrow.parquet.write_table(pyarrow.table({"image": [{"bytes": images[name], "path": name} for name in names],
                                               "label": [i % 2 for i in range(len(names))]}), tmp_path / "images.parquet")

    def convert(*words_of):
        return run(sys.executable, ROOT / "python" / "parquet_to_rondo.py", *words_of)

    done(convert("texts.parquet", "-o", "texts.jsonl", "--text", "text"))
    done(rondo("tokenize", "texts.jsonl", "-o", "tokens", "--documents", "jsonl"))
    said, found = tokens_of(tmp_path / "tokens")
    assert said["documents"] == 2 and bytes(token for token in found if token < 256).decode() == words(200, 1) + words(200, 2)
    done(convert("images.parquet", "-o", "shards", "--image", "image", "--label", "label", "--images-per-shard", 7))
    assert len(list((tmp_path / "shards").iterdir())) == math.ceil(len(names) / 7)
    done(rondo("train", *CONVNET, "--data", "shards", "--steps", 2))
    done(convert("texts.parquet", "-o", "table.csv", "--columns", "x,kind"))
    assert (tmp_path / "table.csv").read_text().splitlines() == ["x,kind", "1,a", "2,b", "3,a"]


def test_the_model_follows_the_data(rondo, tmp_path):
    rows = [f"{5 + i % 3},{3 - i % 2 * 0.5},{['setosa', 'versicolor', 'virginica'][i % 3]}" for i in range(60)]
    (tmp_path / "iris.csv").write_text("length,width,species\n" + "\n".join(rows) + "\n")
    (tmp_path / "text.txt").write_text(words(600))
    for data, model in [("iris.csv", "mlp"), ("text.txt", "gpt-tiny")]:
        result = done(rondo("train", "--data", data, "--steps", 2, "--batch-size", 4, "--run-dir", model, "--json", "-"))
        assert f"--model auto: {model}, for " in result.stderr and data in result.stderr
        assert json.loads(result.stdout)["model"]["name"] == model
        assert json.loads((tmp_path / model / "config.json").read_text())["model"] == model
    resumed = done(rondo("train", "--run-dir", "mlp", "--resume", "--steps", 3))
    assert "finished after step 3" in resumed.stdout and "--model auto" not in resumed.stderr
    refused = rondo("train", "--data", "iris.csv", "--layers", 2, "--run-dir", "other")
    assert refused.returncode == 2 and "--layers" in refused.stderr and "--model mlp" in refused.stderr
    assert not (tmp_path / "other").exists()
