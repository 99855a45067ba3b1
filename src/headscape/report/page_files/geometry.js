// The geometry of the heads: map, tree, affinity, nearest heads.
function setUpMap() {
  const points = data.geometry.coordinates;
  let dimensions = 2;
  const column = (i, keep) => points.filter((_, n) => keep === undefined || n === keep).map((p) => p[i]);
  function traces() {
    const measure = measureOf(byId("map-color").value);
    const color = measure ? measure.values : data.heads.layer;
    const text = names.map((name, i) => `head ${name}<br>${plain(measure ? measure.title : "layer")} ${show(color[i])}`);
    const flat = dimensions === 2;
    const kind = flat ? { type: "scatter", mode: "markers" } : { type: "scatter3d", mode: "markers" };
    const z = (keep) => (flat ? {} : { z: column(2, keep) });
    const all = { ...kind, x: column(0), y: column(1), ...z(), text, hoverinfo: "text",
      marker: { size: flat ? 8 : 4, color, colorscale: "Viridis", line: { width: flat ? 0.6 : 0, color: style("--quiet") }, colorbar: colorbar(measure ? plain(measure.title) : "layer") } };
    const ring = { ...kind, x: column(0, chosen), y: column(1, chosen), ...z(chosen), hoverinfo: "skip",
      marker: { size: flat ? 17 : 9, color: "rgba(0,0,0,0)", symbol: flat ? "circle" : "circle-open", line: { width: flat ? 3 : 4, color: style("--mark") } } };
    if (!flat) ring.marker.color = style("--mark");
    return [all, ring];
  }
  function draw() {
    const axis = { gridcolor: style("--grid"), color: style("--quiet"), showbackground: false };
    const title = (i) => [`coordinate ${i}`, data.geometry.coordinates_follow[i - 1]].filter(Boolean).map(plain).join(": ");
    const scene = { xaxis: { ...axis, title: { text: "1" } }, yaxis: { ...axis, title: { text: "2" } }, zaxis: { ...axis, title: { text: "3" } } };
    try {
      plot("map-chart", traces(), { xaxis: { title: { text: title(1) } }, yaxis: { title: { text: title(2) } }, scene },
        (event) => { const p = event.points[0]; if (p.curveNumber === 0) choose(p.pointNumber, "map"); }, dimensions === 2 ? "flat" : "solid");
    } catch (error) {
      dimensions = 2; press(["map-2d", "map-3d"], "map-2d"); draw();
    }
  }
  for (const [id, n] of [["map-2d", 2], ["map-3d", 3]]) {
    byId(id).addEventListener("click", () => {
      dimensions = n; press(["map-2d", "map-3d"], id);
      byId("map-chart").dataset.dimensions = n;
      if (byId("map-chart").dataset.bound) Plotly.purge("map-chart");
      delete byId("map-chart").dataset.bound; redraw("map-chart");
    });
  }
  fillMeasures(byId("map-color"), ["Layer"]);
  byId("map-color").addEventListener("change", () => redraw("map-chart"));
  addChart("map-chart", draw);
}

function setUpTree() {
  const { parent, start, stop, level } = data.geometry.folders;
  const order = data.geometry.order;
  const ids = parent.map((_, i) => `f${i}`);
  const members = (i) => order.slice(start[i], stop[i]);
  const labels = parent.map((_, i) => (stop[i] - start[i] === 1 ? names[order[start[i]]] : `${stop[i] - start[i]} heads`));
  const meanLayer = parent.map((_, i) => members(i).reduce((sum, h) => sum + data.heads.layer[h], 0) / (stop[i] - start[i]));
  const text = parent.map((_, i) => {
    const some = members(i).slice(0, 12).map((h) => names[h]).join(", ");
    return `${stop[i] - start[i] === 1 ? "head " : `${stop[i] - start[i]} heads: `}${some}${stop[i] - start[i] > 12 ? ", ..." : ""}<br>mean layer ${show(meanLayer[i])}`;
  });
  const deepest = Math.max(...level) + 1;
  const depth = byId("tree-depth");
  depth.append(element("option", "all", { value: String(deepest) }));
  for (let n = 2; n < Math.min(deepest, 12); n += 1) depth.append(element("option", String(n), { value: String(n) }));
  let open = "f0";
  const holds = (i) => { const at = order.indexOf(chosen); return start[i] <= at && at < stop[i]; };
  function draw() {
    // Collapsed folders keep their box and lose what is inside.
    const shown = parent.map((_, i) => i).filter((i) => level[i] < Number(depth.value));
    const of = (list) => shown.map((i) => list[i]);
    if (!shown.includes(Number(open.slice(1)))) open = "f0";
    plot("tree-chart", [{ type: "icicle", ids: of(ids), labels: of(labels), parents: shown.map((i) => (i === 0 ? "" : `f${parent[i]}`)), values: shown.map((i) => stop[i] - start[i]),
      branchvalues: "total", level: open, tiling: { orientation: "v" }, sort: false, hovertext: of(text), hoverinfo: "text", textinfo: "label", pathbar: { side: "top", thickness: 18 },
      marker: { colors: of(meanLayer), cmin: layers[0], cmax: layers.at(-1), colorscale: "Viridis", showscale: true, colorbar: colorbar("mean layer"), line: { color: shown.map((i) => (holds(i) ? style("--mark") : style("--paper"))), width: shown.map((i) => (holds(i) ? 2.5 : 0.5)) } } }],
    { margin: { l: 4, r: 4, t: 22, b: 4 } }, null, "tree");
    const box = byId("tree-chart");
    box.dataset.open = open; box.dataset.depth = depth.value;
    if (!box.dataset.listening) {
      box.dataset.listening = "yes";
      box.on("plotly_icicleclick", (event) => {
        const i = Number(event.points[0].id.slice(1));
        if (stop[i] - start[i] === 1) { choose(order[start[i]], "tree"); return false; }
        open = event.nextLevel || "f0"; box.dataset.open = open;
        return true;
      });
    }
  }
  depth.addEventListener("change", () => redraw("tree-chart"));
  byId("tree-reset").addEventListener("click", () => { open = "f0"; depth.value = String(deepest); redraw("tree-chart"); });
  addChart("tree-chart", draw);
}

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
