"use strict";
// Sorting, searching and shortening tables.

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
