// The table of all heads: the way to choose one without a mouse, and to take numbers away.
function setUpTable() {
  // Many measures make a wide table: then it opens with those that the panel shows too.
  const usual = COLUMNS.filter((c) => c.table);
  const initial = usual.length <= 18 ? usual : usual.filter((c) => c.panel || c === nameMeasure);
  const table = setUpRows({
    first: { title: "head", meaning: "Layer and number in the layer, both from 0: 3.5 is head 5 of layer 3." },
    find: findHeads,
    choose: (i) => choose(i, "table"),
    also: () => (selection && byId("only-selected").checked ? [(i) => selection.heads.has(i)] : []),
  });

  function setUpChooser() {
    const list = byId("columns-list");
    const ticks = COLUMNS.map((column) => {
      const label = element("label"), tick = element("input", undefined, { type: "checkbox", "data-column": column.key });
      tick.checked = initial.includes(column);
      tick.addEventListener("change", () => table.showColumns(COLUMNS.filter((_, i) => ticks[i].checked)));
      label.append(tick, column.title); list.append(label);
      return tick;
    });
    const all = (wanted) => { COLUMNS.forEach((column, i) => { ticks[i].checked = wanted.includes(column); }); table.showColumns(wanted); };
    byId("columns-usual").addEventListener("click", () => all(initial));
    byId("columns-all").addEventListener("click", () => all(COLUMNS));
  }

  // The same keys and numbers as heads.csv and heads.json, of the rows and columns that are shown.
  function records() {
    const more = table.columns().filter((column) => !["layer", "head"].includes(column.key));
    return table.shown().map((i) => Object.fromEntries([["layer", data.heads.layer[i]], ["head", data.heads.head[i]], ...more.map((c) => [c.key, c.values[i] ?? null])]));
  }

  byId("only-selected").addEventListener("change", table.arrange);
  byId("select-shown").addEventListener("click", () => select(table.shown(), "shown in the table"));
  for (const kind of ["csv", "json"]) byId(`table-${kind}`).addEventListener("click", () => saveRecords(kind, "heads", "headscape/head-table/1", "heads", records()));
  selectionListeners.push(() => {
    byId("only-selected").closest("label").hidden = !selection;
    byId("only-selected").checked = Boolean(selection);
    table.rows().forEach((row, i) => row.classList.toggle("selected", Boolean(selection) && selection.heads.has(i)));
    table.arrange();
  });
  setUpChooser(); table.showRows(names, initial);
  addView("head-table", table.mark);
}
