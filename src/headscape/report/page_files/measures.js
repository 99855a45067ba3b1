// The grid layer x head: one measure of every head.
function setUpMeasures() {
  const select = byId("measure");
  fillMeasures(select, []);
  if (measureOf("haar_entropy")) select.value = "haar_entropy";
  const explain = () => { byId("measure-meaning").textContent = measureOf(select.value).meaning; };
  const outline = () => {
    const x = layers.indexOf(data.heads.layer[chosen]), y = numbers.indexOf(data.heads.head[chosen]);
    return [{ type: "rect", x0: x - 0.5, x1: x + 0.5, y0: y - 0.5, y1: y + 0.5, line: { color: style("--mark"), width: 3 } }];
  };
  function draw() {
    const measure = measureOf(select.value);
    const grid = numbers.map(() => layers.map(() => null));
    const place = numbers.map(() => layers.map(() => ""));
    const index = numbers.map(() => layers.map(() => -1));
    names.forEach((name, i) => {
      const row = numbers.indexOf(data.heads.head[i]), column = layers.indexOf(data.heads.layer[i]);
      grid[row][column] = measure.values[i]; index[row][column] = i;
      place[row][column] = `head ${name}<br>${plain(measure.title)} ${show(measure.values[i])}`;
    });
    const ticks = (list) => ({ tickvals: list.map((_, i) => i).filter((i) => i % Math.ceil(list.length / 16) === 0) });
    const labelled = (list) => { const t = ticks(list); return { ...t, ticktext: t.tickvals.map((i) => list[i]) }; };
    plot("measure-chart", [{ type: "heatmap", z: grid, text: place, hoverinfo: "text", colorscale: "Viridis", xgap: 1, ygap: 1, colorbar: colorbar(plain(measure.title)) }],
      { xaxis: { title: { text: "layer" }, ...labelled(layers), showgrid: false, zeroline: false }, yaxis: { title: { text: "head" }, ...labelled(numbers), showgrid: false, zeroline: false }, shapes: outline() },
      (event) => { const p = event.points[0]; const i = index[Math.round(p.y)][Math.round(p.x)]; if (i >= 0) choose(i, "measures"); });
    byId("measure-chart").dataset.measure = measure.key;
  }
  explain();
  select.addEventListener("change", () => { explain(); redraw("measure-chart"); });
  addChart("measure-chart", draw, () => Plotly.relayout("measure-chart", { shapes: outline() }));
}

