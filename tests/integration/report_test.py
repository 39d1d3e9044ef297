"""The report's pages in a real browser: charts are drawn, controls work, no script fails, nothing is loaded."""
import csv
import io
import json
import re
import subprocess
import time

import pytest
from report_pages import (LOOKS, LOOKS_AT_ALL, browser, canvas_of, expect_fits, expect_readable, is_power_of_two,  # noqa: F401  (fixtures)
                          open_page, opened, write_run)


@pytest.fixture(scope="module")
def whole(browser, rondo_bin, tmp_path_factory):  # noqa: F811
    """The page of a whole run, opened once: (what it shows at first, and after all controls were used; figures of --json)."""
    folder = tmp_path_factory.mktemp("whole")
    write_run(folder / "run")
    result = subprocess.run([rondo_bin / "rondo-report", "run", "--json", "-"], cwd=folder, capture_output=True, text=True, check=True)
    first, last = opened(browser, folder / "run" / "report.html")
    return first, last, json.loads(result.stdout)


@pytest.fixture
def report(run, rondo_bin, tmp_path):
    """report(RUN...) writes the page of one run, or of several, and returns its path and the figures of --json."""

    def write(*runs):
        output = tmp_path / f"{'-'.join(runs)}.html"
        result = run(rondo_bin / "rondo-report", *runs, "--json", "-", "--output", output)
        assert result.returncode == 0, result.stderr
        return output, json.loads(result.stdout)

    return write


def test_a_whole_run_draws_every_chart(whole):
    _, probe, summary = whole
    assert summary["notes"] == []
    assert summary["ranks"] == 2 and summary["steps"] == 60 and summary["parameters"] == 124_439_808

    assert len(probe["canvases"]) == 15
    for canvas in probe["canvases"]:
        assert canvas["painted"] > 500, f"nothing was drawn: {canvas['label']}"
    assert len(probe["titles"]) == len(set(probe["titles"]))
    for title in ["Loss", "Accuracy", "Perplexity", "Gradient norm", "Loss scale", "mae", "Throughput", "Learning rate",
                  "Step time by rank", "Step time", "Memory of tensors", "Memory of processes", "Timeline of a step",
                  "Memory during a step", "Memory at the peak", "Origin", "Changed options (1)"]:
        assert title in probe["titles"]
    assert [name for name, _ in probe["groups"]] == ["Summary", "Metrics", "Performance", "Memory", "Settings"]
    assert "Communication of rank 1 in step 40, by unit" in probe["text"] and "12.5 ms" in probe["text"]
    assert "7.25 ms" in probe["text"] and "backward (40 ms)" in probe["text"]
    assert "300 MiB on rank" in probe["text"] and "backward of h.1" in probe["text"]
    assert probe["tiles"]["Throughput"] == ["1,003 tokens/s", "median of all steps"]
    assert probe["tiles"]["Validation accuracy"][0] == "25 %"
    assert probe["tiles"]["Parameters"] == ["124 million", "gpt"] if "gpt" in probe["tiles"]["Parameters"] else "124 million"
    assert probe["tiles"]["Peak memory of tensors"] == ["500 MiB", "largest rank; its process: 1.17 GiB"]


def test_the_verdict_comes_first(whole):
    probe, _, summary = whole
    assert probe["findings"] == [[finding["tone"], finding["text"]] for finding in summary["verdict"]]
    assert probe["findings"][0] == ["good", "Finished: 60 steps in 24 s."]
    assert ["good", "No rank is a straggler."] in probe["findings"]
    assert probe["text"].split("\n")[0] == "Summary" and "Finished" in probe["text"][:60]


def test_changed_options_come_before_defaults(whole):
    probe, used, _ = whole
    assert "lr\n0.002" in probe["text"] and "model.name" not in probe["text"], "defaults are folded away"
    assert "Defaults (3)" in probe["text"]
    for said in ["0123456789abcdef0123456789abcdef01234567", "A processor, 8 processors", "124,439,808", "text, input 64, 256 classes"]:
        assert said in probe["text"]
    assert "model.name" in used["text"]


def test_the_head_says_what_ran_when_and_where(whole):
    probe, _, _ = whole
    for said in ["zero2", "2 ranks", "2026-11-22 16:24 UTC", "node-7", "0.9.9", "rondo train --data 'my text'",
                 "resumed once, last on 2026-11-23 08:00 UTC"]:
        assert said in probe["head"]
    assert "auto" not in probe["head"]
    assert "Written by rondo report" in probe["foot"]


def test_axes_fit_their_values(whole):
    _, probe, _ = whole
    constant, = canvas_of(probe, "Learning rate")["datasets"]
    assert constant["above"] > 4, "a line lies on the frame"
    for card in ("Loss:", "Accuracy", "Perplexity", "mae"):
        validation = [line for line in canvas_of(probe, card)["datasets"] if line["label"] == "validation"]
        assert [line["whole_end"] for line in validation] == [True], card
    for card in probe["canvases"]:
        assert all(ticks[0][0] >= 0 for ticks in card["scales"].values() if ticks), f"nothing is below 0: {card['label']}"
    shares = canvas_of(probe, "Accuracy")["scales"]["y"]
    assert shares[-1][0] <= 1 and all(text.endswith(" %") for _, text in shares)
    axes = [ticks for canvas in probe["canvases"] for ticks in canvas["scales"].values() if ticks and ticks[-1][1].endswith("iB")]
    assert len(axes) == 4
    for ticks in axes:
        assert all(is_power_of_two(b[0] - a[0]) for a, b in zip(ticks, ticks[1:])), ticks


def test_curves_are_shown_raw_and_smoothed_at_once(whole):
    probe, _, _ = whole
    assert [line["label"] for line in canvas_of(probe, "Loss:")["datasets"]] == ["training", "validation", "training, as recorded"]


def test_buckets_are_grouped_and_have_no_noise(whole):
    _, probe, _ = whole
    blocks, = [t["rows"] for t in probe["tables"] if t["rows"] and t["rows"][0][0] == "h.1"]
    assert len(blocks) == 9
    assert blocks[-1][0].startswith("11 more buckets") or blocks[-1][0].startswith("buckets ")
    assert sum(int(row[1]) for row in blocks) == 19
    assert not re.search(r"\d\.\d{4,}|e-\d", " ".join(cell for row in blocks for cell in row))
    assert blocks[1][3] == "< 0.01 ms"


@pytest.mark.parametrize("width, dark", LOOKS)
def test_a_report_can_be_read(whole, report, open_page, tmp_path, width, dark):
    _, probe, _ = whole
    if (width, dark) != (1280, False):
        write_run(tmp_path / "run")
        probe = open_page(report("run")[0], width=width, dark=dark)
    assert len(probe["canvases"]) == 15
    expect_readable(probe)
    expect_fits(probe)
    if width == 420:
        assert any(table["cut"] > 1 for table in probe["tables"]), "the table of units is wider than a phone"


def middle_of(browser, card):  # noqa: F811
    """Scrolls to a card's chart; returns left, right and middle height of the part with lines."""
    return browser.run(f"""(() => {{
      const canvas = [...document.querySelectorAll("canvas")].find((each) => each.getAttribute("aria-label").startsWith("{card}"));
      canvas.scrollIntoView({{ block: "center" }});
      const box = canvas.getBoundingClientRect();
      const {{ left, right, top, bottom }} = Chart.getChart(canvas).chartArea;
      return [box.left + left, box.left + right, box.top + (top + bottom) / 2];
    }})()""")


def test_cursor_zoom_and_downloads(report, browser, tmp_path):  # noqa: F811
    write_run(tmp_path / "run")
    browser.open(report("run")[0])
    left, right, y = middle_of(browser, "Loss:")
    ranges = "linkedCharts().map(({ chart }) => [chart.scales.x.min, chart.scales.x.max].map(Math.round))"
    assert {tuple(each) for each in browser.run(ranges)} == {(0, 60)}
    browser.move_mouse((left + right) / 2, y)
    assert browser.run("[Math.round(view.cursor.x), view.cursor.chart.canvas.getAttribute('aria-label')]")[0] == 30
    ink = "(({ canvas }) => canvas.toDataURL())(linkedCharts()[1].chart)"
    browser.wait_for_frame()
    with_cursor = browser.run(ink)
    browser.move_mouse(2, y)
    browser.wait_for_frame()
    assert browser.run(ink) != with_cursor, "no cursor in another chart"

    browser.drag_mouse(left + (right - left) / 4, left + (right - left) / 2, y)
    assert {tuple(each) for each in browser.run(ranges)} == {(15, 30)}
    browser.run("document.getElementById('reset-zoom').click()")
    assert {tuple(each) for each in browser.run(ranges)} == {(0, 60)}
    browser.run("for (const e of document.querySelectorAll('#controls select')) { e.value = '1'; e.dispatchEvent(new Event('change')); }")
    assert {tuple(each) for each in browser.run(ranges)} == {(0, 24)}, "by time, in seconds"
    browser.run("for (const e of document.querySelectorAll('#controls select')) { e.value = '0'; e.dispatchEvent(new Event('change')); }")

    downloads = tmp_path / "downloads"
    browser.allow_downloads(downloads)
    for name in ("Loss as CSV", "Loss as a PNG picture", "Timeline of a step as CSV"):
        browser.run(f"document.querySelector('[aria-label=\"Download {name}\"]').click()")
    wanted = {"run-loss.csv", "run-loss.png", "run-timeline-of-a-step.csv"}
    deadline = time.monotonic() + 20
    while {path.name for path in downloads.glob("*")} != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    assert {path.name for path in downloads.glob("*")} == wanted
    rows = list(csv.reader(io.StringIO((downloads / "run-loss.csv").read_text())))
    assert rows[0] == ["Step", "validation", "training"] and len(rows) == 61
    assert float(rows[1][2]) == pytest.approx(5.756, abs=1e-3), "as recorded, not smoothed"
    assert (downloads / "run-loss.png").read_bytes().startswith(b"\x89PNG")
    assert (downloads / "run-timeline-of-a-step.csv").read_text().startswith("rank,lane,name,unit,bucket,bytes,begin_ms,end_ms")


@pytest.mark.parametrize("width, dark", LOOKS)
def test_runs_are_compared_in_a_table_with_filters(report, open_page, browser, tmp_path, width, dark):  # noqa: F811
    names = ["one", "two", "four"]
    for name, ranks in zip(names, (1, 2, 4)):
        write_run(tmp_path / name, ranks=ranks, steps=20 + 20 * ranks)
    lines = (tmp_path / "one" / "metrics.jsonl").read_text().replace("tokens_per_s", "samples_per_s")
    (tmp_path / "one" / "metrics.jsonl").write_text(lines)
    probe = open_page(report(*names)[0], width=width, dark=dark, operate=False)
    assert len(probe["canvases"]) >= 4
    expect_readable(probe)
    expect_fits(probe)
    if width == 420:
        return
    assert {"Throughput, tokens/s", "Throughput, samples/s", "Validation accuracy"} <= set(probe["titles"]), "an axis has one unit"

    def shown(text):
        browser.run(f"(() => {{ const e = document.getElementById('filter'); e.value = {json.dumps(text)}; e.dispatchEvent(new Event('input')); }})()")
        return browser.run("[...document.querySelectorAll('.runs tbody tr')].map((row) => row.cells[0].textContent)")

    def drawn():
        return browser.run("Chart.getChart(document.querySelector('#metrics canvas')).data.datasets.filter((d) => !d.isFaint).map((d) => d.label)")

    assert shown("") == names == drawn()
    assert shown("ranks>1") == ["two", "four"] == drawn()
    assert shown("ranks>1 lr<=0.002") == ["two"]
    assert shown("name!=two ZERO2") == ["one", "four"]
    assert shown("lr=0.004") == ["four"]
    shown("nothing>3")
    assert "no column nothing" in browser.run("document.querySelector('.filter .wrong').textContent")
    shown("ranks>many")
    assert "expected a number" in browser.run("document.querySelector('.filter .wrong').textContent")
    shown("")
    browser.run("[...document.querySelectorAll('.runs .sort')].find((b) => b.textContent === 'Ranks').click()")
    browser.run("[...document.querySelectorAll('.runs .sort')].find((b) => b.textContent === 'Ranks').click()")
    assert browser.run("[...document.querySelectorAll('.runs tbody tr')].map((row) => row.cells[0].textContent)") == ["four", "two", "one"]
    assert browser.run("document.querySelector('.runs [aria-sort]').getAttribute('aria-sort')") == "descending"
    browser.run("document.querySelector('.runs tbody input').click()")
    assert drawn() == ["one", "two"]


HOSTILE = "</script><img src=x onerror=alert(1)>"


def test_hostile_names_stay_text(report, open_page, run, rondo_bin, tmp_path):
    """A single step, a minimal configuration, and names that try to become markup."""
    folder = tmp_path / HOSTILE.replace("/", "")
    folder.mkdir()
    (folder / "metrics.jsonl").write_text('{"step":1,"loss":3.5}\n{"step":2,"lo')
    (folder / "config.json").write_text(json.dumps({"data": "</script><script>throw 1</script><!-- @DATA@ @SCRIPT@"}))
    result = run(rondo_bin / "rondo-report", folder)
    assert result.returncode == 0, result.stderr
    assert "metrics.jsonl:2" in result.stderr and "No memory was recorded" in result.stderr
    probe = open_page(folder / "report.html")
    assert [c["label"] for c in probe["canvases"]] == ["Loss: training"]
    assert probe["canvases"][0]["painted"] > 100
    assert "<script>throw 1</script>" in probe["text"]
    assert "No validation loss was recorded." in probe["text"]
    assert probe["findings"] == [["neutral", "1 step."]]


def test_hostile_names_of_compared_runs(report, browser, tmp_path):  # noqa: F811
    for name in ("a", "b"):
        write_run(tmp_path / (name + HOSTILE.replace("/", "")), ranks=1, steps=3)
        config = {"lr": 1, HOSTILE: HOSTILE + name, "=1+1": name}
        (tmp_path / (name + HOSTILE.replace("/", "")) / "config.json").write_text(json.dumps(config))
    runs = [name + HOSTILE.replace("/", "") for name in ("a", "b")]
    browser.open(report(*runs)[0])
    assert browser.run("document.querySelectorAll('main img').length") == 0
    assert HOSTILE + "a" in browser.run("document.querySelector('main').innerText")
    assert browser.console() == []
    assert browser.run("csv([['=1+1', '-a', '-1', 'x,y', '\"']])") == "'=1+1,'-a,-1,\"x,y\",\"\"\"\"\r\n"


def test_a_run_without_metrics_still_has_a_page(run, rondo_bin, open_page, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text('{"seed": 3}')
    result = run(rondo_bin / "rondo-report", "run", "--output", "elsewhere.html")
    assert result.returncode == 0, result.stderr
    probe = open_page(tmp_path / "elsewhere.html")
    assert probe["canvases"] == []
    assert "metrics.jsonl is missing" in probe["text"]
    assert probe["findings"] == [["bad", "No step was recorded."]]


def test_losses_that_are_not_finite(report, open_page, tmp_path):
    write_run(tmp_path / "run", ranks=1)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for row in lines:
        if row["step"] >= 30 and "loss" in row:
            row["loss"] = None
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    probe = open_page(report("run")[0], operate=False)
    assert probe["findings"][1][0] == "bad"
    assert probe["findings"][1][1].startswith("The training loss is NaN or infinite at step 30."), probe["findings"]
    assert canvas_of(probe, "Loss:")["painted"] > 500
    for row in lines:
        if "loss" in row:
            row["loss"] = None
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    assert "No training loss was recorded." in report("run")[1]["notes"]


@pytest.mark.parametrize("algorithm, ranks, rounds, messages", [("hierarchical", 4, 4, 24), ("ring", 4, 6, 24)][:1 + LOOKS_AT_ALL])
def test_the_steps_of_a_plan_are_drawn(run, rondo_bin, open_page, tmp_path, algorithm, ranks, rounds, messages):
    result = run(rondo_bin / "rondo", "bench", "collectives", "--explain", algorithm, "--ranks", ranks, "--hosts", 2,
                 "--html", "plan.html")
    assert result.returncode == 0, result.stderr
    probe = open_page(tmp_path / "plan.html", dark=True)
    assert probe["titles"][:2] == ["Messages by round", "Cost of each rank"]
    assert probe["lines"] == messages and probe["rounds"] == rounds
    assert "Scratch memory" in probe["text"]
    assert probe["canvases"] == [] and "Settings" not in probe["text"]

    assert f"rondo bench collectives --ranks {ranks} --hosts 2 --explain {algorithm} --html plan.html" in probe["head"]
    assert "Written by rondo bench" in probe["foot"]

    expect_readable(probe)
    phone = open_page(tmp_path / "plan.html", width=420)
    expect_readable(phone)
    expect_fits(phone)


@pytest.mark.parametrize("arguments, expected", [
    (["missing"], "RUN_DIR: missing: No such file"),
    (["."], "is not a run directory"),
    ([], "RUN_DIR is required"),
    ([".", "--colour", "red"], "--colour"),
])
def test_wrong_usage(run, rondo_bin, arguments, expected):
    result = run(rondo_bin / "rondo-report", *arguments)
    assert result.returncode == 2
    assert expected in result.stderr
    assert len(result.stderr.splitlines()) <= 2


def test_unwritable_page_is_an_error(run, rondo_bin, tmp_path):
    write_run(tmp_path / "run", steps=1)
    result = run(rondo_bin / "rondo-report", "run", "-o", "no/such/folder/page.html")
    assert result.returncode == 1
    assert "no/such/folder" in result.stderr
