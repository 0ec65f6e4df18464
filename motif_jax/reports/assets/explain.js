"use strict";
// The table of messages: its numbers lie in the page as data, rows are drawn as they are asked for.

function sparkline(values) {
  const [width, height] = [90, 22];
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  const points = values.map((v, i) => {
    const x = (i * width) / (values.length - 1);
    return `${x.toFixed(1)},${(2 + (height - 4) * (1 - (v - low) / span)).toFixed(1)}`;
  });
  const title = drawn("title", {}, values.map((value) => signed(value, 2)).join(" → "));
  const line = drawn("polyline", { class: "line c0", fill: "none", points: points.join(" ") });
  return drawn("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height }, title, line);
}

function signed(value, digits) {
  return (value < 0 ? "" : "+") + value.toFixed(digits);
}

const FORMATS = {
  text: (value) => value || "(no message)",
  count: (value) => value.toLocaleString("en"),
  signed: (value) => signed(value, 3),
  plain: (value) => String(Number(value.toPrecision(4))),
  spread: (value) => value.toFixed(3),
  paid: (value) => (value ? value.toFixed(3) : "—"),
  curve: (value) => (value.length > 1 ? sparkline(value) : ""),
};

function drawMessages(holder, { columns, line }) {
  const STEP = 100;
  const texts = columns[0].values.map((text) => text.toLowerCase());
  let order = [...texts.keys()];
  let words = [];
  let limit = STEP;
  // As the data come: by the first reward, the best liked first.
  let sorted = { column: 2, descending: true };

  const field = made("input", { type: "search", placeholder: "search", ariaLabel: "search" });
  field.addEventListener("input", () => {
    words = wordsIn(field.value);
    limit = STEP;
    draw();
  });
  const count = made("span", { className: "count" });
  const more = made("button", { type: "button", className: "more" });
  more.addEventListener("click", () => { limit += 5 * STEP; draw(); });
  const heads = columns.map(({ kind, title }, column) => {
    const button = made("button", { type: "button" }, title);
    button.addEventListener("click", () => sort(column));
    const className = kind === "text" || kind === "curve" ? "" : "number";
    return made("th", { className, scope: "col" }, kind === "curve" ? title : button);
  });
  const body = made("tbody");
  const table = made("table", { id: "messages" }, made("thead", {}, made("tr", {}, ...heads)), body);
  holder.append(made("div", { className: "tools" }, field, count), made("div", { className: "scroll" }, table), more);
  draw();

  function sort(column) {
    const { kind, values } = columns[column];
    const again = sorted.column === column;
    sorted = { column, descending: again ? !sorted.descending : kind !== "text" };
    const compare = kind === "text" ? new Intl.Collator("en", { numeric: true }).compare : (a, b) => a - b;
    const sign = sorted.descending ? -1 : 1;
    order = [...texts.keys()].sort((a, b) => {
      // What has no value comes last, whichever way.
      if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null) || a - b;
      return sign * compare(values[a], values[b]) || a - b;
    });
    limit = STEP;
    draw();
  }

  function draw() {
    markSorted(heads, sorted.column, sorted.descending);
    const found = words.length ? order.filter((row) => words.every((word) => texts[row].includes(word))) : order;
    const shown = found.slice(0, limit);
    body.replaceChildren(...shown.flatMap((row, place) => (place && crosses(shown[place - 1], row) ? [threshold()] : []).concat(rowOf(row))));
    const [total, all, some] = [texts, found, shown].map(({ length }) => length.toLocaleString("en"));
    count.textContent = words.length ? `${all} of ${total} messages` : `${total} messages`;
    more.hidden = shown.length === found.length;
    more.textContent = `show more (${some} of ${all} shown)`;
  }

  // Whether the threshold lies between two rows that follow each other.
  function crosses(one, other) {
    if (!line || line.column !== sorted.column) return false;
    const [a, b] = [one, other].map((row) => columns[line.paid].values[row]);
    return a !== null && b !== null && Boolean(a) !== Boolean(b);
  }

  function threshold() {
    return made("tr", { className: "threshold" }, made("td", { className: "note", colSpan: columns.length }, `── ${line.text} ──`));
  }

  function rowOf(row) {
    return made("tr", {}, ...columns.map(({ kind, values }) => {
      const className = { text: "code", curve: "" }[kind] ?? "number";
      return made("td", { className }, values[row] === null ? "–" : FORMATS[kind](values[row]));
    }));
  }
}

// After page.js, which makes every table that it finds sortable in its own way.
document.addEventListener("DOMContentLoaded", () => {
  drawMessages(document.getElementById("messages-holder"), JSON.parse(document.getElementById("messages-data").textContent));
});
