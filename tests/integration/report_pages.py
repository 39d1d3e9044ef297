"""Pages of `rondo report` and `rondo plan --html` in a real browser, for tests: what they show, and whether it can be read."""
import json
import math
import os
import re

import pytest
from browser import Browser, find_browser

# Widths and colour schemes of tests that look at a page: one of each, or with RONDO_PAGES=all (make nightly) all.
LOOKS_AT_ALL = os.environ.get("RONDO_PAGES") == "all"
LOOKS = [pytest.param(width, dark, id=f"{width}-{'dark' if dark else 'light'}")
         for width, dark in ([(420, False), (420, True), (1280, False), (1280, True)] if LOOKS_AT_ALL else [(420, True), (1280, False)])]

# Operates every control of a page.
OPERATE = """(async () => {
  for (const select of document.querySelectorAll("select")) {
    for (const option of select.options) {
      select.value = option.value;
      select.dispatchEvent(new Event("change"));
    }
  }
  for (const input of document.querySelectorAll("input")) {
    if (input.type === "range") input.value = "0.9";
    else if (input.type === "checkbox") input.checked = true;
    input.dispatchEvent(new Event(input.type === "checkbox" ? "change" : "input"));
  }
  for (const sort of document.querySelectorAll("button.sort")) sort.click();
  for (const open of document.querySelectorAll("details")) open.open = true;
})()"""

# Returns what a page shows.
PROBE = r"""(() => {
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const canvases = [...document.querySelectorAll("canvas")].map((canvas) => {
    const chart = Chart.getChart(canvas);
    const context = canvas.getContext("2d");
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    let painted = 0;
    for (let i = 3; i < data.length; i += 4) painted += data[i] > 0 ? 1 : 0;
    const scale = canvas.width / chart.width;
    const near = (at, color, opaque = 200) => color.every((value, c) => Math.abs(value - data[at + c]) < 24) && data[at + 3] > opaque;
    const datasets = chart.data.datasets.map((dataset, i) => {
      const line = String(dataset.borderColor);
      const color = /^#[0-9a-f]{6}$/.test(line) ? rgb(line) : null;
      let inked = 0;
      const [red, green, blue] = color || [];
      // Thin lines cover pixels in part. A hundred pixels are a line.
      for (let at = 0; color && at < data.length && inked < 100; at += 4) {
        if (data[at + 3] > 90 && Math.abs(red - data[at]) < 24 && Math.abs(green - data[at + 1]) < 24 && Math.abs(blue - data[at + 2]) < 24) ++inked;
      }
      const last = chart.getDatasetMeta(i).data.at(-1);
      // The right half of the mark at the last point.
      const at = 4 * (Math.round(last.y * scale) * canvas.width + Math.round((last.x + 2) * scale));
      return { label: dataset.label, look: [line, String(dataset.borderDash), dataset.pointStyle, dataset.pointRadius].join(" "), inked,
        line, fill: dataset.fill, whole_end: Boolean(color) && near(at, color), above: last.y - chart.chartArea.top };
    });
    const scales = Object.fromEntries(Object.entries(chart.scales).map(([name, axis]) =>
      [name, axis.ticks.map((tick) => [tick.value, Array.isArray(tick.label) ? tick.label.join(" ") : String(tick.label)])]));
    return { label: canvas.getAttribute("aria-label"), painted, datasets, scales };
  });
  // Contrast of texts and of the marks of axes with what is behind them, by WCAG: from 1 to 21.
  const paint = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = color;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const light = (color) => rgba(color).slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    return rgba(color)[3] === 255 || !element.parentElement ? color : behind(element.parentElement);
  };
  const contrast = (color, element) => {
    const [dim, bright] = [light(color), light(behind(element))].sort((a, b) => a - b);
    return (bright + 0.05) / (dim + 0.05);
  };
  const texts = [...document.querySelectorAll("header *, main *, footer *")].filter((element) => !element.closest("svg, select") &&
    element.getClientRects().length && [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()));
  const contrasts = [
    ...texts.map((element) => [element.textContent.trim().slice(0, 40), contrast(getComputedStyle(element).color, element)]),
    ...[...document.querySelectorAll("canvas")].flatMap((canvas) => Object.values(Chart.getChart(canvas).scales)
      .map((axis) => [`axis ${axis.id} of ${canvas.getAttribute("aria-label")}`, contrast(axis.options.ticks.color, canvas)])),
  ];
  return {
    canvases, data: { ...document.documentElement.dataset },
    titles: [...document.querySelectorAll("h3")].map((h) => h.textContent),
    groups: [...document.querySelectorAll("#links a")].map((a) => [a.textContent, Boolean(document.querySelector(a.hash))]),
    text: document.querySelector("main").innerText,
    findings: [...document.querySelectorAll("#findings li")].map((li) => [li.className, li.lastChild.textContent]),
    tiles: Object.fromEntries([...document.querySelectorAll(".tile")].map((dl) => [dl.children[0].textContent, [...dl.children].slice(1).map((dd) => dd.textContent)])),
    lines: document.querySelectorAll("svg g.message line").length,
    rounds: [...document.querySelectorAll("svg text")].filter((t) => t.textContent.startsWith("round ")).length,
    wide: document.documentElement.scrollWidth > window.innerWidth,
    width: window.innerWidth, contrasts,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    head: document.querySelector("header").innerText, foot: document.querySelector("footer").innerText,
    tables: [...document.querySelectorAll(".table")].map((place) => ({
      cut: place.firstChild.scrollWidth - place.firstChild.clientWidth,
      hint: getComputedStyle(place.querySelector(".more")).display !== "none",
      rows: [...place.querySelectorAll("tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent)),
    })),
    loose: document.querySelectorAll("table").length - document.querySelectorAll(".table table").length,
  };
})()"""


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    program = find_browser()
    if not program:
        pytest.skip("no Chromium or Chrome on PATH (optional: apt-get install chromium)")
    opened = Browser(program, tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


def opened(browser, report, width=1280, dark=False, operate=True):
    """Opens a page and returns what it shows at first and, with `operate`, after all its controls were used."""
    page = report.read_text()
    assert page.count("</body>") == 1, "data or library ended the page"
    # The page must not load anything: no address in an attribute, no import.
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)|@import""", page.split('<script type="application/json"')[0])
    browser.open(report, width=width, dark=dark)
    probes = [browser.run(PROBE)]
    if operate:
        browser.run(OPERATE)
        browser.wait_for_frame()
        probes.append(browser.run(PROBE))
    # The browser remarks on the probe's own reading of pixels.
    assert [line for line in browser.console() if "willReadFrequently" not in line] == [], "the page wrote to the browser's console"
    for probe in probes:
        assert "scriptError" not in probe["data"], probe["data"]
        assert probe["data"]["ready"] == "true"
        assert probe["width"] == width and probe["dark"] == dark
        assert all(there for _, there in probe["groups"]), probe["groups"]
    return probes


@pytest.fixture
def open_page(browser):
    """open_page(FILE, width=, dark=) returns what a page shows after all its controls were used, or at first."""
    return lambda report, **options: opened(browser, report, **options)[-1]


def expect_readable(probe):
    """Everything drawn is visible: no invisible line, no text in the colour of its background."""
    for canvas in probe["canvases"]:
        assert canvas["painted"] > 500, canvas["label"]
        for line in canvas["datasets"]:
            if re.fullmatch("#[0-9a-f]{6}", line["line"]):
                assert line["inked"] > 0, (canvas["label"], line)
    assert len(probe["contrasts"]) > 20
    assert [(text, ratio) for text, ratio in probe["contrasts"] if ratio < 3] == []


def expect_fits(probe):
    """On a phone the page does not scroll sideways, and truncated tables show that there is more."""
    assert not probe["wide"], "the page scrolls sideways"
    assert probe["loose"] == 0
    assert [table for table in probe["tables"] if table["hint"] != (table["cut"] > 1)] == []


def canvas_of(probe, label):
    canvas, = [c for c in probe["canvases"] if c["label"].startswith(label)]
    return canvas


def is_power_of_two(number):
    return number > 0 and math.log2(number).is_integer()


def write_run(directory, ranks=2, steps=60):
    """Writes a run in the format of `rondo train`, with equal measurements on all ranks."""
    directory.mkdir(parents=True)
    with open(directory / "metrics.jsonl", "w") as file:
        for step in range(1, steps + 1):
            for rank in range(ranks):
                row = {"rank": rank, "step": step, "epoch": step // 20, "elapsed_s": step * 0.4,
                       "loss": 5 * math.exp(-step / 20) + 1, "learning_rate": 1e-3, "loss_scale": 1024, "gradient_norm": 2 - step / 60,
                       "tokens_per_s": 1000 + step % 7, "step_ms": 400 + step % 5, "compute_ms": 380,
                       "comm_ms": 90, "exposed_comm_ms": 20, "peak_bytes": 500 << 20,
                       "peak_rss_bytes": 1200 << 20, "peak_pss_bytes": 600 << 20}
                file.write(json.dumps(row) + "\n")
            if step % 20 == 0:
                file.write(json.dumps({"rank": 0, "step": step, "elapsed_s": step * 0.4, "validation_loss": 2.0,
                                       "validation_accuracy": 0.25, "validation_perplexity": 7.5, "validation_mae": 3.25}) + "\n")
    config = {"model": {"name": "gpt"}, "strategy": "auto", "seed": 1, "lr": 1e-3 * ranks}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "data.json").write_text(json.dumps({"kind": "text", "input_shape": [64], "classes": 256}))
    start = {"program": "rondo train", "version": "0.9.9", "time": "2026-11-22T16:24:40Z", "host": "node-7",
             "command": "rondo train --data 'my text'", "strategy": "zero2", "backend": "native", "ranks": ranks, "first_step": 0,
             "total_steps": steps, "git_commit": "0123456789abcdef" * 2 + "01234567", "machine": "A processor, 8 processors",
             "parameters": 124_439_808, "changed_options": ["lr"]}
    (directory / "run.json").write_text(json.dumps({"starts": [start, {**start, "time": "2026-11-23T08:00:00Z", "first_step": 20}]}))
    events = []
    for step in (1, 20, 40):
        for rank in range(ranks):
            start = step * 400000
            events.append({"name": "backward", "ph": "X", "pid": rank, "tid": 0, "ts": start, "dur": 200000,
                           "args": {"step": step}})
            events.append({"name": "all_reduce h.1", "ph": "X", "pid": rank, "tid": 1, "ts": start + 50000, "dur": 40000,
                           "args": {"step": step, "unit": "h.1", "bucket": 0, "bytes": 1 << 20, "queued_ms": 12.5,
                                    "exposed_ms": 7.25, "overlapped_ms": {"backward": 40.0}}})
            for bucket in range(18):
                events.append({"name": "all_reduce", "ph": "X", "pid": rank, "tid": 1, "ts": start + 100000 + bucket, "dur": 1.234567,
                               "args": {"step": step, "bucket": bucket, "bytes": 1000, "queued_ms": 0.000241, "exposed_ms": 0.000113}})
            for i in range(20):
                events.append({"name": "memory", "ph": "C", "pid": rank, "ts": start + i * 10000, "step": step,
                               "args": {"parameters": 100 << 20, "activations": i << 20, "other": 1 << 20}})
    (directory / "trace.json").write_text(json.dumps({"traceEvents": events}))
    peaks = [{"rank": rank, "peak_bytes": 300 << 20, "step": 2, "phase": "backward", "unit": "h.1",
              "units": [{"name": name, "categories": {"parameters": 50 << 20, "activations": 100 << 20}}
                        for name in ("h.0", "h.1")]} for rank in range(ranks)]
    (directory / "memory.json").write_text(json.dumps({"ranks": peaks}))
