// What rankings of the heads are worth: the loss over the number of heads off, verdicts, the place of the chosen head.
function setUpAblation() {
  const { counts, heads, windows, loss, intact, curves } = data.ablation;
  byId("ablation-hint").textContent = `Loss increase (${loss}; intact ${show(intact, 3)}) on ${count(windows, "window")} held out, heads switched off in the order of each ranking. Bands: 95 % intervals; random: the middle 90 % of the orders.`;
  const solid = (hex, share) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${share})`;
  // Hundredths and units in one picture: the scale is linear up to 0.01 and logarithmic above.
  const squeeze = (value) => Math.sign(value) * Math.log10(1 + Math.abs(value) / 0.01);
  const ticks = [-0.1, -0.01, 0, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30];
  function draw() {
    const traces = [];
    for (const curve of curves) {
      const share = curve.random ? 0.25 : 0.12;
      const bound = (values) => values.map((value, i) => squeeze(value === null ? curve.increase[i] : value));
      traces.push({ type: "scatter", x: counts, y: bound(curve.high), mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false });
      traces.push({ type: "scatter", x: counts, y: bound(curve.low), mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: solid(curve.color, share), hoverinfo: "skip", showlegend: false });
      traces.push({ type: "scatter", x: counts, y: curve.increase.map(squeeze), mode: "lines+markers", name: curve.method, hoverinfo: "text",
        text: counts.map((n, i) => `${plain(curve.method)}<br>${n} of ${heads} heads off: ${show(curve.increase[i], 3)} [${show(curve.low[i], 3)}, ${show(curve.high[i], 3)}]`),
        marker: { size: 5 }, line: { color: curve.color, width: 2, dash: curve.repaired ? "dash" : "solid" } });
    }
    plot("ablation-chart", traces, { showlegend: true, legend: { font: { size: 11 }, orientation: "h", y: -0.18, traceorder: "normal" }, xaxis: { title: { text: `heads off, of ${heads}` } },
      yaxis: { title: { text: "loss increase" }, tickvals: ticks.map(squeeze), ticktext: ticks.map(String), zeroline: true } });
  }
  const body = byId("ablation-table").tBodies[0];
  const places = [];
  for (const curve of curves) {
    const row = element("tr");
    row.append(element("th", curve.method, { scope: "row" }));
    const tone = curve.verdict.startsWith("better") ? "pass" : curve.verdict.startsWith("worse") ? "fail" : "quiet";
    row.append(element("td", curve.verdict || "–", { class: tone }), element("td", curve.difference || "–", { class: "n" }));
    const place = element("td", "–", { class: "n" });
    row.append(place);
    places.push([place, curve]);
    body.append(row);
  }
  addChart("ablation-chart", draw, () => {});
  addView("ablation-table", (head) => {
    for (const [cell, curve] of places) {
      const place = curve.order.indexOf(names[head]);
      cell.textContent = curve.random ? "–" : place < 0 ? `after ${curve.order.length}` : `${place + 1} of ${heads}`;
    }
  });
}
setUpAblation();
