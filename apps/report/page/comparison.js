// Several runs: a table with filters that also chooses whose curves are drawn, and the settings that differ.
const mostRunsAtFirst = 10;

// Columns of the table: {id, title, value: number or text or null, show}.
function runColumns(comparison) {
  const known = (value, show) => (value === null || value === undefined || value === "" ? "–" : show(value));
  const figure = (id, title, value, show) => ({ id, title, value, show: (each) => known(value(each), show) });
  const text = (id, title, value) => figure(id, title, value, (shown) => shown);
  const ofSummary = (id, title, show) => figure(id, title, ({ summary }) => summary[id], show);
  const units = [...new Set(comparison.runs.map(({ summary }) => summary.rate_unit).filter(Boolean))];
  const metrics = metricNames(comparison).filter((name) => comparison.runs.some((each) => validationOf(each, name).length > 0)).map((name) => {
    const last = (each) => { const points = validationOf(each, name); return points.length ? points[points.length - 1][2] : null; };
    return figure(`validation_${name}`, `Validation ${knownMetrics[name] ? metricTitle(name).toLowerCase() : name}`, last,
      comparison.runs.every((each) => isShare(name, validationOf(each, name))) ? format.share : format.number);
  });
  const settings = comparison.differences.map(([key, ...values]) => {
    const text = (each) => values[comparison.runs.indexOf(each)];
    const isNumber = (value) => value !== null && value !== "" && Number.isFinite(Number(value));
    return { id: key, title: key, value: (each) => (isNumber(text(each)) ? Number(text(each)) : text(each)), show: (each) => known(text(each), (shown) => shown) };
  });
  const columns = [
    { id: "tags", title: "Tags", value: ({ labels }) => labels.tags, show: ({ labels }) => labels.tags.join(", ") || "–" },
    text("strategy", "Strategy", (each) => each.strategy),
    ofSummary("ranks", "Ranks", format.integer),
    ofSummary("final_loss", "Final loss", format.number),
    ofSummary("best_validation_loss", "Best validation loss", format.number),
    ...units.map((unit) => figure(unit.replace("/", "_per_"), unit, ({ summary }) => (summary.rate_unit === unit ? summary.rate : null), format.number)),
    ofSummary("elapsed_s", "Training time", format.seconds),
    ...settings.filter(({ id }) => id !== "strategy"),
    ...metrics,
    ofSummary("steps", "Steps", format.integer),
    ofSummary("scaling_efficiency", "Scaling efficiency", format.percent),
    ofSummary("exposed_comm_share", "Communication wait", format.percent),
    ofSummary("peak_bytes", "Peak memory", format.bytes),
    ofSummary("parameters", "Parameters", format.count),
    { ...text("notes", "Notes", ({ labels }) => labels.notes), isText: true },
    text("started", "Started", (each) => each.started && format.moment(each.started)),
    text("git_commit", "Commit", (each) => each.git_commit && each.git_commit.slice(0, 9)),
  ];
  const isKnown = (value) => value !== null && value !== undefined && String(value) !== "";
  return columns.filter((column) => comparison.runs.some((each) => isKnown(column.value(each))));
}

const metricNames = (comparison) => [...new Set(comparison.runs.flatMap((each) => each.metrics.map(({ name }) => name)))];
const metricOf = (each, name) => each.metrics.find((metric) => metric.name === name) || { training: [], validation: [] };
const validationOf = (each, name) => metricOf(each, name).validation;

const tests = {
  "=": (a, b) => (Array.isArray(a) ? a.includes(b) : String(a) === b || Number(a) === Number(b)), "!=": (a, b) => !tests["="](a, b),
  "<": (a, b) => a < Number(b), ">": (a, b) => a > Number(b), "<=": (a, b) => a <= Number(b), ">=": (a, b) => a >= Number(b),
};

// Reads 'zero lr>0.001 name="run 2"': words that stand anywhere in a row, and conditions on columns. Returns a function
// of a run, or throws an Error for readers.
function readFilter(text, columns) {
  const words = text.match(/(?:"[^"]*"?|[^\s"])+/g) || [];
  const conditions = words.map((word) => word.replaceAll('"', "")).map((word) => {
    const [, id, sign, wanted] = /^([\w.-]+)(<=|>=|!=|=|<|>)(.*)$/.exec(word) || [];
    if (!sign) {
      const sought = word.toLowerCase();
      return (each) => [each.name, ...columns.map((column) => column.show(each))].some((cell) => String(cell).toLowerCase().includes(sought));
    }
    const column = id === "name" ? { value: (each) => each.name } : columns.find((each) => each.id === id);
    if (!column) throw new Error(`no column ${id}; there are name, ${columns.map((each) => each.id).join(", ")}`);
    if (/[<>]/.test(sign) && !(wanted !== "" && Number.isFinite(Number(wanted)))) throw new Error(`${word}: expected a number behind ${sign}`);
    return (each) => {
      const value = column.value(each);
      return value !== null && value !== undefined && tests[sign](value, wanted);
    };
  });
  return (each) => conditions.every((condition) => condition(each));
}

function runsTable(comparison, columns, change) {
  const state = { matches: () => true, by: null, down: false };
  const body = element("tbody");
  const head = element("tr", {}, element("th", { scope: "col", class: "name" }, "Run"));
  const rows = new Map(comparison.runs.map((each) => {
    const box = element("input", { type: "checkbox", checked: each.shown });
    const row = element("tr", {}, element("td", { class: "name" }, element("label", {}, box, lineSample(each.line), each.name)),
      ...columns.map((column) => element("td", {}, column.isText ? element("span", {}, column.show(each)) : column.show(each))));
    row.querySelector("svg").style.color = `var(--${each.line.color})`;
    box.addEventListener("change", () => {
      each.shown = box.checked;
      row.classList.toggle("off", !each.shown);
      change();
    });
    row.classList.toggle("off", !each.shown);
    return [each, row];
  }));
  const count = element("span", { role: "status" });
  const fill = () => {
    const matching = comparison.runs.filter(state.matches);
    for (const each of comparison.runs) each.matches = matching.includes(each);
    const { by, down } = state;
    if (by) {
      // Runs without the value come last.
      const rank = (each) => (by.value(each) === null || by.value(each) === undefined ? 1 : 0);
      matching.sort((a, b) => rank(a) - rank(b) || (down ? -1 : 1) * (by.value(a) < by.value(b) ? -1 : by.value(a) > by.value(b) ? 1 : 0));
    }
    body.replaceChildren(...matching.map((each) => rows.get(each)));
    count.textContent = `${matching.length} of ${comparison.runs.length} runs`;
    count.className = "";
    change();
  };
  for (const column of columns) {
    const cell = element("th", { scope: "col" });
    cell.append(button(column.title, () => {
      state.down = state.by === column && !state.down;
      state.by = column;
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      fill();
    }, { class: "sort", title: `Sort by ${column.id}` }));
    head.append(cell);
  }
  const input = element("input", { type: "search", id: "filter", placeholder: "ddp, final_loss<2, lr=0.001", spellcheck: false, autocomplete: "off" });
  input.addEventListener("input", () => {
    try {
      state.matches = readFilter(input.value, columns);
      fill();
    } catch (error) {
      count.textContent = error.message;
      count.className = "wrong";
    }
  });
  const save = button("CSV", () => offer(fileName("runs", "csv"), new Blob([csv([["run", ...columns.map(({ id }) => id)],
    ...comparison.runs.filter((each) => each.matches).map((each) => [each.name, ...columns.map((column) => column.value(each))])])], { type: "text/csv" })),
  { "aria-label": "Download the table as CSV" });
  const all = button("Show all", () => setAll(true));
  const none = button("Hide all", () => setAll(false));
  const setAll = (shown) => {
    for (const [each, row] of rows) {
      if (!each.matches) continue;
      each.shown = shown;
      row.querySelector("input").checked = shown;
      row.classList.toggle("off", !shown);
    }
    change();
  };
  fill();
  return [element("div", { class: "filter" }, element("label", { for: "filter" }, "Filter"), input, count, element("span", {}, all, " ", none, " ", save)),
    scrolling("Table: figures and settings of the runs", element("table", { class: "runs" }, element("thead", {}, head), body))];
}

// `pick` returns the points of a run; runs without any are left out.
function comparisonCard(comparison, title, caption, pick, y) {
  if (!comparison.runs.some((each) => pick(each).length > 0)) return;
  card(title, caption, (body) => {
    const lines = (choose) => comparison.runs.filter((each) => each.shown && each.matches && pick(each).length > 0)
      .map((each) => ({ ...each.line, points: choose(pick(each)), dots: pick(each).length <= mostDots }));
    const chart = lineChart(body, `${title}, one line a run`, () => ({ series: smoothed(lines(over().pick)), x: over().axis, y }), undefined, true);
    const renew = sampledTable(body, () => {
      const shown = lines(byStep);
      return shown.length === 0 ? nothing("No run is shown.")
        : dataTable(["Step", ...shown.map((line) => line.label)], sampleRows(shown, format.integer, y.format));
    });
    comparison.cards.push(() => {
      chart.render();
      renew();
    });
  });
}

function fillComparison(comparison) {
  document.querySelector(".brand span").textContent = "comparison of runs";
  const count = `${comparison.runs.length} runs`;
  document.getElementById("title").textContent = comparison.runs.length > 4 ? count : run.title;
  document.getElementById("subtitle").textContent = comparison.runs.length > 4 ? "" : count;
  showTiles([]);
  const lines = takeTurns(comparison.runs.map((each, i) => ({ label: each.name, color: rankColor(i) })));
  comparison.runs.forEach((each, i) => {
    each.line = comparison.runs.length > 8 ? { ...lines[i], dash: sweepDashes[Math.floor(i / 8) % sweepDashes.length] } : lines[i];
    each.shown = i < mostRunsAtFirst;
  });
  comparison.cards = [];
  beginGroup("runs", "Runs");
  card("Figures and settings", "Settings are those that differ. Click a heading to sort; a check mark draws the run's curves.", (body) => {
    body.append(...runsTable(comparison, runColumns(comparison), () => comparison.cards.forEach((renew) => renew())));
  }, true);
  beginGroup("metrics", "Metrics", element("p", { class: "mouse" }, "Drag over a curve to zoom all curves; double-click to reset."));
  comparisonCard(comparison, "Loss", "Mean over the global batch.", (each) => each.curves.loss, { title: "Loss", format: format.number });
  comparisonCard(comparison, "Validation loss", "Over the validation data.", (each) => each.curves.validation_loss, { title: "Validation loss", format: format.number });
  for (const name of metricNames(comparison)) {
    const side = comparison.runs.some((each) => validationOf(each, name).length > 0) ? "validation" : "training";
    const points = (each) => metricOf(each, name)[side];
    const share = comparison.runs.every((each) => isShare(name, points(each)));
    comparisonCard(comparison, side === "validation" ? `Validation ${metricTitle(name).toLowerCase()}` : metricTitle(name), (knownMetrics[name] || ["", "Metric of these runs."])[1],
      points, { title: metricTitle(name), format: share ? format.share : format.number, share });
  }
  beginGroup("performance", "Performance");
  for (const unit of ["tokens/s", "samples/s"]) {
    comparisonCard(comparison, `Throughput, ${unit}`, "All ranks of a run together.", (each) => (each.summary.rate_unit === unit ? each.curves.rate : []),
      { title: unit, format: format.number, zero: true });
  }
  beginGroup("settings", "Settings");
  card("Settings that differ", "Of the runs' configurations.", (body) => {
    if (comparison.differences.length === 0) {
      body.append(nothing("The configurations are the same, or not recorded."));
      return;
    }
    body.append(table(["", ...comparison.runs.map((each) => each.name)],
      comparison.differences.map(([key, ...values]) => [key, ...values.map((value) => (value === null ? "–" : value))])));
  }, true);
  fillNotes();
  fillControls(comparison.runs.some(({ summary }) => summary.elapsed_s !== null));
}
