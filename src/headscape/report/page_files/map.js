// The diffusion map: heads that attend alike lie close together; with and without sinks, with a lasso.
function setUpMap() {
  const chart = byId("map-chart"), control = byId("map-color");
  const { geometry, sinks } = data;
  let dimensions = 2, lasso = false, withSinks = true;
  const source = () => (withSinks ? geometry : sinks);
  const column = (k, keep) => source().coordinates.filter((_, i) => keep === undefined || i === keep).map((point) => point[k]);
  function axisTitle(k) {
    const follows = (source().coordinates_follow || [])[k];
    const text = `coordinate ${k + 1}${follows ? `: ${follows}` : ""}`;
    return { text: lines(plain(text), k === 0 ? chart.clientWidth / 7 : 48).join("<br>") };
  }
  function marker(color, flat) {
    const line = { width: flat ? 0.6 : 0, color: style("--quiet") };
    const size = flat ? 8 : selection ? names.map((_, i) => (isSelected(i) ? 6 : 1.5)) : 4;
    if (!color.families) return { size, line, color: color.values, cmin: color.low, cmax: color.high, colorscale: "Viridis", colorbar: color.bar };
    return { size, line, color: familyOf.map((f) => families[f].color), symbol: flat ? familyOf.map((f) => families[f].symbol) : "circle" };
  }
  function traces() {
    const color = coloring(control.value);
    const flat = dimensions === 2;
    const kind = { type: flat ? "scatter" : "scatter3d", mode: "markers" };
    const z = (keep) => (flat ? {} : { z: column(2, keep) });
    const all = { ...kind, x: column(0), y: column(1), ...z(), text: names.map((_, i) => headText(i, color.say(i))), hoverinfo: "text", marker: marker(color, flat) };
    if (flat && selection) Object.assign(all, { selectedpoints: [...selection.heads], selected: { marker: { opacity: 1 } }, unselected: { marker: { opacity: 0.12 } } });
    const ring = { ...kind, x: column(0, chosen), y: column(1, chosen), ...z(chosen), hoverinfo: "skip",
      marker: { size: flat ? 17 : 9, color: flat ? "rgba(0,0,0,0)" : style("--mark"), symbol: flat ? "circle" : "circle-open", line: { width: flat ? 3 : 4, color: style("--mark") } } };
    if (flat) Object.assign(ring, { selectedpoints: [0], unselected: { marker: { opacity: 1 } } });
    return [all, ring];
  }
  function listen() {
    if (chart.dataset.listening) return;
    chart.dataset.listening = "yes";
    chart.on("plotly_selected", (event) => {
      const heads = event ? event.points.filter((p) => p.curveNumber === 0).map((p) => p.pointNumber) : [];
      // The chart finishes its own drawing first; and it tells of no heads when the outline goes.
      if (heads.length) setTimeout(() => select(heads, "lasso on the map"));
    });
    chart.on("plotly_deselect", () => setTimeout(() => select([])));
  }
  function draw() {
    const axis = { gridcolor: style("--grid"), color: style("--quiet"), showbackground: false };
    const scene = Object.fromEntries(["xaxis", "yaxis", "zaxis"].map((name, k) => [name, { ...axis, title: axisTitle(k) }]));
    try {
      plot("map-chart", traces(), { xaxis: { title: axisTitle(0) }, yaxis: { title: axisTitle(1) }, scene, dragmode: dimensions === 3 ? "orbit" : lasso ? "lasso" : "zoom", selections: [] },
        (event) => { const p = event.points[0]; if (p.curveNumber === 0) choose(p.pointNumber, "map"); }, dimensions === 2 ? "map" : "solid");
      listen();
    } catch (error) {
      if (dimensions === 2) throw error;
      dimensions = 2; press(["map-2d", "map-3d"], "map-2d"); draw();
    }
    chart.dataset.sinks = withSinks ? "with" : "without";
  }
  for (const [id, n] of [["map-2d", 2], ["map-3d", 3]]) {
    byId(id).addEventListener("click", () => {
      dimensions = n; press(["map-2d", "map-3d"], id);
      chart.dataset.dimensions = n;
      byId("map-lasso").disabled = n === 3;
      if (chart.dataset.bound) Plotly.purge("map-chart");
      delete chart.dataset.bound; delete chart.dataset.listening; redraw("map-chart");
    });
  }
  byId("map-lasso").addEventListener("click", () => { lasso = !lasso; byId("map-lasso").setAttribute("aria-pressed", String(lasso)); redraw("map-chart"); });
  byId("map-sinks").hidden = !sinks;
  byId("map-sinks-more").hidden = !sinks;
  byId("map-sinks-text").textContent = (sinks && sinks.sentence) || "";
  for (const [id, value] of [["sinks-with", true], ["sinks-without", false]]) {
    byId(id).addEventListener("click", () => { withSinks = value; press(["sinks-with", "sinks-without"], id); redraw("map-chart"); });
  }
  fillColors(control);
  setUpLegend("map-legend", "map-chart", control);
  control.addEventListener("change", () => redraw("map-chart"));
  selectionListeners.push(() => redraw("map-chart"));
  addChart("map-chart", draw);
}
