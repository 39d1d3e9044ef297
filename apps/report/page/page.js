// Puts the page together.
const config = Object.fromEntries(run.config || []);
const known = (...keys) => keys.map((key) => config[key]).find((value) => value !== undefined && value !== "null");

// Breaks between words only: a line does not end in the middle of "--steps".
const commandLine = (command) => element("code", {}, ...command.split(" ").flatMap((word) => [element("span", {}, word), " "]));

// When, where, by which version and command; of a run that was resumed the first start and the last.
function showOrigin(starts) {
  const [first, last] = [starts[0], starts[starts.length - 1]];
  const parts = [format.moment(first.time), first.host, `rondo ${first.version}`];
  if (starts.length > 1) {
    parts.push(`resumed ${starts.length === 2 ? "once" : `${starts.length - 1} times`}, last on ${format.moment(last.time)}`
      + (last.host === first.host ? "" : ` on ${last.host}`) + (last.version === first.version ? "" : ` by rondo ${last.version}`));
  }
  document.getElementById("origin").textContent = parts.filter(Boolean).join(" · ");
  if (last.command) document.getElementById("command").append(commandLine(last.command), " ", copyButton("Copy the command line", last.command));
}

// The strategy that ran, not the one asked for: "auto" is no strategy.
function strategiesUsed() {
  const used = run.starts.map((start) => start.strategy).filter((name, i, all) => name !== all[i - 1]);
  if (used.length > 0) return used.join(", then ");
  const asked = known("strategy", "strategy.name");
  return asked === "auto" ? undefined : asked;
}

function showLabels({ tags, notes }) {
  const list = document.getElementById("tags");
  list.append(...tags.map((tag) => element("li", {}, tag)));
  list.hidden = tags.length === 0;
  document.getElementById("run-notes").textContent = notes || "";
  document.getElementById("run-notes").hidden = !notes;
}

function fillHeader() {
  document.getElementById("title").textContent = run.title;
  showLabels(run.labels);
  const model = known("model", "model.name");
  const last = run.starts[run.starts.length - 1];
  const parts = [
    run.labels.name && run.summary.run,
    model && `model ${model}`,
    strategiesUsed(),
    run.summary.ranks > 0 && `${run.summary.ranks} rank${run.summary.ranks === 1 ? "" : "s"}`,
    last && last.ranks > 1 && last.backend,
  ].filter(Boolean);
  document.getElementById("subtitle").textContent = parts.join(" · ");
  if (last) showOrigin(run.starts);
}

const marksOfTones = { good: ["✓", "Good: "], bad: ["!", "Warning: "], neutral: ["•", ""] };

function fillVerdict() {
  document.getElementById("verdict").hidden = false;
  addLink("verdict", "Summary");
  document.getElementById("findings").append(...run.verdict.map(({ text, tone }) => {
    const [mark, word] = marksOfTones[tone];
    return element("li", { class: tone }, element("span", { class: "mark", ...(word ? { role: "img", "aria-label": word } : { "aria-hidden": "true" }) }, mark), element("span", {}, text));
  }));
}

function fillTiles() {
  const s = run.summary;
  const tiles = [];
  const add = (label, value, detail = "") => tiles.push({ label, value, detail });
  if (s.final_loss !== null) add("Final training loss", format.number(s.final_loss), `step ${format.integer(s.steps)}`);
  if (s.best_validation_loss !== null) add("Best validation loss", format.number(s.best_validation_loss), "of all validations");
  for (const { name, validation } of run.metrics.filter((metric) => metric.validation.length > 0)) {
    const [step, , value] = validation[validation.length - 1];
    add(`Validation ${knownMetrics[name] ? metricTitle(name).toLowerCase() : name}`,
      isShare(name, validation) ? format.share(value) : format.number(value), `step ${format.integer(step)}`);
  }
  if (s.rate !== null) add("Throughput", `${format.integer(s.rate)} ${s.rate_unit}`, "median of all steps");
  if (s.elapsed_s !== null) add("Training time", format.seconds(s.elapsed_s), `${format.integer(s.epochs)} epoch${s.epochs === 1 ? "" : "s"}`);
  if (s.exposed_comm_share !== null && s.ranks > 1) add("Communication wait", format.percent(s.exposed_comm_share), "of the step time, mean of all steps");
  if (s.peak_bytes !== null) {
    add("Peak memory of tensors", format.bytes(s.peak_bytes), s.peak_rss_bytes === null ? "largest rank" : `largest rank; its process: ${format.bytes(s.peak_rss_bytes)}`);
  }
  if (s.parameters !== null) add("Parameters", format.count(s.parameters), known("model", "model.name") || "");
  if (s.ranks > 0 && (s.parameters === null || tiles.length === 7)) add("Ranks", format.integer(s.ranks), run.starts.length > 0 ? run.starts[0].host : "");
  showTiles(tiles);
}

function showTiles(tiles) {
  const section = document.getElementById("tiles");
  if (tiles.length === 0) {
    section.hidden = true;
    return;
  }
  // Rows as equal as possible: of at most four, or one of five.
  section.style.setProperty("--columns", tiles.length === 5 ? 5 : Math.ceil(tiles.length / Math.ceil(tiles.length / 4)));
  for (const tile of tiles) {
    const [number, ...unit] = tile.value.split(" ");
    const isPlain = unit.length === 1;
    section.append(element("dl", { class: "tile" }, element("dt", {}, tile.label),
      isPlain ? element("dd", {}, `${number} `, element("small", {}, unit[0])) : element("dd", {}, tile.value),
      ...(tile.detail ? [element("dd", { class: "detail" }, tile.detail)] : [])));
  }
}

function fillMetrics() {
  beginGroup("metrics", "Metrics", element("p", { class: "mouse" }, "Drag over a curve to zoom all curves; double-click to reset."));
  qualityCard({ title: "Loss", caption: "Mean over the global batch.", training: run.curves.loss, validation: run.curves.validation_loss,
    logarithmic: true, missing: "No loss was recorded." });
  metricCards();
  curveCard("Learning rate", "As applied by the optimizer.", run.curves.learning_rate, "rank-4",
    { title: "Learning rate", format: format.number, zero: true });
}

function fillPerformance() {
  beginGroup("performance", "Performance");
  const unit = run.summary.rate_unit || "samples/s";
  curveCard("Throughput", `All ranks together, ${unit}.`, run.curves.rate, "rank-2", { title: unit, format: format.number, zero: true }, true);
  ranksCard("Step time", "Wall time of each step.", [{ label: "step", curves: run.curves.step_ms }],
    { title: "Milliseconds", format: format.number, zero: true }, true);
  splitCard();
  timelineCard();
}

function fillMemory() {
  beginGroup("memory", "Memory");
  const bytesAxis = { title: "Peak so far", format: format.bytes, kind: "bytes", zero: true };
  ranksCard("Memory of tensors", "Tracked by rondo: parameters, activations, gradients, optimizer state. Shared segments count at their owner.",
    [{ label: "tracked", curves: run.curves.peak_bytes }], bytesAxis);
  ranksCard("Memory of processes", "Measured by the kernel, with libraries and caches. PSS: a page shared by n processes counts 1/n.", [
    { label: "resident (RSS)", curves: run.curves.peak_rss_bytes },
    { label: "proportional (PSS)", curves: run.curves.peak_pss_bytes },
  ], bytesAxis);
  memoryTimelineCard();
  memoryPeakCard();
}

function fillPlanned() {
  if (!run.prediction && !run.planned_step) return;
  beginGroup("plan", "Plan");
  if (run.prediction) predictionCards(run.prediction);
  if (run.planned_step) plannedStepCards(run.planned_step);
}

const settingsList = (rows) => element("dl", { class: "settings" },
  ...rows.map(([key, value]) => element("div", {}, element("dt", {}, key), element("dd", {}, value))));

// A line of a configuration file for --config. Values of config.json are shown as text without their type.
function tomlLine([key, value]) {
  const isPlain = /^(true|false|-?\d+(\.\d+)?(e[+-]?\d+)?|\[.*\])$/i.test(value);
  return `${key} = ${isPlain ? value : JSON.stringify(value)}\n`;
}

// "text, input 64, 256 classes" of data.json.
function describeData(data) {
  return [data.kind, data.input_shape && data.input_shape.length > 0 && `input ${data.input_shape.join(" × ")}`,
    data.classes > 0 && `${format.integer(data.classes)} classes`].filter(Boolean).join(", ");
}

// Source and surroundings of the run, without rows that are not known.
function originRows() {
  const last = run.starts[run.starts.length - 1] || {};
  return [
    ["git commit", last.git_commit], ["rondo", last.version], ["processor", last.machine],
    ["parameters", last.parameters === undefined ? undefined : format.integer(last.parameters)],
    ["data", run.data ? describeData(run.data) : undefined], ["seed", known("seed")],
  ].filter(([, value]) => value);
}

function fillConfiguration() {
  const body = document.getElementById("configuration-body");
  document.getElementById("configuration").hidden = false;
  addLink("configuration", "Settings");
  const box = (title, ...content) => {
    body.append(element("div", { class: "card" }, element("div", { class: "head" }, element("h3", {}, title), ...content.slice(1)), content[0]));
  };
  const origin = originRows();
  if (origin.length > 0) box("Origin", settingsList(origin));
  if (run.config.length === 0) {
    box("Options", nothing("No configuration was recorded."));
    return;
  }
  const isChanged = new Set(run.changed || []);
  const changed = run.config.filter(([key]) => isChanged.has(key));
  const others = run.config.filter(([key]) => !isChanged.has(key));
  if (run.changed) {
    box(`Changed options (${changed.length})`, changed.length > 0 ? settingsList(changed) : nothing("All options have their defaults."),
      copyButton("Copy the changed options as a configuration file", changed.map(tomlLine).join("")));
  }
  body.append(element("details", { class: "card", open: !run.changed && others.length < 30 },
    element("summary", {}, run.changed ? `Defaults (${others.length})` : `All options (${others.length})`), settingsList(others)));
}

function fillNotes() {
  if (run.notes.length === 0) return;
  document.getElementById("notes").hidden = false;
  document.getElementById("notes-list").append(...run.notes.map((note) => element("li", {}, note)));
}

function fillRun() {
  fillHeader();
  fillVerdict();
  fillTiles();
  fillMetrics();
  fillPerformance();
  fillMemory();
  fillPlanned();
  fillConfiguration();
  fillNotes();
  fillControls(run.summary.elapsed_s !== null);
}

// The page of a schedule instead of a run.
function fillPlan(plan) {
  document.querySelector(".brand span").textContent = "collective schedule";
  if (run.made_by) showOrigin([run.made_by]);
  document.getElementById("title").textContent = run.title;
  document.getElementById("subtitle").textContent =
    [plan.summary, `${plan.ranks} rank${plan.ranks === 1 ? "" : "s"}`, `${format.bytes(plan.bytes)} of ${plan.dtype}`].join(" · ");
  showTiles(planTiles(plan));
  beginGroup("plan", "Plan");
  planCards(plan);
}

// Which program made the page.
function fillFooter() {
  const made = run.made_by;
  if (!made) return;
  document.getElementById("made-by").replaceChildren("Written by ", element("code", {}, made.program),
    ` ${made.version}, ${format.moment(made.time)}${made.host ? `, on ${made.host}` : ""}.`);
}

// Marks the link of the part that is in view.
function followParts() {
  const links = new Map([...document.querySelectorAll("#links a")].map((link) => [link.hash.slice(1), link]));
  const seen = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) seen.add(target.id);
      else seen.delete(target.id);
    }
    const current = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) {
      if (id === current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-60px 0px -40% 0px" });
  for (const id of links.keys()) observer.observe(document.getElementById(id));
  document.getElementById("bar").hidden = links.size < 2;
}

Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
if (run.schedule) fillPlan(run.schedule);
else if (run.comparison) fillComparison(run.comparison);
else if (run.planner) fillPlanner(run.planner);
else fillRun();
fillFooter();
followParts();
followRun();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((entry) => entry.render()));
document.documentElement.dataset.ready = "true";
