// Heat maps.

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
