// Saves a chart as PNG or SVG: with its heading, its legend and the ground that it stands on.
async function saveChart(view, title, format) {
  await loadPlotly();
  await drawChart(view);
  const box = byId(view.id);
  const entries = box.legend || [];
  const legend = entries.map(({ name, color, symbol }) => ({ type: "scatter", mode: "markers", x: [null], y: [null], name: plain(name), showlegend: true, marker: { color, symbol, size: 9 } }));
  const shown = { ...box.layout, title: { text: plain(title), font: { size: 14, color: style("--ink") }, x: 0.02 }, paper_bgcolor: style("--paper"), autosize: false };
  shown.margin = { ...shown.margin, t: (shown.margin.t || 0) + 36 };
  if (legend.length) Object.assign(shown, { showlegend: true, legend: { x: 1.02, y: 1 } });
  const picture = await Plotly.toImage({ data: [...box.data, ...legend], layout: shown }, { format, width: Math.max(box.clientWidth, 640) + (legend.length ? 150 : 0), height: box.clientHeight + 36, scale: format === "png" ? 2 : 1 });
  download(`headscape-${view.id.replace(/-chart$/, "")}.${format}`, picture);
  box.dataset.saved = format;
}

// A menu per chart, in the bar of the heading that stands above it.
function setUpSaving() {
  for (const view of views.filter((v) => byId(v.id).classList.contains("chart"))) {
    const box = byId(view.id);
    const above = [...box.closest("section, aside").querySelectorAll("h2, h3")].filter((h) => h.compareDocumentPosition(box) & Node.DOCUMENT_POSITION_FOLLOWING);
    const heading = above.at(-1);
    if (!heading) continue;
    const title = heading.firstChild.textContent.trim();
    const menu = element("details", undefined, { class: "menu", "data-chart": view.id });
    menu.append(element("summary", "Save", { "aria-label": `Save the chart “${title}”` }));
    const list = element("div", undefined, { class: "sheet" });
    for (const format of ["png", "svg"]) {
      const button = element("button", format.toUpperCase(), { type: "button", "data-format": format });
      button.addEventListener("click", () => { menu.open = false; menu.firstChild.focus(); saveChart(view, title, format); });
      list.append(button);
    }
    menu.append(list);
    let bar = heading.closest(".bar");
    if (!bar) { bar = element("div", undefined, { class: "bar" }); heading.replaceWith(bar); bar.append(heading); }
    bar.append(menu);
  }
}

// Menus close as people expect, by Escape or a click elsewhere, and stay on the screen.
function setUpMenus() {
  const open = () => document.querySelectorAll("details.menu[open]");
  document.addEventListener("click", (event) => { for (const menu of open()) if (!menu.contains(event.target)) menu.open = false; });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const menu of open()) { menu.open = false; menu.firstElementChild.focus(); }
  });
  document.addEventListener("toggle", ({ target }) => {
    if (!target.classList.contains("menu") || !target.open) return;
    const sheet = target.querySelector(".sheet");
    sheet.style.translate = "";
    const { left, right } = sheet.getBoundingClientRect();
    sheet.style.translate = `${Math.max(8 - left, 0) + Math.min(innerWidth - 8 - right, 0)}px 0`;
  }, true);
}
