// Charts. Each is a function that draws itself with the colours of the moment, kept so that a change between light and
// dark draws all of them again.
const drawn = [];

function draw(body, label, makeConfiguration, height) {
  const canvas = element("canvas", { role: "img", "aria-label": label });
  const plot = element("div", { class: "plot" }, canvas);
  if (height) plot.style.height = `${height}px`;
  body.append(plot);
  const entry = {
    chart: null,
    render() {
      if (this.chart) this.chart.destroy();
      this.chart = new Chart(canvas, makeConfiguration());
    },
  };
  entry.render();
  drawn.push(entry);
  document.documentElement.dataset.charts = String(drawn.length);
  return entry;
}

function axis(title, formatTick, more = {}) {
  return {
    title: { display: true, text: title, color: color("muted"), font: { size: 12 } },
    ticks: { color: color("muted"), font: { size: 11.5 }, maxRotation: 0, callback: formatTick, ...more.ticks },
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

// Distance of the marks of an axis of bytes up to `largest`: 1, 2 or 5 times a power of ten of its unit.
function bytesStep(largest) {
  const unit = 1024 ** Math.min(4, Math.floor(Math.log2(Math.max(1, largest)) / 10));
  const rough = largest / unit / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  return unit * power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
}

const largestOf = (series, index) =>
  series.reduce((largest, s) => s.points.reduce((most, point) => Math.max(most, point[index]), largest), 0);

// Marks that suit the figures of an axis; the library's own suit plain numbers.
function marks(axisOptions, series, index) {
  const largest = largestOf(series, index);
  if (axisOptions.kind === "time" && largest > 1) return { stepSize: clockStep(largest) };
  if (axisOptions.kind === "bytes" && largest > 0) return { stepSize: bytesStep(largest) };
  return {};
}

// series: [{label, color, points: [[x, y]], width?, faint?, dots?}]
// x and y: {title, format, kind?: "time" | "bytes", logarithmic?, zero?}
function lineChart(body, label, options, height) {
  return draw(body, label, () => {
    const { series, x, y } = options();
    return {
      type: "line",
      plugins: [crosshair],
      data: {
        datasets: series.map((s) => ({
          label: s.label,
          data: s.points.map(([px, py]) => ({ x: px, y: py })),
          borderColor: color(s.color) + (s.faint ? "55" : ""),
          backgroundColor: color(s.color),
          borderWidth: s.width || 1.8,
          pointRadius: s.dots || s.points.length === 1 ? 3 : 0,
          pointHoverRadius: s.faint ? 0 : 4,
          tension: 0,
        })),
      },
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
        interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: {
          x: axis(x.title, x.kind === "time" ? (value) => format.clock(value, largestOf(series, 0)) : x.format, {
            axis: { type: "linear", min: 0, max: largestOf(series, 0) || undefined },
            ticks: { maxTicksLimit: 8, includeBounds: false, ...marks(x, series, 0) },
          }),
          y: axis(y.title, y.format, {
            axis: { type: y.logarithmic ? "logarithmic" : "linear", beginAtZero: Boolean(y.zero) && !y.logarithmic },
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
  }, height);
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
