"use strict";
// Which row colours the tokens, and the numbers of the token under the pointer or with the focus.

document.addEventListener("DOMContentLoaded", () => {
  const scales = JSON.parse(document.getElementById("token-scales").textContent).scales;
  const texts = [...document.querySelectorAll(".tokens")].map((holder) => {
    const data = document.getElementById(holder.id.replace(/-tokens$/, "-data"));
    return { holder, rows: data ? JSON.parse(data.textContent) : {} };
  });
  const format = (value) => (value === null ? "–" : String(Number(value.toPrecision(4))));

  function colour(name) {
    for (const { holder, rows } of texts) {
      for (const token of holder.querySelectorAll(".token")) {
        const value = rows[name] ? rows[name][Number(token.dataset.place)] : null;
        token.classList.toggle("below", value !== null && value < 0);
        token.classList.toggle("above", value !== null && value >= 0);
        token.style.setProperty("--share", value === null ? 0 : Math.min(1, Math.abs(value) / scales[name]));
      }
    }
    document.getElementById("token-low").textContent = format(-scales[name]);
    document.getElementById("token-high").textContent = format(scales[name]);
  }

  const chooser = document.getElementById("token-row");
  if (chooser) chooser.addEventListener("change", () => colour(chooser.value));

  const tip = htmlElement("div", { className: "tip token-tip" });
  function show(token, rows) {
    const place = Number(token.dataset.place);
    const lines = [`token ${place}: ${JSON.stringify((token.querySelector("b") || token).textContent)}`];
    for (const [name, values] of Object.entries(rows)) lines.push(`${name}: ${format(values[place])}`);
    tip.textContent = lines.join("\n");
    document.body.append(tip);
    const box = token.getBoundingClientRect();
    tip.style.left = `${scrollX + Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
    // Above the token where there is no room below it.
    const below = box.bottom + 8;
    tip.style.top = `${scrollY + (below + tip.offsetHeight > innerHeight ? Math.max(8, box.top - tip.offsetHeight - 8) : below)}px`;
  }
  for (const { holder, rows } of texts) {
    for (const kind of ["pointerover", "focusin"]) {
      holder.addEventListener(kind, (event) => { const token = event.target.closest(".token"); if (token) show(token, rows); });
    }
    for (const kind of ["pointerleave", "focusout"]) holder.addEventListener(kind, () => tip.remove());
  }
});
