// A planned run: what its plan predicted beside what was measured.
const predictionSides = [
  { key: "predicted", label: "predicted", color: "rank-0" }, { key: "measured", label: "measured", color: "rank-1" },
];

function predictionCards(prediction) {
  predictionCard(prediction);
  const units = prediction.units.filter((unit) => unit.predicted && unit.measured);
  if (units.some(hasTimes)) predictionTimesCard(units.filter(hasTimes));
  if (units.length > 0) predictionWaitsCard(units);
}

const hasTimes = (unit) => ["predicted", "measured"].every((side) => unit[side].forward_ms !== undefined && unit[side].backward_ms !== undefined);

const deviation = (predicted, measured) => (predicted > 0 ? `${measured >= predicted ? "+" : "−"}${format.percent(Math.abs(measured / predicted - 1))}` : "–");

function predictionCard({ predicted, measured }) {
  const figures = [["Step time", "step_ms", format.milliseconds], ["Exposed communication", "exposed_comm_ms", format.milliseconds],
    ["Peak memory", "peak_bytes", format.bytes]];
  card("Plan and measurement", "Medians of the slowest rank, and the largest rank's peak. Exposed communication is the time that computation waited for it.", (body) => {
    const rows = figures.map(([label, key, show]) => [label, show(predicted[key]), show(measured[key]), deviation(predicted[key], measured[key])]);
    body.append(table(["", "Predicted", "Measured", "Difference"], rows));
  }, true);
}

function predictionTimesCard(units) {
  const passes = [{ key: "forward_ms", label: "forward" }, { key: "backward_ms", label: "backward" }];
  card("Units, predicted and measured", "Computation of each unit in a step, forward and backward; recomputation counts as backward.", (body) => {
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
          x: axis("Unit", function (value) { return this.getLabelForValue(value); }, { ticks: { maxTicksLimit: namesThatFit(body) } }),
          y: axis("Milliseconds", format.number, { axis: { beginAtZero: true } }),
        },
        plugins: { legend: { display: false }, tooltip: tooltipStyle({ label: (item) => ` ${item.dataset.label}: ${format.milliseconds(item.parsed.y)}` }) },
      },
    }), 240);
    body.append(dataTable(["Unit", "Choice", ...passes.flatMap((pass) => [`${pass.label}, predicted`, "measured"])], units.map((unit) =>
      [unit.name, unit.choice, ...passes.flatMap((pass) => predictionSides.map((side) => format.milliseconds(unit[side.key][pass.key])))])));
  }, true);
}

function predictionWaitsCard(units) {
  const shown = (value, show) => (value === undefined ? "–" : show(value));
  card("Waits and memory of units, predicted and measured", "Time that computation waited for a unit's segments in a step, and the rank's peak memory while the unit computed.", (body) => {
    body.append(table(["Unit", "Choice", "Exposed communication, predicted", "measured", "Peak memory, predicted", "measured"], units.map((unit) => [unit.name, unit.choice,
      ...predictionSides.map((side) => shown(unit[side.key].exposed_comm_ms, format.milliseconds)),
      ...predictionSides.map((side) => shown(unit[side.key].peak_bytes, format.bytes))])));
  }, true);
}
