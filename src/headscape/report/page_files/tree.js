// The tree of the heads: nested folders with names, faded where there is little support, opened one at a time.
const LITTLE_SUPPORT = 0.5;

// Dark or light, whichever is further from the ground (relative luminance of WCAG).
function inkOn(rgb) {
  const [r, g, b] = rgb.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#0f141a" : "#ffffff";
}

function setUpTree() {
  const { folders: { parent, start, stop, level }, order, folder_names: titles = [], support = [] } = data.geometry;
  const box = byId("tree-chart"), depth = byId("tree-depth"), control = byId("tree-color");
  const all = parent.map((_, i) => i);
  const size = (i) => stop[i] - start[i];
  const members = (i) => order.slice(start[i], stop[i]);
  const title = (i) => (i === 0 ? "" : size(i) === 1 ? headName(order[start[i]]) : titles[i] || "");
  // Names without their numbers, which the hover has; many begin with the count of heads.
  const brief = (i) => (title(i) === "mixed" ? "" : title(i).replace(/ *\([^()]*\)/g, ""));
  const saysCount = (i) => /^\d+ heads?\b/.test(brief(i));
  const words = (i) => {
    if (size(i) === 1) return names[order[start[i]]];
    return saysCount(i) ? brief(i) : brief(i) ? `${brief(i)} (${count(size(i), "head")})` : count(size(i), "head");
  };
  const weak = (i) => size(i) > 1 && i > 0 && typeof support[i] === "number" && support[i] < LITTLE_SUPPORT;
  const depths = all.map(() => 0);
  for (const i of all) if (i > 0) depths[i] = depths[parent[i]] + 1; // parents come before their children
  const isIn = (i, folder) => start[folder] <= start[i] && stop[i] <= stop[folder];
  let open = 0;

  const deepest = Math.max(...level) + 1;
  depth.append(element("option", "all", { value: String(deepest) }));
  for (let n = 2; n < Math.min(deepest, 12); n += 1) depth.append(element("option", String(n), { value: String(n) }));
  const strips = (i) => level[i] < level[open] + Number(depth.value);

  // The family of more than half of a folder's heads, or the mean of a number.
  function summary(color, i) {
    const heads = members(i);
    if (color.families) {
      const f = families.findIndex((family, k) => 2 * heads.filter((h) => familyOf[h] === k).length > heads.length);
      return { rgb: rgbOf((families[f] || MIXED).color), say: families[f] ? `mostly ${families[f].name}` : "no name holds for most of them" };
    }
    const values = heads.map((h) => color.values[h]).filter((v) => v !== null);
    if (!values.length) return { rgb: rgbOf(MIXED.color), say: "" };
    const mean = values.reduce((sum, v) => sum + v, 0) / values.length;
    return { rgb: viridis((mean - color.low) / (color.high - color.low)), say: `${heads.length > 1 ? "mean " : ""}${color.title} ${show(mean)}` };
  }
  function shade(rgb, i) {
    const paper = rgbOf(style("--paper"));
    const keep = (weak(i) ? 0.35 : 1) * (members(i).some(isSelected) ? 1 : 0.15);
    return rgb.map((v, c) => Math.round(v * keep + paper[c] * (1 - keep)));
  }
  function hover(i, said) {
    const some = members(i).slice(0, 12).map((h) => names[h]).join(", ");
    const parts = [size(i) === 1 ? `head ${some}` : `${size(i)} heads: ${some}${size(i) > 12 ? ", ..." : ""}`, ...lines(plain(title(i)), 60), plain(said)];
    if (size(i) > 1 && typeof support[i] === "number") parts.push(`support ${show(support[i], 2)}${weak(i) ? ": little" : ""}`);
    return parts.filter(Boolean).join("<br>");
  }
  // The longest label that fits into a box, if any does.
  function label(i, width, height) {
    const wrapped = lines(plain(brief(i)), (width - 8) / 6.4);
    const plainWords = size(i) === 1 ? names[order[start[i]]] : count(size(i), "head");
    const choices = [saysCount(i) ? [] : [...wrapped, plainWords], wrapped, [plainWords], [size(i) === 1 ? "" : String(size(i))]];
    const fits = (list) => list.length && list.length * 14 + 4 <= height && Math.max(...list.map((line) => line.length)) * 6.4 + 6 <= width;
    return (choices.find(fits) || []).join("<br>");
  }

  function draw() {
    // Collapsed folders keep their box and lose what is inside.
    const shown = all.filter((i) => isIn(i, open) && strips(i));
    const color = coloring(control.value);
    const said = shown.map((i) => summary(color, i));
    const fills = shown.map((i, k) => shade(said[k].rgb, i));
    const at = order.indexOf(chosen);
    const holds = shown.map((i) => start[i] <= at && at < stop[i]);
    const rows = Math.max(...shown.map((i) => depths[i])) - depths[open] + 1;
    const width = (i) => ((box.clientWidth - (color.families ? 8 : 80)) * size(i)) / size(open), height = (box.clientHeight - 8) / rows;
    const icicle = { type: "icicle", ids: shown.map((i) => `f${i}`), labels: shown.map((i) => label(i, width(i), height)), parents: shown.map((i) => (i === open ? "" : `f${parent[i]}`)), values: shown.map(size),
      branchvalues: "total", tiling: { orientation: "v" }, sort: false, hovertext: shown.map((i, k) => hover(i, said[k].say)), hoverinfo: "text", textinfo: "label", textfont: { size: 11, color: fills.map(inkOn) }, leaf: { opacity: 1 }, pathbar: { visible: false },
      marker: { colors: fills.map((rgb) => `rgb(${rgb.join(",")})`), line: { color: holds.map((is) => (is ? style("--mark") : style("--paper"))), width: holds.map((is) => (is ? 2.5 : 0.5)) } } };
    // Folders have colors of their own, so the scale comes from a trace without points.
    const scale = { type: "scatter", mode: "markers", x: [null], y: [null], hoverinfo: "skip", marker: { color: [0], cmin: color.low, cmax: color.high, colorscale: "Viridis", showscale: true, colorbar: color.bar } };
    const axis = { visible: false, fixedrange: true };
    plot("tree-chart", color.families ? [icicle] : [icicle, scale], { margin: { l: 4, r: 4, t: 4, b: 4 }, xaxis: axis, yaxis: axis, uniformtext: { minsize: 10, mode: "hide" } }, null, "none");
    box.dataset.open = `f${open}`; box.dataset.depth = depth.value;
    if (box.dataset.listening) return;
    box.dataset.listening = "yes";
    box.on("plotly_icicleclick", (event) => {
      const i = Number(event.points[0].id.slice(1));
      if (size(i) === 1) choose(order[start[i]], "tree"); else go(i === open ? Math.max(parent[i], 0) : i);
      return false;
    });
  }

  const folderButton = (i) => {
    const button = element("button", words(i), { type: "button", "data-folder": i });
    button.addEventListener("click", () => (size(i) === 1 ? choose(order[start[i]], "tree") : go(i)));
    return button;
  };
  // The folders above the open one, and those right inside it: context for the eye, a way for the keyboard.
  function drawPath() {
    const above = [];
    for (let i = open; i > 0; i = parent[i]) above.unshift(i);
    const steps = [0, ...above].map((i) => {
      const item = element("li");
      const button = folderButton(i);
      if (i === 0) button.textContent = `All ${size(0)} heads`;
      if (i === open) button.setAttribute("aria-current", "true");
      item.append(button);
      return item;
    });
    byId("tree-path").replaceChildren(...steps);
    byId("tree-back").disabled = open === 0;
    const inside = all.filter((i) => i > 0 && parent[i] === open).sort((a, b) => size(b) - size(a));
    byId("tree-inside").replaceChildren(element("span", "Inside:", { class: "quiet small" }), ...inside.slice(0, 8).map(folderButton));
    if (inside.length > 8) byId("tree-inside").append(element("span", `and ${inside.length - 8} smaller ones`, { class: "quiet small" }));
  }
  function go(i) { open = i; box.dataset.open = `f${i}`; drawPath(); redraw("tree-chart"); }

  const faded = all.filter(weak).length;
  byId("tree-support").hidden = !faded;
  byId("tree-support").textContent = `Faded: ${count(faded, "folder")} with support below ${LITTLE_SUPPORT}. They seldom come back in other windows or under small noise, so read nothing into them.`;
  fillColors(control);
  setUpLegend("tree-legend", "tree-chart", control);
  control.addEventListener("change", () => redraw("tree-chart"));
  depth.addEventListener("change", () => redraw("tree-chart"));
  byId("tree-back").addEventListener("click", () => go(Math.max(parent[open], 0)));
  byId("tree-reset").addEventListener("click", () => { depth.value = String(deepest); go(0); });
  selectionListeners.push(() => redraw("tree-chart"));
  drawPath();
  addChart("tree-chart", draw);
}
