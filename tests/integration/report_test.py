"""The report page, opened in a real browser: charts are drawn, controls work, no script fails, nothing is loaded."""
import json
import math
import re
import shutil

import pytest

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]

# Runs in the page after its own scripts: moves every control, then notes what was drawn.
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
const canvases = [...document.querySelectorAll("canvas")].map((canvas) => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let painted = 0;
  for (let i = 3; i < pixels.length; i += 4) painted += pixels[i] > 0 ? 1 : 0;
  return { label: canvas.getAttribute("aria-label"), painted };
});
document.getElementById("probe").textContent = JSON.stringify({
  canvases, data: { ...document.documentElement.dataset },
  titles: [...document.querySelectorAll("h2")].map((h) => h.textContent),
  text: document.querySelector("main").innerText,
  lines: document.querySelectorAll("svg g.message line").length,
  rounds: [...document.querySelectorAll("svg text")].filter((t) => t.textContent.startsWith("round ")).length,
  wide: document.documentElement.scrollWidth > window.innerWidth,
});
</script>
"""


@pytest.fixture(scope="module")
def browser():
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if not found:
        pytest.skip("no Chromium or Chrome on PATH (optional: apt-get install chromium)")
    return found


@pytest.fixture
def open_page(run, browser, tmp_path):
    def open_report(report, width=1280):
        page = report.read_text()
        assert page.count("</body>") == 1, "data or library ended the page"
        # Nothing may be loaded from anywhere: no address in an attribute, no import.
        assert not re.search(r"""(src|href)\s*=\s*["']|@import""", page.split('<script type="application/json"')[0])
        probed = tmp_path / "probed.html"
        probed.write_text(page.replace("</body>", PROBE + "</body>"))
        result = run(browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                     f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},1400",
                     "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", probed.as_uri(),
                     timeout=120)
        console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
        assert console == [], "the page wrote to the browser's console"
        text = re.search(r'<pre id="probe">(.*?)</pre>', result.stdout, re.S).group(1)
        for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
            text = text.replace(entity, character)
        probe = json.loads(text)
        assert "scriptError" not in probe["data"], probe["data"]
        assert probe["data"]["ready"] == "true"
        return probe

    return open_report


def write_run(directory, ranks=2, steps=60):
    directory.mkdir(parents=True)
    with open(directory / "metrics.jsonl", "w") as file:
        for step in range(1, steps + 1):
            for rank in range(ranks):
                row = {"rank": rank, "step": step, "epoch": step // 20, "elapsed_s": step * 0.4,
                       "loss": 5 * math.exp(-step / 20) + 1, "learning_rate": 1e-3 * (1 - step / steps),
                       "tokens_per_s": 1000 + step % 7, "step_ms": 400 + step % 5, "compute_ms": 380,
                       "comm_ms": 90, "exposed_comm_ms": 20, "peak_bytes": 500 << 20,
                       "peak_rss_bytes": 700 << 20, "peak_pss_bytes": 600 << 20}
                file.write(json.dumps(row) + "\n")
            if step % 20 == 0:
                file.write(json.dumps({"rank": 0, "step": step, "elapsed_s": step * 0.4, "validation_loss": 2.0}) + "\n")
    (directory / "config.json").write_text(json.dumps({"model": {"name": "gpt"}, "strategy": "ddp", "seed": 1}))
    events = []
    for step in (1, 20, 40):
        for rank in range(ranks):
            start = step * 400000
            events.append({"name": "backward", "ph": "X", "pid": rank, "tid": 0, "ts": start, "dur": 200000,
                           "args": {"step": step}})
            events.append({"name": "all_reduce h.1", "ph": "X", "pid": rank, "tid": 1, "ts": start + 50000, "dur": 40000,
                           "args": {"step": step, "unit": "h.1", "bucket": 0, "bytes": 1 << 20, "queued_ms": 12.5,
                                    "exposed_ms": 7.25, "overlapped_ms": {"backward": 40.0}}})
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
    assert len(probe["canvases"]) == 11
    for canvas in probe["canvases"]:
        assert canvas["painted"] > 500, f"nothing was drawn: {canvas['label']}"
    for title in ["Loss by step", "Loss by time", "Throughput", "Learning rate", "Step time by rank", "Step time",
                  "Memory, accounted", "Memory, by the kernel", "Timeline of a step", "Memory during a step",
                  "Memory at the peak", "Configuration"]:
        assert title in probe["titles"]
    assert "Communication of rank 1, by unit" in probe["text"] and "12.5 ms" in probe["text"]
    assert "7.25 ms" in probe["text"] and "backward (40 ms)" in probe["text"]
    assert "300 MiB on rank" in probe["text"] and "backward of h.1" in probe["text"]
    assert "1,003 tokens/s" in probe["text"] and "model.name" in probe["text"]

    phone = open_page(tmp_path / "run" / "report.html", width=500)
    assert not phone["wide"], "the page scrolls sideways on a phone"


def test_one_hostile_line_is_enough(run, rondo_bin, open_page, tmp_path):
    """A single step, no configuration worth the name, and names that try to become markup."""
    folder = tmp_path / "</script><img src=x onerror=alert(1)>".replace("/", "")
    folder.mkdir()
    (folder / "metrics.jsonl").write_text('{"step":1,"loss":3.5}\n{"step":2,"lo')
    (folder / "config.json").write_text(json.dumps({"data": "</script><script>throw 1</script><!-- @DATA@ @SCRIPT@"}))
    result = run(rondo_bin / "rondo-report", folder)
    assert result.returncode == 0, result.stderr
    assert "metrics.jsonl:2" in result.stderr and "No memory was recorded" in result.stderr
    probe = open_page(folder / "report.html")
    assert [c["label"] for c in probe["canvases"]] == ["Loss by step: training loss"]
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

    phone = open_page(tmp_path / "plan.html", width=500)
    assert not phone["wide"], "the page scrolls sideways on a phone"


@pytest.mark.parametrize("arguments, expected", [
    (["missing"], "RUN_DIR: missing does not exist"),
    (["."], "is not a run directory"),
    ([], "RUN_DIR is required"),
    ([".", "--colour", "red"], "--colour"),
])
def test_wrong_usage(run, rondo_bin, arguments, expected):
    result = run(rondo_bin / "rondo-report", *arguments)
    assert result.returncode == 2
    assert expected in result.stderr
    assert len(result.stderr.splitlines()) <= 2


def test_a_page_that_cannot_be_written_is_an_error(run, rondo_bin, tmp_path):
    write_run(tmp_path / "run", steps=1)
    result = run(rondo_bin / "rondo-report", "run", "-o", "no/such/folder/page.html")
    assert result.returncode == 1
    assert "no/such/folder" in result.stderr
