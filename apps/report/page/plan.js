// A collective algorithm, drawn: a line of time for every rank, an arrow for every message. Made by `rondo bench
// collectives --explain NAME --html FILE`.
const planKinds = { send: "send", recv: "receive", recv_reduce: "receive and add", reduce: "add", copy: "copy" };

// The parts that a range of the data covers, "2" or "0–3", where it covers whole ones; else its size.
function partsLabel(plan, range) {
  const part = plan.bytes / plan.ranks;
  const [first, end] = [range.offset / part, (range.offset + range.bytes) / part];
  const [from, to] = [Math.round(first), Math.round(end)];
  // Parts of unequal size begin an element early or late.
  const isWhole = Math.abs(first - from) < 0.02 && Math.abs(end - to) < 0.02 && to > from;
  if (range.buffer !== "data" || !isWhole) return format.bytes(range.bytes);
  return to - from === 1 ? `${from}` : `${from}–${to - 1}`;
}

function describeStep(plan, step) {
  const peer = step.peer === undefined ? "" : step.kind === "send" ? ` to rank ${step.peer}` : ` from rank ${step.peer}`;
  return `round ${step.round}, rank ${step.rank}: ${planKinds[step.kind]}${peer}, ${format.bytes(step.bytes)}, ` +
    `${step.buffer} [${step.offset}, ${step.offset + step.bytes})`;
}

// Arrows lean: a message leaves at the beginning of its round and arrives at the end.
function planDrawing(plan, shownRank) {
  const [lane, left, top] = [Math.max(22, Math.min(46, 640 / plan.ranks)), 62, 30];
  const column = Math.max(54, Math.min(180, 1060 / Math.max(plan.rounds, 1)));
  const [width, height] = [left + column * Math.max(plan.rounds, 1) + 20, top + lane * plan.ranks];
  const x = (round) => left + column * round;
  const y = (rank) => top + lane * (rank + 0.5);
  const drawing = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `Messages of ${plan.algorithm} ${plan.operation} among ${plan.ranks} ranks in ${plan.rounds} rounds`,
  });
  const text = (content, attributes) => svg("text", { "font-size": 11.5, style: "fill: var(--muted)", ...attributes }, content);
  for (let round = 0; round < plan.rounds; ++round) {
    drawing.append(text(`round ${round}`, { x: x(round) + column / 2, y: 16, "text-anchor": "middle" }));
    drawing.append(svg("line", { x1: x(round), x2: x(round), y1: top, y2: height, style: "stroke: var(--grid)" }));
  }
  for (let rank = 0; rank < plan.ranks; ++rank) {
    drawing.append(text(`rank ${rank}`, { x: 4, y: y(rank) + 4 }));
    drawing.append(svg("line", { x1: left, x2: width - 20, y1: y(rank), y2: y(rank), style: "stroke: var(--border)" }));
  }
  const adds = new Set(plan.steps.filter((s) => s.kind === "recv_reduce").map((s) => `${s.round} ${s.peer} ${s.rank}`));
  const fewMessages = plan.steps.length <= 400;
  // Messages of one pair in one round lie on one line, and share a label.
  const labels = new Map();
  for (const step of plan.steps.filter((s) => s.kind === "send")) {
    const line = `${step.round} ${step.rank} ${step.peer}`;
    labels.set(line, [...(labels.get(line) || []), partsLabel(plan, step)]);
  }
  for (const step of plan.steps) {
    const shown = shownRank === "" || step.rank === Number(shownRank) || step.peer === Number(shownRank);
    const paint = `var(--${rankColor(step.rank)})`;
    const faded = shown ? 1 : 0.12;
    if (step.kind === "send") {
      const [x1, x2] = [x(step.round) + 5, x(step.round + 1) - 7];
      const [y1, y2] = [y(step.rank), y(step.peer)];
      const isAdded = adds.has(`${step.round} ${step.rank} ${step.peer}`);
      const message = svg("g", { class: "message", opacity: faded, style: `color: ${paint}` },
        svg("title", {}, `${describeStep(plan, step)}${isAdded ? ", which adds it" : ""}`),
        svg("line", { x1, y1, x2, y2, stroke: "currentColor", "stroke-width": 1.6 }),
        // A full head adds, an empty one replaces.
        svg("circle", { cx: x2, cy: y2, r: 3.6, stroke: "currentColor", "stroke-width": 1.6, style: `fill: ${isAdded ? "currentColor" : "var(--surface)"}` }));
      const line = `${step.round} ${step.rank} ${step.peer}`;
      if (fewMessages && shown && labels.has(line)) {
        message.append(svg("text", {
          x: x1 + (x2 - x1) * 0.26, y: y1 + (y2 - y1) * 0.26 - 3, "font-size": 10.5, "text-anchor": "middle",
          style: "fill: currentColor; paint-order: stroke; stroke: var(--surface); stroke-width: 3px",
        }, labels.get(line).join(", ")));
        labels.delete(line);
      }
      drawing.append(message);
    } else if (step.kind === "reduce" || step.kind === "copy") {
      drawing.append(svg("rect", { x: x(step.round + 1) - 4, y: y(step.rank) - 6, width: 5, height: 12, rx: 1.5, opacity: faded, style: `fill: ${paint}` },
        svg("title", {}, describeStep(plan, step))));
    }
  }
  return drawing;
}

function planTiles(plan) {
  const largest = (key) => Math.max(...plan.costs.map((cost) => cost[key]));
  const messages = plan.steps.filter((step) => step.kind === "send").length;
  return [
    { label: "Rounds", value: format.integer(plan.rounds), detail: "in sequence" },
    { label: "Sent", value: format.bytes(largest("bytes_sent")), detail: "rank that sends most" },
    { label: "Received", value: format.bytes(largest("bytes_received")), detail: "rank that receives most" },
    { label: "Messages", value: format.integer(messages), detail: "all ranks" },
    { label: "Scratch memory", value: format.bytes(largest("scratch_bytes")), detail: "rank that needs most" },
  ];
}

function planCards(plan) {
  card("Messages by round", "Numbers are parts of the data. A full dot is added to the receiver's data, an empty one replaces it; a bar adds " +
    "received parts.", (body, controls) => {
    const place = scrolling("Drawing: messages by round", planDrawing(plan, ""));
    body.append(place);
    const ranks = plan.costs.map((cost) => element("option", { value: String(cost.rank) }, `rank ${cost.rank}`));
    const select = element("select", { "aria-label": "Rank shown" }, element("option", { value: "" }, "all ranks"), ...ranks);
    select.addEventListener("change", () => place.firstChild.replaceChildren(planDrawing(plan, select.value)));
    controls.append(select);
    body.append(dataTable(["Round", "Rank", "Step", "Peer", "Bytes", "Where"], plan.steps.map((step) => [
      String(step.round), String(step.rank), planKinds[step.kind], step.peer === undefined ? "–" : String(step.peer),
      format.integer(step.bytes), `${step.buffer} [${step.offset}, ${step.offset + step.bytes})`])));
  }, true);
  card("Cost of each rank", "Counted from the steps; docs/algorithms.md has the closed forms.", (body) => {
    body.append(table(["Rank", "Bytes sent", "Bytes received", "Scratch"], plan.costs.map((cost) =>
      [`rank ${cost.rank}`, format.integer(cost.bytes_sent), format.integer(cost.bytes_received), format.integer(cost.scratch_bytes)])));
  }, true);
}
