// The cards with curves over steps or time.
const byStep = (points) => points.map(([step, , value]) => [step, value]);
const byTime = (points) => points.map(([, elapsed, value]) => [elapsed, value]);
const stepAxis = { title: "Step", format: format.integer };
const timeAxis = { title: "Time", format: format.seconds, kind: "time" };

// Exponential moving average, corrected for its start (Kingma and Ba, 2015, section 3).
function smooth(points, weight) {
  let average = 0;
  let norm = 0;
  return points.map(([x, y]) => {
    average = weight * average + (1 - weight) * y;
    norm = weight * norm + (1 - weight);
    return [x, average / norm];
  });
}

function menu(label, choices, show) {
  const select = element("select", { "aria-label": label }, ...choices.map((choice, i) =>
    element("option", { value: String(i) }, choice.label)));
  select.addEventListener("change", () => show(choices[Number(select.value)]));
  return select;
}

// Figures that training and validation may have, over steps or time: the loss, and every metric.
function qualityCard({ title, caption, training, validation, name = title.toLowerCase(), smoothed = false, missing }) {
  const axes = [{ label: "by step", pick: byStep, axis: stepAxis }];
  if (run.summary.elapsed_s !== null) axes.push({ label: "by time", pick: byTime, axis: timeAxis });
  card(title, caption, (body, controls) => {
    if (training.length + validation.length === 0) {
      body.append(nothing(missing));
      return;
    }
    const state = { weight: 0, logarithmic: false, over: axes[0] };
    const lines = () => {
      const made = [];
      if (training.length) made.push({ label: "training", color: "train", points: state.over.pick(training) });
      if (validation.length) {
        made.push({ label: "validation", color: "validation", points: state.over.pick(validation), dots: validation.length < 60, width: 2 });
      }
      return made;
    };
    body.append(legend(lines()));
    const chart = lineChart(body, `${title}: ${lines().map((s) => s.label).join(" and ")} ${name}`, () => {
      const shown = lines();
      if (state.weight > 0 && training.length > 2) {
        const [raw] = shown;
        shown[0] = { ...raw, points: smooth(raw.points, state.weight), label: "training, smoothed" };
        shown.push({ ...raw, faint: true, width: 1 });
      }
      return { series: shown, x: state.over.axis, y: { title, format: format.number, logarithmic: state.logarithmic } };
    });
    const sampled = () => dataTable([state.over.axis.title, ...lines().map((s) => s.label)],
      sampleRows(lines(), state.over.axis.format, format.number));
    let shownTable = sampled();
    body.append(shownTable);
    if (smoothed) {
      const range = element("input", { type: "range", min: "0", max: "0.98", step: "0.02", value: "0" });
      range.addEventListener("input", () => {
        state.weight = Number(range.value);
        chart.render();
      });
      const log = element("input", { type: "checkbox" });
      log.addEventListener("change", () => {
        state.logarithmic = log.checked;
        chart.render();
      });
      controls.append(element("label", {}, "Smooth", range), element("label", {}, log, "Log"));
    }
    if (axes.length < 2) return;
    controls.append(menu(`${title}: horizontal axis`, axes, (choice) => {
      state.over = choice;
      chart.render();
      const next = sampled();
      next.open = shownTable.open;
      shownTable.replaceWith(next);
      shownTable = next;
    }));
  });
}

// Metrics of rondo's own get a title and a caption; a user's metric keeps the name that its author gave it.
const knownMetrics = {
  accuracy: ["Accuracy", "Share of predictions that are right."],
  perplexity: ["Perplexity", "e to the mean loss of a prediction."],
  loss_scale: ["Loss scale", "That gradients were computed with, so that small ones do not vanish."],
  routed_tokens: ["Tokens to experts", "Of all layers and ranks, once for each expert that a token goes to."],
  dropped_tokens: ["Dropped tokens", "Of those, the ones beyond an expert's capacity: it adds nothing to them."],
  balance_loss: ["Balance loss", "The auxiliary loss of the routers, mean over layers; not part of the loss."],
  gradient_norm: ["Gradient norm", "Of all parameters together, before it was clipped."],
};
const metricTitle = (name) => (knownMetrics[name] || [name])[0];

function metricCards() {
  for (const metric of run.metrics) {
    const [title, caption] = knownMetrics[metric.name] || [metric.name, "A metric of this run."];
    qualityCard({ title, caption, training: metric.training, validation: metric.validation });
  }
}

function curveCard(title, caption, points, color, yAxis) {
  card(title, caption, (body) => {
    if (points.length === 0) {
      body.append(nothing(`No ${title.toLowerCase()} was recorded.`));
      return;
    }
    const series = [{ label: title.toLowerCase(), color, points: byStep(points) }];
    lineChart(body, `${title} over steps`, () => ({ series, x: stepAxis, y: yAxis }), 230);
    body.append(dataTable(["Step", title], sampleRows(series, format.integer, yAxis.format)));
  });
}

// Lines of a few ranks; of many a band from the smallest to the largest, and the mean in it.
function rankSeries(curves) {
  const of = (role) => curves.find((c) => c.role === role);
  if (!of("mean")) {
    return takeTurns(curves.map((c) => ({ label: c.label, color: rankColor(c.rank), points: byStep(c.points), width: 1.6 })));
  }
  return [
    { label: of("smallest").label, color: "rank-0", points: byStep(of("smallest").points), role: "band" },
    { label: of("largest").label, color: "rank-0", points: byStep(of("largest").points), role: "band", fill: "-1" },
    { label: of("mean").label, color: "rank-0", points: byStep(of("mean").points), width: 1.8 },
  ];
}

// One curve a rank; with several `choices` [{label, curves}] a menu switches between them.
function ranksCard(title, caption, choices, yAxis) {
  const available = choices.filter((choice) => choice.curves.length > 0);
  card(title, caption, (body, controls) => {
    if (available.length === 0) {
      body.append(nothing(`No ${title.toLowerCase()} was recorded.`));
      return;
    }
    let current = rankSeries(available[0].curves);
    body.append(legend(current));
    const chart = lineChart(body, `${title}, one line a rank`, () => ({ series: current, x: stepAxis, y: yAxis }), 230);
    const sampled = () => dataTable(["Step", ...current.map((s) => s.label)],
      sampleRows(current, format.integer, yAxis.format));
    let shownTable = sampled();
    body.append(shownTable);
    if (available.length < 2) return;
    controls.append(menu(`${title}: what is shown`, available, (choice) => {
      current = rankSeries(choice.curves);
      chart.render();
      const next = sampled();
      next.open = shownTable.open;
      shownTable.replaceWith(next);
      shownTable = next;
    }));
  });
}
