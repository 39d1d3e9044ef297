"""--codec as a user runs it: training through every kind of hook, compared with PyTorch's hooks, and error messages."""
import json

import pytest
from algorithms import ALGORITHMS


def bench(rondo, *words, program="bench"):
    finished = rondo(program, *words, "--json", "-", timeout=300)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


STEP = ["--model", "mlp", "--optimizer", "sgd", "--lr", 0.1, "--strategy", "ddp", "--rounds", 1, "--steps", 60, "--warm-up", 0]
HOOKS = {"fp16_compress": 1e-4, "bf16_compress": 1e-3, "power_sgd:rank=1,start=2": 1e-4, "power_sgd:rank=4,start=20": 1e-4}

# One rank of PyTorch: the losses of 60 steps with each hook, as JSON.
PEER = """
import argparse, json, sys
repository, rank, weights, rendezvous, *codecs = sys.argv[1:]
sys.path.insert(0, repository + "/bench/peers")
import step, torch
from leaving import leave
torch.set_num_threads(1)
losses = {}
for number, codec in enumerate(codecs):
    batch_of, one_step, *_ = step.make_step(argparse.Namespace(
        strategy="ddp", setting="fastest", kind="mlp", config={"input_shape": [1, 28, 28], "hidden": [128, 64], "classes": 10},
        weights=weights, dtype="float32", batch_size=32, lr=0.1, optimizer="sgd", max_grad_norm=0, codec=codec, rank=int(rank),
        world_size=2, rendezvous=f"file://{rendezvous}-{number}"))
    losses[codec] = [one_step(batch_of(i))[0] for i in range(60)]
    torch.distributed.destroy_process_group()
print(json.dumps(losses))
leave()
"""


def test_losses_follow_pytorchs_hooks_step_by_step(rondo, interpreter, repository, tmp_path, clean_environment):
    ours = {}
    for codec, backend in zip(HOOKS, ["native", "gloo", "native", "gloo"]):
        weights = tmp_path / f"{len(ours)}.safetensors"
        rows = bench(rondo, "step", *STEP, "--losses", "--backend", backend, "--codec", codec, "--keep-weights", weights)
        row = next(row for row in rows if row.get("strategy") == "ddp")
        assert row["codec"] == codec
        ours[codec] = row["losses"]
    peers = interpreter.run([(["-c", PEER, repository, rank, weights, tmp_path / "meet", *HOOKS], clean_environment) for rank in range(2)],
                            tmp_path, 300)
    theirs = [json.loads(peer.out) if peer.out else pytest.fail(peer.err) for peer in peers]
    for codec, tolerance in HOOKS.items():
        mean = [(a + b) / 2 for a, b in zip(theirs[0][codec], theirs[1][codec])]
        assert len(ours[codec]) == len(mean) == 60
        assert max(abs(a - b) / b for a, b in zip(ours[codec], mean)) < tolerance, codec
    # The comparison is meaningful: hooks differ from each other.
    assert max(abs(a - b) for a, b in zip(ours["fp16_compress"], ours["power_sgd:rank=1,start=2"])) > 1e-3


@pytest.mark.parametrize("algorithms", [["ring", "double_binary_tree"], pytest.param(ALGORITHMS, marks=pytest.mark.long)],
                         ids=["some", "all"])
def test_hooks_go_with_every_algorithm(train, tmp_path, algorithms):
    def losses(algorithm, codec):
        finished = train(codec, algorithm, "--strategy", "ddp", "--matmul", "libtorch", steps=10, ranks=3, backend="native",
                         env={"RONDO_ALGORITHM": algorithm, "RONDO_LOG_LEVEL": "info"})
        assert finished.returncode == 0, finished.stderr
        assert algorithm == "engine" or f"algorithm {algorithm} for all_reduce" in finished.stderr
        return losses_of(tmp_path / algorithm)

    expected = losses("engine", "bf16_compress")
    for algorithm in algorithms:
        # Three 8-bit numbers are added in another order.
        assert losses(algorithm, "bf16_compress") == pytest.approx(expected, rel=0.01), algorithm


def test_collectives_through_codecs_are_right(rondo):
    rows = bench(rondo, "collectives", "--ranks", "2,3", "--sizes", "4B,64KiB", "--codec", "float16,bfloat16,int8,top_k:0.1",
                 "--peers", "--bursts", 1, "--burst-time", "1ms", "--fresh")
    coded = [row for row in rows if row["codec"] != "none"]
    assert {row["codec"] for row in coded} == {"float16", "bfloat16", "int8", "top_k:0.1"}
    assert all(row["correct"] and row["system"] == "rondo" and row["dtype"] == "float32" for row in rows if row in coded)
    assert {row["ranks"] for row in coded} == {2, 3}


def test_codec_speeds_have_their_keys(rondo):
    rows = bench(rondo, "codecs", "--size", "64KiB", program="bench-dev")
    assert {"none", "float16", "bfloat16", "int8", "top_k"} == {row["codec"] for row in rows}
    for row in rows:
        assert row["bytes"] == 65536
        assert min(row["encode_gbps"], row["encode_with_feedback_gbps"], row["decode_gbps"], row["decode_add_gbps"]) > 0
    assert next(row["encoded_bytes"] for row in rows if row["codec"] == "int8") == 16384 + 32 * 4


@pytest.fixture
def train(rondo, tmp_path):
    def run_train(codec, run_dir, *more, steps=40, ranks=2, backend="gloo", env=None):
        text = tmp_path / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 500)
        return rondo("train", "--data", text, "--run-dir", tmp_path / run_dir, "--model", "gpt-tiny", "--layers", 1, "--heads", 2,
                     "--width", 32, "--seq-len", 32, "--steps", steps, "--lr", 0.01, "--nproc-per-node", ranks, "--backend", backend,
                     "--codec", codec, *more, timeout=120, env=env)

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
    assert last["int8"] < last["none"] + 0.1


def losses_of(run_dir):
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["rank"] == 0 and "loss" in row]


def test_a_resumed_run_keeps_its_error_feedback(train, tmp_path):
    for run_dir, steps in [("whole", 6), ("parts", 3)]:
        finished = train("int8", run_dir, steps=steps)
        assert finished.returncode == 0, finished.stderr
    finished = train("int8", "parts", "--resume", steps=6)
    assert finished.returncode == 0 and "is reset" not in finished.stderr, finished.stderr
    assert losses_of(tmp_path / "parts") == losses_of(tmp_path / "whole")
    finished = train("int8", "parts", "--resume", steps=8, ranks=1)
    assert finished.returncode == 0 and "is reset" not in finished.stderr, "one process has no use for a codec"
    finished = train("top_k:0.2", "whole", "--resume", steps=8)
    assert finished.returncode == 0, finished.stderr
    assert "is reset: its saved state was saved with communication hook 'codec int8'" in finished.stderr


def test_unknown_codec_lists_known_ones(rondo, train):
    for finished in [train("int7", "bad"), rondo("bench", "step", "--codec", "int7"),
                     rondo("bench", "collectives", "--codec", "int7"), rondo("bench-dev", "codecs", "--codec", "int7")]:
        assert finished.returncode == 2
        assert "int7" in finished.stderr and "top_k" in finished.stderr
