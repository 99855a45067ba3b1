// The grid layer x head: one measure of every head, or its name.
function setUpMeasures() {
  const control = byId("measure");
  fillColors(control, { layer: false });
  if (measureOf("haar_entropy")) control.value = "haar_entropy";
  const explain = () => { byId("measure-meaning").textContent = control.value === FAMILY ? nameMeasure.meaning : measureOf(control.value).meaning; };
  const outline = () => {
    const x = layers.indexOf(data.heads.layer[chosen]), y = numbers.indexOf(data.heads.head[chosen]);
    return [{ type: "rect", x0: x - 0.5, x1: x + 0.5, y0: y - 0.5, y1: y + 0.5, line: { color: style("--mark"), width: 3 } }];
  };
  const row = data.heads.head.map((head) => numbers.indexOf(head)), column = data.heads.layer.map((layer) => layers.indexOf(layer));
  // A value per head as a grid; layers may have different numbers of heads.
  const grid = (value, empty = null) => {
    const made = numbers.map(() => layers.map(() => empty));
    names.forEach((_, i) => { made[row[i]][column[i]] = value(i); });
    return made;
  };
  const index = grid((i) => i, -1);
  function draw() {
    const color = coloring(control.value);
    const n = families.length;
    const scale = color.families ? { zmin: -0.5, zmax: n - 0.5, showscale: false, colorscale: families.flatMap((f, k) => [[k / n, f.color], [(k + 1) / n, f.color]]) }
      : { zmin: color.low, zmax: color.high, colorscale: "Viridis", colorbar: color.bar };
    const cells = { type: "heatmap", z: grid((i) => color.values[i]), text: grid((i) => headText(i, color.say(i)), ""), hoverinfo: "text", xgap: 1, ygap: 1, ...scale };
    // Heads outside the selection lie under a veil.
    const veil = { type: "heatmap", z: grid((i) => (isSelected(i) ? null : 1)), hoverinfo: "skip", showscale: false, colorscale: [[0, style("--paper")], [1, style("--paper")]], opacity: 0.82, xgap: 1, ygap: 1 };
    plot("measure-chart", selection ? [cells, veil] : [cells],
      { xaxis: { title: { text: "layer" }, ...someTicks(layers) }, yaxis: { title: { text: "head" }, ...someTicks(numbers) }, shapes: outline() },
      (event) => { const p = event.points[0]; const i = index[Math.round(p.y)][Math.round(p.x)]; if (i >= 0) choose(i, "measures"); });
    byId("measure-chart").dataset.measure = control.value;
  }
  explain();
  setUpLegend("measure-legend", "measure-chart", control);
  control.addEventListener("change", () => { explain(); redraw("measure-chart"); });
  selectionListeners.push(() => redraw("measure-chart"));
  addChart("measure-chart", draw, () => Plotly.relayout("measure-chart", { shapes: outline() }));
}
