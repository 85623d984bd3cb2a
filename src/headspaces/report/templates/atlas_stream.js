// Neurons, tokens and paths beyond heads of the chosen pair's heads, where the stage stream was run.

const STREAM_SAYS = {
  neurons: {
    O: "neurons of later MLPs that read what it writes",
    ...Object.fromEntries([["Q", "queries"], ["K", "keys"], ["V", "values"]].map(([kind, name]) => [kind, `neurons of earlier MLPs that write what its ${name} read`])),
  },
  paths: { O: "what else reads what it writes", Q: "what else its queries read", K: "what else its keys read", V: "what else its values read" },
  tokens: { O: "tokens whose logits it reaches", Q: "tokens that its queries read", K: "tokens that its keys read", V: "tokens that its values read" },
};

/** The columns of a list, and the decimals of its two numbers. */
const STREAM_COLUMNS = {
  neurons: { names: ["neuron", "share", "times d/D"], digits: [3, 1] },
  tokens: { names: ["token", "share", "times d/D"], digits: [3, 1] },
  paths: { names: ["path", "score", "effect (0.001 nats)"], digits: [2, 2] },
};

const streamLists = Object.fromEntries(["neurons", "tokens"].map((what) => [what, Object.fromEntries(
  Object.entries(data.stream[what] || {}).map(([kind, { count, share, text, ...labels }]) => [kind, {
    count, text, share: unpack(share),
    ...Object.fromEntries(Object.entries(labels).map(([name, packed]) => [name, new Uint32Array(bytes(packed))])),
  }]))]));

/** What stands in a head's list, strongest first: a name and the two numbers of its columns. */
function streamRows(what, layer, head, kind) {
  if (what === "paths") return (data.stream.paths[kind]?.[layer][head] || []).map(([name, score, effect]) => [name, score, effect === null ? null : 1000 * effect]);
  const list = streamLists[what][kind], rows = [];
  const first = list ? (layer * data.ranks[kind][0].length + head) * list.count : 0;
  for (let place = first; list && place < first + list.count; place++) {
    if (!Number.isFinite(list.share[place])) break;
    const name = what === "tokens" ? (list.text ? JSON.stringify(list.text[place]) : `token ${list.token[place]}`)
      : `L${list.layer[place]} neuron ${list.neuron[place]}${kind === "O" ? ` (${data.stream.matrices[list.matrix[place]]})` : ""}`;
    rows.push([name, list.share[place], list.share[place] / data.isotropic]);
  }
  return rows;
}

/** The heads of the chosen pair, each as layer, head and kind of space. */
function chosenHeads() {
  if (state.pair === null) return [];
  const comparison = current(), [layer, later] = comparison.conditions[state.condition], [i, j] = comparison.pairs[state.pair];
  return [[layer, i, comparison.spaces[0]], [later, j, comparison.spaces.at(-1)]];
}

const STREAM_LISTS = ["neurons", "paths", "tokens"];

function showStream() {
  if (!$("stream")) return;
  $("stream").replaceChildren(...chosenHeads().flatMap((own) => STREAM_LISTS.map((what) => streamTable(what, own))));
}

function streamTable(what, [layer, head, kind]) {
  const rows = streamRows(what, layer, head, kind), list = element("div", { class: "strongest" });
  list.append(element("h3", {}, `${headName(layer, head, kind)}: ${STREAM_SAYS[what][kind]}`));
  if (!rows.length) { list.append(element("p", { class: "hint" }, "None.")); return list; }
  const table = element("table"), top = element("thead"), names = element("tr"), body = element("tbody");
  const columns = STREAM_COLUMNS[what];
  names.append(...columns.names.map((label) => element("th", { scope: "col" }, label)));
  top.append(names);
  for (const [name, ...values] of rows) {
    const line = element("tr");
    line.append(element("td", {}, name), ...values.map((value, at) => element("td", {},
      value === null ? "–" : value.toFixed(columns.digits[at]))));
    body.append(line);
  }
  table.append(top, body);
  list.append(table);
  return list;
}

function startStream() {
  if (!$("stream")) return;
  download("stream-csv", () => `${data.model}-${state.spaces}-neurons-tokens`, ["spaces", "layer", "head", "list", "place", "name", "share", "score", "effect_millinats"],
    () => chosenHeads().flatMap(([layer, head, kind]) => STREAM_LISTS.flatMap((what) =>
      streamRows(what, layer, head, kind).map(([name, value, other], place) =>
        [kind, layer, head, what, place, name, ...(what === "paths" ? ["", value, other] : [value, "", ""])]))));
}
