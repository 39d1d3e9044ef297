"""The trainer through `rondo train`: optimizers, metrics, callbacks and epochs by flags, on several processes."""
import json
import random
import resource
import shutil
import signal

import pytest
from marks import long


@pytest.fixture
def table(tmp_path):
    """Returns a table of two classes that a line separates, a fifth of them of class 1."""
    numbers = random.Random(3)
    lines = ["a,b,c,class"]
    for _ in range(400):
        a, b, c = (numbers.uniform(-1, 1) for _ in range(3))
        lines.append(f"{a:.4f},{b:.4f},{c:.4f},{int(a + b > 0.75)}")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "table.csv"


@pytest.fixture
def train(rondo, tmp_path, table):
    def run_train(*flags, run_dir="run", processes=2, timeout=120, **options):
        return rondo("train", "--data", table, "--data-kind", "csv", "--model", "mlp", "--run-dir", tmp_path / run_dir,
                     "--nproc-per-node", processes, "--batch-size", 8, "--progress", "off", *flags, timeout=timeout, **options)

    return run_train


def result_of(process):
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


OPTIMIZERS = [("lamb", "--lr", 0.02), ("lars", "--lr", 1, "--set", "lars-trust-coefficient=0.02", "--momentum", 0.9), ("lion", "--lr", 0.001),
              ("adagrad", "--lr", 0.05)]


@pytest.mark.parametrize("strategy, flags", [pair if (number + half) % 2 else long(*pair) for number, flags in enumerate(OPTIMIZERS)
                                             for half, pair in enumerate([("ddp", flags), ("zero2", flags)])],
                         ids=lambda value: value if isinstance(value, str) else value[0])
def test_every_optimizer_learns(train, strategy, flags):
    result = result_of(train("--optimizer", *flags, "--weight-decay", 0.01, "--set", "weight-decay-on=matrices", "--strategy", strategy, "--epochs", 8,
                             "--metrics", "accuracy,auc", "--json", "-"))
    assert result["validation"]["auc"] > 0.9, result
    assert set(result["validation"]) == {"loss", "accuracy", "auc"}


def test_metrics_do_not_depend_on_processes(train):
    figures = []
    for processes in (1, 2, 3):
        result = result_of(train("--lr", 0, "--epochs", 1, "--metrics", "precision,recall,f1,auc", "--seed", 4, "--eval-batch-size", 5, "--json", "-",
                                 processes=processes, run_dir=f"run{processes}"))
        figures.append(result["validation"])
    assert figures[0] == figures[1] == figures[2]


def test_unwritable_log_is_one_warning(train, tmp_path):
    limit = 32 << 20
    with (tmp_path / "log.csv").open("wb") as full:  # no byte can be appended
        full.seek(limit - 1)
        full.write(b"\n")

    def limit_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    # No rank waits for the deadline, which is too long for the test.
    process = train("--epochs", 50, "--log-to", "csv", "--set", f"csv-file={tmp_path / 'log.csv'}", "--timeout", "1000s", processes=3, preexec_fn=limit_files)
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stderr.count("log.csv: File too large; training continues") == 1, process.stderr
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps and max(steps) >= 40, "it went on behind the first epoch"


def test_virtual_epochs_logs_and_best_checkpoints(train, tmp_path):
    result = result_of(train("--epochs", 6, "--set", "steps-per-epoch=7", "--log-to", "csv,jsonl", "--set", f"csv-file={tmp_path / 'log.csv'}", "--set", f"jsonl-file={tmp_path / 'log.jsonl'}",
                             "--keep-best", "loss", "--keep-checkpoints", 2, "--early-stopping-patience", 9, "--set", "restore-best=true", "--set", "lr-plateau-patience=2",
                             "--set", "terminate-on-nan=true", "--set", "gradient-norm-every=3", "--ema-decay", 0.9, "--set", "class-weights=1,4",
                             "--trace-steps", 2, "--set", "trace-after=5", "--json", "-"))
    assert result["step"] == 42
    rows = [line.split(",") for line in (tmp_path / "log.csv").read_text().splitlines()]
    assert rows[0][:3] == ["epoch", "step", "loss"] and [row[1] for row in rows[1:]] == ["7", "14", "21", "28", "35", "42"]
    assert [json.loads(line)["epoch"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == list(range(6))
    assert 1 <= len(list((tmp_path / "run" / "best").glob("step-*"))) <= 2
    assert (tmp_path / "run" / "average" / "step-00000042").is_dir()
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {row["step"] for row in metrics if "gradient_norm" in row} == set(range(3, 43, 3))
    trace = json.loads((tmp_path / "run" / "trace.json").read_text())
    steps = {event["args"]["step"] for event in trace["traceEvents"] if "step" in event.get("args", {})}
    assert steps == {6, 7}


def validations(run_dir):
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["validation_loss"] for row in rows if "validation_loss" in row}


@pytest.fixture
def evaluated(rondo, tmp_path):
    def evaluate(run_dir, *flags):
        return result_of(rondo("evaluate", tmp_path / run_dir, *flags, "--json", "-"))["figures"]["loss"]

    return evaluate


STOPPING = ("--steps", 400, "--eval-every", 5, "--checkpoint-every", 5, "--keep-checkpoints", 100, "--lr", 0.5, "--early-stopping-patience", 3, "--set", "restore-best=true")


def test_ends_with_best_weights(train, evaluated, tmp_path):
    result = result_of(train(*STOPPING, "--json", "-"))
    assert result["end"] == "stopped early"
    found = validations(tmp_path / "run")
    best = min(found, key=found.get)
    assert best == result["step"] - 15
    assert result["validation"]["loss"] == pytest.approx(found[best], rel=1e-5)
    assert evaluated("run") == pytest.approx(found[best], rel=1e-5)
    # A run that ended with them continues with them.
    again = train("--resume", "--json", "-")
    assert result_of(again)["validation"] == result["validation"] and "early_stopping: the best" not in again.stderr
    assert evaluated("run") == pytest.approx(found[best], rel=1e-5)
    # A run that is resumed after the best pass does not have them.
    for step in (best + 10, best + 15):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / f"step-{step:08}")
    resumed = train("--resume", "--json", "-")
    assert result_of(resumed)["validation"]["loss"] > found[best]
    assert resumed.stderr.count("early_stopping: the best validation was before") == 1, resumed.stderr


def test_averaged_weights_are_those_that_commands_take(train, rondo, evaluated, tmp_path):
    flags = ("--lr", 0.05, "--ema-decay", 0.9, "--eval-every", 2, "--keep-best", "loss")
    result_of(train(*flags, "--steps", 40, "--checkpoint-every", 25, "--json", "-"))
    run_dir = tmp_path / "run"
    found = validations(run_dir)
    for checkpoint in (run_dir / "best").glob("step-*"):
        assert evaluated("run", "--checkpoint", checkpoint) == pytest.approx(found[int(checkpoint.name[5:])], rel=1e-5)
    assert evaluated("run") == pytest.approx(found[40], rel=1e-5)
    assert evaluated("run", "--checkpoint", run_dir / "checkpoints" / "step-00000040") != pytest.approx(found[40], rel=1e-5)
    said = rondo("export", run_dir, "-o", tmp_path / "net.safetensors", "--format", "safetensors")
    assert said.returncode == 0 and "averaged weights of" in said.stderr and "average/step-00000040" in said.stderr
    assert sorted(path.name for path in (run_dir / "average").glob("step-*")) == ["step-00000025", "step-00000040"]
    # A run that resumes from the older checkpoint has its average, also in another run directory.
    for name in ("other", "run"):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000040", ignore_errors=True)
        resumed = train("--resume", run_dir / "checkpoints" / "step-00000025", "--config", run_dir / "config.json", "--json", "-", run_dir=name)
        assert result_of(resumed)["step"] == 40 and "weight_average" not in resumed.stderr, resumed.stderr
        later = validations(tmp_path / name)
        assert {step: later[step] for step in range(26, 41, 2)} == {step: found[step] for step in range(26, 41, 2)}
    # A checkpoint without one gives a message.
    shutil.rmtree(run_dir / "average")
    resumed = train("--resume", run_dir / "checkpoints" / "step-00000025", "--config", run_dir / "config.json", run_dir="third")
    assert resumed.returncode == 0
    assert resumed.stderr.count("weight_average: there is no average of the weights of step 25") == 1, resumed.stderr


def test_preemption_notice_saves_and_resumes(train, tmp_path):
    (tmp_path / "notice").write_text("")
    process = train("--epochs", 40, "--set", f"preemption-file={tmp_path / 'notice'}")
    assert process.returncode == 3, process.stderr
    (tmp_path / "notice").unlink()
    result = result_of(train("--resume", "--epochs", 2, "--json", "-"))
    assert result["step"] > 1


@pytest.mark.parametrize("flags, said", [
    (("--keep-best", "bleu"), "bleu"), (("--set", "restore-best=true",), "--early-stopping-patience"), (("--set", "lars-trust-coefficient=0.5"), "lars-trust-coefficient"),
    (("--metrics", "bleu"), "bleu"), (("--loss", "nll"), "returns logits"), (("--set", "class-weights=1,2,3"), "2 classes"), (("--set", "class-weights=1,x"), "class-weights"),
    (("--keep-best", "loss", "--validation-fraction", 0), "--keep-best"), (("--loss-scale", "dynamic:0", "--precision", "O2"), "--loss-scale"),
    (("--strategy", "parameter_server", "--ema-decay", 0.9), "--ema-decay 0.9: with --strategy parameter_server"),
    (("--strategy", "grouped", "--ema-decay", 0.9), "--ema-decay 0.9: with --strategy grouped")])
def test_what_cannot_be_is_named(train, flags, said):
    process = train("--epochs", 1, *flags)
    assert process.returncode == 2, process.stderr
    assert said in process.stderr and process.stderr.count("rondo train:") == 1, process.stderr


def test_a_report_compares_runs(train, rondo, tmp_path):
    for name, rate in (("a", 0.01), ("b", 0.1)):
        assert train("--lr", rate, "--epochs", 1, run_dir=name).returncode == 0
    process = rondo("report", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "both.html", "--json", "-")
    result = result_of(process)
    assert [run["ranks"] for run in result["runs"]] == [2, 2]
    assert ["lr", "0.01", "0.1"] in result["differences"]
    assert "fillComparison" in (tmp_path / "both.html").read_text()
