"""`rondo train` and folders: foreign folders, folders removed during training, full disks."""
import json
import shutil
import signal
import subprocess

import pytest
from launching import wait_until
from marks import long
from train_test import SMALL, checkpoints, rows, text, train  # noqa: F401


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Foreign folders

FOREIGN = {
    "hugging_face": {"config.json": json.dumps({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}),
                     "model.safetensors": "x", "tokenizer.json": "{}"},
    "metrics": {"metrics.jsonl": '{"step": 1, "loss": 2.0}\n'},
    "sources": {"src/a.py": "pass", "notes.txt": "text", "checkpoints/model.pt": "x"},
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("flags", [(), ("--resume",), ("--nproc-per-node", 2)], ids=["new", "resume", "two_ranks"])
def test_foreign_folder_is_refused_and_unchanged(train, tmp_path, kind, flags):  # noqa: F811
    folder = tmp_path / "run"
    for name, content in FOREIGN[kind].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    before = contents(folder)
    result = train("--steps", 1, *flags)
    assert result.returncode == 2, result.stderr
    message = [line for line in result.stderr.splitlines() if "holds no run" in line]
    assert len(message) == 1 and str(folder) in message[0], result.stderr
    assert all(name.split("/")[0] in message[0] for name in before)
    assert contents(folder) == before


def test_what_precedes_a_run_is_no_foreign_folder(train, tmp_path):  # noqa: F811
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".gitignore").write_text("*")
    (folder / "run.lock").write_text("process 1 on host gone\n")
    assert train("--steps", 1).returncode == 0
    # A run directory stays one with foreign files in it, and without its settings.
    (folder / "notes.txt").write_text("mine")
    assert train("--steps", 2, "--resume").returncode == 0
    (folder / "config.json").write_text("")
    result = train("--steps", 3, "--resume", "--config", folder / "none.json")
    assert result.returncode == 2 and "none.json" in result.stderr
    (folder / "config.json").unlink()
    assert train("--steps", 3, "--resume").returncode == 0
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["empty", "missing", "with_files"])
def test_a_resume_of_no_run_names_the_folder(rondo, tmp_path, kind):
    folder = tmp_path / "elsewhere"
    if kind != "missing":
        folder.mkdir()
    if kind == "with_files":
        (folder / "notes.txt").write_text("mine")
    result = rondo("train", "--resume", "--run-dir", folder)
    assert result.returncode == 2, result.stderr
    assert str(folder) in result.stderr and ("notes.txt" in result.stderr) == (kind == "with_files")
    assert "--data is missing" not in result.stderr


# Removed run directories


def start_until_rows(rondo, text, run, *flags):  # noqa: F811
    process = rondo.start("train", "--data", text, "--run-dir", run, *SMALL, "--progress", "off", *flags)
    metrics = run / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 4, "some steps are done")
    return process


@pytest.mark.parametrize("ranks, way", [(2, "removed"), (1, "renamed"), long(1, "removed"), long(2, "renamed")])
def test_recreates_removed_run_directory(rondo, text, train, tmp_path, ranks, way):  # noqa: F811
    run = tmp_path / "run"
    process = start_until_rows(rondo, text, run, "--nproc-per-node", ranks, "--steps", 100000)
    if way == "removed":
        shutil.rmtree(run)
    else:
        run.rename(tmp_path / "other")
    wait_until(lambda: (run / "metrics.jsonl").exists(), "the directory is made again")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert err.count("was removed or renamed while training") == 1 and str(run) in err, err
    # The new directory is a complete run.
    last, = checkpoints(run)
    assert train("--resume", "--steps", int(last.removeprefix("step-")) + 1).returncode == 0


def test_a_run_directory_that_cannot_be_made_again(rondo, text, tmp_path):  # noqa: F811
    """Training continues with one warning per file, and ends with the checkpoint that could not be written."""
    parent = tmp_path / "parent"
    run = parent / "run"
    process = start_until_rows(rondo, text, run, "--steps", 100000)
    shutil.move(parent, tmp_path / "other")
    parent.write_text("a file of this name")
    read_warning(process, "cannot recreate the run directory")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and str(run) in err, err
    assert err.count("metrics.jsonl") <= 2, err


def read_warning(process, part):
    """Reads lines of standard error up to the first that contains `part`."""
    for line in process.stderr:
        if part in line:
            return
    raise AssertionError(f"ended without {part!r}")


# Full disks


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"nobody may mount a small tmpfs here ({mounted.stderr.strip()})")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(disk):
    """Uses up all space, including that of files that are growing meanwhile."""
    with open(disk / "filler", "ab", buffering=0) as filler:
        try:
            while True:
                filler.write(b"\0" * 4096)
        except OSError:
            return


@pytest.mark.parametrize("ranks", [long(1), 2])
def test_full_disk_loses_no_row(rondo, text, small_disk, tmp_path, ranks):  # noqa: F811
    run = small_disk / "run"
    process = start_until_rows(rondo, text, run, "--steps", 100000, "--nproc-per-node", ranks, "--log-to", "tensorboard,mlflow,csv,jsonl",
                               "--set", "steps-per-epoch=5", "--set", f"csv-file={small_disk / 'epochs.csv'}", "--set", f"jsonl-file={small_disk / 'epochs.jsonl'}",
                               "--checkpoint-every", 1000000, "--eval-every", 1000000, "--matmul", "libtorch")
    fill(small_disk)
    waited = {"metrics.jsonl", "tfevents", "mlruns", "epochs.csv", "epochs.jsonl"}
    said = []
    while waited:
        fill(small_disk)
        line = process.stderr.readline()
        assert line, said
        said.append(line)
        waited -= {name for name in waited if name in line and "No space left on device" in line}
    (small_disk / "filler").unlink()
    before = (run / "metrics.jsonl").read_text().count("\n")
    wait_until(lambda: (run / "metrics.jsonl").read_text().count("\n") > before + 20, "rows are written again")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 3, said + [err]
    assert all("training continues" in line for line in said if "No space" in line), said
    last = int(checkpoints(run)[-1].removeprefix("step-"))
    for rank in range(ranks):
        assert [row["step"] for row in rows(run) if row["rank"] == rank and "loss" in row] == list(range(1, last + 1))
