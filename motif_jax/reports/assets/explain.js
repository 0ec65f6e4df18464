"use strict";
// The table of messages: its numbers lie in the page as data, rows are drawn as they are asked for.

(() => {
  const STEP = 100;
  const SPARK = { width: 90, height: 22 };

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function sparkline(values) {
    const make = (name, attributes) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      return made;
    };
    const low = Math.min(...values);
    const span = Math.max(...values) - low || 1;
    const points = values.map((v, i) => {
      const x = (i * SPARK.width) / (values.length - 1);
      return `${x.toFixed(1)},${(2 + (SPARK.height - 4) * (1 - (v - low) / span)).toFixed(1)}`;
    });
    const svg = make("svg", { class: "spark", viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, width: SPARK.width, height: SPARK.height });
    const title = make("title", {});
    title.textContent = values.map(signed).join(" → ");
    svg.append(title, make("polyline", { class: "line c0", fill: "none", points: points.join(" ") }));
    return svg;
  }

  function signed(value, digits = 2) {
    return (value < 0 ? "" : "+") + value.toFixed(digits);
  }

  const FORMATS = {
    text: (value) => value || "(no message)",
    count: (value) => value.toLocaleString("en"),
    signed: (value) => signed(value, 3),
    plain: (value) => String(Number(value.toPrecision(4))),
    spread: (value) => value.toFixed(3),
    paid: (value) => (value ? value.toFixed(3) : "—"),
  };

  class MessageTable {
    constructor(holder, data) {
      this.data = data;
      this.size = data.columns[0].values.length;
      this.texts = data.columns[0].values.map((text) => text.toLowerCase());
      this.order = [...Array(this.size).keys()];
      this.words = [];
      this.limit = STEP;
      // As the data come: by the first reward, the best liked first.
      this.sorted = { column: 2, descending: true };
      this.build(holder);
      this.draw();
    }

    value(row, number) {
      return this.data.columns[number].values[row];
    }

    build(holder) {
      const tools = element("div", "tools");
      this.field = element("input");
      Object.assign(this.field, { type: "search", placeholder: "search", ariaLabel: "search" });
      this.field.addEventListener("input", () => {
        this.words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean);
        this.limit = STEP;
        this.draw();
      });
      this.count = element("span", "count");
      tools.append(this.field, this.count);
      const table = element("table");
      table.id = "messages";
      const heads = table.createTHead().insertRow();
      this.heads = this.data.columns.map((column, number) => {
        const head = element("th", column.kind === "text" || column.kind === "curve" ? "" : "number");
        head.scope = "col";
        if (column.kind === "curve") head.textContent = column.title;
        else {
          const button = element("button", "", column.title);
          button.type = "button";
          button.addEventListener("click", () => this.sort(number));
          head.append(button);
        }
        heads.append(head);
        return head;
      });
      this.body = table.createTBody();
      const scroll = element("div", "scroll");
      scroll.append(table);
      this.more = element("button", "more");
      this.more.type = "button";
      this.more.addEventListener("click", () => { this.limit += 5 * STEP; this.draw(); });
      holder.append(tools, scroll, this.more);
    }

    sort(column) {
      const text = this.data.columns[column].kind === "text";
      const again = this.sorted.column === column;
      this.sorted = { column, descending: again ? !this.sorted.descending : !text };
      const keys = this.order.map((_, row) => this.value(row, column));
      const collator = new Intl.Collator("en", { numeric: true });
      const compare = text ? collator.compare : (a, b) => a - b;
      const sign = this.sorted.descending ? -1 : 1;
      this.order = [...Array(this.size).keys()].sort((a, b) => {
        // What has no value comes last, whichever way.
        if (keys[a] === null || keys[b] === null) return (keys[a] === null) - (keys[b] === null) || a - b;
        return sign * compare(keys[a], keys[b]) || a - b;
      });
      this.limit = STEP;
      this.draw();
    }

    draw() {
      const { column, descending } = this.sorted;
      this.heads.forEach((head, number) => {
        if (number === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      const found = this.words.length ? this.order.filter((row) => this.words.every((word) => this.texts[row].includes(word))) : this.order;
      const shown = found.slice(0, this.limit);
      const rows = [];
      shown.forEach((row, place) => {
        if (place && this.crosses(shown[place - 1], row)) rows.push(this.line());
        rows.push(this.row(row));
      });
      this.body.replaceChildren(...rows);
      const total = `${this.size.toLocaleString("en")} messages`;
      this.count.textContent = this.words.length ? `${found.length.toLocaleString("en")} of ${total}` : total;
      this.more.hidden = shown.length === found.length;
      this.more.textContent = `show more (${shown.length.toLocaleString("en")} of ${found.length.toLocaleString("en")} shown)`;
    }

    // Whether the threshold lies between two rows that follow each other.
    crosses(one, other) {
      const line = this.data.line;
      if (!line || line.column !== this.sorted.column) return false;
      const [a, b] = [this.value(one, line.paid), this.value(other, line.paid)];
      return a !== null && b !== null && Boolean(a) !== Boolean(b);
    }

    line() {
      const row = element("tr", "threshold");
      const cell = element("td", "note", `── ${this.data.line.text} ──`);
      cell.colSpan = this.data.columns.length;
      row.append(cell);
      return row;
    }

    row(number) {
      const row = element("tr");
      this.data.columns.forEach((column, place) => {
        const value = this.value(number, place);
        const cell = element("td", column.kind === "text" ? "code" : column.kind === "curve" ? "" : "number");
        if (value === null) cell.textContent = "–";
        else if (column.kind === "curve") { if (value.length > 1) cell.append(sparkline(value)); }
        else cell.textContent = FORMATS[column.kind](value);
        row.append(cell);
      });
      return row;
    }
  }

  // After page.js, which makes every table that it finds sortable in its own way.
  document.addEventListener("DOMContentLoaded", () => {
    const data = JSON.parse(document.getElementById("messages-data").textContent);
    new MessageTable(document.getElementById("messages-holder"), data);
  });
})();
