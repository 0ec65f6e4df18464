"use strict";
// Plays one episode that is stored in the page.

const film = JSON.parse(document.getElementById("film").textContent);
const [BACK, ...COLOURS] = film.colours.map((colour) => `rgb(${colour})`);
const REVERSE = 16;
const byId = (name) => document.getElementById(name);
const last = film.steps - 1;
const reward = film.intrinsic || film.taskRewards;
const rewarded = [...reward.keys()].filter((i) => Math.abs(reward[i]) > 0.005);
// Without an intrinsic reward the task's is shown; its small time penalty is not a moment to jump to.
const moments = film.intrinsic ? rewarded : rewarded.filter((i) => Math.abs(film.taskRewards[i]) > 0.015);

let step = 0;
let playing = false;
let previousTime = 0;
let screens = null;
let probabilities = null;

async function inflate(text) {
  if (!text) return null;
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function undoChanges(frames, size) {
  for (let i = size; i < frames.length; i += 1) frames[i] ^= frames[i - size];
  return frames;
}

function totals(values) {
  let sum = 0;
  return values.map((value) => sum += value || 0);
}
const returnSoFar = totals(film.taskRewards);
const intrinsicSoFar = film.intrinsic && totals(film.intrinsic);

function styleOf(colour) {
  if (colour < 0) return "";
  const ink = COLOURS[colour & 15];
  return colour & REVERSE ? `color: ${BACK}; background-color: ${ink}` : `color: ${ink}`;
}

function drawScreen() {
  if (!screens) return;
  const pre = byId("screen");
  const size = film.rows * film.columns;
  const start = step * size;
  const cursor = film.cursor[2 * step] * film.columns + film.cursor[2 * step + 1];
  const spans = [];
  let run = "";
  let colour = -1;
  const flush = () => {
    if (run) spans.push(htmlElement("span", { style: styleOf(colour) }, run));
    run = "";
  };
  for (let i = 0; i < size; i += 1) {
    if (i % film.columns === 0 && i) run += "\n";
    const byte = screens.chars[start + i];
    const character = byte >= 32 && byte < 127 ? String.fromCharCode(byte) : " ";
    const cell = screens.colors[start + i];
    // A blank joins the run before it, unless one of the two is in reverse video.
    const blank = character === " " && !(cell & REVERSE);
    const next = !blank ? cell : colour >= 0 && colour & REVERSE ? -1 : colour;
    if (i === cursor) {
      flush();
      spans.push(htmlElement("span", { className: "cursor", style: styleOf(cell & 15) }, character));
      continue;
    }
    if (next !== colour) { flush(); colour = next; }
    run += character;
  }
  flush();
  pre.replaceChildren(...spans);
  // A window that is too narrow for 80 columns keeps the hero in view.
  const hero = pre.querySelector(".cursor");
  const box = pre.parentElement;
  if (hero && box.scrollWidth > box.clientWidth) box.scrollLeft = hero.offsetLeft - box.offsetLeft - box.clientWidth / 2;
}

function drawNotes() {
  for (const [name, note] of Object.entries(film.notes)) {
    const box = byId(`note-${name}`);
    if (box) box.textContent = note.texts[note.index[step]];
  }
}

function number(value, digits = 3) {
  if (value === null || value === undefined) return "n/a";
  return (Number(value.toFixed(digits)) + 0).toLocaleString("en", { maximumFractionDigits: digits });
}

function facts() {
  const text = film.textIndex[step];
  const rows = [
    ["step", `${step.toLocaleString("en")} of ${last.toLocaleString("en")}`],
    ["next action", step < last ? film.actionNames[film.actions[step]] : film.end],
    ["return so far", number(returnSoFar[step])],
    ["task reward of the last action", number(film.taskRewards[step])],
  ];
  if (film.intrinsic) {
    rows.push(["intrinsic return so far", number(intrinsicSoFar[step])]);
    rows.push(["intrinsic reward here", number(film.intrinsic[step])]);
    rows.push(["message reward, normalised", number(film.normalised[text])]);
    rows.push(["message reward, raw", number(film.raw[text], 4)]);
    rows.push(["message seen (times)", film.textCount[step]]);
  }
  if (film.values) rows.push(["value estimate", step < last ? number(film.values[step]) : "n/a"]);
  for (const [name, values] of Object.entries(film.vitals)) {
    if (name !== "max hp") rows.push([name, name === "hp" ? `${values[step]} of ${film.vitals["max hp"][step]}` : values[step]]);
  }
  return rows;
}

function bar(left, width) {
  return htmlElement("div", { className: "bar" }, htmlElement("i", { style: `left: ${left}%; width: ${width}%` }));
}

function drawFacts() {
  const table = htmlElement("table");
  for (const [name, value] of facts()) {
    const row = table.insertRow();
    row.insertCell().textContent = name;
    Object.assign(row.insertCell(), { textContent: value }).dataset.fact = name;
  }
  const parts = [htmlElement("div", { className: "scroll" }, table)];
  if (film.intrinsic) {
    const value = Math.max(-4, Math.min(4, film.normalised[film.textIndex[step]]));
    const scale = ["-4", "message reward, normalised", "4"].map((text) => htmlElement("span", {}, text));
    parts.push(htmlElement("div", { className: "scale" }, ...scale), bar(50 + Math.min(0, value) * 12.5, Math.abs(value) * 12.5));
  }
  byId("facts").replaceChildren(...parts);
}

function drawProbabilities() {
  const box = byId("probabilities");
  if (!probabilities || step >= last) { box.replaceChildren(); return; }
  const count = film.actionNames.length;
  const ranked = [...Array(count).keys()].map((a) => [a, probabilities[step * count + a] / 255]);
  ranked.sort((a, b) => b[1] - a[1]);
  const shown = ranked.slice(0, 6);
  if (!shown.some(([a]) => a === film.actions[step])) shown[5] = ranked.find(([a]) => a === film.actions[step]);
  const rows = shown.map(([action, share]) => {
    const name = htmlElement("span", {}, film.actionNames[action]);
    const className = action === film.actions[step] ? "row chosen" : "row";
    return htmlElement("div", { className }, name, bar(0, 100 * share), htmlElement("span", {}, `${Math.round(100 * share)} %`));
  });
  box.replaceChildren(htmlElement("h3", {}, "action probabilities"), ...rows);
}

const WIDE = Math.max(330, Math.min(800, byId("timeline").parentElement.clientWidth - 28)), HIGH = 150, LEFT = 46, RIGHT = 46, TOP = 12, BOTTOM = 22;
const atStep = (i) => LEFT + (i / Math.max(1, last)) * (WIDE - LEFT - RIGHT);

function drawTimeline() {
  const svg = byId("timeline");
  svg.setAttribute("viewBox", `0 0 ${WIDE} ${HIGH}`);
  const high = Math.max(1e-9, ...reward.map((v) => v || 0));
  const low = Math.min(0, ...reward.map((v) => v || 0));
  const y = (v) => HIGH - BOTTOM - ((v - low) / (high - low)) * (HIGH - TOP - BOTTOM);
  svg.append(svgElement("line", { class: "axis", x1: LEFT, x2: WIDE - RIGHT, y1: y(0), y2: y(0) }));
  let path = "";
  for (const i of rewarded) path += `M${atStep(i).toFixed(1)} ${y(0).toFixed(1)}V${y(reward[i]).toFixed(1)}`;
  svg.append(svgElement("path", { class: "paid", d: path }));
  svg.append(svgElement("text", { x: LEFT - 6, y: TOP + 8, "text-anchor": "end" }, number(rewarded.length ? high : 0, 2)));
  svg.append(svgElement("text", { x: LEFT - 6, y: HIGH - BOTTOM + 4, "text-anchor": "end" }, number(low, 2)));
  svg.append(svgElement("text", { x: LEFT, y: HIGH - 5 }, "0"));
  svg.append(svgElement("text", { x: WIDE - RIGHT, y: HIGH - 5, "text-anchor": "end" }, `${last.toLocaleString("en")} steps`));
  const legend = [["c1", film.intrinsic ? "intrinsic reward (left scale)" : "task reward (left scale)"]];
  if (film.values && film.values.length) {
    const top = Math.max(...film.values), bottom = Math.min(...film.values);
    const v = (x) => HIGH - BOTTOM - ((x - bottom) / (top - bottom || 1)) * (HIGH - TOP - BOTTOM);
    svg.append(svgElement("path", { class: "value", d: film.values.map((x, i) => `${i ? "L" : "M"}${atStep(i).toFixed(1)} ${v(x).toFixed(1)}`).join("") }));
    svg.append(svgElement("text", { x: WIDE - RIGHT + 6, y: TOP + 8 }, number(top, 2)));
    svg.append(svgElement("text", { x: WIDE - RIGHT + 6, y: HIGH - BOTTOM + 4 }, number(bottom, 2)));
    legend.push(["c0", "value estimate (right scale)"]);
  }
  svg.append(svgElement("line", { class: "now", id: "now", y1: TOP - 6, y2: HIGH - BOTTOM + 4 }));
  byId("legend").append(...legend.map(([colour, text]) => htmlElement("span", {}, htmlElement("i", { className: `key ${colour}` }), text)));
  const seek = (event) => {
    const area = svg.getBoundingClientRect();
    const x = ((event.clientX - area.left) / area.width) * WIDE;
    show(Math.round(((x - LEFT) / (WIDE - LEFT - RIGHT)) * last));
  };
  svg.addEventListener("pointerdown", (event) => { svg.setPointerCapture(event.pointerId); seek(event); });
  svg.addEventListener("pointermove", (event) => { if (svg.hasPointerCapture(event.pointerId)) seek(event); });
}

function drawMoments() {
  const buttons = moments.map((i) => {
    const texts = [`${i}`, `${reward[i] > 0 ? "+" : ""}${number(reward[i], 2)}`, film.texts[film.textIndex[i]] || "(no message)"];
    const button = htmlElement("button", { type: "button" }, ...texts.map((text) => htmlElement("span", {}, text)));
    button.dataset.step = i;
    button.addEventListener("click", () => show(i));
    return button;
  });
  const none = htmlElement("div", { className: "empty" }, "no moment of this episode was rewarded");
  byId("moments").replaceChildren(...(buttons.length ? buttons : [none]));
}

function show(wanted) {
  step = Math.max(0, Math.min(last, wanted));
  drawScreen();
  if (film.pictures) byId("picture").src = `data:image/png;base64,${film.pictures.texts[film.pictures.index[step]]}`;
  drawNotes();
  drawFacts();
  drawProbabilities();
  byId("seek").value = step;
  const message = byId("message");
  message.textContent = film.texts[film.textIndex[step]] || "\u00a0";
  message.className = film.intrinsic && film.intrinsic[step] > 0 ? "rewarded" : "";
  const now = byId("now");
  now.setAttribute("x1", atStep(step));
  now.setAttribute("x2", atStep(step));
  document.querySelectorAll(".moments button").forEach((b) => b.classList.toggle("now", Number(b.dataset.step) === step));
  byId("previous").disabled = !moments.some((i) => i < step);
  byId("next").disabled = !moments.some((i) => i > step);
}

function play(on) {
  playing = on;
  byId("play").textContent = on ? "pause" : "play";
  previousTime = 0;
  if (on) {
    if (step >= last) show(0);
    requestAnimationFrame(tick);
  }
}

function tick(time) {
  if (!playing) return;
  const gap = 1000 / Number(byId("speed").value);
  if (!previousTime) previousTime = time;
  const due = Math.floor((time - previousTime) / gap);
  if (due > 0) {
    previousTime += due * gap;
    show(step + due);
  }
  if (step >= last) play(false);
  else requestAnimationFrame(tick);
}

function jump(direction) {
  const moment = direction > 0 ? moments.find((i) => i > step) : moments.findLast((i) => i < step);
  if (moment !== undefined) show(moment);
}

function changeSpeed(by) {
  const select = byId("speed");
  select.selectedIndex = Math.max(0, Math.min(select.options.length - 1, select.selectedIndex + by));
}

const commands = {
  restart: () => show(0), finish: () => show(last), back: () => show(step - 1), forward: () => show(step + 1),
  previous: () => jump(-1), next: () => jump(1), play: () => play(!playing),
};
for (const [name, run] of Object.entries(commands)) {
  byId(name).addEventListener("click", (event) => {
    run();
    // After a click with the mouse Space should play, not press the same button again; Tab and Space still do.
    if (event.detail) event.currentTarget.blur();
  });
}
byId("seek").max = last;
byId("seek").addEventListener("input", (event) => show(Number(event.target.value)));
document.addEventListener("keydown", (event) => {
  if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
  const far = event.shiftKey ? 10 : 1;
  const keys = {
    " ": commands.play, ArrowLeft: () => show(step - far), ArrowRight: () => show(step + far), n: commands.next,
    N: commands.next, p: commands.previous, P: commands.previous, Home: commands.restart, End: commands.finish,
    ArrowUp: () => changeSpeed(1), ArrowDown: () => changeSpeed(-1),
  };
  const run = keys[event.key];
  if (!run || (event.key === " " && event.target.tagName === "BUTTON")) return;
  event.preventDefault();
  run();
});

async function start() {
  const size = film.rows * film.columns;
  const [chars, colors, shares] = await Promise.all([inflate(film.chars), inflate(film.colors), inflate(film.probabilities)]);
  if (chars) screens = { chars: undoChanges(chars, size), colors: undoChanges(colors, size) };
  probabilities = shares;
  drawTimeline();
  drawMoments();
  show(0);
  document.documentElement.dataset.ready = "1";
}
start();
