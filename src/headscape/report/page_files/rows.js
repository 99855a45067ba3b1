// A table of heads: sorted by its titles, filtered under them, walked through with the arrow keys.
// find(text) gives the rows that the field "filter" wants; `also` are further tests of a row.
function setUpRows({ first, find, choose: pick, also = () => [] }) {
  const table = byId("head-table"), body = table.tBodies[0], box = table.parentElement;
  const [header, boxes] = table.tHead.rows;
  let labels = [], columns = [], rows = [], shown = [], sorted = null, up = true;
  const filters = new Map();

  function makeRow(name, i) {
    const row = element("tr", undefined, { "data-index": i });
    const title = element("th", undefined, { scope: "row" });
    title.append(element("button", name, { type: "button", tabindex: "-1" }));
    row.append(title);
    row.addEventListener("click", () => pick(i));
    return row;
  }
  function fillRows() {
    rows.forEach((row, i) => {
      const cells = columns.map((column) => element("td", show(column.values[i]), { class: column.numeric ? "n" : "", "data-value": JSON.stringify(column.values[i]) }));
      row.replaceChildren(row.cells[0], ...cells);
    });
  }
  function arrange() {
    const { heads, error } = find(byId("filter").value);
    byId("filter-error").textContent = error || "";
    const tests = [...columns.map((column) => columnTest(column, filters.get(column.key) || "")).filter(Boolean), ...also()];
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
    byId("count").textContent = `${shown.length} of ${labels.length}`;
  }

  function titleCell(column) {
    const { title, meaning, numeric, stage } = column || first;
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
    const field = element("input", undefined, { type: "text", size: "4", "data-column": column.key, "aria-label": `Filter ${column.title}`, placeholder: column.numeric ? "< 15" : "words" });
    field.value = filters.get(column.key) || "";
    field.addEventListener("input", () => { filters.set(column.key, field.value); arrange(); });
    cell.append(field);
    return cell;
  }
  function showColumns(wanted) {
    columns = wanted;
    if (!columns.includes(sorted)) { sorted = null; up = true; }
    for (const key of filters.keys()) if (!columns.some((column) => column.key === key)) filters.delete(key);
    header.replaceChildren(...[null, ...columns].map(titleCell));
    boxes.replaceChildren(element("td", "filter", { class: "quiet small" }), ...columns.map(filterCell));
    fillRows(); arrange();
  }
  function showRows(wantedLabels, wantedColumns, { by = null, descending = false } = {}) {
    labels = wantedLabels; rows = labels.map(makeRow); sorted = by; up = !descending;
    showColumns(wantedColumns);
  }

  // Only the table scrolls: the page stays where the reader is.
  function scrollTo(index) {
    // To ask for a place lays out all rows: not before the table is near the screen.
    if (!rows[index] || !table.checkVisibility({ contentVisibilityAuto: true })) return;
    const row = rows[index];
    if (row.offsetTop < box.scrollTop + 74 || row.offsetTop > box.scrollTop + box.clientHeight - 40) {
      box.scrollTop = row.offsetTop - box.clientHeight / 2;
    }
  }
  let current = -1;
  function mark(index) {
    current = index;
    rows.forEach((row, i) => {
      if (i === index) row.setAttribute("aria-current", "true"); else if (row.hasAttribute("aria-current")) row.removeAttribute("aria-current");
      row.querySelector("button").tabIndex = i === index || (index < 0 && i === shown[0]) ? 0 : -1;
    });
    scrollTo(index);
  }

  byId("filter").addEventListener("input", arrange);
  body.addEventListener("keydown", (event) => {
    const at = shown.indexOf(Number(event.target.closest("tr").dataset.index));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (to === undefined || to < 0 || to >= shown.length) return;
    event.preventDefault();
    pick(shown[to]);
    rows[shown[to]].querySelector("button").focus({ preventScroll: true });
  });
  box.addEventListener("contentvisibilityautostatechange", (event) => { if (!event.skipped) scrollTo(current); });
  return { showRows, showColumns, arrange, mark, columns: () => columns, shown: () => shown, rows: () => rows };
}

// Records as a file: CSV with their keys as titles, or JSON with its format.
function saveRecords(kind, file, format, key, found) {
  const keys = Object.keys(found[0] || { layer: 0, head: 0 });
  const cell = (value) => (value === null ? "" : /[",\n]/.test(String(value)) ? `"${String(value).replace(/"/g, '""')}"` : String(value));
  const text = kind === "json" ? JSON.stringify({ format, [key]: found }, null, 1)
    : [keys.join(","), ...found.map((row) => keys.map((name) => cell(row[name])).join(","))].join("\n");
  const url = URL.createObjectURL(new Blob([`${text}\n`], { type: kind === "json" ? "application/json" : "text/csv" }));
  download(`${file}.${kind}`, url);
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
