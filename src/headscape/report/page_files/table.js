// The table of all heads: the way to choose one without a mouse, and to take numbers away.
function setUpTable() {
  const table = byId("head-table"), body = table.tBodies[0];
  const [header, boxes] = table.tHead.rows;
  // Many measures make a wide table: then it opens with those that the panel shows too.
  const usual = COLUMNS.filter((c) => c.table);
  const initial = usual.length <= 18 ? usual : usual.filter((c) => c.panel || c === nameMeasure);
  let columns = initial, shown = [], sorted = null, up = true;
  const filters = new Map();
  const rows = names.map((name, i) => {
    const row = element("tr", undefined, { "data-index": i });
    const title = element("th", undefined, { scope: "row" });
    title.append(element("button", name, { type: "button", tabindex: "-1" }));
    row.append(title);
    row.addEventListener("click", () => choose(i, "table"));
    return row;
  });

  function fillRows() {
    rows.forEach((row, i) => {
      const cells = columns.map((column) => element("td", show(column.values[i]), { class: column.numeric ? "n" : "", "data-value": JSON.stringify(column.values[i]) }));
      row.replaceChildren(row.cells[0], ...cells);
    });
  }
  function arrange() {
    const { heads, error } = findHeads(byId("filter").value);
    byId("filter-error").textContent = error || "";
    const tests = columns.map((column) => columnTest(column, filters.get(column.key) || "")).filter(Boolean);
    if (selection && byId("only-selected").checked) tests.push((i) => selection.heads.has(i));
    shown = heads.filter((i) => tests.every((test) => test(i))).sort((a, b) => a - b);
    if (sorted) {
      const missing = (v) => v === null || v === undefined;
      shown.sort((a, b) => {
        const [x, y] = [sorted.values[a], sorted.values[b]];
        if (missing(x) || missing(y)) return missing(x) - missing(y);
        const less = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
        return (up ? less : -less) || a - b;
      });
    } else if (!up) shown.reverse();
    body.replaceChildren(...shown.map((i) => rows[i]));
    byId("count").textContent = `${shown.length} of ${names.length}`;
  }

  function titleCell(column) {
    const { title, meaning, numeric, stage } = column || { title: "head", meaning: "Layer and number in the layer, both from 0: 3.5 is head 5 of layer 3." };
    const cell = element("th", undefined, { scope: "col", class: numeric ? "n" : "" });
    const button = element("button", title, { type: "button", class: "sort" });
    button.addEventListener("click", () => {
      up = sorted === column ? !up : true; sorted = column;
      for (const other of header.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      arrange();
    });
    if (column === sorted && (sorted || !up)) cell.setAttribute("aria-sort", up ? "ascending" : "descending");
    const inside = element("span", undefined, { class: "title" });
    inside.append(button, helpButton(title, meaning, docsOf(stage)));
    cell.append(inside);
    return cell;
  }
  function filterCell(column) {
    const cell = element("td");
    const box = element("input", undefined, { type: "text", size: "4", "data-column": column.key, "aria-label": `Filter ${column.title}`, placeholder: column.numeric ? "< 15" : "words" });
    box.value = filters.get(column.key) || "";
    box.addEventListener("input", () => { filters.set(column.key, box.value); arrange(); });
    cell.append(box);
    return cell;
  }
  function showColumns(wanted) {
    columns = COLUMNS.filter((column) => wanted.includes(column));
    if (!columns.includes(sorted)) { sorted = null; up = true; }
    for (const key of filters.keys()) if (!columns.some((column) => column.key === key)) filters.delete(key);
    header.replaceChildren(...[null, ...columns].map(titleCell));
    boxes.replaceChildren(element("td", "filter", { class: "quiet small" }), ...columns.map(filterCell));
    fillRows(); arrange();
  }

  function setUpChooser() {
    const list = byId("columns-list");
    const ticks = COLUMNS.map((column) => {
      const label = element("label"), tick = element("input", undefined, { type: "checkbox", "data-column": column.key });
      tick.checked = columns.includes(column);
      tick.addEventListener("change", () => showColumns(COLUMNS.filter((_, i) => ticks[i].checked)));
      label.append(tick, column.title); list.append(label);
      return tick;
    });
    const all = (wanted) => { COLUMNS.forEach((column, i) => { ticks[i].checked = wanted.includes(column); }); showColumns(wanted); };
    byId("columns-usual").addEventListener("click", () => all(initial));
    byId("columns-all").addEventListener("click", () => all(COLUMNS));
  }

  // The same keys and numbers as heads.csv and heads.json, of the rows and columns that are shown.
  function records() {
    const more = columns.filter((column) => !["layer", "head"].includes(column.key));
    return shown.map((i) => Object.fromEntries([["layer", data.heads.layer[i]], ["head", data.heads.head[i]], ...more.map((c) => [c.key, c.values[i] ?? null])]));
  }
  function save(kind) {
    const found = records();
    const cell = (value) => (value === null ? "" : /[",\n]/.test(String(value)) ? `"${String(value).replace(/"/g, '""')}"` : String(value));
    const keys = Object.keys(found[0] || { layer: 0, head: 0 });
    const text = kind === "json" ? JSON.stringify({ format: "headscape/head-table/1", heads: found }, null, 1)
      : [keys.join(","), ...found.map((row) => keys.map((key) => cell(row[key])).join(","))].join("\n");
    const url = URL.createObjectURL(new Blob([`${text}\n`], { type: kind === "json" ? "application/json" : "text/csv" }));
    download(`heads.${kind}`, url);
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  byId("filter").addEventListener("input", arrange);
  byId("only-selected").addEventListener("change", arrange);
  byId("select-shown").addEventListener("click", () => select(shown, "shown in the table"));
  for (const kind of ["csv", "json"]) byId(`table-${kind}`).addEventListener("click", () => save(kind));
  selectionListeners.push(() => {
    byId("only-selected").closest("label").hidden = !selection;
    byId("only-selected").checked = Boolean(selection);
    rows.forEach((row, i) => row.classList.toggle("selected", Boolean(selection) && selection.heads.has(i)));
    arrange();
  });
  body.addEventListener("keydown", (event) => {
    const at = shown.indexOf(Number(event.target.closest("tr").dataset.index));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (to === undefined || to < 0 || to >= shown.length) return;
    event.preventDefault();
    choose(shown[to], "table");
    rows[shown[to]].querySelector("button").focus({ preventScroll: true });
  });
  setUpChooser(); showColumns(initial);

  // Only the table scrolls: the page stays where the reader is.
  const box = table.parentElement;
  function scrollToChosen() {
    // To ask for a place lays out all rows: not before the table is near the screen.
    if (!table.checkVisibility({ contentVisibilityAuto: true })) return;
    const row = rows[chosen];
    if (row.offsetTop < box.scrollTop + 74 || row.offsetTop > box.scrollTop + box.clientHeight - 40) {
      box.scrollTop = row.offsetTop - box.clientHeight / 2;
    }
  }
  box.addEventListener("contentvisibilityautostatechange", (event) => { if (!event.skipped) scrollToChosen(); });
  addView("head-table", (index) => {
    rows.forEach((row, i) => {
      if (i === index) row.setAttribute("aria-current", "true"); else if (row.hasAttribute("aria-current")) row.removeAttribute("aria-current");
      row.querySelector("button").tabIndex = i === index ? 0 : -1;
    });
    scrollToChosen();
  });
}
