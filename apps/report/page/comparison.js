// Several runs beside each other: their curves in one chart each, their figures and what differs in their configurations.
function comparisonCard(comparison, title, caption, curve, y) {
  const lines = (pick) => takeTurns(comparison.runs.map((each, i) => ({ label: each.name, color: rankColor(i), points: pick(each.curves[curve]), dots: each.curves[curve].length < 60 }))
    .filter((line) => line.points.length > 0));
  const axes = [{ label: "by step", pick: byStep, axis: stepAxis }, { label: "by time", pick: byTime, axis: timeAxis }];
  card(title, caption, (body, controls) => {
    if (lines(byStep).length === 0) {
      body.append(nothing(`No ${title.toLowerCase()} was recorded.`));
      return;
    }
    let over = axes[0];
    body.append(legend(lines(byStep)));
    const chart = lineChart(body, `${title}, one line a run`, () => ({ series: lines(over.pick), x: over.axis, y }));
    body.append(dataTable(["Step", ...lines(byStep).map((line) => line.label)], sampleRows(lines(byStep), format.integer, y.format)));
    controls.append(menu(`${title}: horizontal axis`, axes, (choice) => {
      over = choice;
      chart.render();
    }));
  });
}

function fillComparison(comparison) {
  document.querySelector(".brand span").textContent = "comparison of runs";
  document.getElementById("title").textContent = run.title;
  document.getElementById("subtitle").textContent = `${comparison.runs.length} runs`;
  showTiles([]);
  comparisonCard(comparison, "Loss", "Mean over the global batch.", "loss", { title: "Loss", format: format.number });
  comparisonCard(comparison, "Validation loss", "Over the validation data.", "validation_loss", { title: "Validation loss", format: format.number });
  comparisonCard(comparison, "Throughput", "All ranks of a run together, per second.", "rate", { title: "per second", format: format.number, zero: true });
  const figures = [
    ["Strategy", (each) => each.strategy || "–"],
    ["Ranks", ({ summary }) => format.integer(summary.ranks)],
    ["Steps", ({ summary }) => (summary.steps === null ? "–" : format.integer(summary.steps))],
    ["Final loss", ({ summary }) => (summary.final_loss === null ? "–" : format.number(summary.final_loss))],
    ["Best validation loss", ({ summary }) => (summary.best_validation_loss === null ? "–" : format.number(summary.best_validation_loss))],
    ["Throughput", ({ summary }) => (summary.rate === null ? "–" : `${format.number(summary.rate)} ${summary.rate_unit}`)],
    ...(comparison.runs.some(({ summary }) => summary.scaling_efficiency)
      ? [["Scaling efficiency", ({ summary }) => (summary.scaling_efficiency ? format.percent(summary.scaling_efficiency) : "–")]] : []),
    ["Training time", ({ summary }) => (summary.elapsed_s === null ? "–" : format.seconds(summary.elapsed_s))],
    ["Communication wait", ({ summary }) => (summary.exposed_comm_share === null ? "–" : format.percent(summary.exposed_comm_share))],
    ["Peak memory", ({ summary }) => (summary.peak_bytes === null ? "–" : format.bytes(summary.peak_bytes))],
  ];
  card("Figures", "Of each run.", (body) => {
    body.append(table(["", ...comparison.runs.map((each) => each.name)],
      figures.map(([name, value]) => [name, ...comparison.runs.map(value)])));
  }, true);
  const place = document.getElementById("configuration-body");
  document.getElementById("configuration-title").textContent = "What differs in the configurations";
  if (comparison.differences.length === 0) {
    place.append(nothing("The configurations are the same, or not recorded."));
  } else {
    place.append(table(["", ...comparison.runs.map((each) => each.name)],
      comparison.differences.map(([key, ...values]) => [key, ...values.map((value) => (value === null ? "–" : value))])));
  }
  fillNotes();
}
