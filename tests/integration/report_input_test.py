"""Reports of runs in progress, of labelled runs, and of files that are cut off, missing or damaged."""
import fcntl
import json
import os
import struct
import subprocess
import time

import pytest
from report_pages import browser, expect_fits, expect_readable, open_page, write_run  # noqa: F401  (fixtures)


@pytest.fixture
def report(run, rondo_bin):
    """report(WORD...) returns the outcome of `rondo report`."""
    return lambda *words: run(rondo_bin / "rondo-report", *words)


class Training:
    """Holds the lock of a run directory, as a training does."""

    def __init__(self, directory):
        self.file = open(directory / "run.lock", "w")
        fcntl.fcntl(self.file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))

    def end(self):
        self.file.close()


def row(step, **figures):
    return json.dumps({"rank": 0, "step": step, "elapsed_s": step * 0.5, "loss": 3 / step, "step_ms": 500, **figures}) + "\n"


def write_small_run(directory, rows=20):
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text('{"seed": 1}')
    (directory / "metrics.jsonl").write_text("".join(row(step) for step in range(1, rows + 1)))


def test_labels_stay_with_the_run(report, open_page, tmp_path):  # noqa: F811
    write_run(tmp_path / "run")
    result = report("run", "--name", "wide <b>", "--tags", "baseline,two words", "--notes", "First line.\nSecond line.", "--json", "-")
    assert json.loads(result.stdout)["labels"] == {"name": "wide <b>", "tags": ["baseline", "two words"], "notes": "First line.\nSecond line."}
    kept = json.loads((tmp_path / "run" / "run.json").read_text())
    assert kept["name"] == "wide <b>" and len(kept["starts"]) == 2
    probe = open_page(tmp_path / "run" / "report.html", width=420, dark=True)
    for said in ["wide <b>", "baseline", "two words", "First line.", "run · "]:
        assert said in probe["head"]
    expect_readable(probe)
    expect_fits(probe)
    result = report("run", "--name", "", "--tags", "", "--json", "-")
    assert json.loads(result.stdout)["labels"] == {"name": None, "tags": [], "notes": "First line.\nSecond line."}


def test_compared_runs_are_filtered_by_labels(report, open_page, browser, tmp_path):  # noqa: F811
    for name in ("a", "b", "c"):
        write_small_run(tmp_path / name)
    report("a", "--name", "wide", "--tags", "baseline,two words", "--notes", "Tried first")
    report("b", "--name", "wide", "--tags", "baseline")
    assert report("a", "b", "c").returncode == 0
    probe = open_page(tmp_path / "comparison.html", operate=False)
    expect_readable(probe)
    expect_fits(probe)

    def shown(text):
        browser.run(f"(() => {{ const e = document.getElementById('filter'); e.value = {json.dumps(text)}; e.dispatchEvent(new Event('input')); }})()")
        return browser.run("[...document.querySelectorAll('.runs tbody tr')].map((row) => row.cells[0].textContent)")

    assert shown("") == ["wide (a)", "wide (b)", "c"]
    assert shown("tags=baseline") == ["wide (a)", "wide (b)"]
    assert shown('tags="two words"') == ["wide (a)"]
    assert shown("tags!=baseline") == ["c"]
    assert shown("tried") == ["wide (a)"]
    assert shown('name="wide (b)"') == ["wide (b)"]


def test_labels_of_a_training_are_recorded(rondo, tmp_path):
    (tmp_path / "text").write_text("the quick brown fox " * 200)
    words = ["train", "--data", "text", "--model", "gpt-tiny", "--steps", "1", "--batch-size", "2", "--run-dir", "run", "--nproc-per-node", "1"]
    result = rondo(*words, "--log-to", "mlflow", "--set", "run-name=first try", "--set", "run-tags=a,b", "--set", "run-notes=Why not")
    assert result.returncode == 0, result.stderr
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (recorded["name"], recorded["tags"], recorded["notes"]) == ("first try", ["a", "b"], "Why not")
    assert "run_name" not in json.loads((tmp_path / "run" / "config.json").read_text()), "a label is no setting of the training"
    names = [path.read_text() for path in (tmp_path / "run" / "mlruns").glob("*/*/tags/mlflow.runName")]
    assert names == ["first try"]


def wait_for_step(browser, step):  # noqa: F811
    """Waits until the page in the browser has loaded again and shows the step."""
    deadline = time.monotonic() + 60
    shown = None
    while shown != step:
        assert time.monotonic() < deadline, f"the page shows step {shown}"
        time.sleep(0.02)
        try:
            shown = browser.run("document.documentElement.dataset.ready === 'true' ? run.summary.steps : null")
        except AssertionError:  # between two pages
            shown = None


def test_a_watched_page_follows_the_training(rondo_bin, browser, tmp_path):  # noqa: F811
    write_small_run(tmp_path / "run")
    training = Training(tmp_path / "run")
    page = tmp_path / "run" / "report.html"
    program = subprocess.Popen([rondo_bin / "rondo-report", "run", "--watch", "--interval", "3s"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "run/report.html\n"
        browser.open(page)  # what follows ends before the page loads again
        assert "loads again every 3 s" in browser.run("document.getElementById('live').textContent")
        browser.run("document.querySelector('summary').click(); zoomTo([5, 10]); scrollTo(0, 200)")
        smoothing = "document.getElementById('smoothing')"
        browser.run(f"(() => {{ {smoothing}.value = '0.5'; {smoothing}.dispatchEvent(new Event('input')); }})()")
        with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
            file.write(row(40) + row(41)[:20])
        wait_for_step(browser, 40)
        assert browser.run("[view.range, view.weight, document.querySelector('details').open, scrollY]") == [[5, 10], 0.5, True, 200]
        assert "damaged" not in browser.run("document.querySelector('main').textContent"), "the row that is being written"
        with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
            file.write(row(41)[20:] + row(42))
        training.end()
        assert program.wait(60) == 0
        assert '"reload_s"' not in page.read_text()
        wait_for_step(browser, 42)
        assert browser.run("document.getElementById('live').hidden")
        assert browser.console() == []
    finally:
        program.kill()
        program.wait()
        training.end()


def test_a_watched_page_says_when_it_is_old(report, rondo_bin, browser, tmp_path):  # noqa: F811
    write_small_run(tmp_path / "run")
    training = Training(tmp_path / "run")
    program = subprocess.Popen([rondo_bin / "rondo-report", "run", "--watch", "--interval", "1s"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    program.stdout.readline()
    program.kill()
    program.wait()
    training.end()
    page = tmp_path / "run" / "report.html"
    text = page.read_text()
    made = json.loads(text.split('<script type="application/json" id="run">')[1].split("</script>")[0])["made_by"]["time"]
    page.write_text(text.replace(made, "2020-01-01T00:00:00Z"))
    browser.open(page)
    assert "rondo report --watch has ended" in browser.run("document.getElementById('live').textContent")
    browser.run("document.querySelector('#live button').click()")
    assert browser.run("document.querySelector('#live button').textContent") == "Go on"
    browser.open(tmp_path / "run" / "report.html")  # leaves no timer behind


def test_watching_an_ended_run_writes_once(report, tmp_path):
    write_small_run(tmp_path / "run")
    assert report("run", "--watch").returncode == 0
    result = report("run", "--watch", "--interval", "10ms")
    assert result.returncode == 2 and "--interval must be at least 1s" in result.stderr


STEP = row(1)
NAN = row(1) + row(2).replace("1.5", "null")
CUT = {
    "no-step": ({"metrics.jsonl": ""}, "No step was recorded."),
    "one-step": ({"metrics.jsonl": STEP}, "1 step in 0.5 s."),
    "cut-metrics": ({"metrics.jsonl": STEP + row(2)[:-9]}, "1 step in 0.5 s."),
    "no-metrics": ({}, "No step was recorded."),
    "binary-metrics": ({"metrics.jsonl": "\0\1\2" * 50 + "\n" + STEP}, "1 step in 0.5 s."),
    "cut-run": ({"metrics.jsonl": STEP, "run.json": '{"starts": [{"program": "rondo tr'}, "1 step in 0.5 s."),
    "no-start": ({"metrics.jsonl": STEP, "run.json": '{"starts": []}'}, "1 step in 0.5 s."),
    "cut-config": ({"metrics.jsonl": STEP, "config.json": '{"seed":'}, "1 step in 0.5 s."),
    "cut-trace": ({"metrics.jsonl": STEP, "trace.json": '{"traceEvents": [{"name": "bac'}, "1 step in 0.5 s."),
    "cut-memory": ({"metrics.jsonl": STEP, "memory.json": '{"ranks": ['}, "1 step in 0.5 s."),
    "nan": ({"metrics.jsonl": NAN}, "2 steps in 1 s."),
    "nan-alone": ({"metrics.jsonl": STEP.replace("3.0", "null")}, "1 step in 0.5 s."),
}


def write_cut(directory, files):
    directory.mkdir()
    for name, text in ({"config.json": '{"seed": 1}'} | files).items():
        (directory / name).write_text(text)


@pytest.mark.parametrize("files, verdict", CUT.values(), ids=CUT)
def test_damaged_runs_have_a_page(report, open_page, tmp_path, files, verdict):  # noqa: F811
    write_cut(tmp_path / "run", files)
    result = report("run")
    assert result.returncode == 0, result.stderr
    assert all(line.startswith("note: ") for line in result.stderr.splitlines())
    probe = open_page(tmp_path / "run" / "report.html", operate=False)
    assert probe["findings"][0][1] == verdict
    expect_fits(probe)


def test_damaged_runs_are_compared(report, open_page, tmp_path):  # noqa: F811
    for name, (files, _) in CUT.items():
        write_cut(tmp_path / name, files)
    assert report(*CUT).returncode == 0
    probe = open_page(tmp_path / "comparison.html", operate=False)
    assert [cells[0] for cells in probe["tables"][0]["rows"]] == list(CUT)


@pytest.mark.parametrize("words, said", [
    (["run", "./run"], "RUN_DIR: run and ./run are the same run; give each once"),
    (["run", "link"], "RUN_DIR: run and link are the same run; give each once"),
    (["run", "empty"], "RUN_DIR: empty is not a run directory"),
    (["empty", "--name", "x"], "RUN_DIR: empty is not a run directory"),
    (["run", "other", "--tags", "x"], "--name, --tags and --notes are for one RUN_DIR"),
])
def test_wrong_directories_are_one_line(report, tmp_path, words, said):
    for name in ("run", "other"):
        write_small_run(tmp_path / name, rows=2)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("run")
    result = report(*words)
    assert result.returncode == 2
    assert said in result.stderr and len(result.stderr.splitlines()) == 1
    assert list((tmp_path / "empty").iterdir()) == []


def test_runs_of_equal_names_are_told_apart(report, tmp_path):
    for name in ("a/run", "b/run"):
        (tmp_path / name).parent.mkdir()
        write_small_run(tmp_path / name, rows=2)
    assert report("a/run", "b/run").returncode == 0
    assert "<title>a/run, b/run" in (tmp_path / "comparison.html").read_text()
