// The depth profile.

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
