// Puts the page together.
const config = Object.fromEntries(run.config || []);
const known = (...keys) => keys.map((key) => config[key]).find((value) => value !== undefined && value !== "null");

// When, where, by which version and command; of a run that was resumed the first start and the last.
function showOrigin(starts) {
  const [first, last] = [starts[0], starts[starts.length - 1]];
  const parts = [format.moment(first.time), first.host, `rondo ${first.version}`];
  if (starts.length > 1) {
    parts.push(`resumed ${starts.length === 2 ? "once" : `${starts.length - 1} times`}, last on ${format.moment(last.time)}`
      + (last.host === first.host ? "" : ` on ${last.host}`) + (last.version === first.version ? "" : ` by rondo ${last.version}`));
  }
  document.getElementById("origin").textContent = parts.filter(Boolean).join(" · ");
  if (last.command) document.getElementById("command").textContent = last.command;
}

// The strategy that ran, not the one asked for: "auto" is no strategy.
function strategiesUsed() {
  const used = run.starts.map((start) => start.strategy).filter((name, i, all) => name !== all[i - 1]);
  if (used.length > 0) return used.join(", then ");
  const asked = known("strategy", "strategy.name");
  return asked === "auto" ? undefined : asked;
}

function fillHeader() {
  document.getElementById("title").textContent = run.title;
  const model = known("model", "model.name");
  const last = run.starts[run.starts.length - 1];
  const parts = [
    model && `model ${model}`,
    strategiesUsed(),
    run.summary.ranks > 0 && `${run.summary.ranks} rank${run.summary.ranks === 1 ? "" : "s"}`,
    last && last.ranks > 1 && last.backend,
  ].filter(Boolean);
  document.getElementById("subtitle").textContent = parts.join(" · ");
  if (last) showOrigin(run.starts);
}

function fillTiles() {
  const s = run.summary;
  const tiles = [];
  const add = (label, value, detail = "") => tiles.push({ label, value, detail });
  if (s.final_loss !== null) add("Final training loss", format.number(s.final_loss), `step ${format.integer(s.steps)}`);
  if (s.best_validation_loss !== null) add("Best validation loss", format.number(s.best_validation_loss), "over all passes");
  for (const metric of run.metrics.filter(({ validation }) => validation.length > 0)) {
    const [step, , value] = metric.validation[metric.validation.length - 1];
    add(`Validation ${knownMetrics[metric.name] ? metricTitle(metric.name).toLowerCase() : metric.name}`, format.number(value), `step ${format.integer(step)}`);
  }
  if (s.rate !== null) add("Throughput", `${format.integer(s.rate)} ${s.rate_unit}`, "median of all steps");
  if (s.elapsed_s !== null) add("Training time", format.seconds(s.elapsed_s), `${format.integer(s.epochs)} epoch${s.epochs === 1 ? "" : "s"}`);
  if (s.exposed_comm_share !== null) add("Communication wait", format.percent(s.exposed_comm_share), "of the step time");
  if (s.peak_bytes !== null) add("Peak memory", format.bytes(s.peak_bytes), "largest rank");
  if (s.ranks > 0) add("Ranks", format.integer(s.ranks), run.starts.length > 0 ? run.starts[0].host : "");
  showTiles(tiles);
}

function showTiles(tiles) {
  const section = document.getElementById("tiles");
  if (tiles.length === 0) {
    section.hidden = true;
    return;
  }
  for (const tile of tiles) {
    const [number, ...unit] = tile.value.split(" ");
    const isPlain = unit.length === 1;
    section.append(element("dl", { class: "tile", style: "margin:0" }, element("dt", {}, tile.label),
      isPlain ? element("dd", {}, `${number} `, element("small", {}, unit[0])) : element("dd", {}, tile.value),
      element("dd", { class: "detail", style: "font:inherit;font-size:12.5px;color:var(--muted)" }, tile.detail)));
  }
}

function fillCharts() {
  qualityCard({ title: "Loss", caption: "Mean over the global batch.", training: run.curves.loss, validation: run.curves.validation_loss,
    smoothed: true, missing: "No loss was recorded." });
  metricCards();
  const unit = run.summary.rate_unit || "samples/s";
  curveCard("Throughput", `All ranks together, ${unit}.`, run.curves.rate, "rank-2",
    { title: unit, format: format.number, zero: true });
  curveCard("Learning rate", "As the optimizer used it.", run.curves.learning_rate, "rank-4",
    { title: "Learning rate", format: format.number, zero: true });
  splitCard();
  ranksCard("Step time", "Wall time of each step.", [{ label: "step", curves: run.curves.step_ms }],
    { title: "Milliseconds", format: format.number, zero: true });
  const bytesAxis = { title: "Peak so far", format: format.bytes, kind: "bytes", zero: true };
  ranksCard("Memory, tracked", "Shared segments count in full at the rank that owns them.",
    [{ label: "tracked", curves: run.curves.peak_bytes }], bytesAxis);
  ranksCard("Memory, by the kernel", "Resident set; proportional: a page shared by n processes counts 1/n.", [
    { label: "resident (RSS)", curves: run.curves.peak_rss_bytes },
    { label: "proportional (PSS)", curves: run.curves.peak_pss_bytes },
  ], bytesAxis);
  if (run.prediction) predictionCards(run.prediction);
  if (run.planned_step) plannedStepCards(run.planned_step);
  timelineCard();
  memoryTimelineCard();
  memoryPeakCard();
}

function fillConfiguration() {
  const body = document.getElementById("configuration-body");
  if (run.config.length === 0) {
    body.append(nothing("No configuration was recorded."));
    return;
  }
  for (const [key, value] of run.config) body.append(element("dl", {}, element("dt", {}, key), element("dd", {}, value)));
}

function fillNotes() {
  if (run.notes.length === 0) return;
  document.getElementById("notes").hidden = false;
  document.getElementById("notes-list").append(...run.notes.map((note) => element("li", {}, note)));
}

function fillRun() {
  fillHeader();
  fillTiles();
  fillCharts();
  fillConfiguration();
  fillNotes();
}

// The page of a schedule instead of a run.
function fillPlan(plan) {
  document.querySelector(".brand span").textContent = "collective schedule";
  if (run.made_by) showOrigin([run.made_by]);
  document.getElementById("title").textContent = run.title;
  document.getElementById("subtitle").textContent =
    [plan.summary, `${plan.ranks} rank${plan.ranks === 1 ? "" : "s"}`, `${format.bytes(plan.bytes)} of ${plan.dtype}`].join(" · ");
  document.getElementById("configuration").hidden = true;
  showTiles(planTiles(plan));
  planCards(plan);
}

// Which program made the page.
function fillFooter() {
  const made = run.made_by;
  if (!made) return;
  document.getElementById("made-by").replaceChildren("Written by ", element("code", {}, made.program),
    ` ${made.version}, ${format.moment(made.time)}${made.host ? `, on ${made.host}` : ""}.`);
}

Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
if (run.schedule) fillPlan(run.schedule);
else if (run.comparison) fillComparison(run.comparison);
else if (run.planner) fillPlanner(run.planner);
else fillRun();
fillFooter();
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((entry) => entry.render()));
document.documentElement.dataset.ready = "true";
