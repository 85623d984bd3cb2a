// The numbers of the page, and what they and their heads are called. All text goes in as text (textContent): names never become markup.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const UNDEFINED = 65535;
const READS = { Q: "query", K: "key", V: "value" };
const QUANTITIES = {
  rho: { label: "overlap ρ", short: "ρ", digits: 4, name: "rho" },
  angle: { label: "smallest principal angle (°)", short: "angle (°)", digits: 2, name: "min_angle_deg", reversed: true },
  simple_composition: { label: "simple composition score", short: "composition", digits: 4, name: "simple_composition" },
  weighted: { label: "spectrally weighted score", short: "weighted", digits: 3, name: "weighted" },
  effect: { label: "effect on the loss (0.001 nats)", short: "effect", digits: 2, name: "effect_millinats" },
  swap_z: { label: "z against the swap null", short: "z", digits: 1, name: "swap_z" },
  swap_p: { label: "p against the swap null", short: "p", digits: 3, name: "swap_p", reversed: true },
};
const STATISTICS = { strongest: "strongest pair", mean: "mean", spread: "spread (standard deviation)" };
const DASHES = { O: "", Q: "6 3", K: "2 3", V: "8 3 2 3", OQ: "", OK: "7 3", OV: "2 3" };
const VIRIDIS = ["#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725"]
  .map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));

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
  if (!Number.isFinite(value)) return "undefined";
  if (name === "swap_p" && value < 0.001) return value < 1e-37 ? "< 1e-37" : value.toExponential(0);
  return value.toFixed(QUANTITIES[name] ? QUANTITIES[name].digits : 4);
}

function headName(layer, head, kind) {
  return `L${layer} ${kind}${head}`;
}

/** Query heads that a head stands for: itself, or those that share a key-value head. */
function queryHeads(head, kind) {
  const count = data.ranks[kind][0].length, group = (data.ranks.O || data.ranks.Q || data.ranks[kind])[0].length / count;
  return Array.from({ length: group }, (_, index) => head * group + index);
}

/** Classes of a head, or of the query heads that it stands for; "" where nothing is known. */
function classesOf(layer, head, kind) {
  const found = queryHeads(head, kind).map((query) => data.marks.classes[`${layer}.${query}`]).filter(Boolean);
  return [...new Set(found)].join(", ");
}

/** A mark for each class: as many of its first letters as tell it from the others. */
const MARKS = Object.fromEntries([...new Set(Object.values(data.marks.classes))].map((name, _, names) => {
  const isTold = (length) => names.every((other) => other === name || other.slice(0, length) !== name.slice(0, length));
  return [name, name.slice(0, [1, 2, 3].find(isTold) || 4)];
}));

const PATTERNS = { previous_token: "the token before", induction: "the one after an earlier copy", identity: "itself" };

/** What a head is known as, and what it was measured to attend to most. */
function doings(layer, head, kind) {
  const parts = [classesOf(layer, head, kind)];
  const measured = Object.entries(data.marks.patterns).flatMap(([name, scores]) => queryHeads(head, kind).map((query) => [scores[layer][query], name, query]));
  if (measured.length) {
    const [score, name, query] = measured.reduce((best, one) => (one[0] > best[0] ? one : best));
    const who = queryHeads(head, kind).length > 1 ? `query head ${query} ` : "";
    parts.push(`${who}attends ${score.toFixed(2)} to ${PATTERNS[name]}`);
  }
  return parts.filter(Boolean).join("; ");
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
