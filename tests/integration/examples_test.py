"""Every example runs as its header says: on two or more ranks under the launcher, and as one process."""
import ast
import json
import random
import re
import struct

import pytest
from marks import long

TORCHSCRIPT_MODEL = """
import sys, torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
torch.jit.script(model).save(sys.argv[1])
"""
TORCHSCRIPT_CHECK = """
import sys, torch
torch.set_num_threads(1)
model = torch.jit.load(sys.argv[1])
inputs = torch.randn(256, 4, generator=torch.Generator().manual_seed(5))
print(torch.nn.functional.mse_loss(model(inputs), inputs.abs().sum(1, keepdim=True)).item())
"""


@pytest.fixture
def example(rondo, rondo_bin):
    """example(name, *words, ranks=2) runs it under the launcher and returns its standard output."""

    def run_example(name, *words, ranks=2):
        program = rondo_bin / "examples" / name
        result = rondo("run", "-n", ranks, program, *words, timeout=120)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run_example


def numbers(output, word):
    """Returns the numbers after `word` in the output."""
    return [float(value) for value in re.findall(rf"{word} ([-\d.e+]+)", output)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_minimal(example, ranks):
    losses = numbers(example("minimal", ranks=ranks), "loss")
    assert len(losses) == 6 and losses[-1] < losses[0] / 100


def test_minimal_without_a_launcher(run, rondo_bin, clean_environment):
    result = run(rondo_bin / "examples" / "minimal", env=clean_environment)
    assert result.returncode == 0, result.stderr
    assert numbers(result.stdout, "loss")[-1] < 0.01


def test_accumulate(example):
    assert numbers(example("accumulate"), "loss")[-1] < 0.01


def test_local_sgd(example):
    assert numbers(example("local_sgd"), "loss")[-1] < 1


@pytest.mark.parametrize("schedule", [long("1f1b"), "zb_h1"])
def test_pipeline(example, schedule):
    output = example("pipeline", schedule)
    assert numbers(output, "loss")[-1] < 1
    assert "rank 1" in output  # the drawing


@pytest.mark.parametrize("strategy, ranks", [long("ddp", 4), ("zero1", 4), ("ddp", 1)])
def test_mesh(example, strategy, ranks):
    output = example("mesh", strategy, ranks=ranks)
    assert numbers(output, "loss")[-1] < 1
    places = sorted(tuple(map(int, place)) for place in re.findall(r"rank (\d) is stage (\d) of replica (\d)", output))
    # Ranks with the same stage are adjacent: `data` comes after `pipeline`.
    assert places == [(rank, *divmod(rank, 2)) for rank in range(4)][:ranks], output


@pytest.mark.parametrize("ranks", [long(1), 2])
def test_experts(example, ranks):
    output = example("experts", ranks=ranks)
    assert numbers(output, "experts") == [4 / ranks] and numbers(output, "loss")[-1] < 1


def stripped_lines(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_code_in_the_guides_is_that_of_examples(repository):
    """Each C++ block of a guide stands in an example, which is built and run, line by line."""
    programs = ["\n".join(stripped_lines(path.read_text())) for path in (repository / "examples").glob("*.*")]
    guides = sorted((repository / "docs").glob("from-*.md")) + sorted((repository / "docs" / "guides").glob("*.md"))
    assert len(guides) > 9
    for guide in guides:
        for language, code in re.findall(r"```(cpp|python)\n(.*?)```", guide.read_text(), re.DOTALL):
            if language == "python":
                ast.parse(code)
            else:
                assert any("\n".join(stripped_lines(code)) in program for program in programs), f"{guide.name}:\n{code}"


def test_the_readme_shows_minimal(repository):
    """The diff in README.md leads to examples/minimal.cpp; what it removes is a line of a plain libtorch loop."""
    shown = re.search(r"```diff\n(.*?)```", (repository / "README.md").read_text(), re.DOTALL)[1].splitlines()
    assert {line[0] for line in shown} == {"+", "-", " "}
    after = "\n".join(line[1:].strip() for line in shown if line[0] != "-")
    assert after in "\n".join(stripped_lines((repository / "examples" / "minimal.cpp").read_text()))
    assert not [line for line in shown if line[0] != "+" and "rondo::" in line]


@pytest.mark.parametrize("strategy, ranks", [("ddp", 2), ("zero3", 2), long("zero3", 1)])
def test_weight_average(example, strategy, ranks):
    output = example("weight_average", strategy, ranks=ranks)
    assert max(numbers(output, "loss of the weights") + numbers(output, "loss of the average")) < 1


def test_uneven_steps(example):
    output = example("uneven_steps", ranks=3)
    assert sorted(numbers(output, "took")) == [40, 60, 80]
    errors = numbers(output, "error")
    assert len(errors) == 3 and len(set(errors)) == 1 and errors[0] < 0.01


@pytest.mark.parametrize("strategy", ["zero3", "random"])
def test_sharded(example, strategy):
    output = example("sharded", strategy)
    losses = numbers(output, "loss")
    assert losses[-1] < 0.5 < losses[0]
    sums = re.findall(r"sum of weights (\S+)", output)
    assert len(sums) == 2 and len(set(sums)) == 1


@pytest.mark.parametrize("ranks", [long(1), 2])
def test_fully_shard(example, ranks):
    output = example("fully_shard", ranks=ranks)
    losses = numbers(output, "loss")
    assert losses[-1] < 0.5 < losses[0]
    elements = 64 * 256 + 256 + 256 + 1
    assert sum(map(int, re.findall(r"has (\d+) elements", output))) == elements
    assert len(set(re.findall(r"sum of weights (\S+)", output))) == 1


def test_tensor(example):
    output = example("tensor")
    losses = numbers(output, "loss")
    assert losses[-1] < 0.5 < losses[0]
    # Both layers are divided; the head and the biases of the second products are not.
    assert numbers(output, "parameters") == [2 * (64 * 256 + 128 + 64) + 65] * 2
    assert numbers(example("tensor", ranks=1), "loss")[-1] == pytest.approx(losses[-1], rel=1e-3)


@pytest.mark.parametrize("name, ranks, replicas", [("mirrored", 1, 2), ("central_storage", 1, 2), ("multi_worker_mirrored", 2, 4)])
def test_replicas_in_a_process(example, name, ranks, replicas):
    output = example(name, ranks=ranks)
    losses = numbers(output, "loss")
    assert losses[3] < losses[0] / 2
    assert numbers(output, "replicas") == [replicas]


def test_tpu(example):
    output = example("tpu", ranks=4)
    assert numbers(output, "replicas") == [4] and numbers(output, "loss")[0] < 1


@pytest.mark.parametrize("name, workers", [("parameter_server", 2), ("grouped", 4)])
def test_with_servers(rondo, rondo_bin, name, workers):
    done = rondo("run", "--ps", 1, "--workers", workers, rondo_bin / "examples" / name, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert numbers(done.stdout, "loss")[0] < 1


def coordinated(rondo, rondo_bin, workers, script=""):
    program = rondo_bin / "examples" / "coordinator"
    return rondo("run", "--workers", workers, "--", "bash", "-c", f'{script} exec "$0"', program, timeout=120)


def test_a_coordinator(example, rondo, rondo_bin):
    alone = example("coordinator", ranks=1)
    rates = numbers(alone, "rate")
    assert sorted(rates) == [0.001, 0.01, 0.1, 0.5] and len(set(numbers(alone, "loss"))) == 4
    done = coordinated(rondo, rondo_bin, 3)
    assert done.returncode == 0, done.stdout + done.stderr
    assert numbers(done.stdout, "loss") == numbers(alone, "loss")


def test_a_coordinator_and_a_worker_that_fails(rondo, rondo_bin):
    done = coordinated(rondo, rondo_bin, 3, "[ $RANK = 2 ] && exit 7;")
    assert done.returncode == 0 and len(numbers(done.stdout, "loss")) == 4, done.stdout + done.stderr
    assert "exited with code 7; the others continue without it" in done.stderr
    done = coordinated(rondo, rondo_bin, 3, "[ $RANK != 0 ] && exit 7;")
    assert done.returncode != 0 and "no worker is left" in done.stderr, done.stdout + done.stderr


def test_workers_end_with_their_coordinator(rondo, rondo_bin):
    """Also a worker that starts after its end."""
    done = coordinated(rondo, rondo_bin, 3, "[ $RANK = 2 ] && exec sleep 600;")
    assert done.returncode == 0 and len(numbers(done.stdout, "loss")) == 4, done.stdout + done.stderr


def test_data_parallel(example):
    output = example("data_parallel", ranks=1)
    losses = numbers(output, "loss")
    assert losses[3] < losses[0]
    first, second = numbers(output, "peak bytes")
    assert first > 1.5 * second > 0


def test_torch_data(example):
    output = example("torch_data")
    assert numbers(output, "evaluated") == [101, 101, 101]
    assert numbers(output, "accuracy")[-1] > 0.8


def test_gan(example):
    assert abs(numbers(example("gan"), "mean")[-1] - 3) < 1


@pytest.mark.parametrize("strategy", [long("ddp"), "zero3"])
def test_two_models_under_a_strategy(example, strategy):
    assert abs(numbers(example("gan_strategy", strategy), "mean")[-1] - 3) < 1


@pytest.mark.parametrize("strategy, ranks", [("ddp", 2), ("zero3", 2), long("zero3", 1)])
def test_pinn(example, strategy, ranks):
    output = example("pinn", strategy, ranks=ranks)
    by_adam, in_the_end = numbers(output, "loss")
    error, = numbers(output, "largest error")
    if strategy == "zero3" and ranks > 1:
        assert by_adam == in_the_end and error < 0.05
    else:
        assert in_the_end < by_adam / 10 and error < 1e-3


def test_torchscript(example, interpreter, clean_environment, tmp_path):
    source, trained = tmp_path / "in.pt", tmp_path / "out.pt"
    made, = interpreter.run([(["-c", TORCHSCRIPT_MODEL, source], clean_environment)], tmp_path, 120)
    assert made.returncode == 0, made.err
    losses = numbers(example("torchscript", source, trained), "loss")
    assert losses[-1] < losses[0] / 4
    check, = interpreter.run([(["-c", TORCHSCRIPT_CHECK, trained], clean_environment)], tmp_path, 120)
    assert check.returncode == 0, check.err
    assert float(check.out) < losses[0] / 4


def test_torchscript_usage(run, rondo_bin):
    result = run(rondo_bin / "examples" / "torchscript")
    assert result.returncode == 2 and "usage" in result.stderr


def test_spawn(run, rondo_bin, clean_environment):
    result = run(rondo_bin / "examples" / "spawn", 3, env=clean_environment)
    assert result.returncode == 0, result.stderr
    assert "3 ranks, sum 6" in result.stdout


def test_spawn_with_nothing_to_start(run, rondo_bin, clean_environment):
    result = run(rondo_bin / "examples" / "spawn", 0, env=clean_environment)
    assert result.returncode == 1 and "spawn:" in result.stderr


def test_collectives(example):
    output = example("collectives", ranks=3)
    assert "largest 20, weights 6" in output
    assert [numbers(output, "group of")] == [[2, 1, 2]]


def test_recommendation(example):
    output = example("recommendation")
    assert numbers(output, "auc")[-1] > 0.95
    rows, = numbers(output, "in the last gradient")
    assert 0 < rows <= 512  # of both ranks' batches together


def test_cartpole(example):
    lengths = numbers(example("cartpole"), "that the pole stood")
    assert len(lengths) == 5 and lengths[-1] > 3 * lengths[0]


def test_image_to_text(example):
    assert numbers(example("image_to_text"), "numbers read right")[-1] > 0.9


@pytest.mark.parametrize("layers", [18, long(50)])
def test_resnet(example, tmp_path, layers):
    """Two classes of images: bright at the top, or bright at the bottom."""
    from PIL import Image
    source = random.Random(1)
    for kind in ("above", "below"):
        (tmp_path / "images" / kind).mkdir(parents=True)
        for i in range(48):
            noise = bytes(min(255, max(0, round(source.gauss(128, 60)))) for _ in range(20 * 20))
            image = Image.frombytes("L", (20, 20), noise).convert("RGB")
            image.paste((230, 200 + i, 180), (0, 0 if kind == "above" else 12, 20, 8 if kind == "above" else 20))
            image.save(tmp_path / "images" / kind / f"{i}.png")
    output = example("resnet", tmp_path / "images", 4, layers)
    assert numbers(output, "accuracy")[-1] > 0.8


def test_resnet_of_other_layers(run, rondo_bin, tmp_path):
    result = run(rondo_bin / "examples" / "resnet", tmp_path, 4, 50, "more")
    assert result.returncode == 2 and "usage" in result.stderr


def write_bands(folder, part, count, source):
    """Writes images of 28 x 28 in MNIST's format: noise with a bright band of rows, which determines the class."""
    labels = bytes(i % 10 for i in range(count))
    noise = [bytes(source.choices(range(100), k=28 * 28)) for _ in labels]
    images = [image[:28 * (2 * label + 4)] + bytes([220] * 28 * 2) + image[28 * (2 * label + 6):]
              for image, label in zip(noise, labels)]
    (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, count, 28, 28) + b"".join(images))
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, count) + labels)


@pytest.mark.parametrize("ranks", [long(1), 2])
def test_idx_classification(example, tmp_path, ranks):
    source = random.Random(1)
    write_bands(tmp_path, "train", 800, source)
    write_bands(tmp_path, "t10k", 101, source)  # not divisible by the ranks
    output = example("idx_classification", tmp_path, ranks=ranks)
    accuracies = numbers(output, "accuracy")
    assert len(accuracies) == 3 and accuracies[-1] > 0.9
    assert numbers(output, "of") == [101] * 3


def test_idx_classification_without_files(run, rondo_bin, clean_environment, tmp_path):
    result = run(rondo_bin / "examples" / "idx_classification", tmp_path, env=clean_environment)
    assert result.returncode == 1 and "idx_classification:" in result.stderr and str(tmp_path) in result.stderr


def test_bert_pre_training_and_classification(run, rondo, repository, clean_environment, tmp_path):
    done = run(repository / "examples" / "bert" / "run.sh", tmp_path / "bert", rondo.program, env=clean_environment, timeout=180)
    assert done.returncode == 0, done.stderr
    losses = numbers(done.stdout, "validation loss")
    assert losses[0] < 2 and "stopped early" in done.stdout
    assert numbers(done.stdout, "\naccuracy")[-1] > 0.8


def test_gpt_pre_training_on_shards_of_tokens(run, rondo, repository, clean_environment, tmp_path):
    done = run(repository / "examples" / "gpt" / "run.sh", tmp_path / "gpt", rondo.program, env=clean_environment, timeout=180)
    assert done.returncode == 0, done.stderr
    shards = json.loads((tmp_path / "gpt" / "tokens" / "tokens.json").read_text())["shards"]
    assert len(shards) == 4 and all(shard["tokens"] <= 10000 for shard in shards)
    assert numbers(done.stdout, "\nloss")[-1] < 0.5


@pytest.mark.parametrize("ranks", [long(1), 2])
def test_distillation(example, ranks):
    teacher, before, after = numbers(example("distillation", ranks=ranks), "accuracy")
    assert teacher > 0.85 and after > 0.85 and after > before + 0.1
