// The page of a pruned model: the trade-off, one chosen size, the heads it removes, what the choice cost.
const { points, measures, layers } = data;
const names = layers.flatMap(({ layer, heads }) => Array.from({ length: heads }, (_, head) => `${layer}.${head}`));
let chosen = data.first, against = measures[0];
const titleOf = (point) => (point.name ? `${point.name}: ` : "") + point.title;
const chosenName = () => (points.length ? titleOf(points[chosen]) : "");
const percent = (share) => (share === null ? "–" : `${show(100 * share, 3)} %`);

const within = ({ increase, low, high }) => (low === null || high === null ? show(increase, 3) : `${show(increase, 3)} [${show(low, 3)}, ${show(high, 3)}]`);

function chooseSize(index, from) {
  if (!(index >= 0 && index < points.length)) return;
  chosen = index;
  markAll(from);
  byId("announce").textContent = `${chosenName()} chosen`;
}

function setUpTradeOff() {
  const field = byId("against");
  for (const measure of measures) field.append(element("option", measure.title, { value: measure.key }));
  field.addEventListener("change", () => { against = measures.find((m) => m.key === field.value); hint(); redraw("tradeoff-chart"); });
  const best = (point) => point.best_for.includes(against.key);
  const kinds = [...new Set(points.map((point) => point.kind))];
  function hint() { byId("tradeoff-hint").textContent = `${against.meaning} Compared on ${count(data.windows, "calibration window")} that ${data.windows === 1 ? "was" : "were"} set aside.`; }
  function draw() {
    const known = points.map((point, i) => ({ point, i, x: point.values[against.key] })).filter(({ x }) => x !== null);
    const traces = kinds.map((kind, k) => {
      const mine = known.filter(({ point }) => point.kind === kind).sort((a, b) => a.x - b.x);
      const y = mine.map(({ point }) => point.increase);
      return { type: "scatter", mode: "lines+markers+text", name: kind, x: mine.map(({ x }) => x), y, customdata: mine.map(({ i }) => i), hoverinfo: "text", textposition: "middle right", textfont: { size: 13, color: style("--ink") },
        text: mine.map(({ point }) => (best(point) ? ` ${point.name}` : "")), hovertext: mine.map(({ point, x }) => `${plain(titleOf(point))}<br>loss increase ${within(point)}<br>${plain(against.title)}: ${show(x, 4)}`),
        error_y: { type: "data", symmetric: false, array: mine.map(({ point }) => (point.high === null ? 0 : point.high - point.increase)), arrayminus: mine.map(({ point }) => (point.low === null ? 0 : point.increase - point.low)), thickness: 1, width: 3, color: PALETTE[k] },
        line: { color: PALETTE[k], width: 1, dash: "dot" }, marker: { color: PALETTE[k], symbol: SYMBOLS[k], size: mine.map(({ point }) => (best(point) ? 11 : 7)), opacity: 1 } };
    });
    const here = known.find(({ i }) => i === chosen);
    if (here) traces.push({ type: "scatter", mode: "markers", x: [here.x], y: [here.point.increase], hoverinfo: "skip", showlegend: false, marker: { size: 20, symbol: "circle-open", color: style("--mark"), line: { width: 3 } } });
    plot("tradeoff-chart", traces, { showlegend: true, legend: { orientation: "h", y: -0.18 }, margin: { l: 52, r: 14, t: 16, b: 44 }, xaxis: { title: { text: against.title } }, yaxis: { title: { text: "loss increase" } } },
      (event) => { const p = event.points[0]; if (p.customdata !== undefined) chooseSize(p.customdata, "tradeoff-chart"); });
  }
  hint();
  addChart("tradeoff-chart", draw);
}

function setUpSizes() {
  const table = byId("size-table"), columns = [["Choice", false], ["Heads removed", true], ["Loss increase", true], ...measures.filter((m) => m.share).map((m) => [m.short, true]), ["Best for", false]];
  table.tHead.rows[0].append(...columns.map(([title, number]) => element("th", title, { scope: "col", class: number ? "n" : "" })));
  const rows = points.map((point, i) => {
    const row = element("tr", undefined, { "data-index": i }), title = element("th", undefined, { scope: "row" });
    title.append(element("button", `${point.name || "–"}${point.chosen ? " (this model)" : ""}`, { type: "button" }));
    const cells = [`${point.removed} in ${point.kind}`, within(point), ...measures.filter((m) => m.share).map((m) => percent(point.shares[m.key]))];
    row.append(title, ...cells.map((text) => element("td", text, { class: "n" })), element("td", point.best_for_words || "–"));
    row.addEventListener("click", () => chooseSize(i, "size-table"));
    return row;
  });
  table.tBodies[0].append(...rows);
  addView("size-table", () => rows.forEach((row, i) => (i === chosen ? row.setAttribute("aria-current", "true") : row.removeAttribute("aria-current"))));
}

const goneOf = () => new Set(points.length ? points[chosen].heads : data.heads);

function setUpRemoved() {
  let found = -1;
  function draw() {
    const gone = goneOf(), most = Math.max(...layers.map((l) => l.heads));
    const z = Array.from({ length: most }, (_, head) => layers.map((l) => (head < l.heads ? Number(gone.has(`${l.layer}.${head}`)) : null)));
    const text = z.map((row, head) => row.map((v, i) => (v === null ? "" : `head ${layers[i].layer}.${head}: ${v ? "removed" : "kept"}`)));
    const groups = layers[0].group, lines = [];
    for (let head = groups; groups > 1 && head < most; head += groups) lines.push({ type: "line", x0: -0.5, x1: layers.length - 0.5, y0: head - 0.5, y1: head - 0.5, line: { color: style("--quiet"), width: 1 } });
    const traces = [{ type: "heatmap", z, text, hoverinfo: "text", x: layers.map((l) => l.layer), y: z.map((_, i) => i), zmin: 0, zmax: 1, showscale: false, xgap: 1, ygap: 1, colorscale: [[0, style("--grid")], [1, PALETTE[5]]] }];
    if (found >= 0) { const [layer, head] = names[found].split(".").map(Number); traces.push({ type: "scatter", mode: "markers", x: [layer], y: [head], hoverinfo: "skip", marker: { size: 16, symbol: "square-open", color: style("--mark"), line: { width: 3 } } }); }
    plot("removed-chart", traces, { shapes: lines, xaxis: { title: { text: "layer" }, dtick: Math.ceil(layers.length / 16), showgrid: false, zeroline: false }, yaxis: { title: { text: "head" }, dtick: Math.ceil(most / 16), showgrid: false, zeroline: false } });
  }
  addChart("removed-chart", draw);
  addView("removed-hint", () => { byId("removed-hint").textContent = `${count(goneOf().size, "head")} of ${names.length} removed${points.length ? ` by the chosen size (${chosenName()})` : ""}.`; });
  const body = byId("layer-table").tBodies[0];
  addView("layer-table", () => {
    const gone = goneOf();
    body.replaceChildren(...layers.map(({ layer, heads }) => {
      const removed = Array.from({ length: heads }, (_, head) => head).filter((head) => gone.has(`${layer}.${head}`)), row = element("tr");
      row.append(element("th", String(layer), { scope: "row" }), element("td", removed.join(", ") || "–"), element("td", `${heads - removed.length} of ${heads}`, { class: "n" }));
      return row;
    }));
  });
  setUpSearch({ find: (text) => findAmong(text, names, (i) => (goneOf().has(names[i]) ? "removed" : "kept"), []), say: (i) => `${names[i]} ${goneOf().has(names[i]) ? "removed" : "kept"}`,
    go: (i) => { found = i; redraw("removed-chart"); byId("removed").scrollIntoView({ block: "nearest" }); return names[i]; } });
}

function numbers(list, pairs) { list.replaceChildren(...pairs.map(([label, value]) => { const box = element("div"); box.append(element("dt", label), element("dd", value)); return box; })); }

function setUpCost() {
  byId("cost-hint").textContent = data.cost.hint;
  byId("cost-table").tBodies[0].append(...data.cost.rows.map(({ name, used, increase, low, high }) => {
    const row = element("tr", undefined, used ? { "aria-current": "true" } : {});
    row.append(element("th", `${name}${used ? " (this model)" : ""}`, { scope: "row" }), element("td", within({ increase, low, high }), { class: "n" }));
    return row;
  }));
  numbers(byId("savings"), data.cost.savings);
}

function setUpPanel() {
  const raise = setUpSheet();
  byId("previous").addEventListener("click", () => chooseSize(chosen - 1, "panel"));
  byId("next").addEventListener("click", () => chooseSize(chosen + 1, "panel"));
  addView("panel", (index, from) => {
    const point = points[chosen];
    byId("panel-title").textContent = chosenName();
    byId("panel-words").textContent = point.words;
    numbers(byId("panel-numbers"), point.numbers);
    byId("panel-command").textContent = point.option;
    raise(chosenName(), from);
  });
}

start(() => {
  for (const id of ["tradeoff", "sizes", "panel"]) byId(id).hidden = !points.length;
  if (points.length) { setUpTradeOff(); setUpSizes(); setUpPanel(); }
  setUpRemoved(); setUpCost();
  setUpNavigation([["findings", "Findings"], ["tradeoff", "Trade-off"], ["sizes", "Sizes"], ["removed", "Heads"], ["cost", "Cost"], ["heads", "Layers"], ["about", "About"]]);
});
