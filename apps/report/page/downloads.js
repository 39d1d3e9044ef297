// Charts as pictures, and their values as tables for other programs.
function offer(name, content) {
  const address = URL.createObjectURL(content);
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

const fileName = (title, ending) => `${`${run.title} ${title}`.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80)}.${ending}`;

function csv(rows) {
  const cell = (value) => {
    const text = value === undefined || value === null ? "" : String(value);
    // Programs of spreadsheets take a text that begins so for a formula.
    const safe = /^[=+@\t\r]|^-(?![\d.])/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

// The values of a chart as they were recorded: a row for every step, bar or event.
function chartRows(chart) {
  const { labels } = chart.data;
  const nameOf = (dataset) => dataset.name || dataset.label;
  // Bars of two stacks may show the same values.
  const datasets = chart.data.datasets.filter((dataset, i, all) => !dataset.isSmoothed && all.findIndex((other) => other.label === dataset.label) === i);
  const first = datasets.find((dataset) => dataset.data.length > 0);
  if (first && first.data[0] && first.data[0].event) {
    const keys = ["rank", "lane", "name", "unit", "bucket", "bytes", "begin_ms", "end_ms", "queued_ms", "exposed_ms"];
    return [keys, ...datasets.flatMap((dataset) => dataset.data.map(({ event }) => keys.map((key) => event[key])))];
  }
  if (first && first.data[0] && Array.isArray(first.data[0].x)) {
    return [["row", "what", "begin", "end"], ...datasets.flatMap((dataset) => dataset.data.map((bar) => [bar.y, bar.text || dataset.label, ...bar.x]))];
  }
  if (labels && labels.length > 0) {
    return [["", ...datasets.map(nameOf)], ...labels.map((label, i) => [label, ...datasets.map((dataset) => dataset.data[i])])];
  }
  const lines = new Map();
  datasets.forEach((dataset, column) => dataset.data.forEach(({ x, y }) => {
    if (!lines.has(x)) lines.set(x, Array(datasets.length));
    lines.get(x)[column] = y;
  }));
  return [[chart.options.scales.x.title.text, ...datasets.map(nameOf)],
    ...[...lines].sort(([a], [b]) => a - b).map(([x, values]) => [x, ...values])];
}

// The chart on the colour of its card, below its title.
function picture(title, chart) {
  const scale = chart.canvas.width / chart.width;
  const head = 34 * scale;
  const canvas = element("canvas", { width: chart.canvas.width, height: chart.canvas.height + head });
  const context = canvas.getContext("2d");
  context.fillStyle = color("surface");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = color("text");
  context.font = `600 ${15 * scale}px ${Chart.defaults.font.family}`;
  context.fillText(`${title} – ${run.title}`, 12 * scale, 22 * scale, canvas.width - 24 * scale);
  context.drawImage(chart.canvas, 0, head);
  return canvas;
}

function addDownloads(title, controls, entry) {
  controls.append(element("span", { class: "downloads" },
    button("PNG", () => picture(title, entry.chart).toBlob((image) => offer(fileName(title, "png"), image)),
      { "aria-label": `Download ${title} as a PNG picture`, title: "Download as a picture" }),
    button("CSV", () => offer(fileName(title, "csv"), new Blob([csv(chartRows(entry.chart))], { type: "text/csv" })),
      { "aria-label": `Download ${title} as CSV`, title: "Download the values" })));
}

// A button that copies a text.
function copyButton(label, text) {
  const made = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // no permission: as before there was a clipboard
      const area = element("textarea", {}, text);
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    made.textContent = "Copied";
    setTimeout(() => { made.textContent = "Copy"; }, 1500);
  }, { "aria-label": label, class: "copy" });
  return made;
}
