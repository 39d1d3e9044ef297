// Charts over steps or time move together: one horizontal axis, one zoom, one cursor, one smoothing.
const view = { time: false, weight: 0.8, range: null, cursor: null, selection: null };
const linkedCharts = () => drawn.filter((entry) => entry.linked);
const renderLinked = () => linkedCharts().forEach((entry) => entry.render());

let isDrawingPlanned = false;
// Draws the cursor and the selection of all linked charts with the next frame.
function drawCursors() {
  if (isDrawingPlanned) return;
  isDrawingPlanned = true;
  requestAnimationFrame(() => {
    isDrawingPlanned = false;
    for (const entry of linkedCharts()) entry.chart.draw();
  });
}

// The point of a sorted line that is nearest to `x`.
function nearestPoint(points, x) {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x) low = middle;
    else high = middle;
  }
  return Math.abs(points[low].x - x) <= Math.abs(points[high].x - x) ? points[low] : points[high];
}

function drawCursor(chart, formatY) {
  const { ctx, chartArea, scales } = chart;
  const at = scales.x.getPixelForValue(view.cursor.x);
  if (!(at >= chartArea.left && at <= chartArea.right)) return;
  ctx.save();
  ctx.strokeStyle = color("muted");
  ctx.globalAlpha = 0.5;
  ctx.beginPath();
  ctx.moveTo(at, chartArea.top);
  ctx.lineTo(at, chartArea.bottom);
  ctx.stroke();
  ctx.globalAlpha = 1;
  ctx.font = `600 11.5px ${Chart.defaults.font.family}`;
  ctx.textBaseline = "middle";
  const isLeft = at > (chartArea.left + chartArea.right) / 2;
  ctx.textAlign = isLeft ? "right" : "left";
  let row = 0;
  chart.data.datasets.forEach((dataset) => {
    if (dataset.isFaint || dataset.data.length === 0 || row >= 4) return;
    const point = nearestPoint(dataset.data, view.cursor.x);
    ctx.fillStyle = dataset.paint;
    ctx.beginPath();
    ctx.arc(scales.x.getPixelForValue(point.x), scales.y.getPixelForValue(point.y), 3, 0, 7);
    ctx.fill();
    const [x, y] = [at + (isLeft ? -7 : 7), chartArea.top + 8 + 15 * row++];
    ctx.lineWidth = 4;
    ctx.strokeStyle = color("surface");
    ctx.strokeText(formatY(point.y), x, y);
    ctx.fillText(formatY(point.y), x, y);
  });
  ctx.restore();
}

const linkedCursor = (formatY) => ({
  id: "linkedCursor",
  afterEvent(chart, { event, inChartArea }) {
    if (event.type === "mouseout" || !inChartArea) {
      if (!view.cursor || view.cursor.chart !== chart) return;
      view.cursor = null;
    } else {
      view.cursor = { chart, x: chart.scales.x.getValueForPixel(event.x) };
    }
    drawCursors();
  },
  afterDatasetsDraw(chart) {
    if (view.cursor && view.cursor.chart !== chart) drawCursor(chart, formatY);
    if (!view.selection || view.selection.chart !== chart) return;
    const { ctx, chartArea } = chart;
    ctx.save();
    ctx.fillStyle = color("train");
    ctx.globalAlpha = 0.15;
    ctx.fillRect(view.selection.from, chartArea.top, view.selection.to - view.selection.from, chartArea.bottom - chartArea.top);
    ctx.restore();
  },
});

function zoomTo(range) {
  view.range = range;
  document.getElementById("reset-zoom").hidden = range === null;
  renderLinked();
}

// Drags of the mouse select a part of the horizontal axis; a double click shows all of it. Touches scroll.
function zoomByMouse(canvas, entry) {
  const inside = (event) => {
    const { left, right } = entry.chart.chartArea;
    return Math.min(right, Math.max(left, event.clientX - canvas.getBoundingClientRect().left));
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    view.selection = { chart: entry.chart, from: inside(event), to: inside(event) };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!view.selection || view.selection.chart !== entry.chart) return;
    view.selection.to = inside(event);
    drawCursors();
  });
  canvas.addEventListener("pointerup", () => {
    const selected = view.selection;
    view.selection = null;
    if (!selected || selected.chart !== entry.chart) return;
    if (Math.abs(selected.to - selected.from) < 6) {
      drawCursors();
      return;
    }
    const { x } = entry.chart.scales;
    zoomTo([selected.from, selected.to].map((pixel) => x.getValueForPixel(pixel)).sort((a, b) => a - b));
  });
  canvas.addEventListener("dblclick", () => zoomTo(null));
}

// Exponential moving average, corrected for its start (Kingma and Ba, 2015, section 3).
function smooth(points, weight) {
  let average = 0;
  let norm = 0;
  return points.map(([x, y]) => {
    average = weight * average + (1 - weight) * y;
    norm = weight * norm + (1 - weight);
    return [x, average / norm];
  });
}

// Lines of at most so many points have dots, and are not smoothed.
const mostDots = 20;

// Long lines twice: smoothed, and thin as they were recorded.
function smoothed(series) {
  if (view.weight === 0 || series.some((line) => line.role === "band")) return series;
  const long = series.filter((line) => line.points.length > mostDots);
  return [...series.map((line) => (long.includes(line) ? { ...line, isSmoothed: true, points: smooth(line.points, view.weight) } : line)),
    ...long.map((line) => ({ ...line, label: `${line.label}, as recorded`, name: line.label, faint: true, width: 1, dash: [] }))];
}

// The controls of all linked charts.
function fillControls(hasTimes) {
  const amount = element("output", { for: "smoothing" }, String(view.weight));
  const range = element("input", { id: "smoothing", type: "range", min: "0", max: "0.98", step: "0.02", value: String(view.weight) });
  range.addEventListener("input", () => {
    view.weight = Number(range.value);
    amount.textContent = range.value;
    renderLinked();
  });
  const reset = button("Reset zoom", () => zoomTo(null), { id: "reset-zoom", hidden: true });
  const controls = document.getElementById("controls");
  controls.append(element("label", { title: "Bold lines are moving averages, thin lines the recorded values" }, "Smoothing", range, amount), reset);
  controls.hidden = false;
  if (!hasTimes) return;
  const axes = [{ label: "by step", time: false }, { label: "by time", time: true }];
  reset.before(menu("Horizontal axis of all curves", axes, (choice) => {
    view.time = choice.time;
    zoomTo(null);
  }));
}
