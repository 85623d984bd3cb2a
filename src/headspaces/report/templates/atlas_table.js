// The table of strongest pairs, and the search for a head.

const table = { key: "rho", down: true, rows: 100 };

function tableColumns() {
  return ["rho", "angle", "simple_composition", "weighted", "effect", "swap_z", "swap_p"].filter((name) => current().values[name]);
}

/** Whether a head is meant by what was typed: 16.0, 16 for all of a layer, 17k1 for a key-value head, or a class. */
function isMeant(wanted, layer, head, kind) {
  const number = /^(\d+)(?:([.k])(\d*))?$/.exec(wanted);
  if (!number) return classesOf(layer, head, kind).toLowerCase().includes(wanted);
  if (+number[1] !== layer) return false;
  if (!number[3]) return true;
  return number[2] === "k" ? data.ranks[kind][0].length < (data.ranks.O || [[]])[0].length && +number[3] === head : queryHeads(head, kind).includes(+number[3]);
}

/** Flat indices of the pairs that the table is about: the strongest, or all on the page of the heads that were typed. */
function tableIndices(comparison) {
  const wanted = $("search").value.trim().toLowerCase(), kinds = comparison.spaces;
  if (!wanted) return comparison.strongest.index;
  const found = [];
  for (const condition of comparison.place.keys()) {
    const [layer, later] = comparison.conditions[condition];
    const sides = [[layer, comparison.rows, kinds[0]], [later, comparison.columns, kinds.at(-1)]]
      .map(([number, count, kind]) => Array.from({ length: count }, (_, head) => isMeant(wanted, number, head, kind)));
    if (sides.flat().some(Boolean))
      comparison.pairs.forEach(([i, j], pair) => { if (sides[0][i] || sides[1][j]) found.push(condition * comparison.pairs.length + pair); });
  }
  return found;
}

function tableRows() {
  const comparison = current();
  const rows = Array.from(tableIndices(comparison), (flat, order) => {
    const condition = Math.floor(flat / comparison.pairs.length), pair = flat % comparison.pairs.length;
    return { condition, pair, order, ...Object.fromEntries(tableColumns().map((name) => [name, comparison.value(name, condition, pair)])) };
  });
  const sign = table.down ? -1 : 1, key = table.key in (rows[0] || {}) ? table.key : "rho";
  return rows.sort((one, other) => sign * (one[key] - other[key]) || one.order - other.order);
}

function knownAs(comparison, condition, pair) {
  const [layer, later] = comparison.conditions[condition], [i, j] = comparison.pairs[pair], kinds = comparison.spaces;
  const ends = [classesOf(layer, i, kinds[0]), classesOf(later, j, kinds.at(-1))];
  return ends.some(Boolean) ? ends.map((name) => name || "–").join(comparison.within ? " and " : " → ") : "";
}

function startSearch() {
  const names = [...new Set(Object.values(data.marks.classes))];
  $("known").replaceChildren(...names.map((value) => element("option", { value })));
  $("search").addEventListener("input", showTable);
}

function showTable() {
  const comparison = current(), columns = tableColumns(), rows = tableRows();
  const head = element("tr"), body = element("tbody");
  const column = (label, key) => {
    const isKey = table.key === key;
    const cell = element("th", { scope: "col", class: key || "known", ...(isKey ? { "aria-sort": table.down ? "descending" : "ascending" } : {}) });
    if (!key) { cell.textContent = label; cell.style.padding = "0.25rem 0.5rem"; return cell; }
    const button = element("button", { type: "button" }, `${label}${isKey ? (table.down ? " ↓" : " ↑") : ""}`);
    button.onclick = () => { Object.assign(table, { down: isKey ? !table.down : key !== "angle", key }); showTable(); $("table").querySelector(`[data-key="${key}"]`).focus(); };
    button.dataset.key = key;
    cell.append(button);
    return cell;
  };
  const isKnown = Object.keys(data.marks.classes).length > 0;
  head.append(column("pair", ""), ...columns.map((name) => column(QUANTITIES[name].short, name)), ...(isKnown ? [column("known or measured as", "")] : []));
  head.firstChild.className = "";
  for (const row of rows.slice(0, table.rows)) {
    const line = element("tr"), cell = element("td"), button = element("button", { type: "button" }, pairName(comparison, row.condition, row.pair));
    button.onclick = () => choose(row.condition, row.pair, true);
    cell.append(button);
    line.append(cell, ...columns.map((name) => element("td", { class: name }, shown(row[name], name))));
    if (isKnown) line.append(element("td", { class: "known" }, knownAs(comparison, row.condition, row.pair)));
    if (row.condition === state.condition && row.pair === state.pair) line.className = "chosen";
    body.append(line);
  }
  const top = element("thead");
  top.append(head);
  $("table").replaceChildren(top, body);
  const n = rows.length, wanted = $("search").value.trim();
  const which = wanted ? `pairs on the page with ${wanted}` : "pairs with the largest ρ";
  $("table-hint").textContent = `${comparisonName(comparison.spaces)}. ${Math.min(n, table.rows)} of the ${n} ${which}; the file has all ${n}.`;
}
