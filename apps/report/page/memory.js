// Use of memory by category: over one step, and at the peak.
const memoryColors = {
  parameters: "rank-0", gradients: "rank-1", optimizer_state: "rank-4", activations: "rank-2", communication: "rank-3",
  temporaries: "rank-5", other: "rank-7",
};
const memoryColor = (category) => memoryColors[category] || "rank-6";
const memoryName = (category) => category.replace("_", " ");
const memoryLegend = () => legend(run.memory.categories.map((c) => ({ label: memoryName(c), color: memoryColor(c) })), "block");

// A menu of ranks that calls `show(entry)`; nothing for a single rank.
function rankMenu(controls, label, entries, show) {
  if (entries.length < 2) return;
  const select = element("select", { "aria-label": label }, ...entries.map((entry, i) =>
    element("option", { value: String(i) }, `rank ${entry.rank}`)));
  select.addEventListener("change", () => show(entries[Number(select.value)]));
  controls.append(select);
}

// A table of samples and a menu of ranks that passes the chosen one to `show`.
function tableOfRank(body, controls, label, entries, rows, show) {
  const renew = sampledTable(body, rows);
  rankMenu(controls, label, entries, (entry) => {
    show(entry);
    renew();
  });
}

function memoryTimelineCard() {
  const { categories, step, timelines } = run.memory;
  card("Memory during a step", step === null ? "" : `Tensors in use in step ${format.integer(step)}, by category.`,
    (body, controls) => {
      if (timelines.length === 0) {
        body.append(nothing("No memory timeline was recorded."));
        return;
      }
      let current = timelines[0];
      body.append(memoryLegend());
      const chart = draw(body, "Memory in use during one step, stacked by category", () => ({
        type: "line",
        plugins: [crosshair],
        data: {
          datasets: categories.map((category, i) => ({
            label: memoryName(category),
            data: current.samples.map((sample) => ({ x: sample[0], y: sample[i + 1] })),
            borderColor: color(memoryColor(category)), backgroundColor: color(memoryColor(category)),
            borderWidth: 0, pointRadius: 0, pointHoverRadius: 3, fill: i === 0 ? "origin" : "-1", tension: 0,
          })),
        },
        options: {
          animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
          interaction: { mode: "index", intersect: false },
          scales: {
            x: axis("Milliseconds since the step began", format.number, { axis: { type: "linear", min: 0 }, ticks: { maxTicksLimit: 9 } }),
            y: axis("In use", format.bytes, { axis: { stacked: true, beginAtZero: true },
              ticks: bytesTicks(current.peak) }),
          },
          plugins: {
            legend: { display: false },
            tooltip: tooltipStyle({
              title: (items) => (items.length ? format.milliseconds(items[0].parsed.x) : ""),
              label: (item) => ` ${item.dataset.label}: ${format.bytes(item.parsed.y)}`,
            }),
          },
        },
      }), 270);
      const sampled = () => dataTable(["Time", ...categories.map(memoryName)], current.samples.slice(0, 120).map((sample) =>
        [format.milliseconds(sample[0]), ...sample.slice(1).map(format.bytes)]));
      tableOfRank(body, controls, "Memory during a step: rank shown", timelines, sampled, (entry) => {
        current = entry;
        chart.render();
      });
    }, true);
}

function memoryPeakCard() {
  const { categories, peaks } = run.memory;
  card("Memory at the peak", "Tensors in use when a rank used most, by unit of the model.", (body, controls) => {
    if (peaks.length === 0) {
      body.append(nothing("No peak was recorded."));
      return;
    }
    let current = peaks[0];
    const moment = element("p", { class: "caption" });
    const describe = () => {
      const phase = current.phase ? `, ${current.phase}` : "";
      const unit = current.unit && current.unit !== "root" ? ` of ${current.unit}` : "";
      moment.textContent = `${format.bytes(current.bytes)} on rank ${current.rank}, in step ${format.integer(current.step)}${phase}${unit}.`;
    };
    describe();
    body.append(moment, memoryLegend());
    const chart = draw(body, "Memory at the peak, one bar a unit, stacked by category", () => ({
      type: "bar",
      data: {
        labels: current.units.map((unit) => unit[0]),
        datasets: categories.map((category, i) => ({
          label: memoryName(category), data: current.units.map((unit) => unit[i + 1]),
          backgroundColor: color(memoryColor(category)), stack: "unit", barThickness: 14, borderRadius: 2,
        })),
      },
      options: {
        indexAxis: "y", animation: false, responsive: true, maintainAspectRatio: false,
        scales: {
          x: axis("In use", format.bytes, { axis: { stacked: true, beginAtZero: true },
            ticks: bytesTicks(Math.max(...current.units.map((unit) => unit.slice(1).reduce((a, b) => a + b, 0)))) }),
          y: axis("", (index) => current.units[index][0], { axis: { stacked: true, title: { display: false }, grid: { display: false } }, ticks: { autoSkip: false } }),
        },
        plugins: {
          legend: { display: false },
          tooltip: tooltipStyle({ label: (item) => ` ${item.dataset.label}: ${format.bytes(item.parsed.x)}` }),
        },
      },
    }), Math.max(190, 80 + 24 * Math.max(...peaks.map((peak) => peak.units.length))));
    const sampled = () => dataTable(["Unit", ...categories.map(memoryName)], current.units.map((unit) =>
      [unit[0], ...unit.slice(1).map(format.bytes)]));
    tableOfRank(body, controls, "Memory at the peak: rank shown", peaks, sampled, (entry) => {
      current = entry;
      describe();
      chart.render();
    });
  }, true);
}
