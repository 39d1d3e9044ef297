// A plan, of `rondo plan --html FILE` or of a planned run: memory by slot, the timeline of compute and link, step time against limit.
const memoryParts = [
  { key: "persistent", label: "persistent: parameters, gradients, optimizer state", color: "rank-0" },
  { key: "activations", label: "activations", color: "rank-2" },
  { key: "workspace", label: "workspace", color: "rank-5" },
  { key: "gathered", label: "gathered parameters", color: "rank-1" },
  { key: "gradients", label: "gradients in transfer", color: "rank-3" },
];
const purposeColors = {
  all_reduce: "rank-4", reduce_scatter: "rank-3", gather_updated: "rank-7", gather_forward: "rank-1", gather_backward: "rank-5",
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

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

function memoryCard(planner) {
  const slots = planner.timeline.slots;
  card("Memory by slot, as planned", `Memory in use during each slot of the step. The line is the limit. ${sentence(planner.summary.binding)}`, (body) => {
    body.append(legend(memoryParts, "block"));
    draw(body, "Memory in use in every slot, by category, against the limit", () => ({
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
          x: axis("Slots of the step", function (value) { return this.getLabelForValue(value); }, { axis: { stacked: true }, ticks: { maxTicksLimit: namesThatFit(body) } }),
          y: axis("Bytes", format.bytes, { axis: { stacked: true, beginAtZero: true, grace: "6%" },
            ticks: bytesTicks(Math.max(planner.summary.memory_limit_bytes, ...slots.map((slot) => memoryParts.reduce((sum, part) => sum + slot.memory[part.key], 0)))) }),
        },
        plugins: { legend: { display: false }, tooltip: tooltipStyle({ label: (item) => ` ${item.dataset.label}: ${format.bytes(item.parsed.y)}` }) },
      },
    }), 300);
    body.append(dataTable(["Slot", ...memoryParts.map((part) => part.label)], slots.map((slot) =>
      [slot.name, ...memoryParts.map((part) => format.bytes(slot.memory[part.key]))])));
  }, true);
}

// Neighbouring segments of one collective are one bar.
function joinedSegments(segments) {
  const joined = [];
  for (const segment of segments) {
    const last = joined[joined.length - 1];
    if (last && last.unit === segment.unit && last.purpose === segment.purpose && Math.abs(last.end_ms - segment.begin_ms) < 1e-9) {
      last.end_ms = segment.end_ms;
      last.bytes += segment.bytes;
      ++last.segments;
    } else {
      joined.push({ ...segment, segments: 1 });
    }
  }
  return joined;
}

function stepTimelineCard(planner) {
  const bars = joinedSegments(planner.timeline.segments);
  const computing = planner.timeline.slots.filter((slot) => slot.end_ms > slot.begin_ms);
  const waits = planner.timeline.slots.filter((slot) => slot.begin_ms - slot.ready_ms > 1e-9);
  const purposes = [...new Set(bars.map((bar) => bar.purpose))];
  const lanes = ["compute", "link"];
  card("Timeline of the step, as planned", "Upper row: forward and backward of the units, and their waits. Lower row: transfers.", (body) => {
    body.append(legend([{ label: "compute", color: "compute" }, { label: "waits", color: "exposed" },
      ...purposes.map((purpose) => ({ label: purpose.replaceAll("_", " "), color: purposeColors[purpose] }))], "block"));
    const set = (label, items, lane, paint) => ({
      // Edges between bars, where bars are wider than edges.
      label, backgroundColor: color(paint), borderColor: color("surface"), borderWidth: items.length * 10 < body.clientWidth ? { left: 1, right: 1 } : 0, borderSkipped: false,
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
            from: bar.begin_ms, to: bar.end_ms, text: `${purpose} of ${bar.unit}, ${bar.segments} segments, ${format.bytes(bar.bytes)}`,
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
    body.append(dataTable(["Collective", "Unit", "Segments", "Bytes", "Begin", "Duration"], bars.slice(0, 400).map((bar) =>
      [bar.purpose, bar.unit, String(bar.segments), format.bytes(bar.bytes), format.milliseconds(bar.begin_ms), format.milliseconds(bar.end_ms - bar.begin_ms)])));
  }, true);
}

// Lines that can be told apart without their colours: by dashes and marks too.
const sweepMarks = ["triangle", "rect", "rectRot", "crossRot", "star", "circle"];
const sweepDashes = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
// Marks are open and of falling size, so that of lines that meet all can be seen.
const sweepStyle = (i) => ({ color: rankColor(i + 1), mark: sweepMarks[i % sweepMarks.length], radius: Math.max(3, 8 - 0.6 * i), dash: sweepDashes[(i + Math.floor(i / 4)) % sweepDashes.length], width: 1.4 });

// Baselines that take the same time wherever one of them fits are one line with the names of all.
function sweepBaselines(sweep) {
  const lines = new Map();
  for (const name of Object.keys(sweep[0].baselines)) {
    const fitting = sweep.map((point) => point.baselines[name] !== null);
    if (!fitting.includes(true)) continue;
    // A gap stays a gap: no line leads over a limit at which a baseline does not fit.
    const points = sweep.slice(fitting.indexOf(true), fitting.lastIndexOf(true) + 1).map((point) => [point.memory_limit_bytes, point.baselines[name]]);
    const key = JSON.stringify(points.map(([limit, ms]) => [limit, ms && ms.toPrecision(9)]));
    if (!lines.has(key)) lines.set(key, { names: [], points });
    lines.get(key).names.push(name);
  }
  return [...lines.values()].map(({ names, points }, i) => ({
    label: names.join(", "), end: names.length > 1 ? `${names[0]} and ${names.length - 1} more` : names[0], points, ...sweepStyle(i),
  }));
}

function sweepCard(planner) {
  if (planner.sweep.length < 2) return;
  const names = Object.keys(planner.sweep[0].baselines);
  const curve = (value) => planner.sweep.map((point) => [point.memory_limit_bytes, value(point)]).filter(([, y]) => y !== null);
  const series = [
    ...sweepBaselines(planner.sweep),
    { label: "lower bound", color: "muted", dash: [3, 3], width: 1.6, points: curve((point) => point.lower_bound_ms) },
    { label: "plan", color: "compute", width: 3, dots: true, points: curve((point) => point.step_ms) },
  ].filter((s) => s.points.length > 0);
  const never = names.filter((name) => planner.sweep.every((point) => point.baselines[name] === null));
  const left = never.length ? ` At none of these limits fit ${never.join(", ")}.` : "";
  card("Step time against memory limit", `The plan, the lower bound of all plans, and every baseline that fits; equal baselines share a line.${left}`, (body) => {
    body.append(legend(series));
    lineChart(body, "Step time of the plan and the baselines at every memory limit", () => ({
      series, labels: true, x: { title: "Memory limit", format: format.bytes, kind: "bytes", from: "data" }, y: { title: "Milliseconds", format: format.number },
    }), 360);
    body.append(dataTable(["Limit", "Plan", "Bound", ...names], planner.sweep.map((point) => [format.bytes(point.memory_limit_bytes),
      format.milliseconds(point.step_ms), format.milliseconds(point.lower_bound_ms),
      ...names.map((name) => (point.baselines[name] === null ? "–" : format.milliseconds(point.baselines[name])))])));
  }, true);
}

// "h.0 to h.3 (4), h.7" of the units with these numbers.
function unitNames(units, numbers) {
  const parts = [];
  for (let from = 0; from < numbers.length;) {
    let to = from;
    while (to + 1 < numbers.length && numbers[to + 1] === numbers[to] + 1) ++to;
    const [first, last] = [units[numbers[from]].name, units[numbers[to]].name];
    parts.push(to === from ? first : to === from + 1 ? `${first}, ${last}` : `${first} to ${last} (${to - from + 1})`);
    from = to + 1;
  }
  return parts.join(", ");
}

// Units that do the same for the same reasons are one row. A reason of several rows is said once, behind them.
function unitRows(units) {
  const rows = new Map();
  const reasons = new Map();
  units.forEach((unit, number) => {
    const choice = unit.checkpoint ? `${unit.strategy} + checkpoint` : unit.strategy;
    const key = JSON.stringify([choice, unit.reason]);
    if (!rows.has(key)) rows.set(key, { choice, reasons: unit.reason.split("; "), numbers: [] });
    rows.get(key).numbers.push(number);
  });
  for (const row of rows.values()) {
    for (const reason of row.reasons) reasons.set(reason, [...(reasons.get(reason) || []), row.numbers]);
  }
  const shared = [...reasons].filter(([, of]) => of.length > 1);
  return {
    rows: [...rows.values()].map(({ choice, reasons: all, numbers }) =>
      [unitNames(units, numbers), choice, all.filter((reason) => !shared.some(([text]) => text === reason)).join("; ") || "see below"]),
    notes: shared.map(([reason, of]) => `${unitNames(units, of.flat().sort((a, b) => a - b))}: ${reason}.`),
  };
}

function plannerTables(planner) {
  const summary = planner.summary;
  card("Baselines", "Step times of the baselines in the same simulator.", (body) => {
    const against = (value) => {
      if (value === null || summary.step_ms === null) return "–";
      const more = format.percent(value / summary.step_ms - 1);
      return more.startsWith("-") || more === "0 %" ? more : `+${more}`;
    };
    body.append(table(["Baseline", "Step", "Against the plan"], Object.entries(summary.baselines).map(([name, value]) =>
      [name, value === null ? "does not fit" : format.milliseconds(value), against(value)])));
  }, true);
  card("Units", "Strategy of each unit, and the reason.", (body) => {
    body.classList.add("reasons");
    const { rows, notes } = unitRows(summary.units);
    body.append(table(["Unit", "Strategy", "Why"], rows), ...notes.map((note) => element("p", { class: "caption" }, note)));
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
  if (run.made_by) showOrigin([run.made_by]);
  document.getElementById("title").textContent = run.title;
  document.getElementById("subtitle").textContent = [`${planner.summary.ranks} ranks`, `${planner.summary.units.length} units`,
    `limit ${format.bytes(planner.summary.memory_limit_bytes)}`, planner.summary.solver].join(" · ");
  showTiles(plannerTiles(planner.summary));
  beginGroup("plan", "Plan");
  plannedStepCards(planner);
}
