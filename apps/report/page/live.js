// The page of a running training: it loads itself again, and keeps what the reader chose.
const liveControls = () => [...document.querySelectorAll("#controls :is(input, select), main :is(input, select, details)")];

function controlName(control) {
  const text = (found) => (found ? found.textContent : "");
  return [text(control.closest("figure") && control.closest("figure").querySelector("h3")),
    control.id || control.getAttribute("aria-label") || text(control.closest("label")) || text(control.querySelector("summary"))].join("|");
}

const controlValue = (control) => {
  if (control.tagName === "DETAILS") return control.open;
  if (control.tagName === "SELECT") return control.selectedOptions[0].textContent;
  return control.type === "checkbox" ? control.checked : control.value;
};

function setControl(control, value) {
  if (controlValue(control) === value) return;
  if (control.tagName === "DETAILS") {
    control.open = value;
    return;
  }
  if (control.tagName === "SELECT") {
    const option = [...control.options].find((each) => each.textContent === value);
    if (!option) return;
    control.value = option.value;
  } else if (control.type === "checkbox") control.checked = value;
  else control.value = value;
  control.dispatchEvent(new Event(control.type === "checkbox" || control.tagName === "SELECT" ? "change" : "input"));
}

const sortedColumn = () => document.querySelector(".runs [aria-sort]");

const liveState = (isPaused) => ({
  isPaused, range: view.range, values: liveControls().map((control) => [controlName(control), controlValue(control)]),
  sort: sortedColumn() && [sortedColumn().textContent, sortedColumn().getAttribute("aria-sort")],
});

function restoreState({ range, values, sort }) {
  const known = new Map(values);
  for (const control of liveControls()) {
    const value = known.get(controlName(control));
    if (value !== undefined) setControl(control, value);
  }
  if (range) zoomTo(range);
  const heading = sort && [...document.querySelectorAll(".runs .sort")].find((each) => each.textContent === sort[0]);
  for (let click = 0; heading && click < 2 && heading.closest("th").getAttribute("aria-sort") !== sort[1]; ++click) heading.click();
}

function followRun() {
  if (!run.reload_s) return;
  const state = history.state;
  if (state) restoreState(state);
  let isPaused = Boolean(state && state.isPaused);
  const said = element("span");
  const pause = button("", () => {
    isPaused = !isPaused;
    say();
  });
  const say = () => {
    const age = (Date.now() - Date.parse(run.made_by.time)) / 1000;
    const isOld = age > 3 * run.reload_s + 10;
    said.textContent = isOld ? `Not written for ${format.seconds(age)}: rondo report --watch has ended.`
      : isPaused ? `As of ${format.moment(run.made_by.time)}.` : `Running: this page loads again every ${format.seconds(run.reload_s)}.`;
    pause.textContent = isPaused ? "Go on" : "Pause";
  };
  say();
  document.getElementById("live").append(said, " ", pause);
  document.getElementById("live").hidden = false;
  setInterval(() => {
    if (isPaused || view.selection) return;
    history.replaceState(liveState(isPaused), "");
    location.reload();
  }, 1000 * run.reload_s);
}
