// The whole: what is chosen, what follows from it, and how the page starts.

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
  showStream();
  showTable();
  const [layer, later] = current().conditions[condition], [head, other] = pair === null ? ["", ""] : current().pairs[pair];
  history.replaceState(null, "", `#${[state.spaces, layer, head, later, other].join(".")}`);
  // Beside another atlas, which is led to the same heads.
  if (parent !== window) parent.postMessage({ address: location.hash.slice(1) }, "*");
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
  if (Object.values(comparisons).some(({ values }) => values.effect)) notes.push(
    "Effect: A, first order, of the edge on the mean loss of the text (for the two-layer model, of second copies of random tokens), in thousandths "
    + "of a nat: without the write at that read the loss changes by about -A.");
  if (Object.values(comparisons).some(({ values }) => values.swap_z)) notes.push(
    "z and p against the swap null: of one pair against all pairs of all samples of its layer or layer pair, which keep the directions of a layer "
    + "and exchange them between its heads. p is of a single pair, without a correction for how many there are.");
  if (data.marks.source) notes.push(`Classes of heads are those of ${data.marks.source}; a key-value head has those of its query heads.`);
  if (data.fold) notes.push("The norm's linear part belongs to the read spaces. The paper on the projection kernel leaves it out: its numbers in the report's PK tables are of the bare weights and differ a little from PK here.");
  if (partial.length) notes.push(`The model has too many pairs for one page: of ${partial.join(", ")} the layer pairs with the largest overlaps are here pair by pair, the others by their mean, spread and strongest value.`);
  if (Object.values(comparisons).some(({ nulls }) => nulls)) notes.push(
    "Null models: rotation keeps the singular values, reassignment the columns; both change only which direction belongs to which head. "
    + "Small dots in the depth profile of the spread: the largest null sample.");
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
  startStream();
  startSearch();
  startGraph();
  if (!chooseAddress(location.hash.slice(1))) chooseComparison(names.includes("OK") ? "OK" : names[0]);
  $("comparison").value = state.spaces;
  addEventListener("hashchange", () => chooseAddress(location.hash.slice(1)));
  showDepth();
}

start();
