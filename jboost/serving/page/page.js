"use strict";
// Shows the events of the server. Texts of the server only ever become text, never markup.
const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const H = 260, LEFT = 72, RIGHT = 12, TOP = 10, BOTTOM = 30;
let W = 900; // of a drawing; a phone gets a narrow one
let token = sessionStorage.getItem("token") || "";
let chosen = new URLSearchParams(location.search).get("model");
let stop = null, shown = null;

function made(tag, text, kind) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (kind) node.className = kind;
  return node;
}
function drawn(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: digits });
}
const whole = (value) => (value === null ? "–" : value.toLocaleString("en"));
const part = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1) + " %");

function frame(low, high, first, last, label) {
  const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label });
  if (!(high > low)) { high = low + (Math.abs(low) || 1); }
  if (!(last > first)) last = first + 1;
  const x = (v) => LEFT + ((v - first) / (last - first)) * (W - LEFT - RIGHT);
  const y = (v) => TOP + (1 - (v - low) / (high - low)) * (H - TOP - BOTTOM);
  for (let i = 0; i <= 4; i++) {
    const v = low + ((high - low) * i) / 4;
    svg.append(drawn("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y(v), y2: y(v) }));
    svg.append(drawn("text", { x: LEFT - 8, y: y(v) + 4, "text-anchor": "end" }, number(v, 3)));
  }
  svg.append(drawn("text", { x: LEFT, y: H - 8 }, "row " + whole(Math.round(first))));
  const end = { x: W - RIGHT, y: H - 8, "text-anchor": "end" };
  svg.append(drawn("text", end, "row " + whole(Math.round(last))));
  return { svg, x, y };
}
function line(points) {
  let d = "", pen = "M";
  for (const [x, y] of points) {
    if (y === null || !isFinite(y)) { pen = "M"; continue; }
    d += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  return d;
}
function quantile(values, q) {
  const sorted = values.filter((v) => v !== null && isFinite(v)).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : 1;
}

function errors(figures) {
  const { rows, within } = figures.curves;
  const names = Object.keys(within);
  const box = at("errors");
  if (!rows.length) { box.replaceChildren(made("p", "No answer yet.", "note")); return; }
  // The first spans of a new model are wild: what most spans have decides the height.
  const high = Math.max(...names.map((name) => 1.3 * quantile(within[name], 0.95)));
  const { svg, x, y } = frame(0, high, 0, rows[rows.length - 1], "mean squared error over time");
  const floor = (v) => (v === null ? null : y(Math.min(v, high)));
  const seen = figures.rows - rows[rows.length - 1];
  for (const row of figures.changes) {
    const place = x(row - seen);
    if (place >= LEFT) svg.append(drawn("line", { class: "change", x1: place, x2: place, y1: TOP, y2: H - BOTTOM }));
  }
  names.slice(0, 4).reverse().forEach((name) => {
    const i = names.indexOf(name);
    const points = within[name].map((v, j) => [x(rows[j]), floor(v)]);
    svg.append(drawn("path", { class: "c" + i, d: line(points) }));
  });
  const legend = made("div", undefined, "legend");
  names.slice(0, 4).forEach((name, i) => legend.append(made("span", "━ " + name, "k" + i)));
  if (figures.changes.length) legend.append(made("span", "┆ change found"));
  box.replaceChildren(svg, legend);
}
function last(figures) {
  const box = at("last"), answers = figures.last;
  if (!answers.length) { box.replaceChildren(made("p", "No answer yet.", "note")); return; }
  const bounds = answers.flatMap((a) => [a.answer, a.estimate, a.low, a.high]).filter((v) => v !== null);
  const center = answers.map((a) => a.answer);
  const spread = Math.max(...center) - Math.min(...center) || 1;
  const low = Math.max(Math.min(...bounds), Math.min(...center) - 2 * spread);
  const high = Math.min(Math.max(...bounds), Math.max(...center) + 2 * spread);
  const { svg, x, y } = frame(low, high, answers[0].row, answers[answers.length - 1].row, "the last answers");
  const clip = (v) => y(Math.max(low, Math.min(high, v)));
  for (const a of answers) {
    if (a.low === null || a.high === null) continue;
    svg.append(drawn("line", { class: "bar", x1: x(a.row), x2: x(a.row), y1: clip(a.low), y2: clip(a.high), "stroke-width": 5 }));
  }
  svg.append(drawn("path", { class: "c0", d: line(answers.map((a) => [x(a.row), a.estimate === null ? null : clip(a.estimate)])) }));
  for (const a of answers) svg.append(drawn("circle", { class: "dot", cx: x(a.row), cy: clip(a.answer), r: 3.5 }));
  box.replaceChildren(svg);
}
function table(id, head, rows) {
  const top = made("tr");
  head.forEach((text) => top.append(made("th", text)));
  const lines = rows.map((cells) => {
    const row = made("tr");
    cells.forEach((cell) => {
      const field = made("td");
      field.append(cell instanceof Node ? cell : document.createTextNode(cell));
      row.append(field);
    });
    return row;
  });
  at(id).replaceChildren(top, ...lines);
}
function cards(figures) {
  const best = Math.min(...Object.values(figures.controls).map((c) => c.mse ?? Infinity));
  const ratio = figures.errors.mse !== null && best > 0 && isFinite(best) ? figures.errors.mse / best : null;
  const cells = [
    [whole(figures.rows), "rows learned"],
    [number(figures.rate, 3), "rows a second"],
    [number(figures.predictions, 3), "predictions a second"],
    [number(figures.errors.mse), "mean squared error"],
    [number(ratio, 3), "of the best control's"],
    [number(figures.errors.lately), "lately"],
    [whole(figures.open_questions), "open questions"],
    [whole(figures.changes.length), "changes found"],
  ];
  const { p50, p99 } = figures.latency;
  cells.push([p50 === undefined ? "–" : `${(1e3 * p50).toFixed(1)} ms`, "median of /predict"]);
  cells.push([p99 === undefined ? "–" : `${(1e3 * p99).toFixed(1)} ms`, "99 % of /predict within"]);
  if (figures.intervals) {
    cells.push([part(figures.intervals.inside), `inside the intervals, of ${part(figures.intervals.wanted)}`]);
  }
  at("cards").replaceChildren(...cells.map(([value, label]) => {
    const card = made("div", undefined, "card");
    card.append(made("b", value), made("span", label));
    return card;
  }));
}
function shadows(figures) {
  at("shadows").hidden = !figures.shadows.length;
  if (!figures.shadows.length) return;
  const rows = [[figures.leader + " (predicts)", figures.model, whole(figures.rows), number(figures.errors.lately),
    number(figures.errors.since_start), ""]];
  for (const s of figures.shadows) {
    const buttons = made("span");
    for (const [what, question] of [["promote", `Let ${s.label} predict from now on?`],
      ["drop", `Let ${s.label} learn no more?`]]) {
      const button = made("button", what);
      button.addEventListener("click", () => change(figures.name, s.label, what, question));
      buttons.append(button, " ");
    }
    rows.push([s.label, s.model, whole(s.rows), number(s.errors.lately), number(s.errors.since_start), buttons]);
  }
  const open = at("beside").querySelector("button:focus");
  if (!open) table("beside", ["label", "model", "rows", "MSE lately", "MSE since the start", ""], rows);
}
async function keys(figures) {
  at("by_key").hidden = figures.keys === null;
  if (figures.keys === null) return;
  const query = "?search=" + encodeURIComponent(at("search").value);
  const reply = await fetch(`/models/${encodeURIComponent(figures.name)}/keys${query}`, { headers: headers() });
  if (!reply.ok) return;
  const { all, found, keys: rows } = await reply.json();
  at("found").textContent = ` ${whole(found)} of ${whole(all)} keys`;
  table("keys", ["key", "answers", "MSE"], rows.map((k) => [k.key, whole(k.answers), number(k.mse)]));
}
async function change(name, label, what, question) {
  if (!confirm(question)) return;
  const path = `/models/${encodeURIComponent(name)}/${what}`;
  const reply = await fetch(path, { method: "POST", headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify({ shadow: label }) });
  if (!reply.ok) alert((await reply.json()).error);
  document.activeElement.blur();
}
function show(figures) {
  W = innerWidth < 500 ? 420 : 900;
  at("main").hidden = false;
  at("name").textContent = figures.name;
  at("trouble").hidden = !figures.trouble;
  at("trouble").textContent = figures.trouble;
  cards(figures);
  errors(figures);
  last(figures);
  const line_of = (name, e) => [name, number(e.mse), number(e.rmse), number(e.mae)];
  table("table", ["", "MSE", "RMSE", "MAE"], [line_of(figures.leader, figures.errors),
    ...Object.entries(figures.controls).map(([name, e]) => line_of(name, e))]);
  at("heaviest").replaceChildren(...figures.heaviest.map(([name, share]) => {
    const row = made("div", undefined, "weight"), meter = made("meter");
    meter.value = share;
    row.append(made("span", name), meter, made("span", part(share)));
    return row;
  }));
  shadows(figures);
  shown = figures;
  keys(figures).catch(() => {});
  const newest = figures.last.slice(-12).reverse();
  table("answers", ["row", "id", "answer", "predicted", "just before", "interval", "flags"], newest.map((a) => [
    whole(a.row), a.id ?? "", number(a.answer), number(a.prediction), number(a.estimate),
    a.low === null ? "" : `${number(a.low)} to ${number(a.high)}`, a.flags.join(", ")]));
}

const headers = (more) => (token ? { ...more, Authorization: `Bearer ${token}` } : more || {});
function say(text, kind) {
  at("status").textContent = text;
  at("status").className = kind || "";
}
async function watch() {
  if (stop) stop.abort();
  stop = new AbortController();
  const mine = stop;
  while (!mine.signal.aborted) {
    try {
      const query = chosen ? "?model=" + encodeURIComponent(chosen) : "";
      const reply = await fetch("/events" + query, { headers: headers(), signal: mine.signal });
      if (reply.status === 401) { at("login").hidden = false; say("a token is needed"); return; }
      if (!reply.ok) throw new Error((await reply.json()).error);
      at("login").hidden = true;
      say("live", "live");
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        text += value;
        const events = text.split("\n\n");
        text = events.pop();
        if (events.length) show(JSON.parse(events[events.length - 1].replace(/^data: /, "")));
      }
    } catch (error) {
      if (mine.signal.aborted) return;
    }
    say("the server is away; trying again", "lost");
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}
async function choices() {
  const reply = await fetch("/models", { headers: headers() });
  if (!reply.ok) return;
  const names = (await reply.json()).models.map((model) => model.name);
  at("choice").hidden = names.length < 2;
  at("models").replaceChildren(...names.map((name) => made("option", name)));
  if (chosen) at("models").value = chosen;
}
at("search").addEventListener("input", () => { if (shown) keys(shown).catch(() => {}); });
at("models").addEventListener("change", () => { chosen = at("models").value; watch(); });
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  sessionStorage.setItem("token", token);
  start();
});
function start() { choices().catch(() => {}); watch(); }
start();
