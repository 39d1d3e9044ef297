// Building the page. Text always goes in as text, never as markup: names and paths come from files.
const run = JSON.parse(document.getElementById("run").textContent);

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
const rankColor = (rank) => `rank-${rank % 8}`;

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

// Marks of lines, as Chart.js names them, in a box of 10 by 10.
const markShapes = {
  circle: () => svg("circle", { cx: 5, cy: 5, r: 3.6 }),
  triangle: () => svg("path", { d: "M5 1 9.2 8.6H.8Z" }),
  rect: () => svg("path", { d: "M1.8 1.8h6.4v6.4H1.8Z" }),
  rectRot: () => svg("path", { d: "M5 .6 9.4 5 5 9.4 .6 5Z" }),
  crossRot: () => svg("path", { d: "M2 2l6 6M8 2 2 8", }),
  star: () => svg("path", { d: "M5 .8v8.4M1.4 2.9l7.2 4.2M8.6 2.9 1.4 7.1", }),
};

// A piece of a line as the chart draws it: with its dashes and its mark.
function lineSample(entry) {
  const sample = svg("svg", { width: 30, height: 10, "aria-hidden": "true", stroke: "currentColor", fill: "currentColor" });
  sample.append(svg("line", { x1: 0, x2: 30, y1: 5, y2: 5, "stroke-width": Math.min(3, entry.width || 2),
    "stroke-dasharray": (entry.dash || []).join(" ") }));
  if (entry.mark) {
    const place = svg("g", { transform: "translate(10 0)" });
    const shape = markShapes[entry.mark]();
    shape.style.fill = "var(--surface)";
    shape.setAttribute("stroke-width", "1.6");
    place.append(shape);
    sample.append(place);
  }
  return sample;
}

function legend(entries, shape = "line") {
  return element("ul", { class: "legend" }, ...entries.map((entry) => {
    const mark = shape === "line" ? lineSample(entry) : element("i", { class: entry.role === "band" ? "block band" : shape });
    mark.style.color = `var(--${entry.color})`;
    return element("li", {}, mark, entry.label);
  }));
}

// An element that scrolls by itself where it is too wide, and says so there.
function scrolling(label, content) {
  const box = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, content);
  const place = element("div", { class: "table" }, box, element("p", { class: "more", "aria-hidden": "true" }, "more to the right: scroll sideways →"));
  const look = () => {
    const hidden = box.scrollWidth - box.clientWidth;
    place.classList.toggle("overflowing", hidden > 1);
    place.classList.toggle("at-end", box.scrollLeft >= hidden - 1);
  };
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
  return place;
}

// `foot` is one more row.
function table(headings, rows, foot) {
  const row = (cells, tag, more = {}) => element("tr", {}, ...cells.map((cell) => element(cell === "" && tag === "th" ? "td" : tag, cell === "" ? {} : more, cell)));
  const made = element("table", {}, element("thead", {}, row(headings, "th", { scope: "col" })),
    element("tbody", {}, ...rows.map((cells) => row(cells, "td"))));
  if (foot) made.append(element("tfoot", {}, row(foot, "td")));
  return scrolling(`Table: ${headings.filter(Boolean).join(", ")}`, made);
}

// The same figures for those who do not see the drawing.
const dataTable = (headings, rows) => element("details", {}, element("summary", {}, "Show as table"), table(headings, rows));

// Groups of cards below a heading, each with a link in the bar.
const page = { grid: null, cards: 0 };

function addLink(id, title) {
  document.getElementById("links").append(element("a", { href: `#${id}` }, title));
}

function beginGroup(id, title, ...besides) {
  page.grid = element("div", { class: "grid" });
  document.getElementById("charts").append(element("section", { id, class: "group", "aria-labelledby": `${id}-title` },
    element("div", { class: "head" }, element("h2", { id: `${id}-title` }, title), ...besides), page.grid));
  addLink(id, title);
}

function button(text, action, more = {}) {
  const made = element("button", { type: "button", ...more }, text);
  made.addEventListener("click", action);
  return made;
}

// A card with a title; `fill(body, controls)` puts the chart in. A card with a chart offers it as a picture and its
// values as a table for other programs.
function card(title, caption, fill, wide = false) {
  const controls = element("div", { class: "controls" });
  const body = element("div");
  const id = `chart-${page.cards++}`;
  page.grid.append(
    element("figure", { class: wide ? "card wide" : "card", "aria-labelledby": id },
      element("div", { class: "head" }, element("h3", { id }, title), controls),
      element("p", { class: "caption" }, caption), body));
  const before = drawn.length;
  fill(body, controls);
  if (drawn.length > before) addDownloads(title, controls, drawn[before]);
}

const nothing = (text) => element("div", { class: "empty" }, text);
