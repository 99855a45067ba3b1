// The table of all heads: the way to choose one without a mouse.
function setUpTable() {
  const table = byId("head-table");
  const columns = data.measures.filter((measure) => measure.table);
  const body = table.tBodies[0];
  const rows = names.map((name, i) => {
    const row = element("tr", undefined, { "data-index": i, "aria-selected": "false" });
    const title = element("th", undefined, { scope: "row" });
    const button = element("button", name, { type: "button", tabindex: i === 0 ? "0" : "-1" });
    title.append(button);
    row.append(title);
    for (const measure of columns) {
      row.append(element("td", show(measure.values[i]), { class: measure.numeric ? "n" : "", "data-value": JSON.stringify(measure.values[i]) }));
    }
    row.addEventListener("click", () => choose(i, "table"));
    return row;
  });
  let shown = rows.map((_, i) => i), sorted = null, up = true;

  const value = (i, column) => (column === null ? i : columns[column].values[i]);
  function arrange() {
    const text = byId("filter").value.trim().toLowerCase();
    shown = rows.map((_, i) => i).filter((i) => !text || names[i] === text || names[i].startsWith(text));
    const missing = (v) => v === null || v === undefined;
    shown.sort((a, b) => {
      const [x, y] = [value(a, sorted), value(b, sorted)];
      if (missing(x) || missing(y)) return missing(x) - missing(y);
      const less = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
      return (up ? less : -less) || a - b;
    });
    body.replaceChildren(...shown.map((i) => rows[i]));
    byId("count").textContent = `${shown.length} of ${names.length}`;
  }
  const header = table.tHead.rows[0];
  [null, ...columns.keys()].forEach((column) => {
    const measure = column === null ? { title: "head", meaning: "layer.head", numeric: false } : columns[column];
    const cell = element("th", undefined, { scope: "col", class: measure.numeric ? "n" : "", title: measure.meaning });
    const button = element("button", measure.title, { type: "button" });
    button.addEventListener("click", () => {
      up = sorted === column ? !up : true; sorted = column;
      for (const other of header.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      arrange();
    });
    cell.append(button);
    header.append(cell);
  });
  byId("filter").addEventListener("input", arrange);
  body.addEventListener("keydown", (event) => {
    const at = shown.indexOf(Number(event.target.closest("tr").dataset.index));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (to === undefined || to < 0 || to >= shown.length) return;
    event.preventDefault();
    choose(shown[to], "table");
    rows[shown[to]].querySelector("button").focus({ preventScroll: true });
  });
  arrange();
  // Only the table scrolls: the page stays where the reader is.
  const box = table.parentElement;
  function scrollToChosen() {
    // To ask for a place lays out all rows: not before the table is near the screen.
    if (!table.checkVisibility({ contentVisibilityAuto: true })) return;
    const row = rows[chosen];
    if (row.offsetTop < box.scrollTop + 34 || row.offsetTop > box.scrollTop + box.clientHeight - 40) {
      box.scrollTop = row.offsetTop - box.clientHeight / 2;
    }
  }
  box.addEventListener("contentvisibilityautostatechange", (event) => { if (!event.skipped) scrollToChosen(); });
  addView("head-table", (index) => {
    for (const row of rows) {
      const is = Number(row.dataset.index) === index;
      if ((row.getAttribute("aria-selected") === "true") !== is) row.setAttribute("aria-selected", String(is));
      row.querySelector("button").tabIndex = is ? 0 : -1;
    }
    scrollToChosen();
  });
}
