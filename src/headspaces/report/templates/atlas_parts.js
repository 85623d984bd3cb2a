// Small parts of the figures: elements, ticks, colours, files.

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
