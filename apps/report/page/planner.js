// A plan, of `rondo plan --html FILE` or of a planned run: memory by slot, the timeline of compute and link, step time against limit.
const memoryParts = [
  { key: "persistent", label: "stays: parameters, gradients, optimizer state", color: "rank-0" },
  { key: "activations", label: "activations", color: "rank-2" },
  { key: "workspace", label: "workspace", color: "rank-5" },
  { key: "gathered", label: "gathered parameters", color: "rank-1" },
  { key: "gradients", label: "gradients on their way", color: "rank-3" },
];
const purposeColors = {
  all_reduce: "rank-6", reduce_scatter: "rank-3", gather_updated: "rank-7", gather_forward: "rank-1", gather_backward: "rank-5",
};

function plannerTiles(summary) {
  const bytes = (value) => format.bytes(value);
  const tiles = [
    { label: "Step", value: summary.step_ms === null ? "none fits" : format.milliseconds(summary.step_ms), detail: `compute ${format.milliseconds(summary.compute_ms)}` },
    { label: "Lower bound", value: format.milliseconds(summary.lower_bound_ms), detail: "no plan is faster" },
    { label: "Gap", value: summary.gap === null ? "–" : format.percent(summary.gap), detail: summary.solver },
    { label: "Exposed communication", value: format.milliseconds(summary.exposed_comm_ms), detail: `of ${format.milliseconds(summary.comm_ms)}` },
    { label: "Peak memory", value: bytes(summary.peak_bytes), detail: `limit ${bytes(summary.memory_limit_bytes)}` },
    { label: "Smallest limit", value: bytes(summary.smallest_limit_bytes), detail: "that any plan fits" },
  ];
  return tiles;
}

function memoryCard(planner) {
  const slots = planner.timeline.slots;
  card("Memory by slot, as planned", `What is alive while each slot of the step computes. The line is the limit. ${planner.summary.binding}.`, (body) => {
    body.append(legend(memoryParts, "block"));
    draw(body, "Bytes alive in every slot by what they are, against the limit", () => ({
      type: "bar",
      data: {
        labels: slots.map((slot) => slot.name),
        datasets: [
          { type: "line", label: "limit", data: slots.map(() => planner.summary.memory_limit_bytes), borderColor: color("exposed"),
            borderWidth: 1.5, pointRadius: 0, stack: "limit" },
          ...memoryParts.map((part) => ({
            label: part.label, data: slots.map((slot) => slot.memory[part.key]), backgroundColor: color(part.color),
            stack: "memory", categoryPercentage: 1, barPercentage: 1,
          })),
        ],
      },
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, interaction: { mode: "index", intersect: false },
        scales: {
          x: axis("Slots of the step", function (value) { return this.getLabelForValue(value); }, { axis: { stacked: true }, ticks: { maxTicksLimit: 9, autoSkip: true } }),
          y: axis("Bytes", format.bytes, { axis: { stacked: true, beginAtZero: true }, ticks: { maxTicksLimit: 6 } }),
        },
        plugins: { legend: { display: false }, tooltip: tooltipStyle({ label: (item) => ` ${item.dataset.label}: ${format.bytes(item.parsed.y)}` }) },
      },
    }), 300);
    body.append(dataTable(["Slot", ...memoryParts.map((part) => part.label)], slots.map((slot) =>
      [slot.name, ...memoryParts.map((part) => format.bytes(slot.memory[part.key]))])));
  }, true);
}

// Neighbouring blocks of one collective are one bar.
function joinedBlocks(blocks) {
  const joined = [];
  for (const block of blocks) {
    const last = joined[joined.length - 1];
    if (last && last.unit === block.unit && last.purpose === block.purpose && Math.abs(last.end_ms - block.begin_ms) < 1e-9) {
      last.end_ms = block.end_ms;
      last.bytes += block.bytes;
      ++last.blocks;
    } else {
      joined.push({ ...block, blocks: 1 });
    }
  }
  return joined;
}

function stepTimelineCard(planner) {
  const bars = joinedBlocks(planner.timeline.blocks);
  const computing = planner.timeline.slots.filter((slot) => slot.end_ms > slot.begin_ms);
  const waits = planner.timeline.slots.filter((slot) => slot.begin_ms - slot.ready_ms > 1e-9);
  const purposes = [...new Set(bars.map((bar) => bar.purpose))];
  const lanes = ["compute", "link"];
  card("Timeline of the step, as planned", "Upper row: forward and backward of the units, and where they wait. Lower row: what the link carries.", (body) => {
    body.append(legend([{ label: "compute", color: "compute" }, { label: "waits", color: "exposed" },
      ...purposes.map((purpose) => ({ label: purpose.replaceAll("_", " "), color: purposeColors[purpose] }))], "block"));
    const set = (label, items, lane, paint) => ({
      label, backgroundColor: color(paint), borderColor: color("surface"), borderWidth: { left: 1, right: 1 }, borderSkipped: false,
      grouped: false, barThickness: 26,
      data: items.map((item) => ({ x: [item.from, item.to], y: lane, text: item.text })),
    });
    draw(body, "Compute and communication of one rank during the step", () => ({
      type: "bar",
      data: {
        labels: lanes,
        datasets: [
          set("compute", computing.map((s) => ({ from: s.begin_ms, to: s.end_ms, text: s.name })), "compute", "compute"),
          set("waits", waits.map((s) => ({ from: s.ready_ms, to: s.begin_ms, text: `waits before ${s.name}` })), "compute", "exposed"),
          ...purposes.map((purpose) => set(purpose, bars.filter((bar) => bar.purpose === purpose).map((bar) => ({
            from: bar.begin_ms, to: bar.end_ms, text: `${purpose} of ${bar.unit}, ${bar.blocks} blocks, ${format.bytes(bar.bytes)}`,
          })), "link", purposeColors[purpose])),
        ],
      },
      options: {
        indexAxis: "y", animation: false, responsive: true, maintainAspectRatio: false,
        scales: {
          x: axis("Milliseconds since the step began", format.number, { axis: { beginAtZero: true }, ticks: { maxTicksLimit: 9 } }),
          y: axis("", (value) => lanes[value], { axis: { title: { display: false }, grid: { display: false } } }),
        },
        plugins: {
          legend: { display: false },
          tooltip: tooltipStyle({
            title: () => "",
            label: (item) => ` ${item.raw.text}: ${format.milliseconds(item.raw.x[1] - item.raw.x[0])}, from ${format.milliseconds(item.raw.x[0])}`,
          }),
        },
      },
    }), 170);
    body.append(dataTable(["Collective", "Unit", "Blocks", "Bytes", "Begin", "Duration"], bars.slice(0, 400).map((bar) =>
      [bar.purpose, bar.unit, String(bar.blocks), format.bytes(bar.bytes), format.milliseconds(bar.begin_ms), format.milliseconds(bar.end_ms - bar.begin_ms)])));
  }, true);
}

function sweepCard(planner) {
  if (planner.sweep.length < 2) return;
  const names = Object.keys(planner.sweep[0].baselines);
  const curve = (label, paint, value, more = {}) => ({
    label, color: paint, points: planner.sweep.map((point) => [point.memory_limit_bytes, value(point)]).filter(([, y]) => y !== null), ...more,
  });
  const series = () => [
    ...names.map((name, i) => curve(name, rankColor(i + 1), (point) => point.baselines[name], { faint: true })),
    curve("lower bound", "muted", (point) => point.lower_bound_ms),
    curve("plan", "compute", (point) => point.step_ms, { width: 2.6, dots: true }),
  ].filter((s) => s.points.length > 0);
  card("Step time against memory limit", "The plan, what no plan can beat, and every baseline where it fits.", (body) => {
    body.append(legend(series()));
    lineChart(body, "Step time of the plan and the baselines at every memory limit", () => ({
      series: series(), x: { title: "Memory limit", format: format.bytes, kind: "bytes" }, y: { title: "Milliseconds", format: format.number },
    }), 300);
    body.append(dataTable(["Limit", "Plan", "Bound", ...names], planner.sweep.map((point) => [format.bytes(point.memory_limit_bytes),
      format.milliseconds(point.step_ms), format.milliseconds(point.lower_bound_ms),
      ...names.map((name) => (point.baselines[name] === null ? "–" : format.milliseconds(point.baselines[name])))])));
  }, true);
}

function simpleTable(headings, rows) {
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...headings.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((value) => element("td", {}, value)))))));
}

function plannerTables(planner) {
  const summary = planner.summary;
  card("Baselines", "Step time of what the plan is compared with, in the same simulator.", (body) => {
    body.append(simpleTable(["Baseline", "Step", "Against the plan"], Object.entries(summary.baselines).map(([name, value]) =>
      [name, value === null ? "does not fit" : format.milliseconds(value),
        value === null || summary.step_ms === null ? "–" : `+${format.percent(value / summary.step_ms - 1)}`])));
  });
  card("Units", "What each unit does, and why.", (body) => {
    body.append(simpleTable(["Unit", "Strategy", "Why"], summary.units.map((unit) =>
      [unit.name, unit.checkpoint ? `${unit.strategy} + checkpoint` : unit.strategy, unit.reason])));
  }, true);
}

function plannedStepCards(planner) {
  memoryCard(planner);
  stepTimelineCard(planner);
  sweepCard(planner);
  plannerTables(planner);
}

// The page of a plan by itself.
function fillPlanner(planner) {
  document.querySelector(".brand span").textContent = "training plan";
  document.getElementById("title").textContent = run.title;
  document.getElementById("subtitle").textContent = [`${planner.summary.ranks} ranks`, `${planner.summary.units.length} units`,
    `limit ${format.bytes(planner.summary.memory_limit_bytes)}`, planner.summary.solver].join(" · ");
  document.getElementById("configuration").hidden = true;
  showTiles(plannerTiles(planner.summary));
  plannedStepCards(planner);
}
