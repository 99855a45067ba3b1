// What changed: by layer, with the noise, and head by head in a table.
function setUpLayers() {
  const kinds = byId("layers-kind"), measures = byId("layers-measure");
  const group = () => pair().groups.find((g) => g.kind === kinds.value) || pair().groups[0];
  const series = () => group().series.find((s) => s.key === measures.value) || group().series[0];
  function explain() {
    const n = series().changed.filter(Boolean).length, { kind } = group();
    if (series().unit) {
      byId("layers-hint").textContent = `${count(n, kind)} of ${group().labels.length} moved. Distance between the attention of a head and of its partner on the same windows, in median distances between heads. The text cancels, so there is no noise: 0 where nothing changed.`;
      return;
    }
    byId("layers-hint").textContent = n ? `${count(n, kind)} of ${group().labels.length} above the noise (the gray band).${kind === "layer" ? " Choose a bar to see the heads of the layer in the table." : ""}` : `No ${kind} leaves the gray band: the difference is inside the noise.`;
  }
  function fillMeasures() {
    const before = measures.value;
    fillChoice(measures, group().series.map(({ key, title }) => [key, title]), before);
    explain();
  }
  onPair(() => {
    byId("layers").hidden = !pair().groups.length;
    if (!pair().groups.length) return;
    fillChoice(kinds, pair().groups.map(({ kind }) => [kind, kind]), kinds.value);
    fillMeasures();
  });
  function draw() {
    if (!pair().groups.length) return;
    const { labels, heads, kind } = group(), { times, changed, title, unit } = series(), x = labels.map((_, i) => i);
    const bars = { type: "bar", x, y: times, width: 0.6, marker: { color: changed.map((c) => (c ? style("--mark") : style("--accent"))) }, hoverinfo: "text", textposition: "none",
      text: labels.map((label, i) => `${kind} ${plain(label)}, ${count(heads[i], "head")}<br>${plain(title)}: ${show(times[i], 3)} ${unit || "times the noise"}`) };
    const across = { xref: "paper", x0: 0, x1: 1 };
    const shapes = unit ? [] : [{ type: "rect", layer: "below", ...across, y0: 0, y1: 1, fillcolor: "rgba(128,140,155,0.28)", line: { width: 0 } }, { type: "line", ...across, y0: 1, y1: 1, line: { width: 1.5, dash: "dot", color: style("--ink") } }];
    plot("layers-chart", [bars], { shapes, xaxis: { title: { text: kind }, ...someTicks(labels), range: [-0.6, labels.length - 0.4] }, yaxis: { title: { text: unit || "times the noise" }, range: [0, 1.08 * Math.max(unit ? 1e-6 : 1.2, ...times.filter((v) => v !== null))] } },
      (event) => { if (group().kind === "layer") filterTable(`layer = ${group().labels[event.points[0].x]}`); });
    byId("layers-chart").legend = [{ name: unit ? "moved" : "changed", color: style("--mark"), symbol: "square" }, { name: unit ? "the same" : "inside the noise", color: style("--accent"), symbol: "square" }];
  }
  kinds.addEventListener("change", () => { fillMeasures(); redraw("layers-chart"); });
  measures.addEventListener("change", () => { explain(); redraw("layers-chart"); });
  addChart("layers-chart", draw);
}

// Options of a select as [value, text]; the one that was chosen before stays if it is still there.
function fillChoice(control, options, before) {
  control.replaceChildren(...options.map(([value, text]) => element("option", text, { value })));
  if (options.some(([value]) => value === before)) control.value = before;
}

function filterTable(text) {
  byId("filter").value = text;
  byId("filter").dispatchEvent(new Event("input", { bubbles: true }));
  byId("heads").scrollIntoView();
}

function setUpLayerPlan() {
  const control = byId("layer-plan-matrix");
  const layersOf = (side) => [...new Set(sourceOf(side).heads.layer)].sort((a, b) => a - b);
  const matrix = () => pair().matrices.find((m) => m.key === control.value) || pair().matrices[0];
  const explain = () => { byId("layer-plan-hint").textContent = matrix().meaning; };
  onPair(() => {
    const { matrices } = pair();
    byId("layer-plan").hidden = !matrices.length;
    control.closest("label").hidden = matrices.length < 2;
    if (!matrices.length) return;
    fillChoice(control, matrices.map(({ key, title }) => [key, title]), control.value);
    explain();
  });
  function draw() {
    if (!pair().matrices.length) return;
    const { values: z, title } = matrix(), [rows, columns] = [0, 1].map(layersOf), high = Math.max(...z.flat().filter((v) => v !== null), 1e-9);
    const here = chosen.side === 0 ? rows.indexOf(sourceOf(0).heads.layer[chosen.head]) : columns.indexOf(sourceOf(1).heads.layer[chosen.head]);
    const outline = chosen.side === 0 ? { x0: -0.5, x1: columns.length - 0.5, y0: here - 0.5, y1: here + 0.5 } : { y0: -0.5, y1: rows.length - 0.5, x0: here - 0.5, x1: here + 0.5 };
    const text = z.map((row, i) => row.map((v, j) => `layer ${rows[i]} of ${plain(sourceOf(0).label)}<br>layer ${columns[j]} of ${plain(sourceOf(1).label)}<br>${plain(title)} ${show(v, 2)}`));
    plot("layer-plan-chart", [{ type: "heatmap", z, colorscale: "Viridis", zmin: 0, zmax: high, xgap: 1, ygap: 1, colorbar: colorbar(plain(title)), hoverinfo: "text", text }],
      { xaxis: { title: { text: `layer of ${plain(sourceOf(1).label)}` }, ...someTicks(columns) }, yaxis: { title: { text: `layer of ${plain(sourceOf(0).label)}` }, ...someTicks(rows) }, shapes: [{ type: "rect", ...outline, line: { color: style("--mark"), width: 2 } }] });
  }
  control.addEventListener("change", () => { explain(); redraw("layer-plan-chart"); });
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
  // An example that this table understands: heads that are not matched have no change.
  onPair(() => { byId("filter-example").textContent = `${pair().columns.some((c) => c.key === "times") ? "times > 2" : "share > 0.5"}, layer >= 4`; });
  onPair(() => table.showRows(labels(), pair().columns, { by: leadColumn(), descending: true }));
  addView("head-table", (head) => table.mark(rowOf(head)));
}
