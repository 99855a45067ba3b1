// Entropies over windows, and the Haar coefficients of the chosen head.
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
    plot("entropy-chart", [...dots, line], { xaxis: { title: { text: "head, lowest mean rank first" }, zeroline: false, range: [-1, n] }, yaxis: { title: { text: "Haar entropy" } }, shapes: shapes() },
      (event) => choose(order[Math.round(event.points[0].x)], "entropy"));
  }
  function list(id, heads) {
    const box = byId(id);
    for (const head of heads.slice(0, 24)) box.append(headButton(head));
    if (!heads.length) box.append(element("span", windows.length > 3 ? "none" : "at least 4 windows are needed", { class: "quiet small" }));
    if (heads.length > 24) box.append(element("span", `and ${heads.length - 24} more`, { class: "quiet small" }));
  }
  list("always-low", low); list("always-high", high);
  addChart("entropy-chart", draw, () => Plotly.relayout("entropy-chart", { shapes: shapes() }));
}

function setUpHaar() {
  const values = floats(data.entropy.haar.values);
  const { count, supports } = data.entropy.haar;
  const x = Array.from({ length: count }, (_, i) => i + 1);
  function draw() {
    const y = Array.from(values.subarray(chosen * count, (chosen + 1) * count));
    const root = y.map((v) => Math.sign(v) * Math.sqrt(Math.abs(v)));
    plot("haar-chart", [{ type: "bar", x, y: root, marker: { color: y.map((v) => (v < 0 ? style("--mark") : style("--accent"))), line: { width: 0 } }, customdata: y.map((v, i) => [v, supports[i]]), hovertemplate: "%{customdata[0]:.4g}, support %{customdata[1]}<extra></extra>" }],
      { bargap: 0, margin: { l: 36, r: 4, t: 4, b: 30 }, xaxis: { title: { text: "tensor wavelet, largest support first", font: { size: 10 } }, zeroline: false }, yaxis: { title: { text: "signed root", font: { size: 10 } } } }, null, "none");
  }
  addChart("haar-chart", draw);
}
setUpEntropy();
setUpHaar();
