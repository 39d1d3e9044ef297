// One step as it happened: a bar for every event, a row for every lane of every rank.
const laneColors = ["rank-0", "rank-2", "rank-4", "rank-5", "rank-7", "rank-3"];

// The number of its bucket inside a bar that has room for it.
const bucketNumbers = {
  id: "bucketNumbers",
  afterDatasetsDraw(chart) {
    chart.ctx.save();
    chart.ctx.fillStyle = color("surface");
    chart.ctx.font = "600 10.5px system-ui, sans-serif";
    chart.ctx.textAlign = "center";
    chart.ctx.textBaseline = "middle";
    chart.data.datasets.forEach((dataset, d) => {
      chart.getDatasetMeta(d).data.forEach((bar, i) => {
        const bucket = dataset.data[i].event.bucket;
        const width = Math.abs(bar.x - bar.base);
        if (bucket !== undefined && width > 18) chart.ctx.fillText(String(bucket), (bar.x + bar.base) / 2, bar.y + 0.5);
      });
    });
    chart.ctx.restore();
  },
};

function describeEvent(event) {
  const parts = [` ${event.name}`];
  if (event.bucket !== undefined) parts.push(`bucket ${event.bucket}`);
  if (event.bytes !== undefined) parts.push(format.bytes(event.bytes));
  parts.push(`${format.milliseconds(event.end_ms - event.begin_ms)}, from ${format.milliseconds(event.begin_ms)}`);
  return parts.join(" · ");
}

function timelineCard() {
  card("Timeline of a step", "Numbers are gradient buckets: those that start before backward ends are hidden behind it.",
    (body, controls) => {
      if (run.timelines.length === 0) {
        body.append(nothing("No trace was recorded."));
        return;
      }
      let current = run.timelines[Math.floor((run.timelines.length - 1) / 2)];
      const names = [...new Set(run.timelines.flatMap((t) => t.events.map((e) => e.name)))];
      const colorOf = (name) => laneColors[names.indexOf(name) % laneColors.length];
      const laneOf = (event) => `rank ${event.rank} ${event.lane}`;
      const lanes = [...new Set(run.timelines.flatMap((t) => t.events).sort((a, b) =>
        a.rank - b.rank || b.lane.length - a.lane.length).map(laneOf))].sort((a, b) => {
        const [rankA, laneA] = [parseInt(a.slice(5), 10), a.endsWith("communication")];
        const [rankB, laneB] = [parseInt(b.slice(5), 10), b.endsWith("communication")];
        return rankA - rankB || laneA - laneB;
      });
      body.append(legend(names.map((name) => ({ label: name, color: colorOf(name) })), "block"));
      const chart = draw(body, "Compute and communication of every rank during one step", () => ({
        type: "bar",
        plugins: [bucketNumbers],
        data: {
          labels: lanes,
          datasets: names.map((name) => ({
            label: name,
            data: current.events.filter((e) => e.name === name).map((event) => ({
              x: [event.begin_ms, event.end_ms], y: laneOf(event), event,
            })),
            backgroundColor: color(colorOf(name)), borderColor: color("surface"), borderWidth: { left: 1, right: 1 },
            borderSkipped: false, grouped: false, barThickness: 18, minBarLength: 2,
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
      }), 76 + 30 * lanes.length);
      const rows = () => current.events.slice(0, 60).map((e) => [laneOf(e), e.name, e.bucket === undefined ? "–" : String(e.bucket),
        e.bytes === undefined ? "–" : format.bytes(e.bytes), format.milliseconds(e.begin_ms),
        format.milliseconds(e.end_ms - e.begin_ms)]);
      const table = () => dataTable(["Lane", "Event", "Bucket", "Bytes", "Begin", "Duration"], rows());
      let shownTable = table();
      body.append(shownTable);
      const select = element("select", { "aria-label": "Step shown" }, ...run.timelines.map((t, i) =>
        element("option", { value: String(i), selected: t === current }, `step ${format.integer(t.step)}`)));
      select.addEventListener("change", () => {
        current = run.timelines[Number(select.value)];
        chart.render();
        const next = table();
        shownTable.replaceWith(next);
        shownTable = next;
      });
      controls.append(select);
    }, true);
}

const narrowLane = (lane) =>
  window.innerWidth < 640 ? lane.replace("rank ", "r").replace("communication", "comm").replace("compute", "comp") : lane;
