// Communication by unit of the model: how long it waited, travelled, was hidden and was waited for.
const nameTimes = (times, most) => times.slice(0, most).map(([what, ms]) => `${what} (${format.milliseconds(ms)})`).join(", ");

// More units than this are shown by their largest; the others are one row until somebody asks.
const mostUnitRows = 8;

// "buckets 3 to 9" of ["bucket 3", ..., "bucket 9"]; "5 more units" of others.
function groupName(units) {
  const numbers = units.map((unit) => /^bucket (\d+)$/.exec(unit.unit)).filter(Boolean).map((match) => Number(match[1]));
  const [first, last] = [Math.min(...numbers), Math.max(...numbers)];
  if (numbers.length === units.length && last - first + 1 === numbers.length) return `buckets ${first} to ${last}`;
  return `${units.length} more ${numbers.length === units.length ? "buckets" : "units"}`;
}

// The units with the most time on the link and in the way, in their own order, and those left over.
function largestUnits(units) {
  const weight = (unit) => unit.exposed_ms + unit.link_ms;
  const chosen = new Set([...units].sort((a, b) => weight(b) - weight(a)).slice(0, mostUnitRows));
  return [units.filter((unit) => chosen.has(unit)), units.filter((unit) => !chosen.has(unit))];
}

// A table below the timeline for one rank of the step; `show(blocks)` puts another step's figures in.
function blockTable(body, controls, blocks) {
  const ranks = [...new Set(run.timelines.flatMap((t) => t.blocks).map((unit) => unit.rank))].sort((a, b) => a - b);
  if (ranks.length === 0) return { show: () => {} };
  let [rank] = ranks;
  let shown = blocks;
  let whole = false;
  const place = element("div", { class: "blocks" });
  const fill = () => {
    const units = shown.filter((unit) => unit.rank === rank);
    const few = units.length <= mostUnitRows + 2;
    const [largest, others] = whole || few ? [units, []] : largestUnits(units);
    const sum = (of, key) => of.reduce((total, unit) => total + unit[key], 0);
    const hidden = (unit) => unit.overlapped.reduce((total, [, ms]) => total + ms, 0);
    // Times in the queue and on the link may pass side by side, so only what was waited for adds up.
    const together = (name, of) => [name, String(sum(of, "blocks")), format.bytes(sum(of, "bytes")), "", "", "",
      format.milliseconds(sum(of, "exposed_ms")), ""];
    const rows = largest.map((unit) => [unit.unit, String(unit.blocks), format.bytes(unit.bytes),
      format.milliseconds(unit.queued_ms), format.milliseconds(unit.link_ms), format.milliseconds(hidden(unit)),
      format.milliseconds(unit.exposed_ms), nameTimes(unit.overlapped, 2) || "–"]);
    if (others.length > 0) rows.push(together(groupName(others), others));
    place.replaceChildren(element("h3", {}, `Communication of rank ${rank}, by unit`),
      table(["Unit", "Blocks", "Bytes", "In the queue", "On the link", "Overlapped", "Exposed", "Mostly during"], rows, together("all", units)));
    if (!few) {
      const button = element("button", { type: "button" }, whole ? `Show the ${mostUnitRows} largest` : `Show all ${units.length}`);
      button.addEventListener("click", () => {
        whole = !whole;
        fill();
      });
      place.append(button);
    }
    place.append(element("p", { class: "caption" }, "In the queue and on the link: time in which at least one block of the unit was. Overlapped: the part of it in which this rank computed. Exposed: computation stood still for the unit."));
  };
  fill();
  body.append(place);
  rankMenu(controls, "Rank of the table", ranks.map((number) => ({ rank: number })), (entry) => {
    rank = entry.rank;
    fill();
  });
  return { show: (next) => { shown = next; fill(); } };
}
