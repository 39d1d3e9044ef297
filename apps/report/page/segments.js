// Communication by unit of the model: time in the queue and in transfer, overlapped and exposed.
const nameTimes = (times, most) => times.slice(0, most).map(([what, ms]) => `${what} (${format.milliseconds(ms)})`).join(", ");

// Maximum number of units in the table; the smaller ones share a row until the reader asks for all.
const mostUnitRows = 8;

// "buckets 3 to 9" of ["bucket 3", ..., "bucket 9"]; "5 more units" of others.
function groupName(units) {
  const numbers = units.map((unit) => /^bucket (\d+)$/.exec(unit.unit)).filter(Boolean).map((match) => Number(match[1]));
  const [first, last] = [Math.min(...numbers), Math.max(...numbers)];
  if (numbers.length === units.length && last - first + 1 === numbers.length) return `buckets ${first} to ${last}`;
  return `${units.length} more ${numbers.length === units.length ? "buckets" : "units"}`;
}

// The units with the longest transfers and waits, in their own order, and the remaining ones.
function largestUnits(units) {
  const weight = (unit) => unit.exposed_ms + unit.link_ms;
  const chosen = new Set([...units].sort((a, b) => weight(b) - weight(a)).slice(0, mostUnitRows));
  return [units.filter((unit) => chosen.has(unit)), units.filter((unit) => !chosen.has(unit))];
}

// A table below the timeline for one rank of the step; `show(timeline)` puts another step's figures in.
function segmentTable(body, controls, timeline) {
  const ranks = [...new Set(run.timelines.flatMap((t) => t.segments).map((unit) => unit.rank))].sort((a, b) => a - b);
  if (ranks.length === 0) return { show: () => {} };
  let [rank] = ranks;
  let shown = timeline;
  let whole = false;
  const place = element("div", { class: "segments" });
  const fill = () => {
    const units = shown.segments.filter((unit) => unit.rank === rank);
    const few = units.length <= mostUnitRows + 2;
    const [largest, others] = whole || few ? [units, []] : largestUnits(units);
    const sum = (of, key) => of.reduce((total, unit) => total + unit[key], 0);
    const hidden = (unit) => unit.overlapped.reduce((total, [, ms]) => total + ms, 0);
    // Times of several units overlap, so only the exposed ones add up.
    const together = (name, of) => [name, String(sum(of, "segments")), format.bytes(sum(of, "bytes")), "", "", "",
      format.milliseconds(sum(of, "exposed_ms")), ""];
    const rows = largest.map((unit) => [unit.unit, String(unit.segments), format.bytes(unit.bytes),
      format.milliseconds(unit.queued_ms), format.milliseconds(unit.link_ms), format.milliseconds(hidden(unit)),
      format.milliseconds(unit.exposed_ms), nameTimes(unit.overlapped, 2) || "–"]);
    if (others.length > 0) rows.push(together(groupName(others), others));
    place.replaceChildren(element("h4", {}, `Communication of rank ${rank} in step ${format.integer(shown.step)}, by unit`),
      table(["Unit", "Segments", "Bytes", "Queued", "In transfer", "Overlapped", "Exposed", "Overlapped with"], rows, together("all", units)));
    if (!few) {
      place.append(button(whole ? `Show the ${mostUnitRows} largest` : `Show all ${units.length}`, () => {
        whole = !whole;
        fill();
      }));
    }
    place.append(element("p", { class: "caption" }, "Queued, in transfer: time with at least one segment of the unit in that state. Overlapped: part of the transfer during which this rank computed. Exposed: time that computation waited for the unit in this step."));
  };
  fill();
  body.append(place);
  rankMenu(controls, "Rank of the table", ranks.map((number) => ({ rank: number })), (entry) => {
    rank = entry.rank;
    fill();
  });
  return { show: (next) => { shown = next; fill(); } };
}
