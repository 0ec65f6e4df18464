"use strict";
// Sorting, searching and shortening tables, and the values under the pointer of a chart.

function cellKey(row, column) {
  const cell = row.cells[column];
  const value = cell.dataset.value;
  return value === undefined ? cell.textContent.trim().toLowerCase() : Number(value);
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function sortTable(table, column) {
  const heads = [...table.tHead.rows[0].cells];
  const head = heads[column];
  const descending = head.getAttribute("aria-sort") !== "descending";
  heads.forEach((h) => h.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row, place) => ({ row, place, key: cellKey(row, column) }));
  rows.sort((a, b) => (descending ? -1 : 1) * compare(a.key, b.key) || a.place - b.place);
  body.append(...rows.map((r) => r.row));
  applyFilter(table);
}

function applyFilter(table) {
  const field = document.querySelector(`input[data-for="${table.id}"]`);
  const words = field ? field.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
  const limit = table.dataset.open || words.length ? Infinity : Number(table.dataset.limit || Infinity);
  let matching = 0;
  for (const row of table.tBodies[0].rows) {
    // Numbers are for sorting: a search for "11" should not find every row that was seen 1,118 times.
    const text = [...row.cells].filter((c) => !c.classList.contains("number")).map((c) => c.textContent).join(" ").toLowerCase();
    const match = words.every((word) => text.includes(word));
    row.hidden = !match || matching >= limit;
    if (match) matching += 1;
  }
  const count = document.querySelector(`.count[data-for="${table.id}"]`);
  const total = table.tBodies[0].rows.length;
  if (count) count.textContent = words.length ? `${matching} of ${total} rows` : `${total} rows`;
}

for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const first = table.tBodies[0].rows[0];
    if (first && first.cells[column].classList.contains("number")) head.classList.add("number");
    head.querySelector("button").addEventListener("click", () => sortTable(table, column));
  });
  const limit = Number(table.dataset.limit || 0);
  if (limit && table.tBodies[0].rows.length > limit) {
    const more = document.createElement("button");
    more.type = "button";
    more.className = "more";
    more.textContent = `show all ${table.tBodies[0].rows.length} rows`;
    more.addEventListener("click", () => { table.dataset.open = "1"; applyFilter(table); more.remove(); });
    table.parentElement.after(more);
  }
  applyFilter(table);
}

for (const field of document.querySelectorAll("input[type=search][data-for]")) {
  field.addEventListener("input", () => applyFilter(document.getElementById(field.dataset.for)));
}

function nearest(xs, x) {
  let best = 0;
  for (let i = 1; i < xs.length; i += 1) if (Math.abs(xs[i] - x) < Math.abs(xs[best] - x)) best = i;
  return best;
}

for (const svg of document.querySelectorAll("svg[data-chart]")) {
  const chart = JSON.parse(svg.dataset.chart);
  const cursor = svg.querySelector(".cursor");
  const box = svg.closest("figure") || svg.parentElement;
  let tip = null;
  svg.addEventListener("pointermove", (event) => {
    const area = svg.getBoundingClientRect();
    const at = ((event.clientX - area.left) / area.width) * svg.viewBox.baseVal.width;
    const share = Math.min(1, Math.max(0, (at - chart.left) / (chart.right - chart.left)));
    const x = chart.low + share * (chart.high - chart.low);
    const lines = [];
    let shown = x;
    for (const series of chart.series) {
      const i = nearest(series.x, x);
      shown = series.x[i];
      lines.push(`${series.name || "value"}: ${series.y[i] === null ? "n/a" : series.y[i].toLocaleString("en", { maximumSignificantDigits: 4 })}`);
    }
    const place = chart.left + ((shown - chart.low) / (chart.high - chart.low || 1)) * (chart.right - chart.left);
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    cursor.setAttribute("visibility", "visible");
    if (!tip) { tip = document.createElement("div"); tip.className = "tip"; box.append(tip); }
    tip.textContent = "";
    for (const line of [`${chart.x}: ${shown.toLocaleString("en")}`, ...lines]) {
      const div = document.createElement("div");
      div.textContent = line;
      tip.append(div);
    }
    const frame = box.getBoundingClientRect();
    const left = Math.min(event.clientX - frame.left + 14, frame.width - tip.offsetWidth - 4);
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${event.clientY - frame.top + 14}px`;
  });
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    if (tip) { tip.remove(); tip = null; }
  });
}
