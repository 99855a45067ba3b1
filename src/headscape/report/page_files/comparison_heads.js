// Both maps of heads, and the panel of the chosen one: choose a head here, see its partners there.
const HEAD_MAPS = ["map-first-chart", "map-second-chart"];

function headColors() {
  const { rows, columns } = pair();
  const times = columns.find((column) => column.key === "times" && column.values.some((v) => typeof v === "number"));
  const perHead = (side) => namesOf(side).map((_, head) => { const row = rowOf({ side, head }); return row < 0 ? null : times.values[row]; });
  const kinds = [...new Set([0, 1].flatMap((side) => sourceOf(side).patterns))].filter(Boolean);
  const offered = [["layer", "Layer", (side) => sourceOf(side).heads.layer]];
  if (times) offered.unshift(["times", times.title, perHead]);
  for (const { key, title } of data.measures) if ([0, 1].every((side) => sourceOf(side).values[key])) offered.push([key, title, (side) => sourceOf(side).values[key]]);
  return { offered, kinds: kinds.sort((a, b) => (a === "mixed") - (b === "mixed")) };
}

function setUpHeadMaps() {
  const control = byId("maps-color"), legend = byId("maps-legend");
  let colors = headColors();
  const kindStyle = (kind) => { const n = colors.kinds.indexOf(kind); return kind === "mixed" || n < 0 ? MIXED : { color: PALETTE[n % PALETTE.length], symbol: SYMBOLS[n % SYMBOLS.length] }; };
  onPair(() => {
    const before = control.value;
    colors = headColors();
    control.replaceChildren(...(colors.kinds.length ? [element("option", "Pattern", { value: "pattern" })] : []), ...colors.offered.map(([key, title]) => element("option", title, { value: key })));
    if ([...control.options].some((option) => option.value === before)) control.value = before;
    for (const [side, id] of [[0, "map-first-h"], [1, "map-second-h"]]) byId(id).firstChild.textContent = sourceOf(side).name;
    byId("maps-hint").textContent = pair().exact ? "Choose a head on either side: its partner on the other side is ringed." : "Choose a head on either side: its partners on the other side are ringed, wider rings for larger shares.";
    showLegend();
  });
  function showLegend() {
    legend.hidden = control.value !== "pattern";
    const entries = colors.kinds.map((kind) => ({ name: kind, ...kindStyle(kind) }));
    for (const id of HEAD_MAPS) byId(id).legend = legend.hidden ? [] : entries;
    legend.replaceChildren(...entries.map(({ name, color }) => {
      const entry = element("span", undefined, { class: "entry" }), swatch = element("span", undefined, { class: "swatch" });
      swatch.style.background = color;
      entry.append(swatch, name);
      return entry;
    }));
  }
  function marker(side) {
    const line = { width: 0.6, color: style("--quiet") };
    if (control.value === "pattern") {
      const styles = namesOf(side).map((_, head) => kindStyle(patternOf(side, head)));
      return { size: 8, line, color: styles.map((s) => s.color), symbol: styles.map((s) => s.symbol) };
    }
    const [, title, values] = colors.offered.find(([key]) => key === control.value) || colors.offered[0];
    const [own, both] = [values(side), [...values(0), ...values(1)].filter((v) => typeof v === "number")];
    // One scale for both networks, except for layers: depth is relative.
    const range = control.value === "layer" ? own : both;
    const bar = colorbar(plain(title));
    return { size: 8, line, color: own.map((v) => (typeof v === "number" ? v : style("--soft"))), cmin: Math.min(...range), cmax: Math.max(...range), colorscale: "Viridis", ...(side === 1 || control.value === "layer" ? { colorbar: bar } : {}) };
  }
  // The chosen head, or the heads that it corresponds to: rings, with their names where these have room.
  function rings(side) {
    const points = sourceOf(side).coordinates;
    const found = side === chosen.side ? [[chosen.head, 1]] : partnersOf(chosen.side, chosen.head).slice(0, 12);
    const most = Math.max(...found.map(([, share]) => share), 1e-9);
    return { type: "scatter", mode: "markers+text", x: found.map(([i]) => points[i][0]), y: found.map(([i]) => points[i][1]), hoverinfo: "skip",
      text: found.map(([i], n) => (n < 3 ? namesOf(side)[i] : "")), textposition: "top center", textfont: { color: style("--ink"), size: 12 }, cliponaxis: false,
      marker: { size: found.map(([, share]) => 13 + 5 * (share / most)), color: "rgba(0,0,0,0)", line: { width: found.map(([, share]) => 1 + 2.5 * (share / most)), color: style("--mark") } } };
  }
  function draw(side) {
    const points = sourceOf(side).coordinates;
    const text = namesOf(side).map((name, head) => `head ${name}${patternOf(side, head) ? `<br>${plain(patternOf(side, head))}` : ""}<br>${plain(lines(partnersSentence(side, head), 46).join("\n")).replaceAll("\n", "<br>")}`);
    const all = { type: "scatter", mode: "markers", x: points.map((p) => p[0]), y: points.map((p) => p[1]), text, hoverinfo: "text", marker: { ...marker(side), opacity: side === chosen.side ? 1 : 0.55 } };
    plot(HEAD_MAPS[side], [all, rings(side)], { xaxis: { title: { text: "coordinate 1" } }, yaxis: { title: { text: "coordinate 2" } } },
      (event) => { const p = event.points[0]; if (p.curveNumber === 0) choose(side, p.pointNumber, "map"); });
  }
  control.addEventListener("change", () => { showLegend(); for (const id of HEAD_MAPS) redraw(id); });
  for (const side of [0, 1]) addChart(HEAD_MAPS[side], () => draw(side));
  addView("partners-sentence", ({ side, head }) => { byId("partners-sentence").textContent = `Head ${namesOf(side)[head]} of ${sourceOf(side).label}: ${lowered(partnersSentence(side, head))}`; });
}
const lowered = (text) => text.charAt(0).toLowerCase() + text.slice(1);

function panelWords(side, head) {
  const row = rowOf({ side, head }), words = [["What it does", patternOf(side, head)]];
  for (const { title, values, panel } of pair().columns) if (panel && row >= 0) words.push([title, show(values[row], 3)]);
  return words.filter(([, text]) => text && text !== "–").flatMap(([title, text]) => [element("dt", title), element("dd", text)]);
}

function partnerItem(side, [head, share]) {
  const item = element("li"), bar = element("span", undefined, { class: "share", "aria-hidden": "true" });
  bar.style.width = `${Math.round(90 * share)}px`;
  item.append(sideButton(side, head), element("span", percent(share), { class: "quiet small" }), bar, element("span", patternOf(side, head), { class: "quiet small" }));
  return item;
}

// The numbers of the head beside those of its first partner.
function panelTable(side, head) {
  const [partner] = partnersOf(side, head), table = byId("panel-table");
  const titles = [`${sourceOf(side).label} ${namesOf(side)[head]}`, ...(partner ? [`${sourceOf(1 - side).label} ${namesOf(1 - side)[partner[0]]}`] : [])];
  table.tHead.rows[0].replaceChildren(element("td"), ...titles.map((title) => element("th", title, { scope: "col", class: "n" })));
  const rows = data.measures.filter(({ key }) => [side, 1 - side].some((s) => sourceOf(s).values[key])).map(({ key, title, meaning }) => {
    const value = (s, i) => (sourceOf(s).values[key] || [])[i] ?? null;
    const row = tableRow(element("span", title, { title: meaning }), [value(side, head), ...(partner ? [value(1 - side, partner[0])] : [])]);
    for (const cell of row.cells) if (cell.tagName === "TD") cell.className = "n";
    return row;
  });
  table.tBodies[0].replaceChildren(...rows);
}

function setUpPanel() {
  const raise = setUpSheet();
  const step = (by) => { const n = namesOf(chosen.side).length; choose(chosen.side, (chosen.head + n + by) % n, "panel"); };
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  addView("panel", ({ side, head }, from) => {
    byId("panel-title").textContent = `Head ${namesOf(side)[head]}`;
    byId("panel-source").textContent = `of ${sourceOf(side).name}`;
    byId("panel-words").replaceChildren(...panelWords(side, head));
    byId("partners-h").firstChild.textContent = `Partners in ${sourceOf(1 - side).label}`;
    const partners = partnersOf(side, head).slice(0, 6).map((partner) => partnerItem(1 - side, partner));
    byId("partners").replaceChildren(...(partners.length ? partners : [element("li", "none", { class: "quiet small" })]));
    panelTable(side, head);
    raise(chosenName(), from);
  });
}
