"use strict";
// Elements, and the sorting, searching and shortening of tables.

function htmlElement(name, properties = {}, ...inside) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...inside);
  return element;
}

function svgElement(name, attributes, ...inside) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

function wordsIn(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

function markSorted(heads, column, descending) {
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
}

function cellKey({ dataset, textContent }) {
  return dataset.value === undefined ? textContent.trim().toLowerCase() : Number(dataset.value);
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function sortTable(table, column) {
  const heads = [...table.tHead.rows[0].cells];
  const descending = heads[column].getAttribute("aria-sort") !== "descending";
  markSorted(heads, column, descending);
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row, place) => ({ row, place, key: cellKey(row.cells[column]) }));
  rows.sort((a, b) => (descending ? -1 : 1) * compare(a.key, b.key) || a.place - b.place);
  body.append(...rows.map((r) => r.row));
  applyFilter(table);
}

function applyFilter(table) {
  const field = document.querySelector(`input[data-for="${table.id}"]`);
  const words = wordsIn(field ? field.value : "");
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
  const { rows } = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.classList.toggle("number", rows[0].cells[column].classList.contains("number"));
    head.querySelector("button").addEventListener("click", () => sortTable(table, column));
  });
  if (rows.length > Number(table.dataset.limit || Infinity)) {
    const more = htmlElement("button", { type: "button", className: "more" }, `show all ${rows.length} rows`);
    more.addEventListener("click", () => { table.dataset.open = "1"; applyFilter(table); more.remove(); });
    table.parentElement.after(more);
  }
  applyFilter(table);
}

for (const field of document.querySelectorAll("input[type=search][data-for]")) {
  field.addEventListener("input", () => applyFilter(document.getElementById(field.dataset.for)));
}
