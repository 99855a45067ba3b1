// What changed: by layer, with the noise, and head by head in a table.
function setUpLayers() {
  onPair(() => {
    const { layers } = pair();
    byId("layers").hidden = !layers.length;
    const above = layers.filter((l) => l.changed > 0).map((l) => l.layer);
    byId("layers-hint").textContent = above.length ? "Bars above the band are more than noise. Choose a bar to see the heads of the layer in the table." : "No layer leaves the band: the difference is inside the noise.";
  });
  function draw() {
    const { layers } = pair(), x = layers.map((l) => l.layer);
    if (!layers.length) return;
    const step = { type: "scatter", mode: "lines", x, line: { width: 0, shape: "hvh" }, hoverinfo: "skip" };
    const band = [{ ...step, y: x.map(() => 0) }, { ...step, y: layers.map((l) => l.limit), fill: "tonexty", fillcolor: "rgba(128,140,155,0.28)" }];
    const usual = { ...step, y: layers.map((l) => l.noise), line: { width: 1.5, dash: "dot", color: style("--quiet"), shape: "hvh" } };
    const bars = { type: "bar", x, y: layers.map((l) => l.change), width: 0.55, marker: { color: layers.map((l) => (l.changed > 0 ? style("--mark") : style("--accent"))) }, hoverinfo: "text", textposition: "none",
      text: layers.map((l) => `layer ${l.layer}: ${show(l.change, 3)}<br>noise ${show(l.noise, 3)}, at most ${show(l.limit, 3)}<br>${l.changed} of ${l.heads} heads changed`) };
    plot("layers-chart", [...band, bars, usual], { xaxis: { title: { text: "layer" }, dtick: Math.ceil(x.length / 16), zeroline: false }, yaxis: { title: { text: "distance from the partners" }, rangemode: "tozero" } },
      (event) => { const p = event.points[0]; if (p.curveNumber === 2) filterTable(`layer = ${p.x}`); });
    byId("layers-chart").legend = [{ name: "changed", color: style("--mark"), symbol: "square" }, { name: "inside the noise", color: style("--accent"), symbol: "square" }];
  }
  addChart("layers-chart", draw);
}

function filterTable(text) {
  byId("filter").value = text;
  byId("filter").dispatchEvent(new Event("input", { bubbles: true }));
  byId("heads").scrollIntoView();
}

function setUpLayerPlan() {
  const layersOf = (side) => [...new Set(sourceOf(side).heads.layer)].sort((a, b) => a - b);
  onPair(() => {
    byId("layer-plan").hidden = !pair().layer_plan.length;
    byId("layer-plan-hint").textContent = `Each row splits the heads of a layer of ${sourceOf(0).label} over the layers of ${sourceOf(1).label}.`;
  });
  function draw() {
    const { layer_plan: z } = pair();
    if (!z.length) return;
    const [rows, columns] = [0, 1].map(layersOf);
    const here = chosen.side === 0 ? rows.indexOf(sourceOf(0).heads.layer[chosen.head]) : columns.indexOf(sourceOf(1).heads.layer[chosen.head]);
    const outline = chosen.side === 0 ? { x0: -0.5, x1: columns.length - 0.5, y0: here - 0.5, y1: here + 0.5 } : { y0: -0.5, y1: rows.length - 0.5, x0: here - 0.5, x1: here + 0.5 };
    const ticks = (list) => { const at = list.map((_, i) => i).filter((i) => i % Math.ceil(list.length / 16) === 0); return { tickvals: at, ticktext: at.map((i) => list[i]), showgrid: false, zeroline: false }; };
    plot("layer-plan-chart", [{ type: "heatmap", z, colorscale: "Viridis", zmin: 0, colorbar: colorbar("share"), hoverinfo: "text", text: z.map((row, i) => row.map((v, j) => `${percent(v)} of layer ${rows[i]}<br>goes to layer ${columns[j]}`)) }],
      { xaxis: { title: { text: `layer of ${plain(sourceOf(1).label)}` }, ...ticks(columns) }, yaxis: { title: { text: `layer of ${plain(sourceOf(0).label)}` }, ...ticks(rows) }, shapes: [{ type: "rect", ...outline, line: { color: style("--mark"), width: 2 } }] });
  }
  addChart("layer-plan-chart", draw);
}

function setUpChanges() {
  const label = (i) => { const { first, second } = pair().rows; return first[i] === null ? namesOf(1)[second[i]] : namesOf(0)[first[i]]; };
  const labels = () => pair().rows.first.map((_, i) => label(i));
  const words = (i) => pair().columns.filter((c) => !c.numeric).map((c) => c.values[i] ?? "").join(" ");
  const table = setUpRows({
    first: { title: "head", meaning: "Layer and number in the layer, both from 0, in the first network; in the second where the first lacks it." },
    find: (text) => findAmong(text, labels(), words, pair().columns),
    choose: (i) => { const { first, second } = pair().rows; if (first[i] === null) choose(1, second[i], "table"); else choose(0, first[i], "table"); },
  });
  function records() {
    const own = (i) => { const { first, second } = pair().rows; return [["first", first[i] === null ? null : namesOf(0)[first[i]]], ["second", second[i] === null ? null : namesOf(1)[second[i]]]]; };
    return table.shown().map((i) => Object.fromEntries([...own(i), ...table.columns().map((c) => [c.key, c.values[i] ?? null])]));
  }
  for (const kind of ["csv", "json"]) byId(`table-${kind}`).addEventListener("click", () => saveRecords(kind, "changes", "headscape/changes/1", "changes", records()));
  onPair(() => table.showRows(labels(), pair().columns, { by: pair().columns.find((c) => c.key === "times") || null, descending: true }));
  addView("head-table", (head) => table.mark(rowOf(head)));
}
