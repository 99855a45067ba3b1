// More than two networks: their distances, their map, and the choice of two of them.
const pairIndex = (a, b) => data.pairs.findIndex((p) => (p.first === a && p.second === b) || (p.first === b && p.second === a));

function setUpDistances() {
  const labels = data.sources.map((source) => plain(source.label)), n = labels.length;
  const cell = (i, j) => (i === j ? null : data.pairs[pairIndex(i, j)] || null);
  const grid = (value) => labels.map((_, i) => labels.map((_, j) => value(cell(i, j), i, j)));
  const outline = () => [[pair().first, pair().second], [pair().second, pair().first]].map(([y, x]) => ({ type: "rect", x0: x - 0.5, x1: x + 0.5, y0: y - 0.5, y1: y + 0.5, line: { color: style("--mark"), width: 3 } }));
  function draw() {
    const z = grid((p) => (p ? p.distance : 0)), high = Math.max(...z.flat().filter((v) => v !== null), 1e-9);
    const annotations = n > 14 ? [] : grid((p, i, j) => ({ x: j, y: i, text: p ? `${p.inside ? "≈ " : ""}${show(p.distance, 2)}` : "", showarrow: false, font: { size: 11, color: p && p.distance > 0.6 * high ? "#16202c" : "#ffffff" } })).flat();
    const ticks = { tickvals: labels.map((_, i) => i), ticktext: labels, showgrid: false, zeroline: false };
    plot("distances-chart", [{ type: "heatmap", z, zmin: 0, zmax: high, colorscale: "Viridis", xgap: 2, ygap: 2, colorbar: colorbar("distance"), hoverinfo: "text", text: grid((p, i, j) => (p ? `${labels[i]} and ${labels[j]}<br>${show(p.distance, 3)}: ${plain(p.verdict)}` : labels[i])) }],
      { xaxis: ticks, yaxis: { ...ticks, autorange: "reversed" }, annotations, shapes: outline() },
      (event) => { const p = event.points[0], found = pairIndex(Math.round(p.y), Math.round(p.x)); if (found >= 0) choosePair(found, "distances"); });
  }
  addChart("distances-chart", draw);
}

function setUpNetworkMap() {
  byId("network-map-hint").textContent = data.path.length ? "The line follows the checkpoints in their order." : "Networks whose heads are organized alike lie close together.";
  function draw() {
    const at = (list, k) => list.map((i) => data.places[i][k]), all = data.sources.map((_, i) => i);
    const path = data.path.length ? [{ type: "scatter", mode: "lines", x: at(data.path, 0), y: at(data.path, 1), line: { color: style("--quiet"), width: 1.5, dash: "dot" }, hoverinfo: "skip" }] : [];
    const points = { type: "scatter", mode: "markers+text", x: at(all, 0), y: at(all, 1), text: data.sources.map((s) => plain(s.label)), textposition: "top center", cliponaxis: false, hoverinfo: "text", hovertext: data.sources.map((s) => plain(s.name)),
      marker: { size: 14, color: all.map(sourceColor), line: { width: all.map((i) => ([pair().first, pair().second].includes(i) ? 3 : 0)), color: style("--mark") } } };
    plot("network-map-chart", [...path, points], { margin: { l: 46, r: 20, t: 20, b: 38 }, xaxis: { title: { text: "coordinate 1" } }, yaxis: { title: { text: "coordinate 2" } } });
  }
  addChart("network-map-chart", draw);
}

function setUpPairTable() {
  const rows = data.pairs.map((p, i) => {
    const button = element("button", `${data.sources[p.first].label} – ${data.sources[p.second].label}`, { type: "button" });
    button.addEventListener("click", () => choosePair(i, "pairs"));
    return tableRow(button, [p.distance, p.noise, p.verdict, p.sentence]);
  });
  byId("pair-table").tBodies[0].append(...rows);
  onPair(() => rows.forEach((row, i) => { if (i === pairAt) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current"); }));
}

function setUpPairChoice() {
  const [first, second] = ["pair-first", "pair-second"].map(byId);
  for (const control of [first, second]) control.append(...data.sources.map((source, i) => element("option", source.label, { value: i })));
  const change = (kept, other) => () => {
    // A network is not compared with itself: the other side moves to the next one.
    if (kept.value === other.value) other.value = String((Number(kept.value) + 1) % data.sources.length);
    choosePair(pairIndex(Number(first.value), Number(second.value)), "choice");
  };
  first.addEventListener("change", change(first, second));
  second.addEventListener("change", change(second, first));
  onPair(() => { first.value = String(pair().first); second.value = String(pair().second); byId("pair-sentence").textContent = pair().sentence; });
}

function setUpNetworks() {
  if (data.sources.length < 3) return;
  for (const id of ["networks", "pair"]) byId(id).hidden = false;
  setUpDistances(); setUpNetworkMap(); setUpPairTable(); setUpPairChoice();
}
