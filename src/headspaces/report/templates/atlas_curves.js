// Curves.

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
