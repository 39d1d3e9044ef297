"""Watching a run in progress: rondo top, and the page for Prometheus."""
import fcntl
import json
import os
import pty
import re
import select
import struct
import time
import urllib.error
import urllib.request

import pytest


def row(rank, step, **figures):
    return json.dumps({"rank": rank, "step": step, "epoch": 0, "elapsed_s": step / 10, **figures}) + "\n"


@pytest.fixture
def written_run(tmp_path):
    """Writes the files of a run of two ranks: rank 1 computes longer, rank 0 waits for it."""
    run = tmp_path / "written"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"starts": [{
        "program": "rondo train", "version": "0.2.0", "time": "2026-01-02T03:04:05Z", "host": "h", "command": "rondo train",
        "strategy": "ddp", "backend": "native", "ranks": 2, "first_step": 0, "total_steps": 400}]}))
    rows = ""
    for step in range(1, 101):
        for rank, (compute, waiting) in enumerate([(100, 50), (149, 1)]):
            rows += row(rank, step, loss=5 - step / 100, tokens_per_s=1000.0, step_ms=150.0, compute_ms=compute,
                        comm_ms=55.0, exposed_comm_ms=waiting, peak_bytes=1 << 30, learning_rate=1e-3)
    (run / "metrics.jsonl").write_text(rows + row(0, 100, validation_loss=4.5))
    return run


def test_a_run_in_one_look(rondo, written_run):
    shown = rondo("top", written_run)
    assert shown.returncode == 0, shown.stderr
    for fact in ["ddp on 2 ranks", "2026-01-02T03:04:05Z", "ended", "step 100 of 400 (25.0 %)", "left 0:00:45",
                 "loss 4.0000", "validation 4.5000", "1000 tokens/s", "1.0 GiB"]:
        assert fact in shown.stdout, f"{fact} is not in\n{shown.stdout}"
    assert re.search(r"rank 1 computes 1\.49 times as long as the others \(149 against 100 ms", shown.stdout)
    figures = json.loads(rondo("top", written_run, "--json", "-").stdout)
    assert figures["step"] == 100 and figures["total_steps"] == 400 and not figures["running"]
    assert [rank["compute_ms"] for rank in figures["ranks"]] == [100, 149]
    assert figures["straggler"].startswith("rank 1 ")


PROGRESS = {"step": 7, "total_steps": 60, "epoch": 0.5, "loss": 3.25, "learning_rate": 1e-3, "rate": 2142.0, "unit": "tokens", "elapsed_s": 61.0,
            "validated": 0, "to_validate": 0}


def test_a_run_without_a_row_yet(rondo, written_run):
    """Rows are written every --log-every steps; the training's own output is ahead of them, and so is progress.json."""
    (written_run / "metrics.jsonl").write_text("")
    shown = rondo("top", written_run)
    assert shown.returncode == 0 and "no times of ranks yet" in shown.stdout and "--log-every" in shown.stdout, shown.stdout
    (written_run / "progress.json").write_text(json.dumps(PROGRESS))
    shown = rondo("top", written_run).stdout
    for fact in ["step 7 of 60 (11.7 %)", "0:01:01 trained", "loss 3.2500", "lr 1.00e-03", "2142 tokens/s", "left 0:0"]:
        assert fact in shown, f"{fact} is not in\n{shown}"


def test_figures_equal_the_display(rondo, written_run):
    (written_run / "progress.json").write_text(json.dumps(PROGRESS | {"step": 109, "validated": 3, "to_validate": 20}))
    shown = rondo("top", written_run).stdout
    assert "step 109 of 60" in shown and "validation: 3 of 20 batches" in shown and "rank 1 computes" in shown, shown
    figures = json.loads(rondo("top", written_run, "--json", "-").stdout)
    assert figures["step"] == 109 and figures["loss"] == 3.25 and figures["validating"] == {"done": 3, "of": 20}
    # Left over from an earlier start; damaged; being written.
    for text in (json.dumps(PROGRESS), "", "{", "[]", '{"step": "x"}', "\0" * 512, json.dumps(PROGRESS | {"step": 109.5, "unit": 3})):
        (written_run / "progress.json").write_text(text)
        shown = rondo("top", written_run)
        assert shown.returncode == 0 and "step 100 of 400" in shown.stdout, (text, shown)


def test_the_report_names_the_straggler(rondo, written_run):
    done = rondo("report", written_run, "-o", written_run / "page.html")
    assert done.returncode == 0, done.stderr
    assert "rank 1 computes 1.49 times as long as the others" in (written_run / "page.html").read_text()


def read_terminal(descriptor, until, deadline=120):
    text, end = "", time.monotonic() + deadline
    while until not in text:
        assert time.monotonic() < end, f"{until!r} did not come:\n{text}"
        if select.select([descriptor], [], [], 0.2)[0]:
            try:
                text += os.read(descriptor, 65536).decode()
            except OSError:  # the program has ended
                assert until in text, text
    return text


def test_redraws_terminal_until_run_ends(rondo, written_run):
    lock = open(written_run / "run.lock", "w")
    fcntl.fcntl(lock, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    main, terminal = pty.openpty()
    top = rondo.start("top", written_run, "--interval", "50ms", env={"TERM": "xterm"}, stdout=terminal, stdin=terminal)
    os.close(terminal)
    text = read_terminal(main, "step 100 of 400")
    assert "\033[H" in text
    with open(written_run / "metrics.jsonl", "a") as file:
        file.write(row(0, 101, loss=3.25, step_ms=150.0, compute_ms=100.0))
    assert "running" in read_terminal(main, "loss 3.2500")
    lock.close()
    read_terminal(main, "ended")
    assert top.wait(timeout=120) == 0
    os.close(main)


@pytest.mark.parametrize("words,facts", [
    (["missing"], ["RUN_DIR", "missing"]), (["empty"], ["RUN_DIR", "empty", "metrics.jsonl"]),
    (["empty", "--interval", "0s"], ["--interval"])])
def test_what_top_refuses(rondo, tmp_path, words, facts):
    (tmp_path / "empty").mkdir()
    refused = rondo("top", *words)
    assert refused.returncode == 2
    for fact in facts:
        assert fact in refused.stderr


def test_prometheus_reads_a_run_that_goes_on(rondo, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("to be or not to be, that is the question. " * 400)
    run = rondo.start("train", "--data", "text", "--model", "gpt-tiny", "--steps", 100000, "--batch-size", 2, "--log-every", 1,
                      "--nproc-per-node", 2, "--strategy", "ddp", "--log-to", "prometheus",
                      "--set", "prometheus-address=0", "--run-dir", "run")
    try:
        url = None
        while url is None:
            line = run.stderr.readline()
            assert line, "training ended before it said where the page is"
            found = re.search(r"metrics for Prometheus at (http://127\.0\.0\.1:\d+/metrics)", line)
            url = found and found.group(1)
        end = time.monotonic() + 120
        text = ""
        while 'rondo_compute_seconds{rank="1"}' not in text:
            assert time.monotonic() < end, text
            with urllib.request.urlopen(url, timeout=120) as page:
                assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                text = page.read().decode()
        assert re.search(r"^rondo_loss \d", text, re.M) and "rondo_ranks 2" in text
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(url.replace("metrics", "other"), timeout=120)
        figures = json.loads(rondo("top", "run", "--json", "-").stdout)
        assert figures["running"] and len(figures["ranks"]) == 2
    finally:
        run.terminate()
        run.communicate(timeout=120)
