// The chosen pair.

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
  for (const name of ["simple_composition", "weighted", "effect"])
    if (comparison.values[name]) facts.push([QUANTITIES[name].label, shown(comparison.value(name, condition, pair), name)]);
  const total = comparison.conditions.length * comparison.pairs.length;
  const place = order !== undefined ? order + 1 : comparison.isPartial ? 0 : 1 + comparison.values.rho.filter((value) => value > rho).length;
  if (place) facts.push(["place among all pairs of the comparison", `${place.toLocaleString("en")} of ${total.toLocaleString("en")}`]);
  if (comparison.values.swap_z) {
    facts.push(["z against the swap null", shown(comparison.value("swap_z", condition, pair), "swap_z")]);
    facts.push(["p against the swap null", shown(comparison.value("swap_p", condition, pair), "swap_p")]);
  }
  for (const [side, number, head] of [[kinds[0], layer, i], [kinds.at(-1), later, j]]) {
    const known = doings(number, head, side);
    if (known) facts.push([`${headName(number, head, side)} is`, known]);
  }
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
