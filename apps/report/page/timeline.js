// One step as it happened: a bar for every event, a row for every lane of every rank.
const eventColors = {
  data: "rank-7", forward: "rank-0", backward: "rank-4", recompute: "muted", optimizer: "rank-5", wait: "exposed",
  all_gather: "rank-2", reduce_scatter: "rank-1", all_reduce: "rank-3",
};
const otherEventColors = ["rank-3", "rank-6", "rank-7"];

// "h.3" of "transformer.h.3"; of a bucket of several layers the first one.
const shortUnit = (unit) => unit.split(" to ")[0].split(".").slice(-2).join(".");

// The unit or the number of the bucket inside a bar that has room for it.
const barLabels = {
  id: "barLabels",
  afterDatasetsDraw(chart) {
    chart.ctx.save();
    chart.ctx.fillStyle = color("surface");
    chart.ctx.font = "600 10.5px system-ui, sans-serif";
    chart.ctx.textAlign = "center";
    chart.ctx.textBaseline = "middle";
    chart.data.datasets.forEach((dataset, d) => {
      chart.getDatasetMeta(d).data.forEach((bar, i) => {
        const { unit, bucket } = dataset.data[i].event;
        const width = Math.abs(bar.x - bar.base);
        const texts = [unit && shortUnit(unit), unit && shortUnit(unit).split(".").at(-1), bucket].filter((t) => t !== undefined);
        const text = texts.map(String).find((t) => chart.ctx.measureText(t).width + 6 < width);
        if (text) chart.ctx.fillText(text, (bar.x + bar.base) / 2, bar.y + 0.5);
      });
    });
    chart.ctx.restore();
  },
};

function describeEvent(event) {
  const parts = [` ${event.name}`];
  if (event.unit) parts.push(event.unit);
  if (event.bucket !== undefined) parts.push(`${event.unit ? "segment" : "bucket"} ${event.bucket}`);
  if (event.bytes !== undefined) parts.push(format.bytes(event.bytes));
  parts.push(`${format.milliseconds(event.end_ms - event.begin_ms)}, from ${format.milliseconds(event.begin_ms)}`);
  const lines = [parts.join(" · ")];
  if (event.queued_ms !== undefined) {
    lines.push(` queued for ${format.milliseconds(event.queued_ms)}, exposed for ${format.milliseconds(event.exposed_ms || 0)}`);
  }
  if (event.overlapped) lines.push(` during ${nameTimes(event.overlapped, 3)}`);
  return lines;
}

function timelineCard() {
  card("Timeline of a step", "Computation and communication of each rank. Concurrent operations are stacked. Names are units of the model; a bucket of gradients has those of its first and last layer.",
    (body, controls) => {
      if (run.timelines.length === 0) {
        body.append(nothing("No trace was recorded."));
        return;
      }
      let current = run.timelines[run.shown_timeline];
      const seen = new Set(run.timelines.flatMap((t) => t.events.map((e) => e.name)));
      const names = [...Object.keys(eventColors).filter((name) => seen.delete(name)), ...seen];
      const unknown = names.filter((name) => !(name in eventColors));
      const colorOf = (name) => eventColors[name] || otherEventColors[unknown.indexOf(name) % otherEventColors.length];
      // A lane's further rows are named after it with a number, which is not shown.
      const laneOf = (event) => `rank ${event.rank} ${event.lane}${event.place ? ` ${event.place + 1}` : ""}`;
      const laneOrder = (event) => [event.rank, event.lane === "compute" ? 0 : 1, event.place || 0];
      const lanesOf = (timeline) => [...new Set(timeline.events.map((event) => [laneOrder(event), laneOf(event)])
        .sort(([a], [b]) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]).map(([, lane]) => lane))];
      let lanes = lanesOf(current);
      const height = () => 76 + 22 * lanes.length;
      body.append(legend(names.map((name) => ({ label: name, color: colorOf(name) })), "block"));
      const chart = draw(body, "Compute and communication of every rank during one step", () => ({
        type: "bar",
        plugins: [barLabels],
        data: {
          labels: lanes,
          datasets: names.map((name) => ({
            label: name,
            data: current.events.filter((e) => e.name === name).map((event) => ({
              x: [Math.max(0, event.begin_ms), Math.max(0, event.end_ms)], y: laneOf(event), event,
            })),
            backgroundColor: color(colorOf(name)), borderColor: color("surface"), borderWidth: { left: 1, right: 1 },
            borderSkipped: false, grouped: false, barThickness: 16, minBarLength: 1,
            // Units lie on the phase that they are part of, waiting on both.
            order: name === "wait" ? 0 : 1,
          })),
        },
        options: {
          indexAxis: "y", animation: false, responsive: true, maintainAspectRatio: false,
          scales: {
            x: axis("Milliseconds since the step began", format.number, { axis: { beginAtZero: true }, ticks: { maxTicksLimit: 9 } }),
            y: axis("", undefined, {
              axis: { title: { display: false } },
              ticks: { autoSkip: false, callback: (value) => narrowLane(lanes[value]) },
            }),
          },
          plugins: {
            legend: { display: false },
            tooltip: tooltipStyle({
              title: (items) => (items.length ? laneOf(items[0].raw.event) : ""),
              label: (item) => describeEvent(item.raw.event),
            }),
          },
        },
      }), height());
      const segments = segmentTable(body, controls, current);
      const rows = () => current.events.slice(0, 60).map((e) => [`rank ${e.rank} ${e.lane}`, e.name, e.unit || "–", e.bucket === undefined ? "–" : String(e.bucket),
        e.bytes === undefined ? "–" : format.bytes(e.bytes), format.milliseconds(e.begin_ms),
        format.milliseconds(e.end_ms - e.begin_ms)]);
      const sampled = () => dataTable(["Lane", "Event", "Unit", "Bucket or segment", "Bytes", "Begin", "Duration"], rows());
      let shownTable = sampled();
      body.append(shownTable);
      const select = element("select", { "aria-label": "Step shown" }, ...run.timelines.map((t, i) =>
        element("option", { value: String(i), selected: t === current }, `step ${format.integer(t.step)}${i === run.shown_timeline && run.timelines.length > 2 ? " (median)" : ""}`)));
      select.addEventListener("change", () => {
        current = run.timelines[Number(select.value)];
        lanes = lanesOf(current);
        chart.resize(height());
        chart.render();
        const next = sampled();
        next.open = shownTable.open;
        shownTable.replaceWith(next);
        shownTable = next;
        segments.show(current);
      });
      controls.append(select);
    }, true);
}

const narrowLane = (lane) =>
  /\d$/.test(lane.slice(5).replace(/^\d+ /, "")) ? "" : window.innerWidth < 640 ? lane.replace("rank ", "r").replace("communication", "comm").replace("compute", "comp") : lane;
