// Whole networks beside each other: measures, patterns, tri-Haar spectra, network entropies, trees.
function setUpMeasures() {
  const control = byId("measure"), body = byId("effect-table").tBodies[0];
  const known = () => data.measures.filter(({ key }) => [0, 1].every((side) => (sourceOf(side).values[key] || []).some((v) => typeof v === "number")));
  const effectOf = (key) => pair().effects.find((effect) => effect.key === key);
  const bounds = ({ effect, low, high }) => `${show(effect, 2)}${typeof low === "number" ? ` [${show(low, 2)}, ${show(high, 2)}]` : ""}`;
  function explain() { const measure = known().find((m) => m.key === control.value); byId("measure-hint").textContent = measure ? measure.meaning : ""; }
  onPair(() => {
    const before = control.value;
    byId("measures").hidden = !known().length;
    control.replaceChildren(...known().map(({ key, title }) => element("option", title, { value: key })));
    if (known().some((m) => m.key === before)) control.value = before;
    body.replaceChildren(...known().filter(({ key }) => effectOf(key)).map(({ key, title }) => {
      const found = effectOf(key), button = element("button", title, { type: "button" });
      button.addEventListener("click", () => { control.value = key; explain(); redraw("measure-chart"); });
      const row = tableRow(button, [found.first, found.second, bounds(found), found.verdict]);
      row.cells[3].className = "n";
      return row;
    }));
    explain();
  });
  function draw() {
    if (!known().length) return;
    const traces = [0, 1].map((side) => ({ type: "violin", y: sourceOf(side).values[control.value], name: plain(sourceOf(side).label), line: { color: sideColor(side) }, box: { visible: true }, meanline: { visible: false }, points: false, spanmode: "hard", hoveron: "violins", scalemode: "width" }));
    const at = (sourceOf(chosen.side).values[control.value] || [])[chosen.head];
    const dot = typeof at === "number" ? [{ type: "scatter", mode: "markers", x: [plain(sourceOf(chosen.side).label)], y: [at], hoverinfo: "skip", marker: { size: 11, color: style("--mark"), line: { width: 1.5, color: style("--paper") } } }] : [];
    plot("measure-chart", [...traces, ...dot], { yaxis: { title: { text: plain(known().find((m) => m.key === control.value).title) } } });
  }
  control.addEventListener("change", () => { explain(); redraw("measure-chart"); });
  addChart("measure-chart", draw);
}

function setUpPatterns() {
  onPair(() => {
    const { patterns } = pair();
    byId("patterns").hidden = !patterns.length;
    const lacks = [0, 1].map((side) => patterns.filter((p) => p[side === 0 ? "second" : "first"] === 0 && p[side === 0 ? "first" : "second"] > 0).map((p) => p.pattern));
    const said = [0, 1].filter((side) => lacks[side].length).map((side) => `Only in ${sourceOf(side).label}: ${lacks[side].join(", ")}.`);
    byId("patterns-hint").textContent = said.length ? said.join(" ") : "Both networks have the same patterns.";
    byId("pattern-table").tBodies[0].replaceChildren(...patterns.map((p) => tableRow(p.pattern, [p.first, p.second, p.verdict])));
  });
  function draw() {
    const { patterns } = pair();
    const shown = [...patterns].reverse();
    const bars = [1, 0].map((side) => { const key = side === 0 ? "first" : "second", n = namesOf(side).length;
      return { type: "bar", orientation: "h", y: shown.map((p) => plain(p.pattern)), x: shown.map((p) => p[key] / n), marker: { color: sideColor(side) }, hoverinfo: "text", textposition: "none", text: shown.map((p) => `${plain(p.pattern)}, ${plain(sourceOf(side).label)}: ${p[key]} of ${n} heads`) }; });
    plot("patterns-chart", bars, { barmode: "group", bargap: 0.25, xaxis: { title: { text: "share of the heads" }, tickformat: ".0%" }, yaxis: { tickfont: { size: 10 } } });
  }
  addChart("patterns-chart", draw);
}

const faded = (hex, opacity) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${opacity})`;

function setUpSpectra() {
  const has = (side) => (sourceOf(side).spectrum.median || []).length > 0;
  onPair(() => { byId("spectra").hidden = !(has(0) && has(1)); });
  function draw() {
    const traces = [0, 1].filter(has).flatMap((side) => {
      const { support, median, low, high } = sourceOf(side).spectrum, x = median.map((_, i) => i + 1);
      const edge = { type: "scatter", mode: "lines", x, line: { width: 0 }, hoverinfo: "skip" };
      return [{ ...edge, y: low }, { ...edge, y: high, fill: "tonexty", fillcolor: faded(sideColor(side), 0.18) },
        { type: "scatter", mode: "lines", x, y: median, line: { width: 2, color: sideColor(side) }, hoverinfo: "text", text: median.map((v, i) => `${plain(sourceOf(side).label)}, wavelet ${i + 1}: ${show(v, 3)}${support ? `<br>support ${show(support[i], 3)}` : ""}`) }];
    });
    plot("spectra-chart", traces, { xaxis: { title: { text: "tri-Haar wavelet, largest support first" } }, yaxis: { title: { text: "size of the coefficient" }, type: "log", exponentformat: "power" } });
    byId("spectra-chart").legend = [0, 1].map((side) => ({ name: sourceOf(side).label, color: sideColor(side), symbol: "square" }));
  }
  addChart("spectra-chart", draw);
}

// With more than two networks, all of them.
function setUpEntropies() {
  const shown = data.sources.map((_, place) => place).filter((place) => data.sources[place].entropies.length);
  byId("entropies").hidden = shown.length < 2;
  function draw() {
    const traces = shown.flatMap((place) => {
      const { entropies, label } = data.sources[place], mean = entropies.reduce((a, b) => a + b, 0) / entropies.length, name = plain(label);
      return [{ type: "scatter", mode: "markers", x: entropies.map(() => name), y: entropies, hoverinfo: "text", text: entropies.map((v, i) => `${name}, window ${i + 1}: ${show(v)}`), marker: { size: 9, opacity: 0.7, color: sourceColor(place) } },
        { type: "scatter", mode: "markers", x: [name], y: [mean], hoverinfo: "text", text: [`${name}: mean ${show(mean)}`], marker: { symbol: "line-ew-open", size: 34, line: { width: 2.5, color: sourceColor(place) } } }];
    });
    plot("entropies-chart", traces, { xaxis: { type: "category" }, yaxis: { title: { text: "network entropy" } } });
  }
  addChart("entropies-chart", draw);
}

function setUpTrees() {
  const control = byId("trees-axis");
  const axes = () => sourceOf(0).trees.map((tree) => tree.axis).filter((axis) => sourceOf(1).trees.some((tree) => tree.axis === axis));
  onPair(() => {
    byId("trees").hidden = !axes().length;
    const before = control.value;
    control.replaceChildren(...axes().map((axis) => element("option", `${axis}s`.replace("querys", "queries"), { value: axis })));
    control.value = axes().includes(before) ? before : axes().includes("head") ? "head" : axes()[0];
    byId("tree-table").tBodies[0].replaceChildren(...pair().trees.map((t) => tableRow(t.axis, [t.property, t.first, t.second, t.verdict])));
  });
  function draw() {
    const traces = [0, 1].map((side) => {
      const tree = sourceOf(side).trees.find((t) => t.axis === control.value) || { levels: [] };
      return { type: "scatter", mode: "lines+markers", x: tree.levels.map((_, i) => i), y: tree.levels, line: { color: sideColor(side), width: 2 }, hovertemplate: `${plain(sourceOf(side).label)}, level %{x}: %{y:.3g} folders<extra></extra>` };
    });
    plot("trees-chart", traces, { xaxis: { title: { text: "level, root on the left" }, dtick: 1 }, yaxis: { title: { text: "folders" }, type: "log" } });
  }
  control.addEventListener("change", () => redraw("trees-chart"));
  addChart("trees-chart", draw);
}

function setUpNotCompared() {
  onPair(() => {
    byId("not-compared").hidden = !pair().not_compared.length;
    byId("not-compared-list").replaceChildren(...pair().not_compared.map((sentence) => element("li", sentence)));
  });
}
