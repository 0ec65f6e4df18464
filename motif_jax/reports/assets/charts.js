"use strict";
// Line charts: values under the pointer, zoom by dragging, smoothing, logarithmic axes, lines switched on and off by the legend.
// The page is drawn without this script; from the first touch on a chart is drawn again here, from the numbers that it holds.

{ // Names of its own: other scripts share the page.

const SVG = "http://www.w3.org/2000/svg";
const ALIKE = 1e-9; // Numbers that are nearer to each other, by their size, are drawn as one.

function element(name, attributes, parent, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function short(value) {
  const plain = (v) => String(Number(v.toPrecision(4)));
  for (const [limit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= limit) return plain(value / limit) + letter;
  }
  return value === 0 || Math.abs(value) >= 1e-3 ? plain(value) : value.toExponential(1);
}

function roundTicks(low, high) {
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9); const last = Math.floor(high / step + 1e-9);
  // Where the two are one number, or nearly, there is no step between them.
  if (!(last - first >= 0 && last - first < 20)) return [low];
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

function powerTicks(low, high) {
  const found = [];
  for (let p = Math.ceil(Math.log10(low) - 1e-9); p <= Math.floor(Math.log10(high) + 1e-9); p += 1) found.push(10 ** p);
  return found.length > 1 ? found : roundTicks(low, high).filter((v) => v > 0);
}

class Axis {
  constructor(low, high, from, to, log) {
    this.log = log && low > 0 && high > low;
    this.low = low; this.high = high; this.from = from; this.to = to;
    this.a = this.log ? Math.log(low) : low;
    this.b = this.log ? Math.log(high) : high;
  }
  at(value) { return this.from + (((this.log ? Math.log(value) : value) - this.a) / (this.b - this.a || 1)) * (this.to - this.from); }
  value(at) {
    const inside = this.a + Math.min(1, Math.max(0, (at - this.from) / (this.to - this.from))) * (this.b - this.a);
    return this.log ? Math.exp(inside) : inside;
  }
  ticks() { return this.log ? powerTicks(this.low, this.high) : roundTicks(this.low, this.high); }
}

// An exponential mean without a bias towards its start; gaps stay gaps.
function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0; let norm = 0;
  return values.map((y) => {
    if (y === null) return null;
    sum = weight * sum + (1 - weight) * y;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

class Chart {
  constructor(svg) {
    this.svg = svg;
    this.data = JSON.parse(svg.dataset.chart);
    this.box = svg.closest("figure") || svg.parentElement;
    this.cursor = svg.querySelector(".cursor");
    this.state = { zoom: null, smooth: 0, logX: false, logY: false, hidden: new Set() };
    this.measure();
    this.listen();
    if (Math.max(...this.data.series.map((s) => s.x.length)) > 2) this.addControls();
    this.addLegend();
  }

  // The lines as they are to be shown, and the axes that hold them.
  measure() {
    const { zoom, smooth, logX, logY, hidden } = this.state;
    const fits = (x, y) => (!zoom || (x >= zoom[0] && x <= zoom[1])) && (!logX || x > 0) && (!logY || y > 0);
    this.lines = this.data.series.map((s, place) => ({ ...s, place, shown: smoothed(s.y, smooth) })).filter((s) => !hidden.has(s.place));
    const xs = []; const ys = [];
    for (const s of this.lines) {
      s.x.forEach((x, i) => {
        for (const y of [s.shown[i], smooth ? null : s.low && s.low[i], smooth ? null : s.high && s.high[i]]) {
          if (y !== null && y !== undefined && fits(x, y)) { xs.push(x); ys.push(y); }
        }
      });
    }
    const least = (of) => of.reduce((a, b) => Math.min(a, b), Infinity);
    const most = (of) => of.reduce((a, b) => Math.max(a, b), -Infinity);
    let [left, right] = zoom || (logX && xs.length ? [least(xs), most(xs)] : [this.data.low, this.data.high]);
    if (logX && left <= 0 && xs.length) left = least(xs);
    let [low, high] = ys.length ? [least(ys), most(ys)] : [logY ? 1 : 0, logY ? 10 : 1];
    // Of equal numbers smoothing makes such that differ in their last digit.
    if (high - low <= ALIKE * Math.max(Math.abs(low), Math.abs(high))) { const margin = Math.abs(low) * 0.1 || 1; low -= logY ? low / 2 : margin; high += margin; }
    else if (logY) { low /= 1.1; high *= 1.1; }
    else { const margin = 0.05 * (high - low); low = low >= 0 && low < 4 * margin ? 0 : low - margin; high += margin; }
    this.fits = fits;
    this.x = new Axis(left, right, this.data.left, this.data.right, logX);
    this.y = new Axis(low, high, this.data.bottom, this.data.top, logY);
  }

  draw() {
    this.measure();
    const { left, right, top, bottom } = this.data;
    const frame = this.svg.querySelector("g.frame"); const plot = this.svg.querySelector("g.plot");
    frame.replaceChildren(); plot.replaceChildren();
    for (const value of this.x.ticks()) {
      const at = this.x.at(value);
      element("text", { class: "tick", x: at, y: bottom + 17, "text-anchor": "middle" }, frame, short(value));
      element("line", { class: "grid", x1: at, x2: at, y1: top, y2: bottom }, frame);
    }
    for (const value of this.y.ticks()) {
      const at = this.y.at(value);
      element("text", { class: "tick", x: left - 7, y: at + 4, "text-anchor": "end" }, frame, short(value));
      element("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }, frame);
    }
    element("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }, frame);
    for (const s of this.lines) {
      if (s.low && !this.state.smooth) this.drawSpread(s, plot);
      if (this.state.smooth) element("path", { class: `line raw c${s.place % 6}`, d: this.path(s.x, s.y) }, plot);
    }
    for (const s of this.lines) {
      element("path", { class: `line c${s.place % 6}${s.dashed ? " dashed" : ""}`, d: this.path(s.x, s.shown) }, plot);
      // A single point makes no line.
      const seen = s.x.map((_, i) => i).filter((i) => s.shown[i] !== null && this.fits(s.x[i], s.shown[i]));
      if (seen.length === 1) element("circle", { class: `dot c${s.place % 6}`, r: 4, cx: this.x.at(s.x[seen[0]]), cy: this.y.at(s.shown[seen[0]]) }, plot);
    }
  }

  drawSpread(s, plot) {
    const good = s.x.map((_, i) => i).filter((i) => s.low[i] !== null && s.high[i] !== null && this.fits(s.x[i], s.low[i]));
    if (s.bars) {
      for (const i of good) {
        const at = this.x.at(s.x[i]);
        element("line", { class: `whisker c${s.place % 6}`, x1: at, x2: at, y1: this.y.at(s.low[i]), y2: this.y.at(s.high[i]) }, plot);
      }
    } else if (good.length) {
      const up = good.map((i) => `${this.x.at(s.x[i])} ${this.y.at(s.high[i])}`);
      const down = good.reverse().map((i) => `${this.x.at(s.x[i])} ${this.y.at(s.low[i])}`);
      element("path", { class: `band c${s.place % 6}`, d: `M${up.join("L")}L${down.join("L")}Z` }, plot);
    }
  }

  path(xs, ys) {
    let down = false;
    return xs.map((x, i) => {
      if (ys[i] === null || !this.fits(x, ys[i])) { down = false; return ""; }
      const part = `${down ? "L" : "M"}${this.x.at(x).toFixed(1)} ${this.y.at(ys[i]).toFixed(1)}`;
      down = true;
      return part;
    }).join("");
  }

  place(event) {
    const area = this.svg.getBoundingClientRect();
    return ((event.clientX - area.left) / area.width) * this.svg.viewBox.baseVal.width;
  }

  listen() {
    const svg = this.svg;
    svg.addEventListener("pointermove", (event) => { this.select(event); this.tell(event); });
    svg.addEventListener("pointerleave", () => this.quiet());
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.start = this.place(event);
      svg.setPointerCapture(event.pointerId); // the button may be let go outside
    });
    svg.addEventListener("pointerup", (event) => this.release(event));
    svg.addEventListener("dblclick", () => { this.state.zoom = null; this.draw(); });
  }

  select(event) {
    if (this.start === undefined || event.buttons !== 1) return;
    const [a, b] = [this.start, this.place(event)].sort((p, q) => p - q);
    if (!this.selection) this.selection = element("rect", { class: "selection", y: this.data.top, height: this.data.bottom - this.data.top }, this.svg);
    this.selection.setAttribute("x", Math.max(a, this.data.left));
    this.selection.setAttribute("width", Math.max(0, Math.min(b, this.data.right) - Math.max(a, this.data.left)));
  }

  release(event) {
    if (this.start === undefined) return;
    const [a, b] = [this.start, this.place(event)].sort((p, q) => p - q);
    this.start = undefined;
    if (this.selection) { this.selection.remove(); this.selection = null; }
    const zoom = [this.x.value(a), this.x.value(b)];
    if (b - a < 8 || zoom[1] - zoom[0] <= ALIKE * Math.max(Math.abs(zoom[0]), Math.abs(zoom[1]))) return;
    this.state.zoom = zoom;
    this.draw();
  }

  tell(event) {
    const x = this.x.value(this.place(event));
    const said = []; let shown = null;
    for (const s of this.lines) {
      let best = -1;
      s.x.forEach((value, i) => {
        if (this.state.zoom && (value < this.state.zoom[0] || value > this.state.zoom[1])) return;
        if (best < 0 || Math.abs(value - x) < Math.abs(s.x[best] - x)) best = i;
      });
      if (best < 0) continue;
      shown = s.x[best];
      const number = (v) => v.toLocaleString("en", { maximumSignificantDigits: 4 });
      const y = s.shown[best];
      const spread = s.low && s.low[best] !== null && !this.state.smooth ? ` [${number(s.low[best])}, ${number(s.high[best])}]` : "";
      said.push(`${s.name || "value"}: ${y === null ? "n/a" : number(y)}${spread}`);
    }
    if (shown === null) { this.quiet(); return; }
    const at = this.x.at(shown);
    this.cursor.setAttribute("x1", at);
    this.cursor.setAttribute("x2", at);
    this.cursor.setAttribute("visibility", "visible");
    if (!this.tip) { this.tip = document.createElement("div"); this.tip.className = "tip"; this.box.append(this.tip); }
    this.tip.replaceChildren(...[`${this.data.x}: ${shown.toLocaleString("en")}`, ...said].map((line) => {
      const div = document.createElement("div");
      div.textContent = line;
      return div;
    }));
    const frame = this.box.getBoundingClientRect();
    const left = Math.min(event.clientX - frame.left + 14, frame.width - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(4, left)}px`;
    this.tip.style.top = `${event.clientY - frame.top + 14}px`;
  }

  quiet() {
    this.cursor.setAttribute("visibility", "hidden");
    if (this.tip) { this.tip.remove(); this.tip = null; }
  }

  addControls() {
    const row = document.createElement("div");
    row.className = "controls";
    const label = document.createElement("label");
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: 0, max: 0.99, step: 0.01, value: 0 });
    label.append("smooth ", slider);
    slider.addEventListener("input", () => { this.state.smooth = Number(slider.value); this.draw(); });
    row.append(label);
    for (const [key, text] of [["logX", "log x"], ["logY", "log y"]]) {
      const button = this.button(text, () => {
        this.state[key] = !this.state[key];
        button.setAttribute("aria-pressed", this.state[key]);
        this.draw();
      });
      button.setAttribute("aria-pressed", "false");
      row.append(button);
    }
    row.append(this.button("whole", () => { this.state.zoom = null; this.draw(); }));
    const legend = this.svg.nextElementSibling;
    (legend && legend.classList.contains("legend") ? legend : this.svg).after(row);
  }

  button(text, act) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: text });
    button.addEventListener("click", act);
    return button;
  }

  addLegend() {
    const legend = this.svg.nextElementSibling;
    if (!legend || !legend.classList.contains("legend") || this.data.series.length < 2) return;
    [...legend.children].forEach((item, place) => {
      const button = this.button("", () => {
        const { hidden } = this.state;
        if (!hidden.delete(place)) hidden.add(place);
        button.setAttribute("aria-pressed", !hidden.has(place));
        this.draw();
      });
      button.setAttribute("aria-pressed", "true");
      button.append(...item.childNodes);
      item.replaceChildren(button);
    });
  }
}

for (const svg of document.querySelectorAll("svg[data-chart]")) new Chart(svg);

}
