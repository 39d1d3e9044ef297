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

function lossCard(title, caption, pick, xAxis, missing) {
  const train = pick(run.curves.loss);
  const validation = pick(run.curves.validation_loss);
  card(title, caption, (body, controls) => {
    if (missing || train.length + validation.length === 0) {
      body.append(nothing(missing || "No loss was recorded."));
      return;
    }
    const state = { weight: 0, logarithmic: false };
    const series = [];
    if (train.length) series.push({ label: "training", color: "train", points: train });
    if (validation.length) {
      series.push({ label: "validation", color: "validation", points: validation, dots: validation.length < 60, width: 2 });
    }
    body.append(legend(series));
    const chart = lineChart(body, `${title}: ${series.map((s) => s.label).join(" and ")} loss`, () => {
      const shown = [...series];
      if (state.weight > 0 && train.length > 2) {
        shown[0] = { ...shown[0], points: smooth(train, state.weight), label: "training, smoothed" };
        shown.push({ label: "training", color: "train", points: train, faint: true, width: 1 });
      }
      return { series: shown, x: xAxis, y: { title: "Loss", format: format.number, logarithmic: state.logarithmic } };
    });
    body.append(dataTable([xAxis.title, ...series.map((s) => s.label)], sampleRows(series, xAxis.format, format.number)));

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
  });
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

const rankSeries = (curves) =>
  curves.map((c) => ({ label: c.label, color: rankColor(c.rank), points: byStep(c.points), width: 1.5 }));

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
    const table = () => dataTable(["Step", ...current.map((s) => s.label)],
      sampleRows(current, format.integer, yAxis.format));
    let shownTable = table();
    body.append(shownTable);
    if (available.length < 2) return;
    const select = element("select", { "aria-label": `${title}: what is shown` },
      ...available.map((choice, i) => element("option", { value: String(i) }, choice.label)));
    select.addEventListener("change", () => {
      current = rankSeries(available[Number(select.value)].curves);
      chart.render();
      const next = table();
      next.open = shownTable.open;
      shownTable.replaceWith(next);
      shownTable = next;
    });
    controls.append(select);
  });
}
