// The page's figures. All text goes in as text (textContent): names never become markup.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const UNDEFINED = 65535;
const READS = { Q: "query", K: "key", V: "value" };
const QUANTITIES = {
  rho: { label: "overlap ρ", short: "ρ", digits: 4, name: "rho" },
  angle: { label: "smallest principal angle (°)", short: "angle (°)", digits: 2, name: "min_angle_deg", reversed: true },
  simple_composition: { label: "simple composition score", short: "composition", digits: 4, name: "simple_composition" },
  weighted: { label: "spectrally weighted score", short: "weighted", digits: 3, name: "weighted" },
};
const STATISTICS = { strongest: "strongest pair", mean: "mean", spread: "spread (standard deviation)" };
const DASHES = { O: "", Q: "6 3", K: "2 3", V: "8 3 2 3", OQ: "", OK: "7 3", OV: "2 3" };
const VIRIDIS = ["#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725"]
  .map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));

// ---------------------------------------------------------------- numbers

function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
}

/** Unpack numbers: 16-bit codes between two ends, or float32. Undefined is NaN. */
function unpack(packed) {
  if (packed.low === undefined) return new Float32Array(bytes(packed.data));
  const step = (packed.high - packed.low) / (UNDEFINED - 1);
  return Float32Array.from(new Uint16Array(bytes(packed.data)), (code) => (code === UNDEFINED ? NaN : packed.low + code * step));
}

function unpackAll(object) {
  return Object.fromEntries(Object.entries(object).map(([key, packed]) => [key, unpack(packed)]));
}

function comparisonOf(spaces, raw) {
  const within = raw.scope === "within";
  const pairs = [];
  for (let i = 0; i < raw.rows; i++) for (let j = within ? i + 1 : 0; j < raw.columns; j++) pairs.push([i, j]);
  const at = new Map(pairs.map(([i, j], index) => [i * raw.columns + j, index]));
  const place = new Map((raw.kept || raw.conditions.map((_, index) => index)).map((condition, index) => [condition, index]));
  const index = new Uint32Array(bytes(raw.strongest.index));
  const nulls = raw.nulls && { samples: raw.nulls.samples, pairs: null };
  if (nulls) {
    for (const null_ of ["rotation", "reassignment"]) nulls[null_] = unpackAll(raw.nulls[null_]);
    if (raw.nulls.pairs) {
      const { layer, ...quantiles } = raw.nulls.pairs;
      nulls.pairs = { layer, quantiles: unpackAll(quantiles) };
    }
  }
  return {
    spaces, within, rows: raw.rows, columns: raw.columns, conditions: raw.conditions, pairs, place, nulls,
    isPartial: raw.kept !== null,
    values: unpackAll(raw.values),
    summary: Object.fromEntries(Object.entries(raw.summary).map(([name, statistics]) => [name, unpackAll(statistics)])),
    strongest: { index, order: new Map(Array.from(index, (flat, order) => [flat, order])), values: unpackAll(raw.strongest.values) },
    cosines: raw.cosines && { count: raw.cosines.count, values: unpack(raw.cosines) },
    /** Index of the pair of heads i and j, in either order within a layer; undefined for a head with itself. */
    pairAt: (i, j) => at.get(within && i > j ? j * raw.columns + i : i * raw.columns + j),
    conditionAt: new Map(raw.conditions.map(([layer, later], condition) => [layer * data.layers + later, condition])),
    /** A pair's value; NaN where it is undefined or not on the page. */
    value(name, condition, pair) {
      const kept = place.get(condition);
      if (kept !== undefined) return this.values[name][kept * pairs.length + pair];
      const order = this.strongest.order.get(condition * pairs.length + pair);
      return order === undefined ? NaN : this.strongest.values[name][order];
    },
  };
}

const comparisons = Object.fromEntries(Object.entries(data.comparisons).map(([spaces, raw]) => [spaces, comparisonOf(spaces, raw)]));
const state = { spaces: null, quantity: "rho", statistic: "strongest", condition: 0, pair: null };
const current = () => comparisons[state.spaces];

function shown(value, name) {
  return Number.isFinite(value) ? value.toFixed(QUANTITIES[name] ? QUANTITIES[name].digits : 4) : "undefined";
}

function headName(layer, head, kind) {
  return `L${layer} ${kind}${head}`;
}

function pairName(comparison, condition, pair) {
  const [layer, later] = comparison.conditions[condition];
  const [i, j] = comparison.pairs[pair];
  const kinds = comparison.spaces.length === 2 ? comparison.spaces : comparison.spaces + comparison.spaces;
  return `${headName(layer, i, kinds[0])} ${comparison.within ? "and" : "→"} ${headName(later, j, kinds[1])}`;
}

function conditionName(comparison, condition) {
  const [layer, later] = comparison.conditions[condition];
  return comparison.within ? `layer ${layer}` : `layer ${layer} → ${later}`;
}

function comparisonName(spaces) {
  if (spaces.length === 2) return `O → ${spaces[1]}: write to ${READS[spaces[1]]} read spaces`;
  return spaces === "O" ? "O: write spaces within a layer" : `${spaces}: ${READS[spaces]} read spaces within a layer`;
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  return low <= high ? [low, high] : [0, 1];
}

// ---------------------------------------------------------------- files

function download(button, name, header, rows) {
  $(button).onclick = () => {
    const cell = (value) => {
      const text = typeof value === "number" ? (Number.isFinite(value) ? String(+value.toPrecision(6)) : "") : String(value);
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = [["model", ...header], ...rows().map((row) => [data.model, ...row])];
    const file = new Blob([lines.map((line) => line.map(cell).join(",") + "\n").join("")], { type: "text/csv" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(file);
    link.download = `${name()}.csv`.replace(/[^\w.-]+/g, "-");
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
}

// ---------------------------------------------------------------- small parts

function element(tag, attributes = {}, text = "") {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}

function draw(parent, tag, attributes, text = "") {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  parent.append(node);
  return node;
}

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, label]) => element("option", { value }, label)));
  select.value = chosen;
}

function tip(text, x, y) {
  const node = $("tip");
  node.hidden = !text;
  if (!text) return;
  node.textContent = text;
  const box = node.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
  node.style.left = `${Math.min(Math.max(4, left), Math.max(4, innerWidth - box.width - 4))}px`;
  node.style.top = `${Math.max(4, y - box.height - 10)}px`;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function shade(share) {
  const at = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(at), VIRIDIS.length - 2);
  const mixed = VIRIDIS[low].map((part, channel) => Math.round(part + (at - low) * (VIRIDIS[low + 1][channel] - part)));
  return `rgb(${mixed})`;
}

/** Values at which an axis of n places has labels, so that they are at least `gap` pixels apart. */
function ticks(n, size, gap) {
  const step = [1, 2, 5, 10, 20, 50, 100].find((candidate) => candidate * size >= gap) || 200;
  return Array.from({ length: Math.ceil(n / step) }, (_, index) => index * step);
}

function niceTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw * 0.999);
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-6; tick += step) found.push(+tick.toPrecision(10));
  return found;
}

function onResize(node, redraw) {
  let width = 0;
  new ResizeObserver(() => {
    if (node.clientWidth !== width) { width = node.clientWidth; redraw(); }
  }).observe(node);
}

// ---------------------------------------------------------------- heat maps

/** A heat map on a canvas: hover or arrow keys read a cell, click or Enter choose it. */
class Heat {
  constructor(id) {
    this.canvas = $(id);
    this.text = $(`${id}-text`);
    this.legend = $(`${id}-legend`);
    this.cursor = null;
    this.canvas.addEventListener("pointermove", (event) => this.read(this.cellAt(event), event));
    this.canvas.addEventListener("pointerleave", () => tip(""));
    this.canvas.addEventListener("click", (event) => { this.read(this.cellAt(event), event); this.choose(); });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => tip(""));
    onResize(this.canvas.parentElement, () => this.plot());
  }

  set(plot) {
    this.plotted = plot;
    this.cursor = null;
    this.text.textContent = "";
    this.canvas.setAttribute("aria-label", `${plot.label}. Arrow keys move, Enter chooses.`);
    this.plot();
  }

  plot() {
    const { rows, columns, value, scale, reversed, isChosen } = this.plotted || {};
    if (!rows) return;
    const ratio = devicePixelRatio || 1, width = this.canvas.parentElement.clientWidth;
    const size = Math.min(30, (width - 34) / columns);
    const height = Math.min(size, Math.max(10, 460 / rows));
    Object.assign(this, { left: 30, top: 20, size, height });
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round((rows * height + 26) * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${rows * height + 26}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    pen.fillStyle = colour("--soft");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const row of ticks(rows, height, 14)) pen.fillText(row, this.left - 5, this.top + (row + 0.5) * height);
    pen.textAlign = "center";
    for (const column of ticks(columns, size, 24)) pen.fillText(column, this.left + (column + 0.5) * size, 10);
    const gap = Math.min(size, height) > 6 ? 1 : 0;
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const found = value(row, column);
        if (found === null) continue;
        const share = (found - scale[0]) / (scale[1] - scale[0] || 1);
        pen.fillStyle = Number.isFinite(found) ? shade(reversed ? 1 - share : share) : colour("--empty");
        pen.fillRect(this.left + column * size, this.top + row * height, size - gap, height - gap);
      }
    }
    const frame = (row, column, style, line) => {
      pen.strokeStyle = style;
      pen.lineWidth = line;
      pen.strokeRect(this.left + column * size - 1, this.top + row * height - 1, size + 1, height + 1);
    };
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++)
        if (isChosen(row, column)) { frame(row, column, colour("--card"), 5); frame(row, column, colour("--accent"), 3); }
    if (this.cursor) frame(...this.cursor, colour("--text"), 2);
    this.plotLegend();
  }

  plotLegend() {
    const { scale, reversed, format } = this.plotted;
    const bar = element("canvas", { width: 200, height: 8, "aria-hidden": "true" });
    const pen = bar.getContext("2d");
    for (let x = 0; x < 200; x++) { pen.fillStyle = shade(reversed ? 1 - x / 199 : x / 199); pen.fillRect(x, 0, 1, 8); }
    this.legend.replaceChildren(element("span", {}, format(scale[0])), bar, element("span", {}, format(scale[1])));
  }

  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - this.top) / this.height);
    const column = Math.floor((event.clientX - box.left - this.left) / this.size);
    return this.exists(row, column) ? [row, column] : null;
  }

  exists(row, column) {
    const { rows, columns, value } = this.plotted;
    return row >= 0 && column >= 0 && row < rows && column < columns && value(row, column) !== null;
  }

  read(cell, event) {
    this.cursor = cell;
    const text = cell ? this.plotted.describe(...cell) : "";
    if (cell) this.text.textContent = text;
    this.plot();
    if (event.type === "keydown") {
      const box = this.canvas.getBoundingClientRect();
      tip(text, box.left + this.left + (cell[1] + 0.5) * this.size, box.top + this.top + cell[0] * this.height);
    } else tip(text, event.clientX, event.clientY);
  }

  choose() {
    if (this.cursor) this.plotted.choose(...this.cursor);
  }

  key(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.choose(); }
    if (!step || !this.plotted) return;
    event.preventDefault();
    const { rows, columns } = this.plotted;
    let [row, column] = this.cursor || this.plotted.start();
    if (!this.cursor) return this.read([row, column], event);
    // Cells that do not exist (a reader that is not later, a head with itself) are stepped over.
    for (let tries = 0; tries < Math.max(rows, columns); tries++) {
      row += step[0];
      column += step[1];
      if (this.exists(row, column)) return this.read([row, column], event);
    }
  }
}

const overview = new Heat("overview"), detail = new Heat("detail");

/** Statistic of one head's pairs within a layer. */
function headStatistic(comparison, name, statistic, layer, head) {
  const found = [];
  for (let other = 0; other < comparison.columns; other++) {
    if (other === head) continue;
    const value = comparison.value(name, layer, comparison.pairAt(head, other));
    if (Number.isFinite(value)) found.push(value);
  }
  if (!found.length) return NaN;
  const mean = found.reduce((sum, value) => sum + value, 0) / found.length;
  if (statistic === "mean") return mean;
  if (statistic === "spread") return Math.sqrt(found.reduce((sum, value) => sum + (value - mean) ** 2, 0) / found.length);
  return QUANTITIES[name].reversed ? Math.min(...found) : Math.max(...found);
}

function showOverview() {
  const comparison = current(), { quantity, statistic } = state, quantityShown = QUANTITIES[quantity];
  const label = `${quantityShown.label}, ${STATISTICS[statistic]}`;
  $("overview-title").textContent = `Overview · ${comparisonName(state.spaces)}`;
  const common = { reversed: quantityShown.reversed && statistic !== "spread", format: (value) => shown(value, quantity), label };
  if (comparison.within) {
    $("overview-axes").textContent = `Down: layer. Across: head. Colour: ${label}, over the head's pairs in its layer.`;
    const cells = comparison.conditions.map((_, layer) =>
      Array.from({ length: comparison.rows }, (_, head) => headStatistic(comparison, quantity, statistic, layer, head)));
    overview.set({
      ...common, rows: cells.length, columns: comparison.rows, value: (row, column) => cells[row][column], scale: extent(cells.flat()),
      describe: (row, column) => `${headName(row, column, state.spaces)}: ${label} ${shown(cells[row][column], quantity)}`,
      isChosen: (row, column) => row === state.condition && state.pair !== null && comparison.pairs[state.pair].includes(column),
      choose: (row, column) => choose(row, strongestOf(comparison, row, column)), start: () => [state.condition, 0],
    });
  } else {
    $("overview-axes").textContent = `Down: writer's layer. Across: reader's layer. Colour: ${label}, over the head pairs.`;
    const values = comparison.summary[quantity][statistic];
    const condition = (row, column) => comparison.conditionAt.get(row * data.layers + column);
    overview.set({
      ...common, rows: data.layers, columns: data.layers, scale: extent(values),
      value: (row, column) => (column > row ? values[condition(row, column)] : null),
      describe: (row, column) => `${conditionName(comparison, condition(row, column))}: ${label} ${shown(values[condition(row, column)], quantity)}`,
      isChosen: (row, column) => column > row && condition(row, column) === state.condition,
      choose: (row, column) => choose(condition(row, column), strongestOf(comparison, condition(row, column))),
      start: () => comparison.conditions[state.condition],
    });
  }
}

/** The pair of largest overlap in a condition, or of one head in it. */
function strongestOf(comparison, condition, head = null) {
  let best = null, largest = -1;
  comparison.pairs.forEach((heads, pair) => {
    const value = comparison.value("rho", condition, pair);
    if ((head === null || heads.includes(head)) && value > largest) { best = pair; largest = value; }
  });
  return best;
}

function showDetail() {
  const comparison = current(), { quantity, condition } = state, quantityShown = QUANTITIES[quantity];
  const name = conditionName(comparison, condition);
  $("detail-title").textContent = `Head pairs · ${name} · ${comparison.spaces}`;
  const sides = comparison.within ? "Both sides: head." : `Down: writer's head. Across: ${comparison.columns === comparison.rows ? "reader's head" : "reader's head (key-value heads as they are)"}.`;
  const missing = comparison.place.has(condition) ? "" : " This layer pair is too weak to be on the page: only its strongest pairs are, if any.";
  $("detail-axes").textContent = `${sides} Colour: ${quantityShown.label}.${missing}`;
  const value = (row, column) => {
    const pair = comparison.pairAt(row, column);
    return pair === undefined ? null : comparison.value(quantity, condition, pair);
  };
  const all = comparison.pairs.map((_, pair) => comparison.value(quantity, condition, pair));
  detail.set({
    rows: comparison.rows, columns: comparison.columns, value, scale: extent(all), reversed: quantityShown.reversed,
    format: (number) => shown(number, quantity), label: `${quantityShown.label}, ${name}`,
    describe: (row, column) => `${pairName(comparison, condition, comparison.pairAt(row, column))}: ${quantityShown.label} ${shown(value(row, column), quantity)}`,
    isChosen: (row, column) => state.pair !== null && comparison.pairAt(row, column) === state.pair,
    choose: (row, column) => choose(condition, comparison.pairAt(row, column)),
    start: () => (state.pair === null ? [0, comparison.within ? 1 : 0] : comparison.pairs[state.pair]),
  });
}

// ---------------------------------------------------------------- curves

/** Lines over whole numbers: hover or left and right keys read them. */
class Curves {
  constructor(id) {
    this.box = $(id);
    this.text = $(`${id}-text`);
    this.place = null;
    this.box.addEventListener("pointermove", (event) => {
      if (!this.plotted) return;
      const x = event.clientX - this.box.getBoundingClientRect().left;
      this.read(Math.round((x - this.left) / this.step) + this.plotted.first, event.clientX, event.clientY);
    });
    this.box.addEventListener("pointerleave", () => { tip(""); this.mark(); });
    this.box.addEventListener("blur", () => { tip(""); this.mark(); });
    this.box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step || !this.plotted) return;
      event.preventDefault();
      const box = this.box.getBoundingClientRect();
      const place = this.place === null ? this.plotted.first : this.place + step;
      this.read(place, box.left + this.left + (place - this.plotted.first) * this.step, box.top + 20);
    });
    onResize(this.box, () => this.plot());
  }

  set(plot) {
    this.plotted = plot;
    this.place = null;
    this.text.textContent = "";
    this.box.setAttribute("aria-label", `${plot ? plot.label : "No curve"}. Left and right keys read the values.`);
    this.plot();
  }

  plot() {
    const plot = this.plotted;
    this.box.replaceChildren();
    const width = this.box.clientWidth;
    if (!plot || !width) return;
    const height = 240, [low, high] = plot.scale, n = plot.count;
    const labels = niceTicks(low, high, 5);
    const digits = Math.max(...labels.map((tick) => (String(tick).split(".")[1] || "").length));
    Object.assign(this, { left: 22 + 7 * Math.max(...labels.map((tick) => tick.toFixed(digits).length)), top: 10, bottom: height - 40 });
    this.step = (width - this.left - 12) / Math.max(1, n - 1);
    const x = (at) => this.left + (at - plot.first) * this.step;
    const y = (value) => this.bottom - ((value - low) / (high - low || 1)) * (this.bottom - this.top);
    const svg = draw(this.box, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const tick of labels) {
      draw(svg, "line", { x1: this.left, x2: width - 12, y1: y(tick), y2: y(tick), stroke: "var(--line)" });
      draw(svg, "text", { x: this.left - 6, y: y(tick) + 4, "text-anchor": "end" }, tick.toFixed(digits));
    }
    for (const index of ticks(n, this.step, 30)) draw(svg, "text", { x: x(plot.first + index), y: this.bottom + 16, "text-anchor": "middle" }, plot.first + index);
    draw(svg, "text", { x: (this.left + width) / 2, y: height - 6, "text-anchor": "middle" }, plot.axis);
    const levelLabels = [];
    for (const { value, label } of plot.levels || []) {
      if (value < low || value > high) continue;
      draw(svg, "line", { x1: this.left, x2: width - 12, y1: y(value), y2: y(value), stroke: "var(--soft)", "stroke-dasharray": "2 3" });
      levelLabels.push([label, y(value) - 5]);
    }
    for (const line of plot.lines) {
      let path = "";
      line.values.forEach((value, index) => {
        if (!Number.isFinite(value)) return;
        path += `${path && Number.isFinite(line.values[index - 1]) ? "L" : "M"}${x(plot.first + index).toFixed(1)} ${y(value).toFixed(1)}`;
        if (n <= 130) draw(svg, "circle", { cx: x(plot.first + index), cy: y(value), r: line.isTick ? 1.6 : 2.4, fill: line.colour });
      });
      if (!line.isTick) draw(svg, "path", { d: path, fill: "none", stroke: line.colour, "stroke-width": 2, "stroke-dasharray": line.dash || "" });
    }
    for (const [label, at] of levelLabels) draw(svg, "text", { x: width - 14, y: at, "text-anchor": "end", class: "halo" }, label);
    this.marker = draw(svg, "line", { y1: this.top, y2: this.bottom, stroke: "var(--text)", visibility: "hidden" });
  }

  mark(place = null) {
    if (!this.marker) return;
    this.marker.setAttribute("visibility", place === null ? "hidden" : "visible");
    if (place === null) return;
    const x = this.left + (place - this.plotted.first) * this.step;
    this.marker.setAttribute("x1", x);
    this.marker.setAttribute("x2", x);
  }

  read(wanted, x, y) {
    const { first, count, describe } = this.plotted;
    this.place = Math.min(Math.max(wanted, first), first + count - 1);
    const text = describe(this.place);
    this.text.textContent = text.replaceAll("\n", " · ");
    this.mark(this.place);
    tip(text, x, y);
  }
}

const angles = new Curves("angles"), depth = new Curves("depth");

// ---------------------------------------------------------------- the pair

function nullQuantile(quantiles, rho) {
  if (!Number.isFinite(rho)) return "undefined";
  const share = nullShare(quantiles, rho);
  if (share === 0 || share === 1) return share ? "above all" : "below all";
  return share < 0.001 ? "< 0.001" : share > 0.999 ? "> 0.999" : share.toFixed(3);
}

/** Share of the null samples' pairs that overlap less, from their quantiles. */
function nullShare(quantiles, rho) {
  let low = 0, high = quantiles.length - 1;
  if (rho <= quantiles[0]) return 0;
  if (rho > quantiles[high]) return 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (quantiles[middle] < rho) low = middle; else high = middle;
  }
  return (low + (rho - quantiles[low]) / (quantiles[high] - quantiles[low] || 1)) / (quantiles.length - 1);
}

function pairFacts(comparison, condition, pair) {
  const [i, j] = comparison.pairs[pair];
  const rho = comparison.value("rho", condition, pair);
  const order = comparison.strongest.order.get(condition * comparison.pairs.length + pair);
  const cosines = pairCosines(comparison, order);
  const facts = [["ρ", shown(rho, "rho")]];
  const [layer, later] = comparison.conditions[condition], kinds = comparison.spaces;
  const dimension = Math.min(data.ranks[kinds[0]][layer][i], data.ranks[kinds.at(-1)][later][j]);
  facts.push(["projection kernel (PK)", `${(rho * dimension).toFixed(2)} of ${dimension}`]);
  facts.push(["smallest angle", `${shown(comparison.value("angle", condition, pair), "angle")}°`]);
  facts.push(["ρ over isotropic value", Number.isFinite(rho) ? `${(rho / data.isotropic).toFixed(2)} ×` : "undefined"]);
  for (const name of ["simple_composition", "weighted"])
    if (comparison.values[name]) facts.push([QUANTITIES[name].label, shown(comparison.value(name, condition, pair), name)]);
  if (order !== undefined) facts.push(["place among all pairs of the comparison", `${order + 1}`]);
  const nulls = comparison.nulls;
  for (const null_ of nulls ? ["rotation", "reassignment"] : []) {
    const mean = nulls[null_].mean_mean[condition], spread = nulls[null_].spread_mean[condition];
    if (spread > 0) facts.push([`distance from the ${null_} null's mean`, `${((rho - mean) / spread).toFixed(1)} of its spreads`]);
    if (nulls.pairs && comparison.within && nulls.pairs.layer === condition)
      facts.push([`quantile among the ${null_} null's pairs`, nullQuantile(nulls.pairs.quantiles[null_], rho)]);
  }
  if (nulls) {
    const largest = Math.max(nulls.rotation.spread_largest[condition], nulls.reassignment.spread_largest[condition]);
    const spread = comparison.summary.rho.spread[condition];
    facts.push([`spread in ${conditionName(comparison, condition)} over the largest of ${2 * nulls.samples} null samples (r)`, (spread / largest).toFixed(2)]);
  }
  return { facts, cosines };
}

function pairCosines(comparison, order) {
  if (order === undefined || !comparison.cosines) return [];
  const { count, values } = comparison.cosines;
  return Array.from(values.subarray(order * count, (order + 1) * count)).filter(Number.isFinite);
}

function showPair() {
  const comparison = current(), { condition, pair } = state;
  $("pair-facts").replaceChildren();
  if (pair === null) {
    $("pair-title").textContent = "Pair";
    $("pair-note").textContent = "No pair here has a defined overlap on this page.";
    angles.set(null);
    return;
  }
  const { facts, cosines } = pairFacts(comparison, condition, pair);
  const name = pairName(comparison, condition, pair);
  $("pair-title").textContent = `Pair · ${name}`;
  for (const [label, value] of facts) {
    const fact = element("div");
    fact.append(element("dt", {}, label), element("dd", {}, value));
    $("pair-facts").append(fact);
  }
  const degrees = cosines.map((cosine) => (Math.acos(cosine) * 180) / Math.PI);
  // The cosine does not resolve small angles; the overlaps file's smallest angle does.
  if (degrees.length) degrees[0] = comparison.value("angle", condition, pair);
  const n = comparison.strongest.index.length;
  $("pair-note").textContent = degrees.length ? "All principal angles, smallest first."
    : comparison.cosines ? `The page holds all principal angles of the ${n} strongest pairs of this comparison; of this pair the smallest only.`
    : "The page was written without the principal angles beyond the smallest.";
  angles.set(degrees.length ? {
    first: 1, count: degrees.length, scale: [0, 90], axis: "principal angle, by size", label: `Principal angles of ${name} in degrees`,
    lines: [{ values: degrees, colour: "var(--accent)" }],
    describe: (place) => `angle ${place} of ${degrees.length}: ${degrees[place - 1].toFixed(2)}°`,
  } : null);
}

// ---------------------------------------------------------------- depth profile

function depthSeries() {
  const statistic = $("depth-statistic").value, across = $("depth-scope").value === "across";
  const [name, kind] = statistic.split(":");
  const chosen = Object.values(comparisons).filter((comparison) => comparison.within !== across);
  return chosen.map((comparison) => {
    const values = comparison.summary[name][kind], sums = [], counts = [];
    comparison.conditions.forEach(([layer, later], condition) => {
      const place = across ? later - layer - 1 : layer, value = values[condition];
      if (!Number.isFinite(value)) return;
      sums[place] = (sums[place] || 0) + value;
      counts[place] = (counts[place] || 0) + 1;
    });
    const largest = comparison.nulls && !across && statistic === "rho:spread"
      ? comparison.conditions.map((_, condition) => Math.max(comparison.nulls.rotation.spread_largest[condition], comparison.nulls.reassignment.spread_largest[condition]))
      : null;
    const count = across ? data.layers - 1 : data.layers;
    return { spaces: comparison.spaces, largest, values: Array.from({ length: count }, (_, place) => (counts[place] ? sums[place] / counts[place] : NaN)) };
  });
}

function showDepth() {
  const across = $("depth-scope").value === "across", statistic = $("depth-statistic").value;
  const series = depthSeries().filter(({ spaces }) => !hidden.has(spaces));
  const first = across ? 1 : 0, [name] = statistic.split(":");
  const lines = series.map(({ spaces, values }) => ({ values, colour: `var(--${spaces.at(-1)})`, dash: DASHES[spaces] }));
  for (const { spaces, largest } of series) if (largest) lines.push({ values: largest, colour: `var(--${spaces})`, isTick: true });
  const levels = statistic === "rho:mean" ? [{ value: data.isotropic, label: "isotropic" }] : statistic === "rho:spread" ? [{ value: data.random_sd, label: "random spaces" }] : [];
  const [low, high] = extent([...lines.flatMap(({ values }) => Array.from(values)), ...levels.map(({ value }) => value)]);
  const where = across ? "layer distance" : "layer", label = $("depth-statistic").selectedOptions[0].textContent;
  depth.set({
    first, count: across ? Math.max(1, data.layers - 1) : data.layers, lines, levels, scale: [Math.min(0, low), high * 1.05 || 1],
    axis: across ? "layers from writer to reader (mean over the layer pairs)" : "layer", label: `${label} by ${where}`,
    describe: (place) => [`${where} ${place}: ${label}`, ...series.map(({ spaces, values, largest }) =>
      `${spaces}: ${shown(values[place - first], name)}${largest ? ` (largest null sample ${shown(largest[place], name)})` : ""}`)].join("\n"),
  });
  $("depth-keys").replaceChildren(...depthSeries().map(({ spaces }) => {
    const key = element("label"), box = element("input", { type: "checkbox" });
    box.checked = !hidden.has(spaces);
    box.onchange = () => { hidden[box.checked ? "delete" : "add"](spaces); showDepth(); $("depth-keys").querySelector(`[data-spaces="${spaces}"]`).focus(); };
    box.dataset.spaces = spaces;
    const svg = draw(key, "svg", { width: 34, height: 10, "aria-hidden": "true" });
    draw(svg, "line", { x1: 1, x2: 33, y1: 5, y2: 5, stroke: `var(--${spaces.at(-1)})`, "stroke-width": 3, "stroke-dasharray": DASHES[spaces] });
    key.prepend(box);
    key.append(spaces.length === 2 ? `O → ${spaces[1]}` : spaces);
    return key;
  }));
}

const hidden = new Set();

function depthOptions() {
  const across = $("depth-scope").value === "across", before = $("depth-statistic").value;
  const names = [["rho:mean", "mean ρ"], ["rho:spread", "spread of ρ"], ["rho:strongest", "largest ρ"], ["angle:strongest", "smallest angle (°)"], ["angle:mean", "mean of the pairs' smallest angles (°)"]];
  const has = (name) => Object.values(comparisons).some((comparison) => comparison.within !== across && comparison.summary[name]);
  if (has("weighted")) names.push(["weighted:mean", "mean weighted score"]);
  if (has("simple_composition")) names.push(["simple_composition:mean", "mean simple composition score"]);
  options($("depth-statistic"), names, names.some(([value]) => value === before) ? before : "rho:mean");
}

// ---------------------------------------------------------------- head graph

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
  const text = `layer ${layer}, ${side === "read" ? "key-value head" : "head"} ${head}: ${written} edges out, ${found.length - written} in`;
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
  $("graph-hint").textContent = `Layers upwards, heads across; an edge is a writer and a later reader with ρ of at least the threshold: ${graph.shown.length} edges${counts.length ? ` (${counts.join(", ")})` : ""}. Down to ${$("threshold").min} the page holds all.`;
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
    const used = graph.shown.some(({ from, to, heads: ends, spaces }) => (side !== "read" && from === layer && ends[0] === head) || (to === layer && ends[1] === head && (side === "read" ? readers[spaces] === count : readers[spaces] === heads)));
    if (side === "read" && !used) continue;
    const common = { fill: used ? "var(--text)" : "var(--line)" };
    const node = side === "read"
      ? draw(svg, "rect", { x: x(head, count) - 3.5, y: y(layer) + 2.5, width: 7, height: 7, ...common, fill: "var(--card)", stroke: "var(--text)" })
      : draw(svg, "circle", { cx: x(head, count), cy: y(layer), r: used ? 3.5 : 2, ...common });
    if (!used) continue;
    node.addEventListener("pointermove", (event) => markHead(layer, head, side === "mixed" ? "both" : side, event));
    node.addEventListener("pointerleave", unmark);
  }
}

// ---------------------------------------------------------------- strongest pairs

const table = { key: "rho", down: true, rows: 100 };

function tableColumns() {
  return ["rho", "angle", "simple_composition", "weighted"].filter((name) => current().values[name]);
}

function tableRows() {
  const comparison = current();
  const rows = Array.from(comparison.strongest.index, (flat, order) => ({
    condition: Math.floor(flat / comparison.pairs.length), pair: flat % comparison.pairs.length, order,
    ...Object.fromEntries(tableColumns().map((name) => [name, comparison.strongest.values[name][order]])),
  }));
  const sign = table.down ? -1 : 1, key = table.key in (rows[0] || {}) ? table.key : "rho";
  return rows.sort((one, other) => sign * (one[key] - other[key]) || one.order - other.order);
}

function showTable() {
  const comparison = current(), columns = tableColumns(), rows = tableRows();
  const head = element("tr"), body = element("tbody");
  const column = (label, key) => {
    const isKey = table.key === key;
    const cell = element("th", { scope: "col", ...(isKey ? { "aria-sort": table.down ? "descending" : "ascending" } : {}) });
    if (!key) { cell.textContent = label; cell.style.padding = "0.25rem 0.5rem"; return cell; }
    const button = element("button", { type: "button" }, `${label}${isKey ? (table.down ? " ↓" : " ↑") : ""}`);
    button.onclick = () => { Object.assign(table, { down: isKey ? !table.down : key !== "angle", key }); showTable(); $("table").querySelector(`[data-key="${key}"]`).focus(); };
    button.dataset.key = key;
    cell.append(button);
    return cell;
  };
  head.append(column("pair", ""), ...columns.map((name) => column(QUANTITIES[name].short, name)));
  for (const row of rows.slice(0, table.rows)) {
    const line = element("tr"), cell = element("td"), button = element("button", { type: "button" }, pairName(comparison, row.condition, row.pair));
    button.onclick = () => choose(row.condition, row.pair, true);
    cell.append(button);
    line.append(cell, ...columns.map((name) => element("td", {}, shown(row[name], name))));
    if (row.condition === state.condition && row.pair === state.pair) line.className = "chosen";
    body.append(line);
  }
  const top = element("thead");
  top.append(head);
  $("table").replaceChildren(top, body);
  const n = comparison.strongest.index.length;
  $("table-hint").textContent = `${comparisonName(comparison.spaces)}. ${Math.min(n, table.rows)} of the ${n} pairs with the largest ρ; the file has all ${n}.`;
}

// ---------------------------------------------------------------- the whole

function refreshQuantities() {
  const comparison = current();
  if (!comparison.values[state.quantity]) state.quantity = "rho";
  options($("quantity"), tableColumns().map((name) => [name, QUANTITIES[name].label]), state.quantity);
}

/** Choose a layer or layer pair and a head pair in it; everything that shows them follows. */
function choose(condition, pair, jump = false) {
  Object.assign(state, { condition, pair });
  showOverview();
  showDetail();
  showPair();
  showTable();
  const [layer, later] = current().conditions[condition], [head, other] = pair === null ? ["", ""] : current().pairs[pair];
  history.replaceState(null, "", `#${[state.spaces, layer, head, later, other].join(".")}`);
  if (jump) { $("pair").scrollIntoView({ block: "nearest" }); }
}

function chooseComparison(spaces) {
  state.spaces = spaces;
  refreshQuantities();
  const comparison = current(), flat = comparison.strongest.index[0];
  if (flat === undefined) choose(0, null);
  else choose(Math.floor(flat / comparison.pairs.length), flat % comparison.pairs.length);
}

/** Choose what an address names, as in OK.16.0.17.1: spaces, then layer and head of one side and of the other. */
function chooseAddress(address) {
  const [spaces, ...numbers] = address.split("."), [layer, head, later, other] = numbers.map((text) => (text === "" ? NaN : +text));
  const comparison = comparisons[spaces], condition = comparison && comparison.conditionAt.get(layer * data.layers + later);
  if (condition === undefined) return false;
  state.spaces = spaces;
  $("comparison").value = spaces;
  refreshQuantities();
  const pair = head < comparison.rows && other < comparison.columns ? comparison.pairAt(head, other) : undefined;
  choose(condition, pair ?? strongestOf(comparison, condition));
  return true;
}

function startNotes() {
  const partial = Object.values(comparisons).filter(({ isPartial }) => isPartial).map(({ spaces }) => spaces);
  const few = Object.values(comparisons).filter(({ strongest, conditions, pairs }) => strongest.index.length < conditions.length * pairs.length)
    .map(({ spaces, strongest }) => `${spaces} (${strongest.index.length})`);
  const notes = [
    "ρ = PK / min(rank), where PK is the sum of the squared cosines of all principal angles. Spread: population standard deviation (ddof = 0) over the pairs.",
    "Layers and heads count from 0. A key or value space that several query heads share is one space.",
    "Simple composition score: ||W_X W_O|| / (||W_X|| ||W_O||), unfolded weights. Weighted score: D ||R^T B||² / (||R||² ||B||²), about 1 for random matrices.",
    "Rounding on this page: ρ and composition to 1e-5, angles to 0.001°, the rest to 7 digits. The overlaps file has every digit.",
    few.length ? `The graph, the table and the principal angles hold the strongest pairs of a comparison: ${few.join(", ")}; of the others all.` : "The table and the principal angles hold all pairs.",
  ];
  if (data.fold) notes.push("The norm's linear part belongs to the read spaces. The paper on the projection kernel leaves it out: its numbers in the report's PK tables are of the bare weights and differ a little from PK here.");
  if (partial.length) notes.push(`The model has too many pairs for one page: of ${partial.join(", ")} the layer pairs with the largest overlaps are here pair by pair, the others by their mean, spread and strongest value.`);
  if (Object.values(comparisons).some(({ nulls }) => nulls)) notes.push("Null models: rotation keeps the singular values, reassignment the columns; both change only which direction belongs to which head. Small dots in the depth profile of the spread: the largest null sample.");
  $("notes").replaceChildren(...notes.map((note) => element("li", {}, note)));
}

function startFiles() {
  const heads = (comparison, condition, pair) => {
    const [layer, later] = comparison.conditions[condition], [i, j] = comparison.pairs[pair];
    return [comparison.spaces, layer, later, i, j];
  };
  const ids = ["spaces", "layer", "later_layer", "head", "other_head"];
  const name = (part) => () => `${data.model}-${part()}`;
  download("overview-csv", name(() => `${state.spaces}-conditions`),
    ["spaces", "layer", "later_layer", "quantity", "mean", "spread", "strongest"],
    () => Object.entries(current().summary).flatMap(([quantity, statistics]) => current().conditions.map(([layer, later], condition) =>
      [state.spaces, layer, later, QUANTITIES[quantity].name, ...["mean", "spread", "strongest"].map((key) => statistics[key][condition])])));
  download("detail-csv", name(() => `${state.spaces}-${conditionName(current(), state.condition)}`),
    [...ids, "quantity", "value"],
    () => tableColumns().flatMap((quantity) => current().pairs.map((_, pair) => [...heads(current(), state.condition, pair), QUANTITIES[quantity].name, current().value(quantity, state.condition, pair)])));
  download("pair-csv", name(() => `${state.spaces}-pair`), [...ids, "quantity", "value"], () => {
    if (state.pair === null) return [];
    const { facts, cosines } = pairFacts(current(), state.condition, state.pair), own = heads(current(), state.condition, state.pair);
    return [...facts.map(([label, value]) => [...own, label, value]), ...cosines.map((cosine, index) => [...own, `cos_${index + 1}`, cosine])];
  });
  download("depth-csv", name(() => `${$("depth-scope").value}-${$("depth-statistic").value}`), ["spaces", $("depth-scope").value === "across" ? "distance" : "layer", "statistic", "value"],
    () => depthSeries().flatMap(({ spaces, values, largest }) => [
      ...values.map((value, place) => [spaces, place + ($("depth-scope").value === "across" ? 1 : 0), $("depth-statistic").value, value]),
      ...(largest || []).map((value, place) => [spaces, place, "largest null sample", value])]));
  download("graph-csv", name(() => "graph"), [...ids, "rho"], () => graph.shown.map((edge) => [...heads(comparisons[edge.spaces], edge.condition, edge.pair), edge.rho]));
  download("table-csv", name(() => `${state.spaces}-strongest`), [...ids, "rho", "min_angle_deg", "simple_composition", "weighted"],
    () => tableRows().map((row) => [...heads(current(), row.condition, row.pair), row.rho, row.angle, row.simple_composition ?? NaN, row.weighted ?? NaN]));
}

function start() {
  $("isotropic").textContent = data.isotropic.toFixed(4);
  startTheme(() => {
    overview.plot();
    detail.plot();
  });
  startNotes();
  const names = Object.keys(comparisons);
  if (!names.length) {
    $("notes").append(element("li", {}, "The model has no pair of head spaces to compare."));
    return;
  }
  options($("comparison"), names.map((name) => [name, comparisonName(name)]), names[0]);
  options($("statistic"), Object.entries(STATISTICS), state.statistic);
  const scopes = [["within", "spaces within a layer"], ["across", "writes to later reads, by layer distance"]].filter(([scope]) => Object.values(comparisons).some(({ within }) => within === (scope === "within")));
  options($("depth-scope"), scopes, scopes[0][0]);
  depthOptions();
  $("comparison").onchange = ({ target }) => chooseComparison(target.value);
  $("quantity").onchange = ({ target }) => { state.quantity = target.value; showOverview(); showDetail(); };
  $("statistic").onchange = ({ target }) => { state.statistic = target.value; showOverview(); };
  $("depth-scope").onchange = () => { depthOptions(); showDepth(); };
  $("depth-statistic").onchange = showDepth;
  document.querySelectorAll("form").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));
  startFiles();
  startGraph();
  if (!chooseAddress(location.hash.slice(1))) chooseComparison(names[0]);
  addEventListener("hashchange", () => chooseAddress(location.hash.slice(1)));
  showDepth();
}

start();
