// The cards with curves over steps or time.
const byStep = (points) => points.map(([step, , value]) => [step, value]);
const byTime = (points) => points.map(([, elapsed, value]) => [elapsed, value]);
const stepAxis = { title: "Step", format: format.integer };
const timeAxis = { title: "Time", format: format.seconds, kind: "time" };

// The horizontal axis of linked charts at the moment.
const over = () => (view.time ? { pick: byTime, axis: timeAxis } : { pick: byStep, axis: stepAxis });

function menu(label, choices, show) {
  const select = element("select", { "aria-label": label }, ...choices.map((choice, i) =>
    element("option", { value: String(i) }, choice.label)));
  select.addEventListener("change", () => show(choices[Number(select.value)]));
  return select;
}

// A table of samples that is made anew, open or closed as it was, when `renew()` is called.
function sampledTable(body, make) {
  let table = make();
  body.append(table);
  return () => {
    const next = make();
    next.open = table.open;
    table.replaceWith(next);
    table = next;
  };
}

// Figures that training and validation may have: the loss, and every metric.
function qualityCard({ title, caption, training, validation, logarithmic = false, share = false, missing }) {
  card(title, caption, (body, controls) => {
    if (training.length + validation.length === 0) {
      body.append(nothing(missing));
      return;
    }
    const y = { title, format: share ? format.share : format.number, logarithmic: false, share };
    const lines = (pick) => [
      training.length > 0 && { label: "training", color: "train", points: pick(training) },
      validation.length > 0 && { label: "validation", color: "validation", points: pick(validation), dots: validation.length <= mostDots, width: 2 },
    ].filter(Boolean);
    body.append(legend(lines(byStep)));
    const chart = lineChart(body, `${title}: ${lines(byStep).map((line) => line.label).join(" and ")}`, () =>
      ({ series: smoothed(lines(over().pick)), x: over().axis, y }), undefined, true);
    body.append(dataTable(["Step", ...lines(byStep).map((line) => line.label)], sampleRows(lines(byStep), format.integer, y.format)));
    if (!logarithmic) return;
    const log = element("input", { type: "checkbox" });
    log.addEventListener("change", () => {
      y.logarithmic = log.checked;
      chart.render();
    });
    controls.append(element("label", {}, log, "Log scale"));
  });
}

// Metrics of rondo's own get a title and a caption; a user's metric keeps the name that its author gave it.
const knownMetrics = {
  accuracy: ["Accuracy", "Share of correct predictions."],
  perplexity: ["Perplexity", "exp(mean loss)."],
  loss_scale: ["Loss scale", "Factor of the loss during backward, so that small gradients do not become 0."],
  routed_tokens: ["Tokens to experts", "Of all layers and ranks; a token counts once for each expert that it goes to."],
  dropped_tokens: ["Dropped tokens", "Tokens beyond an expert's capacity, which that expert ignores."],
  balance_loss: ["Balance loss", "Auxiliary loss of the routers, mean over layers; not part of the loss."],
  gradient_norm: ["Gradient norm", "L2 norm over all parameters, before clipping."],
};
const metricTitle = (name) => (knownMetrics[name] || [name])[0];
// Metrics that are shares of something, shown in percent while they are within 0 and 1.
const isShare = (name, points) => /accuracy|precision|recall|f1|auc/i.test(name) && points.every(([, , value]) => value >= 0 && value <= 1);

function metricCards() {
  for (const metric of run.metrics) {
    const [title, caption] = knownMetrics[metric.name] || [metric.name, "Metric of this run."];
    const { training, validation } = metric;
    qualityCard({ title, caption, training, validation, share: isShare(metric.name, [...training, ...validation]) });
  }
}

function curveCard(title, caption, points, color, yAxis, isNoisy = false) {
  card(title, caption, (body) => {
    if (points.length === 0) {
      body.append(nothing(`No ${title.toLowerCase()} was recorded.`));
      return;
    }
    const series = () => [{ label: title.toLowerCase(), color, points: over().pick(points) }];
    lineChart(body, `${title} over the run`, () => ({ series: isNoisy ? smoothed(series()) : series(), x: over().axis, y: yAxis }), 230, true);
    body.append(dataTable(["Step", title], sampleRows([{ points: byStep(points) }], format.integer, yAxis.format)));
  });
}

// Lines of a few ranks; of many a band from the smallest to the largest, and the mean in it.
function rankSeries(curves, pick) {
  const of = (role) => curves.find((c) => c.role === role);
  if (!of("mean")) {
    return takeTurns(curves.map((c) => ({ label: c.label, color: rankColor(c.rank), points: pick(c.points), width: 1.6 })));
  }
  return [
    { label: of("smallest").label, color: "rank-0", points: pick(of("smallest").points), role: "band" },
    { label: of("largest").label, color: "rank-0", points: pick(of("largest").points), role: "band", fill: "-1" },
    { label: of("mean").label, color: "rank-0", points: pick(of("mean").points), width: 1.8 },
  ];
}

// One curve a rank; with several `choices` [{label, curves}] a menu switches between them.
function ranksCard(title, caption, choices, yAxis, isNoisy = false) {
  const available = choices.filter((choice) => choice.curves.length > 0);
  card(title, caption, (body, controls) => {
    if (available.length === 0) {
      body.append(nothing(`No ${title.toLowerCase()} was recorded.`));
      return;
    }
    let [{ curves }] = available;
    body.append(legend(rankSeries(curves, byStep)));
    const chart = lineChart(body, `${title}, one line a rank`, () => {
      const series = rankSeries(curves, over().pick);
      return { series: isNoisy ? smoothed(series) : series, x: over().axis, y: yAxis };
    }, 230, true);
    const renew = sampledTable(body, () => {
      const series = rankSeries(curves, byStep);
      return dataTable(["Step", ...series.map((s) => s.label)], sampleRows(series, format.integer, yAxis.format));
    });
    if (available.length < 2) return;
    controls.append(menu(`${title}: values shown`, available, (choice) => {
      curves = choice.curves;
      chart.render();
      renew();
    }));
  });
}
