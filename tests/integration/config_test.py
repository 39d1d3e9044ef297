"""Configuration files of `rondo train`: TOML and JSON, --set, --print-config, --dry-run, and errors with file and
line."""
import json
import re

import pytest


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 200)
    return path


SMALL = """
model = "gpt-tiny"   # a small one
layers = 1
heads = 2
width = 32
seq-len = 32
steps = 2
matmul = "libtorch"
progress = "off"
"""


@pytest.fixture
def config(tmp_path, text):
    """config(lines) writes run.toml with the data set, a small model and those lines."""

    def write(lines="", name="run.toml"):
        path = tmp_path / name
        path.write_text(f'data = "{text}"\n' + SMALL + lines)
        return path

    return write


def printed(rondo, *flags):
    result = rondo("train", *flags, "--print-config")
    assert result.returncode == 0 and result.stderr == "", result.stderr
    lines = {line.split(" = ")[0]: line for line in result.stdout.splitlines() if " = " in line}
    return {name: re.match(r"[\w-]+ = (.*?) +# ([^#]*)$", line).groups() for name, line in lines.items()}, result.stdout


def refused(result, *facts):
    assert result.returncode == 2 and result.stderr.count("rondo train:") == 1, (result.returncode, result.stderr)
    for fact in facts:
        assert str(fact) in result.stderr, result.stderr


def test_a_file_trains_as_its_flags_do(rondo, config, text, tmp_path):
    path = config("seed = 3\n[checkpoint]\nevery = 1\n[model_config]\ndropout = 0.1\n")
    by_file = rondo("train", "--config", path, "--run-dir", tmp_path / "a")
    assert by_file.returncode == 0, by_file.stderr
    said = json.loads((tmp_path / "a" / "config.json").read_text())
    assert (said["seed"], said["checkpoint_every"], said["layers"], said["model_config"]) == (3, 1, 1, '{"dropout":0.1}')
    again = rondo("train", "--config", tmp_path / "a" / "config.json", "--run-dir", tmp_path / "b")
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "b" / "config.json").read_text()) == said
    assert (tmp_path / "a" / "metrics.jsonl").read_text().count("\n") == (tmp_path / "b" / "metrics.jsonl").read_text().count("\n")


def test_precedence_and_origins(rondo, config):
    path = config("lr = 0.1\nweight-decay = 0.2\nseed = 5\n")
    values, _ = printed(rondo, "--config", path, "--set", "weight_decay=0.3", "--set", "seed=6", "--seed", 7, "--batch-size", 4)
    assert values["lr"] == ("0.1", f"{path}:{1 + SMALL.count(chr(10)) + 1}")
    assert values["weight-decay"] == ("0.3", "--set")
    assert values["seed"] == ("7", "flag") and values["batch-size"] == ("4", "flag")
    assert values["momentum"] == ("0", "default")


def test_what_is_printed_reads_back_as_the_same(rondo, config, tmp_path):
    path = config('freeze = ["a.b", "c\\"d"]\nloss-scale = 128\nbeta1 = 1e-05\nseed = "18446744073709551615"\n')
    values, text = printed(rondo, "--config", path, "--set", "codec=int8", "--memory-limit", "2GiB")
    assert values["freeze"][0] == '["a.b", "c\\"d"]' and values["seed"][0] == '"18446744073709551615"'
    (tmp_path / "printed.toml").write_text(text)
    again, second = printed(rondo, "--config", tmp_path / "printed.toml")
    assert {name: value for name, (value, _) in again.items()} == {name: value for name, (value, _) in values.items()}
    assert all(origin.startswith(str(tmp_path / "printed.toml")) for _, origin in again.values())
    assert second.count("\n") == text.count("\n")


def test_reports_overridden_line_once(rondo, config, tmp_path):
    path = config("lr = 0.1\n")
    result = rondo("train", "--config", path, "--run-dir", tmp_path / "run", "--lr", 0.2, "--nproc-per-node", 2)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count(f"--lr 0.2 replaces lr = 0.1 of {path}:") == 1, result.stderr
    same = rondo("train", "--config", path, "--run-dir", tmp_path / "same", "--lr", 0.1)
    assert same.returncode == 0 and "replaces" not in same.stderr, same.stderr


@pytest.mark.parametrize("lines, facts", [
    ("checkpoint_evry = 2\n", ["run.toml:11: checkpoint_evry", "did you mean checkpoint-every"]),
    ("learning_rate = 2\n", ["run.toml:11: learning_rate", "did you mean lr"]),
    ("config = 'a.toml'\n", ["run.toml:11: config", "--config"]),
    ("lr = 1\nseed = 2\nlr = 3\n", ["run.toml:13:", "cannot redefine", "'lr'"]),
    ("lr = '0.1'\n", ["run.toml:11: lr", "expected a number, not a text"]),
    ("steps-per-epoch = 1.5\n", ["run.toml:11: steps-per-epoch", "whole number"]),
    ("flip = 1\n", ["run.toml:11: flip", "true or false"]),
    ("lr = -1\n", ["run.toml:11: --lr -1", "0 or more"]),
    ("strategy = 'zero9'\n", ["run.toml:11:", "zero9", "zero3"]),
    ("strategy = 'ddp'\noffload = '/tmp'\n", ["run.toml:12:", "--offload has no effect with --strategy ddp", "zero3"]),
    ("beta1 = 0.5\noptimizer = 'sgd'\n", ["run.toml:11:", "beta1 has no effect", "adamw"]),
    ("lr 0.1\n", ["run.toml:11:", "'='"]),
])
def test_wrong_lines_are_named(rondo, config, tmp_path, lines, facts):
    refused(rondo("train", "--config", config(lines), "--run-dir", tmp_path / "run"), *facts)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name, content, facts", [
    ("none.toml", None, ["none.toml", "No such file"]), ("empty.toml", b"", ["empty.toml", "empty"]),
    ("bytes.toml", b"lr = 1\n# \xff\n", ["bytes.toml:2", "UTF-8"]), ("run.yaml", b"lr: 1\n", ["run.yaml", ".toml or .json"]),
    ("broken.json", b'{"lr": 1,\n}', ["broken.json:2", "JSON"]), ("list.json", b"[1]", ["list.json:1", "object"]),
    ("twice.json", b'{"lr": 1,\n"lr": 2}', ["twice.json:2", "twice", "line 1"])])
def test_files_that_cannot_be_read_are_named(rondo, tmp_path, name, content, facts):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    refused(rondo("train", "--config", tmp_path / name), *facts)


@pytest.mark.parametrize("flags, facts", [
    (["--set", "segment-size"], ["--set segment-size", "NAME=VALUE"]), (["--set", "=1"], ["--set =1", "NAME=VALUE"]),
    (["--set", "segmnt-size=1MiB"], ["--set segmnt-size=1MiB", "did you mean segment-size"]),
    (["--set", "segment-size=many"], ["segment-size", "many"]),
    (["--set", "momentum=0.9", "--optimizer", "adamw"], ["--momentum has no effect", "sgd"])])
def test_wrong_settings_are_named(rondo, config, tmp_path, flags, facts):
    refused(rondo("train", "--config", config(), "--run-dir", tmp_path / "run", *flags), *facts)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_dry_run_builds_all_and_leaves_nothing(rondo, config, tmp_path, processes):
    job = ["train", "--config", config(), "--nproc-per-node", processes]
    result = rondo(*job, "--run-dir", tmp_path / "run", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "dry run: would train gpt-tiny" in result.stdout and "to step 2" in result.stdout, result.stdout
    assert ("strategy ddp" if processes == 2 else "strategy one_device") in result.stdout
    assert not (tmp_path / "run").exists()
    as_json = rondo(*job, "--dry-run", "--json", "-")
    assert json.loads(as_json.stdout)["ranks"] == processes and not (tmp_path / "runs").exists()


def test_a_dry_run_of_servers_starts_none(rondo, config, tmp_path):
    result = rondo("train", "--config", config(), "--strategy", "parameter_server", "--workers", 2, "--ps", 1, "--dry-run")
    assert result.returncode == 0 and "1 servers and 2 workers" in result.stdout, result.stderr


def test_a_dry_run_refuses_what_a_training_refuses(rondo, config, tmp_path):
    refused(rondo("train", "--config", config(), "--freeze", "nothing_of_it", "--dry-run"), "--freeze", "nothing_of_it")
    refused(rondo("train", "--config", config(), "--strategy", "multi_worker_mirrored", "--nproc-per-node", 2, "--replicas", 2,
                  "--set", "mwm-implementation=ring", "--codec", "int8", "--dry-run"), "--codec")


def test_the_example_of_the_documentation_trains(rondo, repository, tmp_path):
    page = (repository / "docs" / "configuration.md").read_text()
    (tmp_path / "run.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.S)[1].replace("steps = 200", "steps = 2"))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("the quick brown fox jumps over the lazy dog. " * 300)
    commands = [line.split("#")[0].split(">")[0].split() for line in re.findall(r"^rondo (train .*)$", page, re.M)]
    assert len(commands) == 4
    for number, words in enumerate(commands):
        result = rondo(*words, "--matmul", "libtorch", "--set", f"run_dir=run{number}")
        assert result.returncode == 0, (words, result.stderr)
    values, _ = printed(rondo, "--config", tmp_path / "run.toml")
    assert values["checkpoint-every"][0] == "100" and values["model-config"][0] == '"{\\"tied_head\\":true}"'


def test_option_without_flag_names_set(rondo, config):
    refused(rondo("train", "--config", config(), "--segment-size", "1MiB"), "--segment-size is no flag", "--set segment-size=1MiB", "--config")
    refused(rondo("train", "--config", config(), "--static-graph"), "--set static-graph=true")
    refused(rondo("train", "--config", config(), "--segmnt-size", "1MiB"), "unknown flag --segmnt-size", "--set segment-size=VALUE")
    options = json.loads(rondo("train", "--help-all", "--json", "-").stdout)["flags"]
    plain = [option["name"] for option in options if not option["has_flag"]]
    assert 50 < len(plain) and len(options) - len(plain) <= 110
    for name in plain:
        refused(rondo("train", "--config", config(), f"--{name}=1"), f"--{name}", f"--set {name}=")


@pytest.mark.parametrize("given, meant", [
    ("--learning-rate", "--lr"), ("--learning_rate", "--lr"), ("--bf16", "--precision O1 --amp-dtype bfloat16"),
    ("--fp16", "--precision O1 --amp-dtype float16"), ("--amp", "--precision"), ("--batch", "--batch-size"), ("--gpus", "--nproc-per-node"),
    ("--nproc", "--nproc-per-node"), ("--num-epochs", "--epochs"), ("--max_steps", "--steps"), ("--grad-accum", "--gradient-accumulation-steps"),
    ("--gradient_clip_val", "--max-grad-norm"), ("--warmup", "--warmup-steps"), ("--lr-scheduler-type", "--lr-schedule"),
    ("--gradient-checkpointing", "--activation-checkpointing"), ("--output-dir", "--run-dir"), ("--num-workers", "--loader-threads"),
    ("--fsdp", "--strategy zero3"), ("--tensor-model-parallel-size", "--mesh tensor=N"), ("--adam-beta1", "--set beta1=VALUE"),
    ("--seq-length", "--seq-len"), ("--save-total-limit", "--keep-checkpoints"), ("--stpes", "--steps"), ("--optimzer", "--optimizer")])
def test_a_wrong_flag_is_answered_by_its_meaning(rondo, given, meant):
    result = rondo("train", "--data", "x", f"{given}=1")
    said = f"unknown flag {given.replace('_', '-')}; did you mean {meant}?"
    assert result.returncode == 2 and said in result.stderr, result.stderr


def test_meaningless_flag_gets_no_suggestion(rondo):
    for given in ("--nope", "--zzzzzz", "--x"):
        result = rondo("train", "--data", "x", given)
        assert result.returncode == 2 and f"unknown flag {given}\n" in result.stderr, result.stderr


def test_a_wrong_flag_before_an_argument_is_named(rondo):
    result = rondo("plan", "--time-limit", "5s", "--memory-limit", "1GiB")
    assert result.returncode == 2 and "unknown flag --time-limit; did you mean --plan-time-limit?" in result.stderr, result.stderr
