// The overview of a comparison and the head pairs of one layer or layer pair, as heat maps.

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
