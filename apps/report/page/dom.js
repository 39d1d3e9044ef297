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

function legend(entries, shape = "line") {
  return element("ul", { class: "legend" }, ...entries.map((entry) => {
    const mark = element("i", { class: shape });
    mark.style.color = `var(--${entry.color})`;
    return element("li", {}, mark, entry.label);
  }));
}

// The same figures for those who do not see the drawing.
function dataTable(headings, rows) {
  return element("details", {}, element("summary", {}, "Show as table"),
    element("div", { class: "scroll" }, element("table", {},
      element("thead", {}, element("tr", {}, ...headings.map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((text) => element("td", {}, text))))))));
}

// A card with a title; `fill(body)` puts the chart in. Returns the place for controls.
function card(title, caption, fill, wide = false) {
  const controls = element("div", { class: "controls" });
  const body = element("div");
  const id = `chart-${document.querySelectorAll("#charts .card").length}`;
  document.getElementById("charts").append(
    element("figure", { class: wide ? "card wide" : "card", "aria-labelledby": id },
      element("div", { class: "head" }, element("h2", { id }, title), controls),
      element("p", { class: "caption" }, caption), body));
  fill(body, controls);
}

const nothing = (text) => element("div", { class: "empty" }, text);
