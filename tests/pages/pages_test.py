"""Pages in a real browser, the long part: barriers that axe-core finds, many steps, lines that lie on each other."""
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from report_pages import OPERATE, browser, canvas_of, opened, write_run  # noqa: E402,F401  (fixtures)

RONDO = pathlib.Path(os.environ["RONDO_BIN"]).resolve() / "rondo"
AXE = pathlib.Path(os.environ["RONDO_AXE"])
GPT = ["--synthetic", "gpt:layers=8,dim=1024,seq=512,rate=1e9", "--ranks", "8", "--memory-limit", "700MiB"]


# Waits for two frames; returns for every chart whether its picture has anything.
DRAWN = """new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(() => go([...document.querySelectorAll("canvas")].map((canvas) =>
  canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0))))))"""


def rondo(folder, *words):
    subprocess.run([RONDO, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=300)


def write_long_run(directory, steps):
    directory.mkdir()
    noise = random.Random(1)
    with open(directory / "metrics.jsonl", "w", encoding="utf-8") as file:
        for step in range(1, steps + 1):
            row = {"rank": 0, "step": step, "epoch": step // 5000, "elapsed_s": step * 0.1, "learning_rate": 1e-3,
                   "loss": 2 + 3 * math.exp(-step / 2e4) + noise.gauss(0, 0.1), "gradient_norm": 1 + noise.random(),
                   "accuracy": noise.random(), "tokens_per_s": 1000 + noise.random(), "step_ms": 100 + noise.random(),
                   "compute_ms": 90, "comm_ms": 20, "exposed_comm_ms": 5, "peak_bytes": 1 << 30,
                   "peak_rss_bytes": 1 << 31, "peak_pss_bytes": 1 << 31}
            file.write(json.dumps(row) + "\n")
            if step % 500 == 0:
                file.write(json.dumps({"rank": 0, "step": step, "elapsed_s": step * 0.1, "validation_loss": 2 + 3 * math.exp(-step / 2e4)}) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pages of every kind: a run, one without anything, several runs, a collective algorithm, a training plan."""
    folder = tmp_path_factory.mktemp("pages")
    write_run(folder / "run")
    for name, ranks in (("one", 1), ("four", 4), ("six", 6)):
        write_run(folder / name, ranks=ranks, steps=20 * ranks)
    (folder / "empty").mkdir()
    (folder / "empty" / "config.json").write_text('{"seed": 3}')
    rondo(folder, "report", "run", "-o", "run.html")
    rondo(folder, "report", "empty", "-o", "empty.html")
    rondo(folder, "report", "one", "four", "six", "-o", "comparison.html")
    rondo(folder, "bench", "collectives", "--explain", "hierarchical", "--ranks", "8", "--hosts", "2", "--html", "algorithm.html")
    rondo(folder, "plan", *GPT, "--html", "plan.html", "--sweep", "3", "--gap", "0.05", "--plan-time-limit", "3s")
    return folder


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("page", ["run", "empty", "comparison", "algorithm", "plan"])
def test_axe_finds_nothing(browser, folder, page, width, dark):  # noqa: F811
    browser.open(folder / f"{page}.html", width=width, dark=dark)
    if page != "empty":
        browser.run(OPERATE)
    browser.run(AXE.read_text() + "; 0")
    result = browser.run("axe.run().then(({ violations, passes }) => ({ passes: passes.length, "
                         "found: violations.map((v) => [v.id, v.help, v.nodes.map((n) => n.html.slice(0, 200))]) }))")
    assert result["found"] == []
    assert result["passes"] > 20


def test_long_report_opens_within_two_seconds(browser, tmp_path):  # noqa: F811
    write_long_run(tmp_path / "long", 100_000)
    began = time.monotonic()
    rondo(tmp_path, "report", "long", "-o", "long.html")
    print(f"written in {time.monotonic() - began:.2f} s")
    times = []
    for _ in range(3):
        began = time.monotonic()
        browser.open(tmp_path / "long.html")
        drawn = browser.run(DRAWN)
        times.append(time.monotonic() - began)
        assert len(drawn) >= 8 and all(drawn)
    print("opened, with all curves drawn, in " + ", ".join(f"{each:.2f} s" for each in times))
    assert min(times) <= 2


def test_overlapping_lines_are_all_visible(browser, tmp_path):  # noqa: F811
    for ranks in (2, 4):
        write_run(tmp_path / f"run{ranks}", ranks)
        rondo(tmp_path, "report", f"run{ranks}", "-o", f"{ranks}.html")
        lines = canvas_of(opened(browser, tmp_path / f"{ranks}.html")[-1], "Memory of tensors")["datasets"]
        assert len({line["line"] for line in lines}) == ranks
        assert all(line["inked"] > 60 for line in lines), lines


def test_many_ranks_are_a_band_and_their_mean(browser, tmp_path):  # noqa: F811
    write_run(tmp_path / "many", ranks=6)
    rondo(tmp_path, "report", "many", "-o", "many.html")
    band = canvas_of(opened(browser, tmp_path / "many.html")[-1], "Step time,")["datasets"]
    assert [line["label"] for line in band] == ["smallest of the ranks", "largest of the ranks", "mean of the ranks"]
    assert band[1]["fill"] == "-1"
