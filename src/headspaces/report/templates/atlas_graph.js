// The graph of heads.

const graph = { edges: [], shown: [], chosen: null };

function graphEdges() {
  const edges = [];
  for (const comparison of Object.values(comparisons)) {
    if (comparison.within) continue;
    comparison.strongest.index.forEach((flat, order) => {
      const condition = Math.floor(flat / comparison.pairs.length), pair = flat % comparison.pairs.length;
      edges.push({ spaces: comparison.spaces, condition, pair, rho: comparison.strongest.values.rho[order], from: comparison.conditions[condition][0], to: comparison.conditions[condition][1], heads: comparison.pairs[pair] });
    });
  }
  return edges.sort((one, other) => other.rho - one.rho);
}

function startGraph() {
  graph.edges = graphEdges();
  $("graph-card").hidden = !graph.edges.length;
  if (!graph.edges.length) return;
  const [low, high] = extent(graph.edges.map(({ rho }) => rho));
  // Below the weakest embedded edge of any kind the picture would be incomplete.
  const floor = Math.max(...Object.values(comparisons).filter(({ within }) => !within).map((comparison) =>
    comparison.strongest.index.length < comparison.conditions.length * comparison.pairs.length ? Math.min(...comparison.strongest.values.rho) : low));
  const range = $("threshold");
  range.min = (Math.ceil(floor * 1000) / 1000).toFixed(3);
  range.max = (Math.floor(high * 1000) / 1000).toFixed(3);
  range.value = Math.max(+range.min, graph.edges[Math.min(59, graph.edges.length - 1)].rho);
  range.oninput = showGraph;
  for (const spaces of Object.keys(comparisons).filter((name) => name.length === 2)) {
    const label = element("label"), box = element("input", { type: "checkbox", value: spaces });
    box.checked = true;
    box.onchange = showGraph;
    const svg = draw(label, "svg", { width: 34, height: 10, "aria-hidden": "true" });
    draw(svg, "line", { x1: 1, x2: 33, y1: 5, y2: 5, stroke: `var(--${spaces[1]})`, "stroke-width": 3, "stroke-dasharray": DASHES[spaces] });
    label.prepend(box);
    label.append(`O → ${spaces[1]}`);
    $("graph-kinds").append(label);
  }
  const marks = Object.entries(MARKS).map(([name, mark]) => `${mark} ${name}`);
  if (marks.length) $("graph-marks").textContent = `Letters: ${marks.join(", ")} (${data.marks.source}).`;
  onResize($("graph"), showGraph);
  $("graph").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && graph.chosen !== null) chooseEdge(graph.shown[graph.chosen]);
    if (!step || !graph.shown.length) return;
    event.preventDefault();
    graph.chosen = graph.chosen === null ? 0 : (graph.chosen + step + graph.shown.length) % graph.shown.length;
    markEdge(graph.chosen);
  });
  $("graph").addEventListener("blur", () => tip(""));
}

function edgeName(edge) {
  return `${pairName(comparisons[edge.spaces], edge.condition, edge.pair)}: ρ ${shown(edge.rho, "rho")}`;
}

function chooseEdge(edge) {
  state.spaces = edge.spaces;
  $("comparison").value = edge.spaces;
  refreshQuantities();
  choose(edge.condition, edge.pair, true);
}

function markEdge(index, event = null) {
  const edge = graph.shown[index];
  document.querySelectorAll("#graph path").forEach((path) => path.setAttribute("opacity", path.dataset.index === String(index) ? 1 : 0.25));
  $("graph-text").textContent = `${index + 1} of ${graph.shown.length} edges, strongest first: ${edgeName(edge)}`;
  if (event) tip(edgeName(edge), event.clientX, event.clientY);
}

function markHead(layer, head, side, event) {
  const touches = ({ from, to, heads, spaces }) => (from === layer && heads[0] === head && side !== "read") || (to === layer && heads[1] === head && (side === "read" || side === "both") && spaces);
  const found = graph.shown.filter(touches);
  document.querySelectorAll("#graph path").forEach((path) => path.setAttribute("opacity", touches(graph.shown[+path.dataset.index]) ? 1 : 0.12));
  const written = found.filter(({ from, heads }) => from === layer && heads[0] === head && side !== "read").length;
  const known = doings(layer, head, side === "read" ? "K" : "O");
  const text = `layer ${layer}, ${side === "read" ? "key-value head" : "head"} ${head}: ${written} edges out, ${found.length - written} in${known ? `; ${known}` : ""}`;
  $("graph-text").textContent = text;
  tip(text, event.clientX, event.clientY);
}

function unmark() {
  document.querySelectorAll("#graph path").forEach((path) => path.setAttribute("opacity", 0.75));
  tip("");
}

function showGraph() {
  const box = $("graph"), width = box.clientWidth, threshold = +$("threshold").value;
  if (!width) return;
  const kinds = new Set(Array.from(document.querySelectorAll("#graph-kinds input:checked"), ({ value }) => value));
  graph.shown = graph.edges.filter(({ rho, spaces }) => rho >= threshold - 1e-9 && kinds.has(spaces));
  graph.chosen = null;
  $("threshold-text").textContent = threshold.toFixed(3);
  const counts = [...kinds].map((spaces) => `${spaces} ${graph.shown.filter((edge) => edge.spaces === spaces).length}`);
  const counted = `${graph.shown.length} edges${counts.length ? ` (${counts.join(", ")})` : ""}`;
  $("graph-hint").textContent = "Layers upwards, heads across; an edge is a writer and a later reader with ρ of at least the threshold: "
    + `${counted}. Down to ${$("threshold").min} the page holds all.`;
  const heads = Math.max(...Object.values(comparisons).map(({ rows }) => rows));
  const left = 34, step = Math.max(14, Math.min(120, 560 / data.layers)), height = (data.layers - 1) * step + 40;
  const slot = (width - left - 14) / Math.max(1, heads);
  const y = (layer) => height - 20 - layer * step;
  // A key-value head stands in the middle of its group of query heads, a little below them: it is read from below.
  const readers = Object.fromEntries(Object.entries(comparisons).map(([spaces, { columns }]) => [spaces, columns]));
  const x = (head, count) => left + ((head + 0.5) * slot * heads) / count;
  box.replaceChildren();
  const svg = draw(box, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const labelled = new Set(ticks(data.layers, step, 16));
  for (let layer = 0; layer < data.layers; layer++) if (labelled.has(layer)) draw(svg, "text", { x: left - 10, y: y(layer) + 4, "text-anchor": "end" }, layer);
  for (const head of ticks(heads, slot, 24)) draw(svg, "text", { x: x(head, heads), y: height - 2, "text-anchor": "middle" }, head);
  graph.shown.forEach((edge, index) => {
    const isGroup = readers[edge.spaces] !== heads;
    const [x1, x2, y1, y2] = [x(edge.heads[0], heads), x(edge.heads[1], readers[edge.spaces]), y(edge.from), y(edge.to) + (isGroup ? 6 : 0)];
    const bend = (x1 - x2) * 0.15 + (Math.abs(x1 - x2) < 1 ? 18 : 0), middle = (y1 + y2) / 2;
    const path = draw(svg, "path", {
      d: `M${x1.toFixed(1)} ${y1.toFixed(1)}Q${((x1 + x2) / 2 + bend).toFixed(1)} ${middle.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`,
      fill: "none", stroke: `var(--${edge.spaces[1]})`, "stroke-dasharray": DASHES[edge.spaces], opacity: 0.75,
      "stroke-width": (1 + (3.5 * (edge.rho - threshold)) / (graph.edges[0].rho - threshold || 1)).toFixed(2), "data-index": index,
    });
    path.style.cursor = "pointer";
    path.addEventListener("pointermove", (event) => markEdge(index, event));
    path.addEventListener("pointerleave", unmark);
    path.addEventListener("click", () => chooseEdge(edge));
  });
  const grouped = Object.values(comparisons).filter(({ within, columns }) => !within && columns !== heads);
  const nodes = [];
  for (let layer = 0; layer < data.layers; layer++) {
    for (let head = 0; head < heads; head++) nodes.push([layer, head, heads, grouped.length ? "mixed" : "both"]);
    if (grouped.length) for (let head = 0; head < grouped[0].columns; head++) nodes.push([layer, head, grouped[0].columns, "read"]);
  }
  for (const [layer, head, count, side] of nodes) {
    const isEnd = ({ from, to, heads: ends, spaces }) => (side !== "read" && from === layer && ends[0] === head)
      || (to === layer && ends[1] === head && readers[spaces] === (side === "read" ? count : heads));
    const used = graph.shown.some(isEnd);
    if (side === "read" && !used) continue;
    const common = { fill: used ? "var(--text)" : "var(--line)" };
    const node = side === "read"
      ? draw(svg, "rect", { x: x(head, count) - 3.5, y: y(layer) + 2.5, width: 7, height: 7, ...common, fill: "var(--card)", stroke: "var(--text)" })
      : draw(svg, "circle", { cx: x(head, count), cy: y(layer), r: used ? 3.5 : 2, ...common });
    const known = side === "read" ? "" : data.marks.classes[`${layer}.${head}`];
    if (known) {
      node.setAttribute("r", 7);
      node.setAttribute("fill", "var(--text)");
      draw(svg, "text", { x: x(head, count), y: y(layer) + 3.5, "text-anchor": "middle", class: "mark" }, MARKS[known]);
    }
    if (!used) continue;
    node.addEventListener("pointermove", (event) => markHead(layer, head, side === "mixed" ? "both" : side, event));
    node.addEventListener("pointerleave", unmark);
  }
}
