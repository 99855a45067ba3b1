// What the stages found: entropies over windows, spectra and invariants of the energy field.
function setUpEntropy() {
  const { windows, low, high, share, order } = data.entropy;
  const n = names.length;
  const place = new Array(n);
  order.forEach((head, i) => { place[head] = i; });
  byId("entropy-hint").textContent = `Heads in the order of their mean rank; a dot per window. Shaded: the lowest and the highest ${Math.round(share * 100)} %.`;
  const mean = order.map((h) => windows.reduce((sum, row) => sum + row[h], 0) / windows.length);
  const edge = Math.max(1, Math.round(share * n));
  function shapes() {
    const band = (x0, x1) => ({ type: "rect", xref: "x", yref: "paper", x0, x1, y0: 0, y1: 1, fillcolor: style("--soft"), line: { width: 0 }, layer: "below" });
    const marked = [{ type: "line", xref: "x", yref: "paper", x0: place[chosen], x1: place[chosen], y0: 0, y1: 1, line: { color: style("--mark"), width: 1.5 } }];
    return [band(-0.5, edge - 0.5), band(n - edge - 0.5, n - 0.5), ...marked];
  }
  function draw() {
    const dots = windows.map((row, w) => ({ type: "scatter", mode: "markers", x: order.map((_, i) => i), y: order.map((h) => row[h]), hoverinfo: "text",
      text: order.map((h) => `head ${names[h]}<br>window ${w + 1}: ${show(row[h])}`), marker: { size: 4, color: style("--quiet"), opacity: 0.45 } }));
    const line = { type: "scatter", mode: "lines", x: order.map((_, i) => i), y: mean, line: { color: style("--accent"), width: 2 }, hoverinfo: "skip" };
    plot("entropy-chart", [...dots, line], { xaxis: { title: { text: "head, lowest mean rank first" }, zeroline: false, range: [-1, n] }, yaxis: { title: { text: "entropy" } }, shapes: shapes() },
      (event) => choose(order[Math.round(event.points[0].x)], "entropy"));
  }
  function list(id, heads) {
    const box = byId(id);
    for (const head of heads.slice(0, 24)) box.append(headButton(head));
    if (!heads.length) box.append(element("span", windows.length > 1 ? "none" : "one window only", { class: "quiet small" }));
    if (heads.length > 24) box.append(element("span", `and ${heads.length - 24} more`, { class: "quiet small" }));
  }
  list("always-low", low); list("always-high", high);
  addChart("entropy-chart", draw, () => Plotly.relayout("entropy-chart", { shapes: shapes() }));
}

function setUpEnergy() {
  const { spectrum, components } = data.energy;
  const values = floats(spectrum);
  const n = names.length;
  const curve = (head) => values.subarray(head * components, (head + 1) * components);
  const x = Array.from({ length: components }, (_, i) => i + 1);
  const across = x.map((_, c) => Array.from({ length: n }, (_, h) => values[h * components + c]).sort((a, b) => a - b));
  const at = (share) => across.map((column) => column[Math.round(share * (n - 1))]);
  function draw() {
    const band = (low, high, opacity) => [
      { type: "scatter", x, y: at(high), mode: "lines", line: { width: 0 }, hoverinfo: "skip" },
      { type: "scatter", x, y: at(low), mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: `rgba(20,150,140,${opacity})`, hoverinfo: "skip" }];
    const traces = [...band(0, 1, 0.12), ...band(0.25, 0.75, 0.25),
      { type: "scatter", x, y: at(0.5), mode: "lines", line: { color: style("--accent"), width: 2 }, hovertemplate: "median head, %{x} components: %{y:.3f}<extra></extra>" }];
    traces.push({ type: "scatter", x, y: Array.from(curve(chosen)), mode: "lines", line: { color: style("--mark"), width: 2.5 }, hovertemplate: `head ${names[chosen]}, %{x} components: %{y:.3f}<extra></extra>` });
    plot("energy-chart", traces, { xaxis: { title: { text: "components" }, type: "log", dtick: "D1" }, yaxis: { title: { text: "share of variance" }, range: [0, 1.02] },
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 0.9, y1: 0.9, line: { color: style("--line"), dash: "dot" } }] });
  }
  addChart("energy-chart", draw);
}

function setUpInvariants() {
  const body = byId("invariants-table").tBodies[0];
  const notes = [];
  for (const test of data.energy.invariants) {
    const row = element("tr");
    row.append(element("th", test.test, { scope: "row" }));
    const verdict = test.failed ? "fail" : test.passed ? "pass" : "not judged";
    row.append(element("td", verdict === "pass" ? "✓ pass" : verdict === "fail" ? "✗ fail" : verdict, { class: verdict === "not judged" ? "quiet" : verdict }));
    const counts = [[test.passed, "passed"], [test.failed, "failed"], [test.not_judged, "not judged"]].filter(([n]) => n > 0);
    row.append(element("td", counts.map(([n, word]) => `${n} ${word}`).join(", "), { class: "n" }));
    for (const key of ["worst", "allowed"]) row.append(element("td", show(test[key], 3), { class: "n" }));
    body.append(row);
    if (test.failed) notes.push(`${test.test}: ${test.detail} (heads ${test.heads.slice(0, 12).join(", ")}${test.heads.length > 12 ? ", ..." : ""}).`);
  }
  byId("invariants-detail").textContent = notes.join(" ");
}

function setUpSpread() {
  const mu = measureOf("mu_K").values, participation = measureOf("participation").values;
  function draw() {
    const text = names.map((name, i) => `head ${name}<br>μ_K ${show(mu[i])}, participation ${show(participation[i])}`);
    plot("spread-chart", [
      { type: "scatter", mode: "markers", x: mu, y: participation, text, hoverinfo: "text", marker: { size: 7, color: data.heads.layer, colorscale: "Viridis", line: { width: 0.5, color: style("--quiet") }, colorbar: colorbar("layer") } },
      { type: "scatter", mode: "markers", x: [mu[chosen]], y: [participation[chosen]], hoverinfo: "skip", marker: { size: 15, color: "rgba(0,0,0,0)", line: { width: 3, color: style("--mark") } } }],
    { xaxis: { title: { text: "key incoherence μ_K" } }, yaxis: { title: { text: "participation" }, rangemode: "tozero" } },
    (event) => { if (event.points[0].curveNumber === 0) choose(event.points[0].pointNumber, "spread"); });
  }
  addChart("spread-chart", draw);
}
