// Spectra of the energy field, invariants, key incoherence and spread.
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
setUpEnergy();
setUpInvariants();
setUpSpread();
