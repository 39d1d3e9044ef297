"""The report page in a real browser: charts are drawn, controls work, no script fails, nothing is loaded."""
import json
import math
import re
import shutil

import pytest

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]

# Runs in the page after its own scripts: operates every control, then records the drawings.
PROBE = """
<pre id="probe"></pre>
<script>
for (const select of document.querySelectorAll("select")) {
  for (const option of select.options) {
    select.value = option.value;
    select.dispatchEvent(new Event("change"));
  }
}
for (const input of document.querySelectorAll("input")) {
  if (input.type === "range") input.value = "0.9";
  else input.checked = true;
  input.dispatchEvent(new Event(input.type === "range" ? "input" : "change"));
}
for (const open of document.querySelectorAll("details")) open.open = true;
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
    for (let at = 0; color && at < data.length; at += 4) inked += near(at, color, 90) ? 1 : 0;  // thin lines cover pixels in part
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
// How well texts, and the marks of axes, can be told from what is behind them, by WCAG's rule: 1 is not at all.
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
// Sizes are observed with the next frame.
setTimeout(() => {
  const probed = JSON.stringify({
    canvases, data: { ...document.documentElement.dataset },
    titles: [...document.querySelectorAll("h2")].map((h) => h.textContent),
    text: document.querySelector("main").innerText,
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
  });
  document.getElementById("probe").textContent = probed;
  if (parent !== window) parent.postMessage(probed, "*");
}, 300);
</script>
"""

# Chromium's windows are at least 500 pixels wide; narrower pages are tested in a frame.
FRAME = """
<pre id="probe"></pre>
<iframe src="{page}" width="{width}" height="1400"></iframe>
<script>window.addEventListener("message", (event) => {{ document.getElementById("probe").textContent = event.data; }});</script>
"""


@pytest.fixture(scope="module")
def browser():
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if not found:
        pytest.skip("no Chromium or Chrome on PATH (optional: apt-get install chromium)")
    return found


@pytest.fixture
def open_page(run, browser, tmp_path):
    def open_report(report, width=1280, dark=False):
        page = report.read_text()
        assert page.count("</body>") == 1, "data or library ended the page"
        # The page must not load anything: no address in an attribute, no import.
        assert not re.search(r"""(src|href)\s*=\s*["']|@import""", page.split('<script type="application/json"')[0])
        probed = tmp_path / "probed.html"
        probed.write_text(page.replace("</body>", PROBE + "</body>"))
        opened = probed
        if width < 500:
            opened = tmp_path / "frame.html"
            opened.write_text(FRAME.format(page=probed.name, width=width))
        result = run(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                     f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={max(500, width)},1400",
                     "--enable-logging=stderr", "--virtual-time-budget=5000",
                     f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--dump-dom", opened.as_uri(), timeout=120)
        console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
        assert console == [], "the page wrote to the browser's console"
        text = re.search(r'<pre id="probe">(.*?)</pre>', result.stdout, re.S).group(1)
        for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
            text = text.replace(entity, character)
        probe = json.loads(text)
        assert "scriptError" not in probe["data"], probe["data"]
        assert probe["data"]["ready"] == "true"
        assert probe["width"] == width
        assert probe["dark"] == dark
        return probe

    return open_report


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
    assert all(table["hint"] == (table["cut"] > 1) for table in probe["tables"])


def canvas_of(probe, label):
    canvas, = [c for c in probe["canvases"] if c["label"].startswith(label)]
    return canvas


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
    (directory / "config.json").write_text(json.dumps({"model": {"name": "gpt"}, "strategy": "auto", "seed": 1}))
    start = {"program": "rondo train", "version": "0.9.9", "time": "2026-11-22T16:24:40Z", "host": "node-7",
             "command": "rondo train --data 'my text'", "strategy": "zero2", "backend": "native", "ranks": ranks, "first_step": 0}
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


def test_a_whole_run_draws_every_chart(run, rondo_bin, open_page, tmp_path):
    write_run(tmp_path / "run")
    result = run(rondo_bin / "rondo-report", "run", "--json", "-")
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["notes"] == []
    assert summary["ranks"] == 2 and summary["steps"] == 60

    probe = open_page(tmp_path / "run" / "report.html")
    assert len(probe["canvases"]) == 15
    for canvas in probe["canvases"]:
        assert canvas["painted"] > 500, f"nothing was drawn: {canvas['label']}"
    assert len(probe["titles"]) == len(set(probe["titles"]))
    for title in ["Loss", "Accuracy", "Perplexity", "Gradient norm", "Loss scale", "mae", "Throughput", "Learning rate",
                  "Step time by rank", "Step time", "Memory, tracked", "Memory, by the kernel", "Timeline of a step",
                  "Memory during a step", "Memory at the peak", "Configuration"]:
        assert title in probe["titles"]
    assert "Communication of rank 1, by unit" in probe["text"] and "12.5 ms" in probe["text"]
    assert "7.25 ms" in probe["text"] and "backward (40 ms)" in probe["text"]
    assert "300 MiB on rank" in probe["text"] and "backward of h.1" in probe["text"]
    assert "1,003 tokens/s" in probe["text"] and "model.name" in probe["text"]


def test_the_head_says_what_ran_when_and_where(run, rondo_bin, open_page, tmp_path):
    write_run(tmp_path / "run")
    assert run(rondo_bin / "rondo-report", "run").returncode == 0
    probe = open_page(tmp_path / "run" / "report.html")
    for said in ["zero2", "2 ranks", "2026-11-22 16:24 UTC", "node-7", "0.9.9", "rondo train --data 'my text'",
                 "resumed once, last on 2026-11-23 08:00 UTC"]:
        assert said in probe["head"]
    assert "auto" not in probe["head"]
    assert "Written by rondo report" in probe["foot"]


def test_overlapping_lines_are_all_visible(run, rondo_bin, open_page, tmp_path):
    for ranks in (2, 4):
        write_run(tmp_path / f"run{ranks}", ranks)
        assert run(rondo_bin / "rondo-report", f"run{ranks}").returncode == 0
        lines = canvas_of(open_page(tmp_path / f"run{ranks}" / "report.html"), "Memory, tracked")["datasets"]
        assert len({line["line"] for line in lines}) == ranks
        assert all(line["inked"] > 60 for line in lines), lines
    write_run(tmp_path / "many", ranks=6)
    assert run(rondo_bin / "rondo-report", "many").returncode == 0
    band = canvas_of(open_page(tmp_path / "many" / "report.html"), "Step time,")["datasets"]
    assert [line["label"] for line in band] == ["smallest of the ranks", "largest of the ranks", "mean of the ranks"]
    assert band[1]["fill"] == "-1"


def test_lines_and_points_stay_inside_the_frame(run, rondo_bin, open_page, tmp_path):
    write_run(tmp_path / "run")
    assert run(rondo_bin / "rondo-report", "run").returncode == 0
    probe = open_page(tmp_path / "run" / "report.html")
    constant, = canvas_of(probe, "Learning rate")["datasets"]
    assert constant["above"] > 4
    for card in ("Loss:", "Accuracy", "Perplexity", "mae"):
        validation = [line for line in canvas_of(probe, card)["datasets"] if line["label"] == "validation"]
        assert [line["whole_end"] for line in validation] == [True], card


def is_power_of_two(number):
    return number > 0 and math.log2(number).is_integer()


def test_bytes_are_marked_at_powers_of_two(run, rondo_bin, open_page, tmp_path):
    write_run(tmp_path / "run")
    assert run(rondo_bin / "rondo-report", "run").returncode == 0
    axes = [ticks for canvas in open_page(tmp_path / "run" / "report.html")["canvases"] for ticks in canvas["scales"].values()
            if ticks and ticks[-1][1].endswith("iB")]
    assert len(axes) == 4
    for ticks in axes:
        assert all(is_power_of_two(b[0] - a[0]) for a, b in zip(ticks, ticks[1:])), ticks


def test_buckets_are_grouped_and_have_no_noise(run, rondo_bin, open_page, tmp_path):
    write_run(tmp_path / "run")
    assert run(rondo_bin / "rondo-report", "run").returncode == 0
    probe = open_page(tmp_path / "run" / "report.html")
    blocks, = [t["rows"] for t in probe["tables"] if t["rows"] and t["rows"][0][0] == "h.1"]
    assert len(blocks) == 9
    assert blocks[-1][0].startswith("11 more buckets") or blocks[-1][0].startswith("buckets ")
    assert sum(int(row[1]) for row in blocks) == 19
    assert not re.search(r"\d\.\d{4,}|e-\d", " ".join(cell for row in blocks for cell in row))
    assert blocks[1][3] == "< 0.01 ms"


def test_tables_scroll_on_a_phone(run, rondo_bin, open_page, tmp_path):
    write_run(tmp_path / "run")
    assert run(rondo_bin / "rondo-report", "run").returncode == 0
    for width in (360, 420, 500):
        phone = open_page(tmp_path / "run" / "report.html", width=width)
        expect_fits(phone)
        assert any(table["cut"] > 1 for table in phone["tables"]), "the table of units is wider than a phone"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [420, 1280])
def test_readable_in_light_and_dark_mode(run, rondo_bin, open_page, tmp_path, width, dark):
    write_run(tmp_path / "run")
    assert run(rondo_bin / "rondo-report", "run").returncode == 0
    probe = open_page(tmp_path / "run" / "report.html", width=width, dark=dark)
    assert len(probe["canvases"]) == 15
    expect_readable(probe)


def test_one_hostile_line_is_enough(run, rondo_bin, open_page, tmp_path):
    """A single step, a minimal configuration, and names that try to become markup."""
    folder = tmp_path / "</script><img src=x onerror=alert(1)>".replace("/", "")
    folder.mkdir()
    (folder / "metrics.jsonl").write_text('{"step":1,"loss":3.5}\n{"step":2,"lo')
    (folder / "config.json").write_text(json.dumps({"data": "</script><script>throw 1</script><!-- @DATA@ @SCRIPT@"}))
    result = run(rondo_bin / "rondo-report", folder)
    assert result.returncode == 0, result.stderr
    assert "metrics.jsonl:2" in result.stderr and "No memory was recorded" in result.stderr
    probe = open_page(folder / "report.html")
    assert [c["label"] for c in probe["canvases"]] == ["Loss: training loss"]
    assert probe["canvases"][0]["painted"] > 100
    assert "<script>throw 1</script>" in probe["text"]
    assert "No validation loss was recorded." in probe["text"]


def test_a_run_without_metrics_still_has_a_page(run, rondo_bin, open_page, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text('{"seed": 3}')
    result = run(rondo_bin / "rondo-report", "run", "--output", "elsewhere.html")
    assert result.returncode == 0, result.stderr
    probe = open_page(tmp_path / "elsewhere.html")
    assert probe["canvases"] == []
    assert "metrics.jsonl is missing" in probe["text"]


@pytest.mark.parametrize("algorithm, ranks, rounds, messages", [
    ("ring", 4, 6, 24), ("hierarchical", 4, 4, 24)])
def test_the_steps_of_a_plan_are_drawn(run, rondo_bin, open_page, tmp_path, algorithm, ranks, rounds, messages):
    result = run(rondo_bin / "rondo", "bench", "collectives", "--explain", algorithm, "--ranks", ranks, "--hosts", 2,
                 "--html", "plan.html")
    assert result.returncode == 0, result.stderr
    probe = open_page(tmp_path / "plan.html")
    assert probe["titles"][:2] == ["Messages by round", "Cost of each rank"]
    assert probe["lines"] == messages and probe["rounds"] == rounds
    assert "Scratch memory" in probe["text"]
    assert probe["canvases"] == [] and "Configuration" not in probe["text"]

    assert f"rondo bench collectives --ranks {ranks} --hosts 2 --explain {algorithm} --html plan.html" in probe["head"]
    assert "Written by rondo bench" in probe["foot"]

    for width, dark in ((1280, True), (420, False), (420, True)):
        probe = open_page(tmp_path / "plan.html", width=width, dark=dark)
        expect_readable(probe)
        if width == 420:
            expect_fits(probe)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [420, 1280])
def test_two_runs_beside_each_other_can_be_read(run, rondo_bin, open_page, tmp_path, width, dark):
    write_run(tmp_path / "first")
    write_run(tmp_path / "second", ranks=4)
    result = run(rondo_bin / "rondo-report", "first", "second", "--output", "both.html")
    assert result.returncode == 0, result.stderr
    probe = open_page(tmp_path / "both.html", width=width, dark=dark)
    assert len(probe["canvases"]) >= 2
    expect_readable(probe)
    if width == 420:
        expect_fits(probe)


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
