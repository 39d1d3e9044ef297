"""`rondo train` as a user runs it: command lines, contents of the run directory, and error messages."""
import json
import os
import pathlib
import re
import resource
import shlex
import signal
import subprocess
import time

import pytest
from launching import alive, all_gone, bash, reserved_ports, wait_until
from marks import long

SMALL = ["--model", "gpt-tiny", "--layers", 2, "--heads", 2, "--width", 32, "--seq-len", 32, "--log-every", 1]


@pytest.fixture(scope="session")
def text(tmp_path_factory, repository):
    """Returns text from the repository's own sources."""
    folder = tmp_path_factory.mktemp("text")
    sources = sorted((repository / "rondo").rglob("*.h"))
    (folder / "sources.txt").write_text("".join(source.read_text() for source in sources)[:120_000])
    return folder / "sources.txt"


@pytest.fixture
def train(rondo, tmp_path, text):
    """train(*flags) trains a small GPT in tmp_path/run and returns the finished process."""

    def run_train(*flags, data=text, run_dir="run", timeout=120, **options):
        return rondo("train", "--data", data, "--run-dir", tmp_path / run_dir, *SMALL, *flags, timeout=timeout, **options)

    return run_train


def rows(run_directory):
    return [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]


def losses(run_directory, rank=0):
    return [row["loss"] for row in rows(run_directory) if row["rank"] == rank and "loss" in row]


def checkpoints(run_directory):
    return sorted(path.name for path in (run_directory / "checkpoints").iterdir())


def worker_pids(launcher):
    """Returns process ids of the ranks below `launcher`, by rank."""
    ranks = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid = int(stat.parent.name)
            if b"rondo-train-worker" not in (stat.parent / "cmdline").read_bytes():
                continue
            environment = dict(item.split(b"=", 1) for item in (stat.parent / "environ").read_bytes().split(b"\0")
                               if b"=" in item)
            parent = pid
            while parent > 1 and parent != launcher:
                parent = int(pathlib.Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == launcher:
                ranks[int(environment[b"RANK"])] = pid
        except (OSError, KeyError, ValueError):
            continue
    return ranks


def start_and_wait_for_steps(rondo, tmp_path, text, *flags, steps=3):
    process = rondo.start("train", "--data", text, "--run-dir", tmp_path / "run", *SMALL, "--nproc-per-node", 2, "--steps",
                          100000, *flags)
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") >= 2 * steps, "some steps are done")
    return process, worker_pids(process.pid)


# Results of a training


def test_one_command_trains_on_two_processes(train, tmp_path):
    result = train("--nproc-per-node", 2, "--steps", 30, "--batch-size", 8, "--lr", 3e-3, "--checkpoint-every", 10,
                   "--keep-checkpoints", 2)
    assert result.returncode == 0, result.stderr
    run = tmp_path / "run"
    history = losses(run)
    assert len(history) == 30 and history[-1] < 0.75 * history[0], history
    assert re.search(r"step 30/30  epoch [\d.]+  loss [\d.]+  [\d.]+k? tokens/s  lr [\d.e-]+  took \d:\d\d", result.stderr)
    assert "validation loss" in result.stdout

    by_rank = {rank: [row for row in rows(run) if row["rank"] == rank and "loss" in row] for rank in (0, 1)}
    assert [row["step"] for row in by_rank[0]] == [row["step"] for row in by_rank[1]] == list(range(1, 31))
    for row in by_rank[0] + by_rank[1]:
        assert row.keys() >= {"rank", "step", "epoch", "loss", "learning_rate", "tokens_per_s", "step_ms", "compute_ms",
                              "comm_ms", "exposed_comm_ms", "peak_bytes"}
        assert row["step_ms"] > 0 and row["peak_bytes"] > 1 << 20
        assert 0 <= row["exposed_comm_ms"] <= row["step_ms"]
    assert any("validation_loss" in row for row in rows(run))

    assert checkpoints(run) == ["step-00000020", "step-00000030"]
    assert list(run.glob("events.out.tfevents.*"))
    events = json.loads((run / "trace.json").read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    names = {event["name"] for event in events}
    assert {"forward", "backward", "optimizer", "data"} <= names
    assert any(name.startswith("all_reduce") for name in names)
    assert json.loads((run / "config.json").read_text())["lr"] == 3e-3


def test_two_ranks_equal_one_process(train, tmp_path):
    flags = ["--steps", 12, "--global-batch-size", 12, "--validation-fraction", 0.2, "--optimizer", "adamw", "--lr-schedule",
             "cosine", "--warmup-steps", 3, "--max-grad-norm", 1]
    assert train(*flags, run_dir="one").returncode == 0
    for name, more in {"native": [], "gloo": ["--backend", "gloo"], "accumulated": ["--gradient-accumulation-steps", 2]}.items():
        result = train(*flags, *more, "--nproc-per-node", 2, run_dir=name)
        assert result.returncode == 0, result.stderr
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "one"), rel=1e-5), name
        validation = [[row["validation_loss"] for row in rows(tmp_path / run) if "validation_loss" in row]
                      for run in (name, "one")]
        assert validation[0] == pytest.approx(validation[1], rel=1e-5)


def test_an_interrupted_run_goes_on_bit_for_bit(train, tmp_path):
    flags = ["--nproc-per-node", 2, "--batch-size", 6, "--dropout", 0.1, "--lr-schedule", "cosine", "--seed", 5]
    assert train(*flags, "--steps", 12, run_dir="straight").returncode == 0
    # As if the run had died after step 5: removes its later checkpoints, but not its metrics.
    assert train(*flags, "--steps", 12, "--checkpoint-every", 5, run_dir="parts").returncode == 0
    parts = tmp_path / "parts"
    for name in ("step-00000012", "step-00000010"):
        subprocess.run(["rm", "-r", parts / "checkpoints" / name], check=True)
    result = train("--resume", run_dir="parts")  # its settings come from the run's config.json
    assert result.returncode == 0, result.stderr
    assert losses(parts) == losses(tmp_path / "straight")
    assert losses(parts, rank=1) == losses(tmp_path / "straight", rank=1)
    assert [row["step"] for row in rows(parts) if row["rank"] == 1] == list(range(1, 13))


def test_term_saves_and_resume_continues(rondo, train, tmp_path, text):
    flags = ["--batch-size", 4, "--seed", 3]
    # The only checkpoint is that of the signal, however late the signal arrives.
    process, _ = start_and_wait_for_steps(rondo, tmp_path, text, *flags, "--checkpoint-every", 10_000_000)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    run = tmp_path / "run"
    (name,) = checkpoints(run)
    step = int(name.removeprefix("step-"))
    assert f"pre-empted after step {step}" in out
    history = losses(run)
    assert len(history) == step

    result = train("--resume", "--steps", step + 3)
    assert result.returncode == 0, result.stderr
    assert train(*flags, "--nproc-per-node", 2, "--steps", step + 3, run_dir="straight").returncode == 0
    assert losses(run) == losses(tmp_path / "straight")


def test_configuration_round_trip(train, tmp_path, rondo, text):
    first = train("--steps", 4, "--batch-size", 4, "--lr", 2e-3, "--optimizer", "adam", run_dir="first")
    assert first.returncode == 0, first.stderr
    config = tmp_path / "first" / "config.json"
    again = rondo("train", "--config", config, "--run-dir", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert losses(tmp_path / "again") == losses(tmp_path / "first")
    assert (tmp_path / "again" / "config.json").read_text() == config.read_text()
    # Flags override the file.
    other = rondo("train", "--config", config, "--run-dir", tmp_path / "other", "--steps", 2, "--seed", 1)
    assert other.returncode == 0, other.stderr
    assert len(losses(tmp_path / "other")) == 2 and losses(tmp_path / "other") != losses(tmp_path / "first")[:2]


@pytest.mark.parametrize("seed", [long(2 ** 63 - 1), long(2 ** 63), 2 ** 64 - 1])
def test_a_large_seed_comes_back_from_the_configuration(train, tmp_path, rondo, seed):
    assert train("--steps", 2, "--batch-size", 4, "--seed", seed, run_dir="first").returncode == 0
    config = tmp_path / "first" / "config.json"
    assert json.loads(config.read_text())["seed"] == seed
    again = rondo("train", "--config", config, "--run-dir", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert losses(tmp_path / "again") == losses(tmp_path / "first")


def test_a_directory_with_chosen_extensions(train, tmp_path, repository):
    result = train("--extensions", "h,.cpp", "--steps", 2, "--nproc-per-node", 2, data=repository / "rondo" / "base")
    assert result.returncode == 0, result.stderr
    config = tmp_path / "run" / "config.json"
    assert json.loads(config.read_text())["extensions"] == ["h", ".cpp"]
    again = train("--config", config, run_dir="again", data=repository / "rondo" / "base")
    assert losses(tmp_path / "again") == losses(tmp_path / "run"), again.stderr


def test_samples_text_from_a_checkpoint(train, rondo, tmp_path):
    assert train("--steps", 5).returncode == 0
    flags = ["--run-dir", tmp_path / "run", "--sample", "namespace ", "--length", 20]
    first = rondo("train", *flags, "--seed", 1)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("namespace ") and len(first.stdout) > len("namespace ")
    assert rondo("train", *flags, "--seed", 1).stdout == first.stdout
    greedy = rondo("train", *flags, "--temperature", 0, "--set", "top-k=3")
    assert greedy.returncode == 0, greedy.stderr


def test_result_as_json_on_standard_output(train):
    for processes in (1, 2):
        result = train("--steps", 2, "--nproc-per-node", processes, "--json", "-", run_dir=f"run{processes}")
        assert result.returncode == 0, result.stderr
        document = json.loads(result.stdout)
        assert document["step"] == 2 and document["ranks"] == processes and document["end"] == "finished"
        assert document["validation"]["perplexity"] > 1


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "table.csv"
    lines = ["a,b,c,label"] + [f"{i % 7},{i % 5},{i % 3},{(i % 7 > 3) + 0}" for i in range(300)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_every_name_that_help_lists_trains(rondo, tmp_path, table, text):
    usage = rondo("train", "--help-all").stdout
    names = {flag: re.search(rf"--{flag} .*?\{{([^}}]*)\}}", usage, re.S)[1].replace("\n", "").replace(" ", "").split(",")
             for flag in ("optimizer", "lr-schedule", "strategy", "backend")}
    assert "adamw" in names["optimizer"] and "ddp" in names["strategy"]
    plan = tmp_path / "plan.json"
    plan.write_text('{"units": [{"name": "root", "strategy": "zero1"}]}')
    # Optimizers, schedules and backends together, each of the shorter lists several times.
    together = {flag: names.pop(flag) for flag in ("optimizer", "lr-schedule", "backend")}
    trainings = [{flag: values[i % len(values)] for flag, values in together.items()} for i in range(max(map(len, together.values())))]
    trainings += [{flag: value} for flag, values in names.items() for value in values]
    for number, chosen in enumerate(trainings):
        flags = [word for flag, value in chosen.items() for word in (f"--{flag}", value)]
        more = {"planned": ["--plan", plan], "grouped": ["--nproc-per-node", 2],
                "tensor": ["--set", "tensor-rules=layers.0=column,layers.1=row"]}.get(flags[1], [])
        result = rondo("train", "--data", table, "--model", "mlp", "--steps", 2, "--epochs", 1, *flags, *more,
                       "--run-dir", tmp_path / f"run-{number}", timeout=120)
        assert result.returncode == 0, (flags, result.stderr)
        if chosen.get("optimizer") == "sgd":
            assert any("validation_accuracy" in row for row in rows(tmp_path / f"run-{number}"))


def test_runs_under_a_launcher(rondo, tmp_path, text):
    result = rondo("run", "-n", 2, rondo.program, "train", "--data", text, "--run-dir", tmp_path / "run", *SMALL,
                   "--steps", 2, "--nproc-per-node", 7, timeout=120)
    assert result.returncode == 0, result.stderr
    assert {row["rank"] for row in rows(tmp_path / "run")} == {0, 1}


# Invalid input: one clear line, the right exit code, no leftovers


def tf_config(kind, index, **cluster):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


def test_tf_config_chief_and_workers_train(rondo, tmp_path, text):
    words = ("train", "--data", text, "--steps", 2, "--run-dir", tmp_path / "run", "--json", "-")
    with reserved_ports(1) as (port,):
        cluster = {"chief": [f"127.0.0.1:{port}"], "worker": ["127.0.0.1:1"], "evaluator": ["127.0.0.1:2"]}
        worker = rondo.start(*words, env=tf_config("worker", 0, **cluster), stdout=subprocess.DEVNULL)
        chief = rondo(*words, env=tf_config("chief", 0, **cluster))
    assert chief.returncode == 0 and worker.wait(timeout=120) == 0, chief.stderr
    assert json.loads(chief.stdout)["ranks"] == 2


def test_roles_that_nothing_serves_are_refused_by_name(rondo, tmp_path, text):
    role = "ps"
    cluster = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], role: ["127.0.0.1:3"]}
    words = ("train", "--data", text, "--steps", 2, "--run-dir", tmp_path / "run", "--nproc-per-node", 2)
    usage_error(rondo(*words, env=tf_config(role, 0, **cluster)), "TF_CONFIG", role)
    assert not (tmp_path / "run").exists()
    usage_error(rondo(*words, env=tf_config("worker", 0, **cluster)), "TF_CONFIG", "ps", "worker")


def usage_error(result, *words):
    assert result.returncode == 2, (result.returncode, result.stderr)
    for word in words:
        assert str(word) in result.stderr, result.stderr
    assert "Traceback" not in result.stderr and "terminate" not in result.stderr


def test_unknown_flags_and_values(train, rondo, text):
    usage_error(train("--learning-rat", 1), "unknown flag --learning-rat")
    usage_error(rondo("train", "nonsense"), "unexpected argument 'nonsense'")
    usage_error(rondo("bench", "step", "--modle", "mlp"), "unknown flag --modle; did you mean --model?")
    usage_error(train("--optimizer", "adamax"), "--optimizer", "adamax", "adamw", "sgd")
    usage_error(train("--lr", "fast"), "--lr", "fast")
    usage_error(train("--lr", -1), "--lr", "-1")
    usage_error(train("--batch-size", 0), "--batch-size")
    usage_error(train("--timeout", "soon"), "--timeout", "soon")
    usage_error(train("--batch-size", 4, "--global-batch-size", 8), "--batch-size", "--global-batch-size")
    usage_error(rondo("train"), "--data")
    usage_error(rondo("train", "--sample", "x"), "--run-dir")
    usage_error(rondo("train", "--sample", "x", "--run-dir", "runs/none"), "--run-dir", "runs/none")


def test_ranks_with_different_strategies_are_named(rondo, text, tmp_path):
    words = ["train", "--data", text, *SMALL, "--run-dir", tmp_path / "run", "--strategy"]
    command = shlex.join(["exec", *map(str, [rondo.program, *words])])
    result = rondo("run", "-n", 2, *bash(f"[ $RANK = 0 ] && strategy=zero1 || strategy=local_sgd; {command} $strategy"))
    usage_error(result, "--strategy is zero1 on rank 0, local_sgd on rank 1")


def test_data_that_cannot_be(train, tmp_path):
    usage_error(train(data=tmp_path / "nothing.txt"), "--data", "nothing.txt", "no such file")
    (tmp_path / "empty.txt").touch()
    usage_error(train(data=tmp_path / "empty.txt"), "--data", "empty.txt", "empty")
    (tmp_path / "short.txt").write_text("too short")
    result = train("--nproc-per-node", 2, data=tmp_path / "short.txt")
    assert result.returncode == 1 and "short.txt' has 9 bytes of text" in result.stderr, result.stderr
    assert "rank 1] rondo train" not in result.stderr  # one error for the job
    assert not (tmp_path / "run").exists()


def test_batches_that_cannot_be(train):
    result = train("--batch-size", 100000, "--nproc-per-node", 2)
    usage_error(result, "100000", "2 ranks", "samples")
    assert "rank 1] rondo train" not in result.stderr  # one error for the job
    usage_error(train("--global-batch-size", 9, "--nproc-per-node", 2), "--global-batch-size", "9", "2 ranks", "8", "10")
    usage_error(train("--global-batch-size", 12, "--nproc-per-node", 2, "--gradient-accumulation-steps", 4), "12", "accumulated")
    usage_error(train("--strategy", "one_device", "--nproc-per-node", 2), "one_device")


def test_models_that_do_not_fit_the_data(train, rondo, text, table, tmp_path):
    usage_error(rondo("train", "--data", table, "--model", "gpt-tiny", "--run-dir", tmp_path / "x"), "gpt-tiny", "csv")
    usage_error(train("--width", 30, "--heads", 4), "30", "4")
    usage_error(train("--model-config", '{"colour": 1}'), "colour")
    plain = ["train", "--data", text, "--model", "gpt", "--run-dir", tmp_path / "x", "--model-config"]
    usage_error(rondo("train", "--data", text, "--run-dir", os.fsdecode(b"run\xb0")), "--run-dir", "run\\xb0", "UTF-8")
    (tmp_path / "model.json").write_text('{"context": "eight"}')
    usage_error(rondo(*plain, tmp_path / "model.json"), "context", "eight", "whole number")
    usage_error(rondo(*plain, '{"layers": 1099511627776}'), "layers", "1099511627776", "65536")
    refused = rondo(*plain, '{"vocabulary": 2147483647, "width": 1073741824, "heads": 1}')
    assert refused.returncode == 1 and "memory" in refused.stderr, refused.stderr
    assert "frame #" not in refused.stderr and "Exception raised" not in refused.stderr, refused.stderr
    usage_error(train("--model-config", "nothing.json"), "--model-config", "nothing.json")
    usage_error(rondo("train", "--data", table, "--model", "mlp", "--layers", 2, "--run-dir", tmp_path / "x"), "--layers")


def test_configuration_files_that_cannot_be(train, tmp_path):
    config = tmp_path / "config.json"
    usage_error(train("--config", tmp_path / "none.json"), "none.json")
    config.write_text("not json")
    usage_error(train("--config", config), "config.json:1", "not valid JSON")
    config.write_text('{"leraning_rate": 1}')
    usage_error(train("--config", config), "leraning_rate")


def test_run_directories_that_cannot_be(train, tmp_path):
    assert train("--steps", 2).returncode == 0
    usage_error(train("--steps", 2), "already holds a run", "step 2", "--resume")


@pytest.mark.parametrize("flags", [(), ("--nproc-per-node", 2, "--max-restarts", 1)], ids=["rank", "launcher"])
def test_simultaneous_runs_have_own_directories(rondo, tmp_path, text, flags):
    begin = int(time.time())
    # Whenever this run begins, there is already a run directory of that second.
    taken = {time.strftime("%Y-%m-%d-%H%M%S-gpt-tiny", time.gmtime(begin + second)) for second in range(600)}
    for name in taken:
        (tmp_path / "runs" / name).mkdir(parents=True)
    done = rondo("train", "--data", text, *SMALL, "--steps", 1, *flags, env={"TZ": "UTC0"})
    assert done.returncode == 0, done.stderr
    own, = {path.name for path in (tmp_path / "runs").iterdir()} - taken
    assert own.removesuffix("-2") in taken
    assert losses(tmp_path / "runs" / own)
    assert not [name for name in taken if list((tmp_path / "runs" / name).iterdir())]


def test_checkpoint_of_another_model(train, tmp_path):
    assert train("--steps", 2, "--nproc-per-node", 2).returncode == 0
    before = checkpoints(tmp_path / "run")
    result = train("--resume", "--steps", 4, "--width", 64, "--nproc-per-node", 2)
    assert result.returncode == 1
    assert re.search(r"transformer\.\S+.*32.*64|transformer\.\S+.*64.*32", result.stderr), result.stderr
    assert result.stderr.count("rondo train:") == 1 or result.stderr.count("] rondo train:") == 1
    assert checkpoints(tmp_path / "run") == before


def test_full_disk_leaves_no_half_checkpoint(train, rondo, tmp_path, text):
    """A limit on the size of files simulates the full disk: writing beyond it fails with EFBIG instead of ENOSPC."""
    run = tmp_path / "run"

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))

    result = train("--steps", 2, "--layers", 4, "--width", 128, preexec_fn=limit)
    assert result.returncode == 1, result.stderr
    assert re.search(r"^rondo train: .*model\.safetensors.*File too large", result.stderr, re.M), result.stderr
    assert checkpoints(run) == [] and list((run / "checkpoints").glob(".*")) == []


def test_full_disk_keeps_the_older_checkpoint(train, tmp_path):
    disk = tmp_path / "run"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"nobody may mount a small tmpfs here ({mounted.stderr.strip()}); the test above covers the same path")
    try:
        result = train("--steps", 10, "--checkpoint-every", 1, "--keep-checkpoints", 10, "--trace-steps", 0, "--nproc-per-node", 2)
        assert result.returncode == 1, result.stderr
        assert "No space left on device" in result.stderr, result.stderr
        assert "rank 1] rondo train" not in result.stderr  # one error for the job
        kept = checkpoints(disk)
        assert len(kept) >= 2 and list((disk / "checkpoints").glob(".tmp*")) == []
        subprocess.run(["rm", "-r", disk / "checkpoints" / kept[0]], check=True)
        result = train("--resume", "--keep-checkpoints", 1, "--steps", 10)
        assert result.returncode == 0, result.stderr
    finally:
        subprocess.run(["umount", disk], check=True)


# Ranks that die or hang in the middle of a step


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_rank(rondo, tmp_path, text, victim):
    process, ranks = start_and_wait_for_steps(rondo, tmp_path, text)
    os.kill(ranks[victim], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode not in (0, 2, 3)
    assert re.search(rf"rank {victim} .*SIGKILL", err), err
    all_gone(ranks.values())


def test_late_notice_blames_killed_rank(rondo, tmp_path, text):
    """It must not blame the rank that has noticed the end and recorded it."""
    process, ranks = start_and_wait_for_steps(rondo, tmp_path, text)
    guardian, = map(int, pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    os.kill(guardian, signal.SIGSTOP)
    os.kill(ranks[0], signal.SIGKILL)
    all_gone([ranks[1]])
    os.kill(guardian, signal.SIGCONT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGKILL, err
    assert re.search(r"rondo run: rank 0 .*was killed by SIGKILL", err), err


@pytest.mark.parametrize("victim", [0, 1])
def test_stopped_rank(rondo, tmp_path, text, victim):
    process, ranks = start_and_wait_for_steps(rondo, tmp_path, text)
    os.kill(ranks[victim], signal.SIGSTOP)
    _, err = process.communicate(timeout=120)
    assert process.returncode not in (0, 2, 3)
    assert re.search(rf"rank {victim}|ranks? \[?{victim}", err), err
    all_gone(ranks.values())
    assert not any(alive(pid) for pid in ranks.values())
