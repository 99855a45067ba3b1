// The page of a monitored run: one measure and one step at a time, one chosen head, curves that are kept.
const names = data.heads.names;
const { steps, metrics, alerts } = data;
const n = names.length;
let chosen = data.first, at = steps.length - 1, metric = metrics.find((m) => m.key === data.metric) || metrics[0];
const kept = new Set(data.kept);
const chosenName = () => names[chosen];
const values = {}; // measure -> numbers, step by step, head by head
const value = (key, step, head) => { const v = values[key][step * n + head]; return Number.isFinite(v) ? v : null; };
const overSteps = (key, head) => steps.map((_, s) => value(key, s, head));
const alertsOf = (head) => alerts.filter((alert) => alert.heads.includes(head));
const IN_ALERT = 2, SYMBOL = Object.fromEntries([...new Set(alerts.map((a) => a.title))].map((title, i) => [title, SYMBOLS[(i + 3) % SYMBOLS.length]]));

function choose(index, from) {
  if (!(index >= 0 && index < n)) return;
  chosen = index;
  markAll(from);
  byId("announce").textContent = `Head ${names[index]} chosen`;
  keepInLink();
}
function headButton(index, from = "button") {
  const button = element("button", names[index], { type: "button", "data-head": names[index] });
  button.addEventListener("click", () => choose(index, from));
  return button;
}

// The link keeps head, step and measure, so that a page that is written again opens where it was.
const keepInLink = () => history.replaceState(null, "", `#head=${names[chosen]}${at < steps.length - 1 ? `&step=${steps[at]}` : ""}&measure=${metric.key}`);
function readLink() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (names.includes(wanted.get("head"))) chosen = names.indexOf(wanted.get("head"));
  if (steps.includes(Number(wanted.get("step"))) && wanted.get("step")) at = steps.indexOf(Number(wanted.get("step")));
  metric = metrics.find((m) => m.key === wanted.get("measure")) || metric;
}

const nearest = (step) => steps.reduce((best, s, i) => (Math.abs(s - step) < Math.abs(steps[best] - step) ? i : best), 0);
const FOLLOWS_STEP = ["layers-chart", "curves-chart", "timeline-chart", "head-chart"];
function goTo(index) {
  at = Math.min(Math.max(index, 0), steps.length - 1);
  byId("step").value = at;
  showStep();
  for (const id of FOLLOWS_STEP) redraw(id);
  keepInLink();
}
function showStep() {
  const [now, control] = [byId("step-now"), byId("step")];
  now.textContent = `${steps[at]} of ${steps.at(-1)}`;
  control.setAttribute("aria-valuetext", `step ${steps[at]}`);
  byId("layers-hint").textContent = `${metric.title} at step ${steps[at]}`;
  fillPanel(chosen); fillTable();
}

function setUpTime() {
  const control = byId("measure"), slider = byId("step");
  for (const { key, title } of metrics) control.append(element("option", title, { value: key }));
  control.value = metric.key;
  const explain = () => { byId("measure-meaning").textContent = metric.meaning; };
  control.addEventListener("change", () => { metric = metrics.find((m) => m.key === control.value); explain(); goTo(at); });
  slider.max = steps.length - 1; slider.value = at;
  let waiting = false;
  slider.addEventListener("input", () => {
    at = Number(slider.value);
    if (waiting) return; // many steps may pass between two pictures
    waiting = true;
    requestAnimationFrame(() => { waiting = false; goTo(at); });
  });
  byId("step-last").addEventListener("click", () => goTo(steps.length - 1));
  explain();
}

// One scale for all steps: colors can be compared over time.
function scale() {
  const { low, high, log, title } = metric;
  const to = (v) => (v === null ? null : log ? Math.log10(Math.max(v, low)) : v);
  const bar = colorbar(plain(title));
  if (log) {
    const ticks = [low, Math.sqrt(low * high), high];
    Object.assign(bar, { tickvals: ticks.map(to), ticktext: ticks.map((v) => show(v, 2)) });
  }
  return { to, look: { zmin: to(low), zmax: to(high), colorscale: "Viridis", colorbar: bar } };
}
const ticksOf = (list) => { const tickvals = list.map((_, i) => i).filter((i) => i % Math.ceil(list.length / 16) === 0); return { tickvals, ticktext: tickvals.map((i) => list[i]), showgrid: false, zeroline: false }; };
const headText = (i, step) => `head ${names[i]}<br>step ${steps[step]}<br>${plain(metric.title)} ${show(value(metric.key, step, i))}`;

function setUpLayers() {
  const layers = [...new Set(data.heads.layer)].sort((a, b) => a - b), numbers = [...new Set(data.heads.head)].sort((a, b) => a - b);
  const column = data.heads.layer.map((layer) => layers.indexOf(layer)), row = data.heads.head.map((head) => numbers.indexOf(head));
  const grid = (give, empty = null) => {
    const made = numbers.map(() => layers.map(() => empty));
    names.forEach((_, i) => { made[row[i]][column[i]] = give(i); });
    return made;
  };
  const index = grid((i) => i, -1);
  function draw() {
    const { to, look } = scale();
    const cells = { type: "heatmap", z: grid((i) => to(value(metric.key, at, i))), text: grid((i) => headText(i, at), ""), hoverinfo: "text", xgap: 1, ygap: 1, ...look };
    const struck = names.map((_, i) => i).filter((i) => value("state", at, i) === IN_ALERT);
    const crosses = { type: "scatter", mode: "markers", x: struck.map((i) => column[i]), y: struck.map((i) => row[i]), text: struck.map((i) => headText(i, at)), hoverinfo: "text", marker: { symbol: "x", size: 11, color: style("--bad"), line: { width: 1.5, color: "#ffffff" } } };
    const shapes = [{ type: "rect", x0: column[chosen] - 0.5, x1: column[chosen] + 0.5, y0: row[chosen] - 0.5, y1: row[chosen] + 0.5, line: { color: style("--mark"), width: 3 } }];
    plot("layers-chart", [cells, crosses], { xaxis: { title: { text: "layer" }, range: [-0.5, layers.length - 0.5], ...ticksOf(layers) }, yaxis: { title: { text: "head" }, range: [-0.5, numbers.length - 0.5], ...ticksOf(numbers) }, shapes },
      (event) => { const p = event.points[0]; const i = index[Math.round(p.y)][Math.round(p.x)]; if (i >= 0) choose(i, "layers"); });
    byId("layers-chart").dataset.step = steps[at];
    byId("layers-chart").dataset.measure = metric.key;
  }
  addChart("layers-chart", draw);
}

const stepLine = () => ({ type: "line", x0: steps[at], x1: steps[at], y0: 0, y1: 1, yref: "paper", line: { color: style("--quiet"), width: 1.5 } });
const curveHeads = () => [...new Set([chosen, ...kept])];
const colorOf = (head) => (head === chosen ? style("--mark") : PALETTE[[...kept].indexOf(head) % PALETTE.length]);

function setUpCurves() {
  function chips() {
    byId("curve-heads").replaceChildren(...curveHeads().map((head) => {
      const button = headButton(head), swatch = element("span", undefined, { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = colorOf(head);
      button.prepend(swatch);
      return button;
    }));
  }
  function draw() {
    const { key, band, threshold, log, title } = metric;
    const edge = { type: "scatter", mode: "lines", x: steps, hoverinfo: "skip", line: { width: 0 } };
    const heads = curveHeads();
    const traces = [
      { ...edge, y: band[0] }, { ...edge, y: band[2], fill: "tonexty", fillcolor: "rgba(128,140,155,0.22)" },
      { ...edge, y: band[1], line: { width: 1.2, dash: "dot", color: style("--quiet") } },
      ...heads.map((head) => ({ type: "scatter", mode: steps.length > 1 ? "lines" : "markers", x: steps, y: overSteps(key, head), name: `head ${names[head]}`, line: { width: head === chosen ? 2.6 : 1.6, color: colorOf(head) }, marker: { color: colorOf(head) }, text: steps.map((_, s) => headText(head, s)), hoverinfo: "text" })),
    ];
    const shapes = [stepLine()];
    for (const limit of threshold) shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: limit, y1: limit, line: { color: style("--bad"), width: 1, dash: "dash" } });
    for (const alert of alerts.filter((a) => a.heads.some((h) => heads.includes(h)))) shapes.push({ type: "line", x0: alert.step, x1: alert.step, y0: 0, y1: 1, yref: "paper", line: { color: style("--bad"), width: 1 } });
    plot("curves-chart", traces, { xaxis: { title: { text: "step" } }, yaxis: { title: { text: plain(title) }, type: log ? "log" : "linear" }, shapes }, (event) => goTo(nearest(event.points[0].x)));
    Object.assign(byId("curves-chart").dataset, { heads: heads.map((h) => names[h]).join(" "), measure: key });
    chips();
  }
  addChart("curves-chart", draw);
}

function setUpTimeline() {
  function draw() {
    const { to, look } = scale();
    const z = names.map((_, head) => steps.map((_s, s) => to(value(metric.key, s, head))));
    const cells = { type: "heatmap", x: steps, y: names.map((_, i) => i), z, hovertemplate: "head %{text}<extra></extra>", text: names.map((name, head) => steps.map((step, s) => `${name}, step ${step}: ${show(value(metric.key, s, head))}`)), ...look };
    const marks = alerts.flatMap((alert) => alert.heads.map((head) => ({ alert, head })));
    const spans = { type: "scatter", mode: "lines", hoverinfo: "skip", line: { color: style("--bad"), width: 2 }, x: marks.flatMap(({ alert }) => [alert.since, alert.step, null]), y: marks.flatMap(({ head }) => [head, head, null]) };
    const points = { type: "scatter", mode: "markers", x: marks.map(({ alert }) => alert.step), y: marks.map(({ head }) => head), hoverinfo: "text", text: marks.map(({ alert, head }) => `head ${names[head]}<br>${plain(alert.title)}, step ${alert.step}`),
      marker: { size: 11, color: style("--bad"), symbol: marks.map(({ alert }) => SYMBOL[alert.title]), line: { width: 1.5, color: "#ffffff" } } };
    const shapes = [stepLine(), { type: "line", xref: "paper", x0: 0, x1: 1, y0: chosen, y1: chosen, line: { color: style("--mark"), width: 1.5 } }];
    plot("timeline-chart", [cells, spans, points], { xaxis: { title: { text: "step" } }, yaxis: { ...ticksOf(names), title: { text: "layer.head" }, autorange: "reversed" }, shapes }, (event) => {
      const p = event.points[0];
      goTo(nearest(p.x)); choose(Math.round(p.y), "timeline");
    });
    byId("timeline-chart").dataset.alerts = marks.length;
  }
  const box = byId("timeline-chart");
  box.style.height = `${Math.min(Math.max(220, 60 + 9 * n), 760)}px`;
  addChart("timeline-chart", draw);
}

const where = (alert) => (alert.heads.length ? alert.heads.slice(0, 12).map((head) => headButton(head)) : [element("span", "all heads", { class: "quiet" })]);
function alertEntry(alert, { heads = true } = {}) {
  const entry = element("article", undefined, { class: alert.over ? "entry over" : "entry" });
  const title = element("h3", `${alert.title}, step ${alert.step}`), chips = element("div", undefined, { class: "chips" });
  if (heads) { chips.append(...where(alert)); if (alert.heads.length > 12) chips.append(element("span", `and ${count(alert.heads.length - 12, "more head")}`, { class: "quiet small" })); }
  entry.append(title, chips, element("p", alert.message), element("p", alert.facts, { class: "quiet small" }), element("p", `What people do: ${alert.advice}`, { class: "small" }));
  return entry;
}
function setUpAlerts() {
  const newest = [...alerts].reverse(), first = newest.slice(0, 20), rest = newest.slice(20);
  byId("alert-count").textContent = count(alerts.length, "alert");
  const list = byId("alert-list");
  list.append(...first.map((alert) => alertEntry(alert)));
  if (!alerts.length) list.append(element("p", "No alert so far.", { class: "quiet" }));
  if (!rest.length) return;
  const more = element("details", undefined, { class: "more" });
  more.append(element("summary", `${count(rest.length, "earlier alert")}`), ...rest.map((alert) => alertEntry(alert)));
  list.append(more);
}

function fillPanel(index) {
  byId("panel-title").textContent = `Head ${names[index]}`;
  const state = byId("panel-state");
  state.replaceChildren(element("span", data.heads.state[index], { class: `state ${data.heads.state[index]}` }), ` at the latest step, ${count(alertsOf(index).length, "alert")} in the run`);
  byId("panel-measures").replaceChildren(...metrics.map(({ key, title }) => {
    const box = element("div");
    box.append(element("dt", title, { title }), element("dd", show(value(key, at, index), 3)));
    return box;
  }));
  const own = [...alertsOf(index)].reverse().slice(0, 5);
  byId("panel-alerts").replaceChildren(...(own.length ? own.map((alert) => alertEntry(alert, { heads: alert.heads.length > 1 })) : [element("p", "None.", { class: "quiet small" })]));
  byId("keep").setAttribute("aria-pressed", String(kept.has(index)));
}
function setUpPanel() {
  const sheet = setUpSheet();
  byId("previous").addEventListener("click", () => choose((chosen + n - 1) % n, "panel"));
  byId("next").addEventListener("click", () => choose((chosen + 1) % n, "panel"));
  byId("keep").addEventListener("click", () => { if (!kept.delete(chosen)) kept.add(chosen); fillPanel(chosen); redraw("curves-chart"); });
  addView("panel", (index, from) => { fillPanel(index); sheet(`Head ${names[index]}`, from); });
  // Every measure in a strip of its own: they share the steps and nothing else.
  const asked = metrics.filter((m) => m.panel), strips = asked.length ? asked : metrics;
  function draw() {
    const height = 1 / strips.length, layoutOf = { xaxis: { title: { text: "step" }, anchor: `y${strips.length > 1 ? strips.length : ""}` }, margin: { l: 44, r: 8, t: 14, b: 34 }, shapes: [stepLine()], annotations: [] };
    const traces = strips.map(({ key, title, log }, i) => {
      const name = i ? `yaxis${i + 1}` : "yaxis", top = 1 - i * height;
      layoutOf[name] = { domain: [top - height * 0.72, top - height * 0.12], nticks: 3, type: log ? "log" : "linear", gridcolor: style("--grid"), tickfont: { size: 9 }, zeroline: false };
      layoutOf.annotations.push({ text: plain(title), x: 0, y: top - height * 0.12, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false, font: { size: 10.5, color: style("--ink") } });
      return { type: "scatter", mode: steps.length > 1 ? "lines" : "markers", x: steps, y: overSteps(key, chosen), yaxis: i ? `y${i + 1}` : "y", line: { width: 1.6, color: style("--accent") }, hovertemplate: "step %{x}: %{y:.4g}<extra></extra>" };
    });
    for (const alert of alertsOf(chosen)) layoutOf.shapes.push({ type: "line", x0: alert.step, x1: alert.step, y0: 0, y1: 1, yref: "paper", line: { color: style("--bad"), width: 1 } });
    plot("head-chart", traces, layoutOf, (event) => goTo(nearest(event.points[0].x)));
  }
  byId("head-chart").style.height = `${Math.max(160, 84 * strips.length)}px`;
  addChart("head-chart", draw);
}

let fillTable = () => {};
function setUpTable() {
  const numbersAt = () => metrics.map(({ key, title, meaning }) => ({ key, title, meaning, numeric: true, values: names.map((_, i) => value(key, at, i)) }));
  const fixed = [
    { key: "state", title: "state", meaning: "healthy, watch (close to a threshold, or an alert that is over), or alert, at the latest step.", values: data.heads.state },
    { key: "alerts", title: "alerts", meaning: "How many alerts name this head.", numeric: true, values: names.map((_, i) => alertsOf(i).length) },
    { key: "layer", title: "layer", meaning: "Number of the layer, from 0.", numeric: true, values: data.heads.layer },
  ];
  const columns = () => [...fixed, ...numbersAt()];
  const find = (text) => findAmong(text, names, (i) => data.heads.state[i], columns());
  const table = setUpRows({ first: { title: "head", meaning: "Layer and number in the layer, both from 0: 3.5 is head 5 of layer 3." }, find, choose: (i) => choose(i, "table") });
  table.showRows(names, columns());
  fillTable = () => table.showColumns(columns());
  const records = () => table.shown().map((i) => Object.fromEntries([["step", steps[at]], ["layer", data.heads.layer[i]], ["head", data.heads.head[i]], ...columns().filter((c) => c.key !== "layer").map((c) => [c.key, c.values[i] ?? null])]));
  for (const kind of ["csv", "json"]) byId(`table-${kind}`).addEventListener("click", () => saveRecords(kind, "heads", "headscape/monitor-table/1", "heads", records()));
  addView("head-table", table.mark);
  setUpSearch({ find, say: (i) => `${names[i]} ${data.heads.state[i]}`, go: (i) => { choose(i, "search"); return names[i]; } });
}

async function open() {
  for (const key of Object.keys(data.values)) values[key] = new Float32Array((await inflate(data.values[key])).buffer);
  readLink();
  start(() => {
    setUpNavigation([["findings", "State"], ["layers", "Layers"], ["curves", "Curves"], ["timeline", "Time line"], ["alerts", "Alerts"], ["heads", "Heads"], ["about", "About"]]);
    setUpTime(); setUpLayers(); setUpCurves(); setUpTimeline(); setUpAlerts(); setUpPanel(); setUpTable();
    showStep();
  });
}
open();
