// Communication by unit of the model: how long it waited, travelled, was hidden and was waited for.
const nameTimes = (times, most) => times.slice(0, most).map(([what, ms]) => `${what} (${format.milliseconds(ms)})`).join(", ");

// A table below the timeline for one rank of the step; `show(blocks)` puts another step's figures in.
function blockTable(body, controls, blocks) {
  const ranks = [...new Set(run.timelines.flatMap((t) => t.blocks).map((unit) => unit.rank))].sort((a, b) => a - b);
  if (ranks.length === 0) return { show: () => {} };
  let [rank] = ranks;
  let shown = blocks;
  const place = element("div", { class: "scroll blocks" });
  const fill = () => {
    const units = shown.filter((unit) => unit.rank === rank);
    const sum = (key) => units.reduce((total, unit) => total + unit[key], 0);
    const hidden = (unit) => unit.overlapped.reduce((total, [, ms]) => total + ms, 0);
    const row = (cells, tag = "td") => element("tr", {}, ...cells.map((text) => element(tag, tag === "th" ? { scope: "col" } : {}, text)));
    place.replaceChildren(element("h3", {}, `Communication of rank ${rank}, by unit`),
      element("table", {},
        element("thead", {}, row(["Unit", "Blocks", "Bytes", "In the queue", "On the link", "Overlapped", "Exposed", "Mostly during"], "th")),
        element("tbody", {}, ...units.map((unit) => row([unit.unit, String(unit.blocks), format.bytes(unit.bytes),
          format.milliseconds(unit.queued_ms), format.milliseconds(unit.link_ms), format.milliseconds(hidden(unit)),
          format.milliseconds(unit.exposed_ms), nameTimes(unit.overlapped, 2) || "–"]))),
        element("tfoot", {}, row(["all", String(sum("blocks")), format.bytes(sum("bytes")), "", "", "",
          format.milliseconds(sum("exposed_ms")), ""]))),
      element("p", { class: "caption" }, "In the queue and on the link: time in which at least one block of the unit was. Overlapped: the part of it in which this rank computed. Exposed: computation stood still for the unit."));
  };
  fill();
  body.append(place);
  rankMenu(controls, "Rank of the table", ranks.map((number) => ({ rank: number })), (entry) => {
    rank = entry.rank;
    fill();
  });
  return { show: (next) => { shown = next; fill(); } };
}
