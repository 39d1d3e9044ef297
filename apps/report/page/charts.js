// Charts. Each is a function that draws itself with the colours of the moment, kept so that a change between light and
// dark draws all of them again.
const drawn = [];

function draw(body, label, makeConfiguration, height, linked = false) {
  const canvas = element("canvas", { role: "img", "aria-label": label });
  const plot = element("div", { class: "plot" }, canvas);
  if (height) plot.style.height = `${height}px`;
  body.append(plot);
  const entry = {
    chart: null,
    linked,
    resize(pixels) {
      plot.style.height = `${pixels}px`;
    },
    render() {
      if (this.chart) this.chart.destroy();
      this.chart = new Chart(canvas, makeConfiguration());
    },
  };
  entry.render();
  drawn.push(entry);
  if (linked) zoomByMouse(canvas, entry);
  document.documentElement.dataset.charts = String(drawn.length);
  return entry;
}

// How many names of slots or units stand beside each other below a chart in `body`.
const namesThatFit = (body) => Math.max(2, Math.floor(body.clientWidth / 150));

function axis(title, formatTick, more = {}) {
  return {
    title: { display: true, text: title, color: color("muted"), font: { size: 12 } },
    ticks: { color: color("muted"), font: { size: 11.5 }, padding: 6, maxRotation: 0, callback: formatTick, ...more.ticks },
    grid: { color: color("grid"), drawTicks: false, borderColor: color("border") },
    ...more.axis,
  };
}

function tooltipStyle(callbacks) {
  return {
    backgroundColor: color("surface"), borderColor: color("border"), borderWidth: 1, cornerRadius: 8, padding: 10,
    titleColor: color("text"), bodyColor: color("text"), titleFont: { size: 12.5, weight: "600" },
    bodyFont: { size: 12.5 }, boxWidth: 10, boxHeight: 10, boxPadding: 6, usePointStyle: false, callbacks,
  };
}

// A thin line under the pointer that ties the tooltip to the axis.
const crosshair = {
  id: "crosshair",
  afterDatasetsDraw(chart) {
    const active = chart.tooltip && chart.tooltip.getActiveElements ? chart.tooltip.getActiveElements() : [];
    if (active.length === 0) return;
    const { top, bottom } = chart.chartArea;
    chart.ctx.save();
    chart.ctx.strokeStyle = color("muted");
    chart.ctx.globalAlpha = 0.4;
    chart.ctx.beginPath();
    chart.ctx.moveTo(active[0].element.x, top);
    chart.ctx.lineTo(active[0].element.x, bottom);
    chart.ctx.stroke();
    chart.ctx.restore();
  },
};

// Distance of the marks of an axis of `span` seconds: whole seconds, minutes or hours.
function clockStep(span) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  return steps.find((step) => span / step <= 7) || Math.ceil(span / 7 / 86400) * 86400;
}

// Marks of an axis over `span` bytes: at powers of two, as memory comes, so 512 MiB, 1 GiB, 1.5 GiB.
const bytesTicks = (span) => ({ stepSize: 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(1, span) / 5))), maxTicksLimit: 9 });

const largestOf = (series, index) =>
  series.reduce((largest, s) => s.points.reduce((most, point) => Math.max(most, point[index]), largest), 0);
const smallestOf = (series, index) =>
  series.reduce((smallest, s) => s.points.reduce((least, point) => Math.min(least, point[index]), smallest), Infinity);

// Marks that suit the figures of an axis; the library's own suit plain numbers.
function marks(axisOptions, series, index) {
  const largest = largestOf(series, index);
  if (axisOptions.kind === "time" && largest > 1) return { stepSize: clockStep(largest) };
  if (axisOptions.kind === "bytes" && largest > 0) {
    return bytesTicks(axisOptions.from === "data" ? largest - smallestOf(series, index) : largest);
  }
  return {};
}

// Names at the right ends of lines, moved apart where they would cover each other. The chart leaves `room` pixels.
const endLabels = (series, room) => ({
  id: "endLabels",
  afterDatasetsDraw(chart) {
    const { ctx, chartArea } = chart;
    const ends = series.map((s, i) => {
      const { data } = chart.getDatasetMeta(i);
      return { y: data.length ? data[data.length - 1].y : chartArea.top, text: s.end || s.label, paint: color(s.color) };
    }).sort((a, b) => a.y - b.y);
    const distance = Math.min(15, (chartArea.bottom - chartArea.top) / Math.max(1, ends.length));
    ends.forEach((end, i) => { end.at = i === 0 ? end.y : Math.max(end.y, ends[i - 1].at + distance); });
    const excess = ends.length ? Math.max(0, ends[ends.length - 1].at - chartArea.bottom) : 0;
    for (let i = ends.length - 1, limit = Infinity; excess > 0 && i >= 0; --i) {
      ends[i].at = Math.min(ends[i].at, limit, chartArea.bottom);
      limit = ends[i].at - distance;
    }
    ctx.save();
    ctx.font = `12px ${Chart.defaults.font.family}`;
    ctx.textBaseline = "middle";
    for (const end of ends) {
      ctx.strokeStyle = end.paint;
      ctx.globalAlpha = 0.5;
      ctx.beginPath();
      ctx.moveTo(chartArea.right + 6, end.y);
      ctx.lineTo(chartArea.right + 16, end.at);
      ctx.stroke();
      ctx.globalAlpha = 1;
      ctx.fillStyle = end.paint;
      ctx.fillText(end.text, chartArea.right + 20, end.at, room - 22);
    }
    ctx.restore();
  },
});

// Lines of ranks or runs that lie on each other stay visible: the first is whole, the others take turns in dashes on it.
const takeTurns = (series) => series.map((s, i) => (i === 0 ? s
  : { ...s, dash: [6, 6 * (series.length - 1)], dashOffset: 6 * (series.length - 1 - i) }));

// A range of values that a chart shows whole: some room beyond them, but none below 0 for what is never below 0, and none
// above 1 for a share. The library extends it to round marks.
function valueBounds(series, y, range) {
  let [low, high] = [Infinity, -Infinity];
  for (const { points } of series) {
    for (const [at, value] of points) {
      if (value === null || (range && (at < range[0] || at > range[1]))) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  if (low > high) return {};
  const isPositive = low >= 0;
  const isShare = y.share && high <= 1;
  const fromZero = y.zero && isPositive;
  const room = 0.06 * ((fromZero ? high : high - low) || Math.abs(high) || 1);
  low = fromZero ? 0 : isPositive ? Math.max(0, low - room) : low - room;
  high = isShare ? Math.min(1, high + room) : high + room;
  return { suggestedMin: low, suggestedMax: high };
}

function dataset(s, index, all) {
  const band = s.role === "band";
  return {
    label: s.label, name: s.name || s.label, isSmoothed: Boolean(s.isSmoothed), isFaint: Boolean(s.faint || band), paint: color(s.color),
    data: s.points.map(([px, py]) => ({ x: px, y: py })),
    borderColor: color(s.color) + (s.faint || band ? "55" : ""),
    backgroundColor: color(s.color) + (band ? "33" : ""),
    borderWidth: band ? 1 : s.width || 1.8,
    borderDash: s.dash || [], borderDashOffset: s.dashOffset || 0,
    fill: s.fill || false,
    pointStyle: s.mark || "circle", pointBorderWidth: s.mark ? 1.6 : 1, pointBackgroundColor: s.mark ? "transparent" : color(s.color),
    pointRadius: s.radius || (s.dots || s.points.length === 1 ? 3 : 0),
    pointHoverRadius: s.faint ? 0 : 5,
    // Later ones lie on earlier ones; Chart.js draws the smallest order last.
    order: s.faint ? all.length + 1 : all.length - index,
    // Lines end at the frame, marks may stand on it.
    clip: 8,
    tension: 0,
  };
}

// series: [{label, color, points: [[x, y]], width?, faint?, dots?, end?, mark?, radius?, dash?, role?: "band", fill?}]
// x and y: {title, format, kind?: "time" | "bytes", logarithmic?, zero?, share?, from?: "data"}
// With `labels` lines have their names, or `end`, at their ends where there is room. With `linked` the chart shares cursor
// and zoom with the other linked ones.
function lineChart(body, label, options, height, linked = false) {
  return draw(body, label, () => {
    const { series, x, y, labels } = options();
    const room = labels && body.clientWidth > 560 ? 170 : 8;
    const range = linked ? view.range : null;
    const end = largestOf(series, 0);
    const span = range ? range[1] - range[0] : end;
    const bounds = range ? { min: range[0], max: range[1] } : x.from === "data" ? {} : { min: 0, max: end || undefined };
    return {
      type: "line",
      plugins: [crosshair, ...(room > 8 ? [endLabels(series, room)] : []), ...(linked ? [linkedCursor(y.format)] : [])],
      data: { datasets: series.map(dataset) },
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
        layout: { padding: { right: room } },
        interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: {
          x: axis(x.title, x.kind === "time" ? (value) => format.clock(value, span) : x.format, {
            axis: { type: "linear", ...bounds },
            ticks: { maxTicksLimit: 8, includeBounds: false, ...(range ? {} : marks(x, series, 0)) },
          }),
          y: axis(y.title, y.format, {
            axis: y.logarithmic ? { type: "logarithmic" } : { type: "linear", ...valueBounds(series, y, range) },
            ticks: { maxTicksLimit: 6, ...(y.logarithmic ? {} : marks(y, series, 1)) },
          }),
        },
        plugins: {
          legend: { display: false },
          tooltip: tooltipStyle({
            title: (items) => (items.length ? `${x.title} ${x.format(items[0].parsed.x)}` : ""),
            label: (item) => ` ${item.dataset.label}: ${y.format(item.parsed.y)}`,
          }),
        },
      },
    };
  }, height, linked);
}

// About `count` rows of one or several curves, for the table under a chart.
function sampleRows(series, formatX, formatY, count = 12) {
  const longest = series.reduce((a, b) => (b.points.length > a.points.length ? b : a));
  const picked = new Set();
  for (let i = 0; i < count; ++i) {
    picked.add(Math.round((i * (longest.points.length - 1)) / Math.max(1, count - 1)));
  }
  return [...picked].map((index) => {
    const x = longest.points[index][0];
    return [formatX(x), ...series.map((s) => {
      if (s.points.length === 0) return "–";
      const nearest = s.points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
      return formatY(nearest[1]);
    })];
  });
}
