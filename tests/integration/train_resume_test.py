"""`rondo train` stopped, killed, damaged and continued: the contents of a resumed run, and safe refusals."""
import json
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest
from launching import all_gone, reserved_ports, wait_until
from marks import long
from support import write_images
from train_test import SMALL, checkpoints, losses, rows, text, tf_config, train, worker_pids  # noqa: F401

# Every eight bytes of nine tenths of the long text are a forward pass: minutes of validation on any machine.
LONG_VALIDATION = ["--validation-fraction", 0.9, "--eval-batch-size", 1, "--batch-size", 4, "--eval-every", 2, "--seq-len", 8]


@pytest.fixture
def long_text(tmp_path, text):  # noqa: F811
    """Returns the text repeated forty times: its validation outlasts every test, so a signal always arrives during
    it."""
    path = tmp_path / "long.txt"
    path.write_text(text.read_text() * 40)
    return path


def start(rondo, text, run, *flags, **options):  # noqa: F811
    return rondo.start("train", "--data", text, "--run-dir", run, *SMALL, *flags, **options)


def read_until(stream, part, seconds=120):
    """Reads lines up to the first that contains `part`, and returns them."""
    lines = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        line = stream.readline()
        assert line, f"ended without {part!r}: {''.join(lines)}"
        lines.append(line)
        if part in line:
            return lines
    raise AssertionError(f"no {part!r} in {seconds} s: {''.join(lines)}")


def is_listening(port):
    """Returns true for a listening TCP port on any address, without connecting to it."""
    lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(fields[1].endswith(f":{port:04X}") and fields[3] == "0A" for fields in map(str.split, lines))


def validated_steps(run):
    return [row["step"] for row in rows(run) if "validation_loss" in row]


def flip_a_byte(path, position=-1):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


# Signals


# Each signal, and one rank and two.
SIGNALS = [(signal.SIGTERM, 2), (signal.SIGINT, 1), long(signal.SIGTERM, 1), long(signal.SIGINT, 2)]


@pytest.mark.parametrize("which, ranks", SIGNALS)
def test_a_signal_within_a_validation(rondo, train, tmp_path, long_text, ranks, which):  # noqa: F811
    """Handled at once, saved, and the resumed run performs the validation."""
    run = tmp_path / "run"
    process = start(rondo, long_text, run, *LONG_VALIDATION, "--nproc-per-node", ranks, "--steps", 100000)
    read_until(process.stderr, "validation: ")
    process.send_signal(which)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert "pre-empted after step 2" in out, (out, err)
    assert checkpoints(run) == ["step-00000002"] and validated_steps(run) == []
    assert train("--resume", "--steps", 3, "--eval-batches", 5, "--seq-len", 8, data=long_text).returncode == 0
    assert validated_steps(run) == [2, 3]
    assert [row["step"] for row in rows(run) if "loss" in row and row["rank"] == 0] == [1, 2, 3]


def test_a_signal_in_the_last_validation(rondo, train, tmp_path, long_text):  # noqa: F811
    run = tmp_path / "run"
    process = start(rondo, long_text, run, *LONG_VALIDATION, "--eval-every", 0, "--steps", 1)
    read_until(process.stderr, "validation: ")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3 and checkpoints(run) == ["step-00000001"], (out, err)
    result = train("--resume", "--eval-batches", 3, "--seq-len", 8, data=long_text)
    assert result.returncode == 0 and "finished after step 1" in result.stdout, result.stderr
    assert validated_steps(run) == [1] and losses(run)[0] == pytest.approx(float(
        result.stdout.split("loss ")[1].split(",")[0]), rel=1e-4)


@pytest.mark.parametrize("which", [signal.SIGTERM, long(signal.SIGINT)])
def test_a_signal_to_an_evaluator(rondo, train, tmp_path, long_text, which):  # noqa: F811
    """Handled during the evaluation, which would last minutes; an incomplete evaluation writes no row."""
    run = tmp_path / "run"
    role = {"TF_CONFIG": json.dumps({"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}})}
    evaluator = start(rondo, long_text, run, *LONG_VALIDATION, env=role)
    try:
        assert train("--steps", 1, "--eval-batches", 1, *LONG_VALIDATION, data=long_text).returncode == 0
        read_until(evaluator.stderr, "validation: ")
        evaluator.send_signal(which)
        _, err = evaluator.communicate(timeout=60)
        assert evaluator.returncode == 0, err
        assert not (run / "metrics.evaluator.jsonl").exists()
    finally:
        evaluator.kill()


def test_evaluation_and_prediction_show_how_far_they_are(rondo, train, tmp_path, long_text):  # noqa: F811
    assert train("--steps", 1, "--eval-batches", 1, *LONG_VALIDATION, data=long_text).returncode == 0
    for what, part in [("evaluate", "evaluation: "), ("predict", "prediction: ")]:
        output = ["-o", tmp_path / "rows.csv"] if what == "predict" else []
        process = rondo.start(what, tmp_path / "run", "--data", long_text, "--batch-size", 1, *output)
        try:
            line = read_until(process.stderr, part)[-1]
            done, of = map(int, re.search(r": (\d+) of (\d+) batches", line).groups())
            assert 0 < done < of, line
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("which", [long(signal.SIGTERM), signal.SIGINT])
def test_a_signal_while_measuring(rondo, tmp_path, text, which):  # noqa: F811
    """There is nothing to save: it ends at once, as pre-empted. Measuring this model takes long enough even for a late
    signal."""
    process = start(rondo, text, tmp_path / "run", "--nproc-per-node", 2, "--strategy", "planned", "--memory-limit",
                    "2GiB", "--batch-size", 8, "--layers", 12, "--width", 256, "--seq-len", 256)
    read_until(process.stderr, "planned: measuring gpt-tiny")
    ranks = worker_pids(process.pid)
    process.send_signal(which)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    all_gone(ranks.values())
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_first_step(rondo, tmp_path, text, which):  # noqa: F811
    """The chief waits for a worker that never joins: there is nothing to save."""
    with reserved_ports(1) as (port,):
        cluster = {"chief": [f"127.0.0.1:{port}"], "worker": ["127.0.0.1:1"]}
        process = start(rondo, text, tmp_path / "run", "--steps", 1, env=tf_config("chief", 0, **cluster))
        wait_until(lambda: is_listening(port), "the chief waits for the worker")
        process.send_signal(which)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert not list((tmp_path / "run").glob("checkpoints/*"))


@pytest.mark.parametrize("which, ranks", SIGNALS)
def test_a_signal_while_a_checkpoint_is_written(rondo, train, tmp_path, text, ranks, which):  # noqa: F811
    """It is completed, or leaves no trace; a checkpoint that the run reports is intact."""
    run = tmp_path / "run"
    process = start(rondo, text, run, "--nproc-per-node", ranks, "--steps", 100000, "--batch-size", 4, "--width", 256, "--layers", 4,
                    "--checkpoint-every", 1, "--validation-fraction", 0)
    wait_until(lambda: list(run.glob("checkpoints/.tmp-*")), "a checkpoint is being written")
    process.send_signal(which)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    newest = checkpoints(run)[-1]
    assert f"pre-empted after step {int(newest.removeprefix('step-'))}" in out, out
    assert all(name.startswith("step-") for name in checkpoints(run))
    for name in checkpoints(run):
        assert rondo("checkpoint", "verify", run / "checkpoints" / name).returncode == 0, name
    assert train("--resume", "--steps", int(newest.removeprefix("step-")) + 1, "--width", 256, "--layers", 4).returncode == 0


@pytest.mark.parametrize("ranks", [long(1), 2])
def test_closed_pipe_does_not_end_run(rondo, clean_environment, tmp_path, text, ranks):  # noqa: F811
    words = [rondo.program, "train", "--data", text, "--run-dir", tmp_path / "run", *SMALL, "--nproc-per-node", ranks,
             "--steps", 30, "--batch-size", 4, "--json", "-"]
    command = " ".join(map(str, words)) + " 2>&1 | head -1; exit ${PIPESTATUS[0]}"
    result = subprocess.run(["bash", "-c", command], env=clean_environment, cwd=tmp_path, capture_output=True, text=True,
                            timeout=120)
    assert result.stdout.count("\n") == 1
    assert checkpoints(tmp_path / "run") == ["step-00000030"], result.stderr
    assert len(losses(tmp_path / "run")) == 30


# Contents of a resumed run


def test_killed_run_resumes_bit_for_bit(rondo, train, tmp_path, text):  # noqa: F811
    """Killed after a checkpoint that is also a validation's step: every row exists once, and early stopping continues
    its count."""
    flags = ["--nproc-per-node", 2, "--batch-size", 4, "--lr", 0, "--checkpoint-every", 7, "--eval-every", 7,
             "--early-stopping-patience", 2, "--eval-batches", 2, "--log-every", 50, "--keep-checkpoints", 99]
    run = tmp_path / "run"
    process = start(rondo, text, run, *flags, "--steps", 1000, "--trace-steps", 0)
    wait_until(lambda: (run / "checkpoints" / "step-00000007").exists(), "the first checkpoint")
    ranks = worker_pids(process.pid)
    process.kill()
    process.communicate(timeout=120)
    all_gone(ranks.values())  # they save until then, and hold the run directory
    for name in checkpoints(run)[1:]:
        shutil.rmtree(run / "checkpoints" / name)
    assert [row["step"] for row in rows(run) if row["rank"] == 1 and row["step"] <= 7] == list(range(1, 8))
    result = train("--resume", "--steps", 1000)
    assert result.returncode == 0 and "stopped early after step 21" in result.stdout, (result.stdout, result.stderr)
    assert validated_steps(run) == [7, 14, 21]
    for rank in (0, 1):
        steps = [row["step"] for row in rows(run) if row["rank"] == rank and "loss" in row]
        assert steps == list(range(1, 22)), rank
    again = train("--resume", "--steps", 1000)
    assert again.returncode == 0 and "stopped early after step 21" in again.stdout, again.stderr


def test_a_finished_run_says_what_it_had(train, tmp_path):  # noqa: F811
    first = train("--steps", 3, "--batch-size", 4, "--eval-batches", 2)
    assert first.returncode == 0, first.stderr
    written = {name: (tmp_path / "run" / name).read_bytes() for name in ("trace.json", "memory.json")}
    again = train("--resume")
    assert again.returncode == 0 and again.stdout == first.stdout, again.stderr
    assert validated_steps(tmp_path / "run") == [3]
    assert {name: (tmp_path / "run" / name).read_bytes() for name in written} == written


# Branching from an older checkpoint

BRANCHING = ["--batch-size", 4, "--checkpoint-every", 2, "--eval-every", 1, "--eval-batch-size", 4, "--eval-batches", 2,
             "--keep-best", "loss", "--keep-checkpoints", 9]


def steps_in(folder):
    return [int(path.name.removeprefix("step-")) for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("flags", [long([]), ["--set", "checkpoint-incremental=true"], ["--checkpoint-async", "--nproc-per-node", 2],
                                   ["--ema-decay", 0.9, "--nproc-per-node", 2]], ids=lambda flags: "".join(map(str, flags[:1])))
def test_resuming_earlier_step_replaces_later_history(rondo, train, tmp_path, flags):  # noqa: F811
    run = tmp_path / "run"
    assert train("--steps", 8, *BRANCHING, *flags).returncode == 0
    assert steps_in(run / "checkpoints") == [2, 4, 6, 8]
    (run / "best" / "step-00000099").mkdir()  # ensures that a later checkpoint is left there
    result = train("--resume", run / "checkpoints" / "step-00000004", "--steps", 7, "--checkpoint-every", 5, "--lr", 0.02, *flags)
    assert result.returncode == 0, result.stderr
    # Those of steps 5 and 7 are new.
    assert steps_in(run / "checkpoints") == [2, 4, 5, 7]
    assert not [step for step in steps_in(run / "best") if step > 7]
    (said,) = [line for line in result.stderr.splitlines() if "resumed from step 4" in line]
    assert all(name in said for name in ("checkpoints/step-00000006", "checkpoints/step-00000008", "best/step-00000099")), said
    if "--ema-decay" in flags:
        assert 7 in steps_in(run / "average") and 8 not in steps_in(run / "average")
    else:
        (*_, validation) = [row for row in rows(run) if "validation_loss" in row]
        assert validation["step"] == 7
        figures = json.loads(rondo("evaluate", run, "--batch-size", 4, "--eval-batches", 2, "--json", "-").stdout)["figures"]
        assert figures["loss"] == pytest.approx(validation["validation_loss"], rel=1e-6)
    again = train("--resume", "--steps", 8, *flags)
    assert again.returncode == 0 and "resumed from step" not in again.stderr, again.stderr
    assert {row["step"] for row in rows(run) if "loss" in row} == set(range(1, 9))


def test_early_kill_keeps_first_history(rondo, train, tmp_path, text):  # noqa: F811
    run = tmp_path / "run"
    assert train("--steps", 8, *BRANCHING).returncode == 0
    process = start(rondo, text, run, *BRANCHING, "--resume", run / "checkpoints" / "step-00000004", "--steps", 100000,
                    "--checkpoint-every", 100000)
    wait_until(lambda: re.search(r'"step": ?\d\d', (run / "metrics.jsonl").read_text()), "it goes on")
    process.kill()
    process.communicate(timeout=120)
    assert steps_in(run / "checkpoints") == [2, 4, 6, 8]
    result = train("--resume", "--steps", 9)
    assert result.returncode == 0 and "finished after step 9" in result.stdout, result.stderr
    assert steps_in(run / "checkpoints")[-2:] == [8, 9]
    # --keep-checkpoints removes that of step 6; those after the new one are removed with it.
    result = train("--resume", run / "checkpoints" / "step-00000004", "--steps", 7, "--keep-checkpoints", 1)
    assert result.returncode == 0 and "could not be removed" not in result.stderr, result.stderr
    assert steps_in(run / "checkpoints") == [7]


# Checks before any change


def test_refused_resume_changes_nothing(train, tmp_path):  # noqa: F811
    assert train("--steps", 2, "--batch-size", 4, "--eval-batches", 1).returncode == 0
    run = tmp_path / "run"

    def content():
        return {path.relative_to(run): path.read_bytes() for path in run.rglob("*") if path.is_file()}

    before = content()
    for refused in (["--width", 64], ["--optimizer", "sgd"], ["--batch-size", 100000], ["--model-config", '{"x": 1}'],
                    ["--seed", 9], ["--early-stopping-patience", 2, "--validation-fraction", 0], ["--strategy", "ddp", "--plan", "x"]):
        result = train("--resume", "--steps", 4, *refused)
        assert result.returncode in (1, 2), (refused, result.stderr)
        assert content() == before, refused
    assert train("--resume", "--steps", 3).returncode == 0


def test_run_directory_is_exclusive(rondo, train, tmp_path, text):  # noqa: F811
    run = tmp_path / "run"
    process = start(rondo, text, run, "--nproc-per-node", 2, "--steps", 100000, "--checkpoint-every", 2, "--batch-size", 4,
                    "--eval-batches", 1)
    wait_until(lambda: (run / "checkpoints" / "step-00000002").exists(), "the first checkpoint")
    first_rank = worker_pids(process.pid)[0]
    for flags in (["--resume"], ["--steps", 3], ["--resume-intact"]):
        second = train(*flags)
        assert second.returncode == 2 and f"process {first_rank} on host" in second.stderr, second.stderr
    # Readers are not locked out.
    assert rondo("checkpoint", "inspect", run).returncode in (0, 1)
    assert rondo("report", run).returncode == 0
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert not (run / "run.lock").exists()
    step = int(checkpoints(run)[-1].removeprefix("step-"))
    assert train("--resume", "--steps", step + 1).returncode == 0


# Damage


@pytest.fixture
def damaged(train, tmp_path):  # noqa: F811
    """Returns a run with checkpoints of steps 2 (intact), 4 (a byte flipped) and 6 (truncated)."""
    result = train("--steps", 6, "--checkpoint-every", 2, "--batch-size", 4, "--eval-batches", 1)
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "run" / "checkpoints"
    flip_a_byte(folder / "step-00000004" / "model.safetensors")
    with open(folder / "step-00000006" / "optimizer.safetensors", "r+b") as file:
        file.truncate(100)
    return tmp_path / "run"


@pytest.mark.parametrize("whole", [False, long(True)])
def test_readers_name_damage_and_newest_intact_checkpoint(rondo, train, text, damaged, tmp_path, whole):  # noqa: F811
    """By default a reader is given the run or one of its checkpoints in turn; with `whole` both."""
    folder = damaged / "checkpoints"
    intact = str(folder / "step-00000002")

    def refused(words, file, of, **options):
        result = rondo(*words, **options)
        assert result.returncode == 1, (words, result.stdout, result.stderr)
        assert of in result.stderr and file in result.stderr, result.stderr
        assert f"--resume {intact}" in result.stderr and "--resume-intact" in result.stderr, result.stderr

    def of_run(path):
        """Returns arguments for programs that take the run directory and one of its checkpoints."""
        return [damaged] if path == damaged else [damaged, "--checkpoint", path]

    readers = [lambda path: ["checkpoint", "verify", path], lambda path: ["checkpoint", "inspect", path],
               lambda path: ["checkpoint", "diff", path, intact],
               lambda path: ["checkpoint", "convert", path, tmp_path / "x.safetensors"],
               lambda path: ["train", "--run-dir", path, "--sample", "x", "--length", 1],
               lambda path: ["checkpoint", "reshard", path, tmp_path / "out", "--parts", 2],
               lambda path: ["checkpoint", "merge", path, tmp_path / "out"],
               lambda path: ["evaluate", *of_run(path), "--data", text],
               lambda path: ["predict", *of_run(path), "--data", text, "-o", tmp_path / "rows.csv"],
               lambda path: ["export", *of_run(path), "-o", tmp_path / "net.pt"]]
    for number, reader in enumerate(readers):
        if whole or number % 2 == 0:
            refused(reader(damaged), "optimizer.safetensors", "step-00000006")
        if whole or number % 2 == 1:
            refused(reader(folder / "step-00000004"), "model.safetensors, tensor '", "step-00000004")
    # A checkpoint's file by its own path is verified, too.
    for reader in readers[1:4]:
        refused(reader(folder / "step-00000004" / "model.safetensors"), "model.safetensors, tensor '", "step-00000004")
    for name in ("x.safetensors", "out", "rows.csv", "net.pt"):
        assert not (tmp_path / name).exists(), name
    config = ["train", "--config", damaged / "config.json", "--run-dir", tmp_path / "fresh", "--init-from"]
    for path, of in [(damaged, "step-00000006"), (folder / "step-00000004", "step-00000004"),
                     (folder / "step-00000004" / "model.safetensors", "step-00000004")]:
        refused([*config, path], "safetensors", of)
        refused([*config, path, "--init-strict=false"], "safetensors", of)
    task = {"cluster": {"worker": ["localhost:1"]}, "task": {"type": "evaluator", "index": 0}}
    refused(["train", "--run-dir", damaged, "--data", text, *SMALL], "optimizer.safetensors", "step-00000006",
            env={"TF_CONFIG": json.dumps(task)})
    refused(["train", "--run-dir", damaged, "--resume"], "optimizer.safetensors", "step-00000006")
    refused(["train", "--run-dir", damaged, "--resume", folder / "step-00000004"], "model.safetensors", "step-00000004")
    said = json.loads(rondo("checkpoint", "verify", damaged, "--json", "-").stdout)
    assert said["intact"] is False and said["newest_intact"] == intact


@pytest.mark.parametrize("way", ["intact", "path"])
def test_resumes_from_newest_intact_checkpoint(train, damaged, way):  # noqa: F811
    flags = ["--resume-intact"] if way == "intact" else ["--resume", damaged / "checkpoints" / "step-00000002"]
    result = train(*flags, "--steps", 6, "--keep-checkpoints", 1)
    assert result.returncode == 0, result.stderr
    assert ("skipping" in result.stderr) == (way == "intact")
    assert [row["step"] for row in rows(damaged) if "loss" in row] == list(range(1, 7))
    # The replacement checkpoints are intact, and were not removed.
    assert checkpoints(damaged) == ["step-00000006"]
    assert train("--resume", "--steps", 7).returncode == 0


# Metrics and options


def test_metrics_have_every_metric_of_the_trainer(train, tmp_path):  # noqa: F811
    result = train("--steps", 4, "--batch-size", 4, "--eval-batches", 3, "--max-grad-norm", 0.5)
    assert result.returncode == 0, result.stderr
    (validation,) = [row for row in rows(tmp_path / "run") if "validation_loss" in row]
    assert validation["validation_perplexity"] == pytest.approx(2.718281828 ** validation["validation_loss"], rel=1e-6)
    assert all(row["gradient_norm"] > 0 for row in rows(tmp_path / "run") if "loss" in row)
    whole = train("--steps", 4, "--batch-size", 4, "--max-grad-norm", 0.5, run_dir="whole")
    assert whole.returncode == 0, whole.stderr
    (other,) = [row for row in rows(tmp_path / "whole") if "validation_loss" in row]
    assert other["validation_loss"] != validation["validation_loss"]  # over all batches


@pytest.mark.parametrize("flags, option, other", [
    (["--strategy", "local_sgd", "--codec", "int8"], "--codec", "local_sgd"),
    (["--strategy", "zero3", "--set", "torus=1x2"], "torus", "zero3"),
    (["--strategy", "zero2", "--bucket-size", "1MiB"], "--bucket-size", "zero2"),
    (["--optimizer", "sgd", "--set", "beta1=0.5"], "beta1", "sgd"),
    (["--optimizer", "adamw", "--momentum", 0.5], "--momentum", "adamw"),
    (["--strategy", "ddp", "--shard-ranks", 2], "--shard-ranks", "ddp"),
    (["--strategy", "zero3", "--set", "strategy-seed=2"], "strategy-seed", "zero3"),
    (["--strategy", "ddp", "--set", "reduce-every-pass=true"], "reduce-every-pass", "ddp"),
    (["--strategy", "ddp", "--plan", "plan.json"], "--plan", "ddp"),
    (["--lr-schedule", "cosine", "--set", "lr-step-size=5"], "lr-step-size", "cosine"),
    (["--lr-min-ratio", 0.5], "--lr-min-ratio", "constant"),
    (["--set", "comm-seed=4"], "comm-seed", "priority"),
    (["--strategy", "zero3", "--set", "offload-what=optimizer"], "offload-what", "--offload"),
    (["--temperature", 0.5], "--temperature", "--sample"),
    (["--label-column", "1"], "--label-column", "text"),
    (["--early-stopping-patience", 2, "--validation-fraction", 0], "--early-stopping-patience", "validation"),
])
def test_options_without_effect_are_refused_by_name(train, tmp_path, flags, option, other):  # noqa: F811
    (tmp_path / "plan.json").write_text("{}")
    result = train("--steps", 1, "--nproc-per-node", 2, *flags)
    assert result.returncode == 2, result.stderr
    assert option in result.stderr and other in result.stderr, result.stderr
    assert not (tmp_path / "run").exists()


def test_refuses_label_column_for_images(rondo, tmp_path):
    images = write_images(tmp_path / "images")
    result = rondo("train", "--data", images, "--model", "mlp", "--steps", 1, "--run-dir", tmp_path / "run", "--label-column", "1")
    assert result.returncode == 2, result.stderr
    assert "--label-column" in result.stderr and "idx" in result.stderr, result.stderr
    assert not (tmp_path / "run").exists()


# Schedules


@pytest.mark.parametrize("before, stop, after", [
    long(["--nproc-per-node", 1], 30, ["--nproc-per-node", 3]),
    (["--nproc-per-node", 3], 9, ["--nproc-per-node", 1]),
    (["--nproc-per-node", 1], 20, ["--batch-size", 10]),
    long(["--nproc-per-node", 1], 20, ["--gradient-accumulation-steps", 2]),
])
def test_schedule_resumes_and_reaches_its_end(rondo, tmp_path, before, stop, after):
    table = tmp_path / "table.csv"
    table.write_text("a,b,label\n" + "".join(f"{i * 7 % 11},{i * 5 % 13},{'xy'[i % 2]}\n" for i in range(60)))
    command = ["train", "--data", table, "--model", "mlp", "--run-dir", tmp_path / "run", "--batch-size", 4, "--lr-schedule", "linear",
               "--lr", 0.1, "--epochs", 3, "--validation-fraction", 0, "--trace-steps", 0, "--log-every", 1]
    rondo(*command, *before, "--checkpoint-every", 1, "--keep-checkpoints", 100).check_returncode()
    rates = [row["learning_rate"] for row in rows(tmp_path / "run") if row["rank"] == 0 and "loss" in row]
    result = rondo(*command, *before, *after, "--run-dir", tmp_path / "on", "--resume",
                   tmp_path / "run" / "checkpoints" / f"step-{stop:08}")
    assert result.returncode == 0, result.stderr
    rest = [row["learning_rate"] for row in rows(tmp_path / "on") if row["rank"] == 0 and "loss" in row and row["step"] > stop]
    assert len(rest) >= 5
    assert rest == pytest.approx([rates[stop] * (1 - i / len(rest)) for i in range(len(rest))])
