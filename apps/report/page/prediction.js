// A planned run: what its plan predicted beside what was measured.
const predictionSides = [
  { key: "predicted", label: "predicted", color: "rank-0" }, { key: "measured", label: "measured", color: "rank-1" },
];

function predictionCards(prediction) {
  predictionCard(prediction);
  const units = prediction.units.filter((unit) => unit.predicted && unit.measured);
  if (units.length > 0) predictionUnitsCard(units);
}

const deviation = (predicted, measured) => (predicted > 0 ? `${measured >= predicted ? "+" : "−"}${format.percent(Math.abs(measured / predicted - 1))}` : "–");

function predictionCard({ predicted, measured }) {
  const figures = [["Step time", "step_ms", format.milliseconds], ["Exposed communication", "exposed_comm_ms", format.milliseconds],
    ["Peak memory", "peak_bytes", format.bytes]];
  card("Plan and reality", "What the plan predicted and what training measured: medians of the slowest rank, the largest rank's peak.", (body) => {
    const rows = figures.map(([label, key, show]) => [label, show(predicted[key]), show(measured[key]), deviation(predicted[key], measured[key])]);
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...["", "Predicted", "Measured", "Difference"].map((title) => element("th", {}, title)))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell))))));
    body.append(table);
  }, true);
}

function predictionUnitsCard(units) {
  const passes = [{ key: "forward_ms", label: "forward" }, { key: "backward_ms", label: "backward" }];
  card("Units, predicted and measured", "Computing of each unit in a step, forward and backward together; recomputation counts as backward.", (body) => {
    body.append(legend(predictionSides, "block"));
    const total = (figures) => figures.forward_ms + figures.backward_ms;
    draw(body, "Computing time of every unit, predicted beside measured", () => ({
      type: "bar",
      data: {
        labels: units.map((unit) => unit.name),
        datasets: predictionSides.map((side) => ({ label: side.label, data: units.map((unit) => total(unit[side.key])), backgroundColor: color(side.color) })),
      },
      options: {
        animation: false, responsive: true, maintainAspectRatio: false,
        scales: {
          x: axis("Unit", function (value) { return this.getLabelForValue(value); }, { ticks: { maxTicksLimit: 12, autoSkip: true } }),
          y: axis("Milliseconds", format.number, { axis: { beginAtZero: true } }),
        },
        plugins: { legend: { display: false }, tooltip: tooltipStyle({ label: (item) => ` ${item.dataset.label}: ${format.milliseconds(item.parsed.y)}` }) },
      },
    }), 240);
    body.append(dataTable(["Unit", "Choice", ...passes.flatMap((pass) => [`${pass.label}, predicted`, "measured"])], units.map((unit) =>
      [unit.name, unit.choice, ...passes.flatMap((pass) => predictionSides.map((side) => format.milliseconds(unit[side.key][pass.key])))])));
  }, true);
}
