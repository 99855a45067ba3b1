// The geometry of the heads: map, tree, affinity, nearest heads.
function setUpAffinity() {
  const { affinity, order } = data.geometry;
  const n = names.length;
  let inTree = true, pixels = null;
  const place = new Array(n);
  order.forEach((head, i) => { place[head] = i; });
  const at = () => (inTree ? place[chosen] : chosen);
  const cross = () => (["x", "y"].map((axis) => {
    const along = axis === "x" ? { x0: at(), x1: at(), y0: -0.5, y1: n - 0.5 } : { y0: at(), y1: at(), x0: -0.5, x1: n - 0.5 };
    return { type: "line", ...along, line: { color: style("--mark"), width: 1.5 } };
  }));
  // Decoded ahead: a page that is printed has no time to wait for it.
  const decoded = grayPicture(affinity.png).then((bytes) => { pixels = bytes; });
  async function draw() {
    if (!pixels) await decoded;
    const rows = [];
    for (let i = 0; i < n; i += 1) {
      const row = new Array(n);
      for (let j = 0; j < n; j += 1) {
        const [a, b] = inTree ? [i, j] : [place[i], place[j]];
        row[j] = pixels[a * n + b] / 255;
      }
      rows.push(row);
    }
    const labels = inTree ? order.map((h) => names[h]) : names;
    const every = labels.map((_, i) => i).filter((i) => i % Math.ceil(n / 14) === 0);
    const axis = { tickvals: every, ticktext: every.map((i) => labels[i]), showgrid: false, zeroline: false };
    plot("affinity-chart", [{ type: "heatmap", z: rows, colorscale: "Viridis", zmin: 0, zmax: 1, hovertemplate: "%{z:.2f}<extra></extra>", colorbar: colorbar("affinity") }],
      { xaxis: axis, yaxis: { ...axis, autorange: "reversed" }, shapes: cross() },
      (event) => { const y = Math.round(event.points[0].y); choose(inTree ? order[y] : y, "affinity"); });
    byId("affinity-chart").dataset.order = inTree ? "tree" : "layer";
  }
  for (const [id, tree] of [["affinity-tree", true], ["affinity-layer", false]]) {
    byId(id).addEventListener("click", () => { inTree = tree; press(["affinity-tree", "affinity-layer"], id); redraw("affinity-chart"); });
  }
  addChart("affinity-chart", draw, () => { if (pixels) Plotly.relayout("affinity-chart", { shapes: cross() }); });
}

function setUpNearest() {
  const { index, emd } = data.geometry.nearest;
  addView("nearest", (head) => {
    byId("nearest").replaceChildren(...index[head].map((other, i) => {
      const item = element("li");
      item.append(headButton(other), element("span", show(emd[head][i]), { class: "quiet" }));
      return item;
    }));
  });
}

function setUpRemarks() {
  const box = byId("geometry-remarks");
  box.append(...data.geometry.remarks.map((remark) => element("span", remark)));
  box.hidden = !data.geometry.remarks.length;
}

setUpMap();
setUpTree();
setUpAffinity();
setUpNearest();
setUpRemarks();
