// Puts the report together: sections that have data, the first choice.
function setUpSections() {
  if (families.length || data.measures.some((measure) => measure.numeric && measure.table)) setUpMeasures(); else byId("measures").hidden = true;
  setUpNavigation([["findings", "Findings"], ["measures", "Layers"], ...data.titles, ["heads", "Heads"], ["about", "About"]]);
  setUpSelection(); setUpHeadSearch(); setUpPanelNumbers(); setUpTable();
  for (const [number, chart] of data.charts.entries()) setUpChart(`chart-${number}`, chart);
}

// A chart that a stage describes without a script: the chosen head is marked where its points are heads.
function setUpChart(id, { traces, layout: extra, heads }) {
  function draw() {
    const shown = traces.map((trace, i) => (i === 0 && heads.length ? { text: heads.map((h) => headText(h)), ...trace } : trace));
    const at = heads.indexOf(chosen);
    const [first] = traces;
    const ring = at < 0 || !first.x || !first.y ? [] : [{ type: "scatter", mode: "markers", x: [first.x[at]], y: [first.y[at]], hoverinfo: "skip", marker: { size: 15, color: "rgba(0,0,0,0)", line: { width: 3, color: style("--mark") } } }];
    plot(id, [...shown, ...ring], extra, (event) => { const p = event.points[0]; if (p.curveNumber === 0 && heads.length) choose(heads[p.pointNumber], id); });
  }
  addChart(id, draw);
}

function firstChoice() {
  const wanted = new URLSearchParams(location.hash.slice(1)).get("head");
  const index = names.indexOf(wanted);
  return index >= 0 ? index : data.first;
}

chosen = firstChoice();
start(() => { setUpSections(); setUpStages(); });
