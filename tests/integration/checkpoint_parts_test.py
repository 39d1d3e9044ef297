"""Checkpoints in parts: written by all ranks, in the background, loadable in every layout, and intact after any
kill."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import pytest
from safetensors_files import read_safetensors

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mutate"))

from mutations import seal  # noqa: E402

MODEL = ["--model", "gpt-tiny", "--layers", "2", "--width", "32", "--seq-len", "16", "--data-kind", "text", "--extensions", ".md",
         "--batch-size", "2", "--input-sharding", "data", "--log-every", "1", "--validation-fraction", "0", "--progress", "off", "--trace-steps", "0"]


@pytest.fixture
def words(rondo_bin, repository):
    return [rondo_bin / "rondo", "train", "--data", repository / "docs", *MODEL]


def run(words, environment, *more, code=0):
    done = subprocess.run([*map(str, words), *map(str, more)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def losses(run_dir, rank=0):
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if row["rank"] == rank and "loss" in row}


def newest(run_dir):
    return sorted((run_dir / "checkpoints").glob("step-*"))[-1]


def test_resumes_async_parts_in_another_layout(words, rondo_bin, clean_environment, tmp_path):
    """Three processes as zero3, then one process, then three again: the losses always equal those of one process."""
    batches = ["--global-batch-size", "6"]
    words = [word for i, word in enumerate(words) if word != "--batch-size" and words[i - 1] != "--batch-size"] + batches
    run(words, clean_environment, "--steps", 8, "--run-dir", tmp_path / "alone")
    run(words, clean_environment, "--steps", 4, "--run-dir", tmp_path / "a", "--nproc-per-node", 3, "--strategy", "zero3",
        "--checkpoint-every", 2, "--checkpoint-async")
    files = sorted(path.name for path in newest(tmp_path / "a").iterdir())
    assert "model-00003-of-00003.safetensors" in files and "model.safetensors" not in files, files
    for command in ("verify", "inspect"):
        run([rondo_bin / "rondo", "checkpoint", command, tmp_path / "a"], clean_environment)
    for more in (["reshard", "--parts", 2], ["merge"]):
        target = tmp_path / more[0]
        run([rondo_bin / "rondo", "checkpoint", more[0], tmp_path / "a", target, *more[1:]], clean_environment)
        same = run([rondo_bin / "rondo", "checkpoint", "diff", tmp_path / "a", target, "--json", "-"], clean_environment)
        assert json.loads(same.stdout)["differences"] == []
    assert (tmp_path / "merge" / "step-00000004" / "model.safetensors").exists()
    run(words, clean_environment, "--steps", 8, "--run-dir", tmp_path / "a", "--resume", "--nproc-per-node", 1,
        "--strategy", "one_device")
    alone, there = losses(tmp_path / "alone"), losses(tmp_path / "a")
    assert set(there) == set(alone)
    for step, loss in alone.items():
        assert there[step] == pytest.approx(loss, rel=2e-4), step


def test_resharding_keeps_every_byte(words, rondo_bin, clean_environment, tmp_path):
    run(words, clean_environment, "--steps", 2, "--run-dir", tmp_path / "four", "--nproc-per-node", 4, "--strategy", "zero3",
        "--checkpoint-sharded")
    commands = {"three": ["reshard", tmp_path / "four", tmp_path / "three", "--parts", 3],
                "one": ["reshard", tmp_path / "three", tmp_path / "one", "--parts", 1]}
    for name, command in commands.items():
        run([rondo_bin / "rondo", "checkpoint", *command], clean_environment)
        run([rondo_bin / "rondo", "checkpoint", "verify", tmp_path / name], clean_environment)
        same = run([rondo_bin / "rondo", "checkpoint", "diff", tmp_path / "four", tmp_path / name, "--json", "-"], clean_environment)
        assert json.loads(same.stdout)["differences"] == []
    whole = {}
    for name in ("four", "three", "one"):
        run([rondo_bin / "rondo", "checkpoint", "merge", tmp_path / name, tmp_path / f"{name}-whole"], clean_environment)
        files = [tmp_path / f"{name}-whole" / "step-00000002" / f"{what}.safetensors" for what in ("model", "optimizer")]
        whole[name] = {tensor: array.tobytes() for file in files for tensor, array in read_safetensors(file).items()}
    assert len(whole["four"]) > 20
    assert whole["four"] == whole["three"] == whole["one"]


def test_refuses_newer_checkpoint_format(words, rondo_bin, clean_environment, tmp_path):
    run(words, clean_environment, "--steps", 1, "--run-dir", tmp_path / "a")
    manifest = newest(tmp_path / "a") / "manifest.json"
    newer, changed = re.subn(rb'("version": )\d+', rb"\g<1>9", manifest.read_bytes(), count=1)
    assert changed == 1
    manifest.write_bytes(seal(newer))
    refused = run(words, clean_environment, "--steps", 2, "--run-dir", tmp_path / "a", "--resume", code=1)
    assert "version 9" in refused.stderr and "newer rondo" in refused.stderr and "manifest.json" in refused.stderr
    run([rondo_bin / "rondo", "checkpoint", "verify", tmp_path / "a"], clean_environment, code=1)


def test_checkpoint_loads_after_kill_at_any_moment(words, rondo_bin, clean_environment, tmp_path):
    """All processes of the job die by SIGKILL while checkpoints are written one after the other."""
    draw = random.Random(3)
    run_dir = tmp_path / "run"
    run(words, clean_environment, "--steps", 2, "--run-dir", run_dir, "--nproc-per-node", 2, "--checkpoint-every", 1,
        "--checkpoint-async", "--keep-checkpoints", 2)
    before = int(newest(run_dir).name[5:])
    for _ in range(int(os.environ.get("RONDO_KILLS", "6"))):
        job = subprocess.Popen(list(map(str, [*words, "--steps", 100000, "--run-dir", run_dir, "--resume", "--checkpoint-every", 1,
                                              "--nproc-per-node", 2, "--checkpoint-async", "--keep-checkpoints", 2])),
                               env=clean_environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
        deadline = time.monotonic() + 120
        while int(newest(run_dir).name[5:]) <= before + 2:
            assert job.poll() is None and time.monotonic() < deadline, "no checkpoints are written"
            time.sleep(0.01)
        # A random moment, within a few checkpoints.
        time.sleep(draw.uniform(0, 0.2))
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate(timeout=120)
        subprocess.run(["pkill", "-KILL", "-f", str(run_dir)])
        done = run([rondo_bin / "rondo", "checkpoint", "verify", newest(run_dir)], clean_environment)
        assert re.search(r"intact", done.stdout), done.stdout
        before = int(newest(run_dir).name[5:])


def test_names_missing_or_foreign_part(words, rondo_bin, clean_environment, tmp_path):
    run_dir = tmp_path / "run"
    run(words, clean_environment, "--steps", 1, "--run-dir", run_dir, "--nproc-per-node", 2, "--strategy", "zero3",
        "--checkpoint-sharded")
    part = newest(run_dir) / "model-00002-of-00002.safetensors"
    assert len(read_safetensors(part)) > 0
    kept = part.read_bytes()
    part.unlink()
    done = run(words, clean_environment, "--steps", 2, "--run-dir", run_dir, "--resume", code=1)
    assert part.name in done.stderr, done.stderr
    part.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    done = run(words, clean_environment, "--steps", 2, "--run-dir", run_dir, "--resume", code=1)
    assert part.name in done.stderr, done.stderr
    # A single part is no model.
    part.write_bytes(kept)
    done = run([rondo_bin / "rondo", "checkpoint", "convert", part, tmp_path / "w.safetensors"], clean_environment, code=1)
    assert part.name in done.stderr and "part of tensor" in done.stderr, done.stderr
