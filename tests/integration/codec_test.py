"""--codec from outside: training through every kind of hook, next to PyTorch's own hooks, and what mistakes say."""
import json

import pytest


def bench(rondo, *words):
    finished = rondo("bench", *words, "--json", "-", timeout=300)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.parametrize("codec, backend, tolerance", [
    ("fp16_compress", "native", 1e-4),
    ("bf16_compress", "gloo", 1e-3),
    ("power_sgd:rank=2,start=5", "native", 1e-4),
])
def test_losses_follow_pytorchs_hook(rondo, codec, backend, tolerance):
    rows = bench(rondo, "step", "--model", "mlp", "--peers", "--losses", "--backend", backend, "--codec", codec, "--optimizer",
                 "sgd", "--learning-rate", 0.1, "--rounds", 1, "--steps", 60, "--warm-up", 0)
    ddp = {(row["system"], row["setting"]): row for row in rows if row.get("strategy") == "ddp"}
    ours, theirs = ddp["rondo", ""], ddp["pytorch", "fastest setting"]
    assert ours["codec"] == theirs["codec"] == codec
    assert len(ours["losses"]) == 60
    assert max(abs(a - b) / abs(b) for a, b in zip(ours["losses"], theirs["losses"])) < tolerance


def test_collectives_through_codecs_are_right(rondo):
    rows = bench(rondo, "collectives", "--ranks", "2,3", "--sizes", "4B,64KiB", "--codec", "float16,bfloat16,int8,top_k:0.1",
                 "--peers", "--bursts", 1, "--burst-time", "1ms", "--fresh")
    coded = [row for row in rows if row["codec"] != "none"]
    assert {row["codec"] for row in coded} == {"float16", "bfloat16", "int8", "top_k:0.1"}
    assert all(row["correct"] and row["system"] == "rondo" and row["dtype"] == "float32" for row in rows if row in coded)
    assert {row["ranks"] for row in coded} == {2, 3}


def test_codec_speeds_have_their_keys(rondo):
    rows = bench(rondo, "codecs", "--size", "64KiB")
    assert {"none", "float16", "bfloat16", "int8", "top_k"} == {row["codec"] for row in rows}
    for row in rows:
        assert row["bytes"] == 65536
        assert min(row["encode_gbps"], row["encode_with_feedback_gbps"], row["decode_gbps"], row["decode_add_gbps"]) > 0
    assert next(row["encoded_bytes"] for row in rows if row["codec"] == "int8") == 16384 + 32 * 4


@pytest.fixture
def train(rondo, tmp_path):
    def run_train(codec, run_dir):
        text = tmp_path / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 500)
        return rondo("train", "--data", text, "--run-dir", tmp_path / run_dir, "--model", "gpt-tiny", "--layers", 1, "--heads", 2,
                     "--width", 32, "--context", 32, "--steps", 40, "--lr", 0.01, "--nproc-per-node", 2, "--backend", "gloo",
                     "--codec", codec, timeout=120)

    return run_train


def test_training_converges_and_remembers_its_codec(train, tmp_path):
    last = {}
    for codec in ["none", "int8"]:
        finished = train(codec, codec)
        assert finished.returncode == 0, finished.stderr
        assert json.loads((tmp_path / codec / "config.json").read_text())["codec"] == codec
        rows = [json.loads(line) for line in (tmp_path / codec / "metrics.jsonl").read_text().splitlines()]
        losses = [row["loss"] for row in rows if row["rank"] == 0 and "loss" in row]
        assert losses[-1] < losses[0] / 1.5
        last[codec] = losses[-1]
    assert last["int8"] == pytest.approx(last["none"], rel=0.05)


def test_an_unknown_codec_is_named_with_those_there_are(rondo, train):
    for finished in [train("int7", "bad"), rondo("bench", "step", "--codec", "int7"),
                     rondo("bench", "collectives", "--codec", "int7"), rondo("bench", "codecs", "--codec", "int7")]:
        assert finished.returncode == 2
        assert "int7" in finished.stderr and "top_k" in finished.stderr
