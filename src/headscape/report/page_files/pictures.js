// Attention and energy of the chosen head and of one to compare it with; the tokens; which window and which order.
const shown = { window: 0, organized: false, query: 16, heads: [], fields: [] };
const theWindow = () => data.window.windows[shown.window];
const FRAMES = [["attention", 0], ["energy-picture", 0], ["attention-other", 1], ["energy-other", 1]];
const WORDS = { probs: "attention", energy: "energy" };

// What stands at a cell of a picture, in every head that is shown.
function tellCell(y, x) {
  const w = theWindow(), [, columns] = cellsOf(w);
  const place = `query ${cellName(w, "query", y, shown.organized)} → key ${cellName(w, "key", x, shown.organized)}`;
  const values = shown.heads.map((head, i) => {
    const [p, e] = ["probs", "energy"].map((kind) => arrangedField(i, kind)?.[y * columns + x]);
    const energy = e === undefined ? "" : `, energy ${Number.isNaN(e) ? "hidden by the mask" : show(e, 3)}`;
    return `${shown.heads.length > 1 ? `head ${names[head]} ` : ""}${isCoarse(w) ? "mean attention" : "attention"} ${show(p, 3)}${energy}`;
  });
  return `${place}: ${values.join("; ")}`;
}

// Arranging and painting take a pass over the picture: once per head, field and order.
const kept = new WeakMap();
function once(i, what, make) {
  const fields = shown.fields[i], key = `${what}${shown.organized}`;
  if (!kept.has(fields)) kept.set(fields, {});
  const of = kept.get(fields);
  if (!(key in of)) of[key] = make(fields);
  return of[key];
}
const arrangedField = (i, kind) => once(i, kind, (fields) => arranged(theWindow(), fields, kind, shown.organized));
const paintedCells = (i, kind) => once(i, `painted ${kind}`, () => {
  const w = theWindow(), cells = document.createElement("canvas");
  paintCells(cells, kind, arrangedField(i, kind), ...cellsOf(w), kind === "energy" ? energyLimit(w, shown.heads[i]) : 0);
  return cells;
});

function drawPictures() {
  const [rows, columns] = cellsOf(theWindow());
  for (const [id, i] of FRAMES) {
    const canvas = byId(id), kind = canvas.dataset.kind, frame = canvas.closest("figure");
    const values = shown.fields[i] ? arrangedField(i, kind) : null;
    frame.hidden = !values;
    if (!values) continue;
    canvas.width = columns; canvas.height = rows;
    canvas.getContext("2d").drawImage(paintedCells(i, kind), 0, 0);
    canvas.dataset.order = shown.organized ? "organized" : "original";
    canvas.setAttribute("aria-label", `${WORDS[kind]} of head ${names[shown.heads[i]]}, queries down, keys to the right`);
    frame.lastChild.textContent = shown.heads.length > 1 ? `${WORDS[kind]}, head ${names[shown.heads[i]]}` : WORDS[kind];
  }
}

function setUpPictures() {
  const { windows } = data.window;
  let spans = [];
  // A row of the attention in the window's own order, per token: of blocks where the pictures are coarse.
  function rowOf(query) {
    const w = theWindow(), [rows, columns] = cellsOf(w), y = Math.min(rows - 1, Math.floor(((query + 0.5) * rows) / w.rows));
    return (k) => shown.fields[0].probs[y * columns + Math.min(columns - 1, Math.floor(((k + 0.5) * columns) / w.columns))];
  }
  function drawTokens() {
    if (!shown.fields.length || !spans.length) return;
    const at = rowOf(shown.query), values = spans.map((_, k) => at(k)), most = Math.max(...values);
    spans.forEach((span, k) => {
      span.classList.toggle("query", k === shown.query);
      const share = most ? values[k] / most : 0;
      span.style.background = share > 0.02 ? `color-mix(in srgb, var(--mark) ${Math.round(share * 70)}%, transparent)` : "";
      span.title = `${show(values[k])} from the token at ${shown.query}`;
    });
    byId("tokens").dataset.query = shown.query;
  }
  function layTokens() {
    const { tokens, rows, note } = theWindow();
    shown.query = Math.min(rows - 1, shown.query);
    spans = tokens.key.length ? [] : tokens.query.map((token, i) => {
      const span = element("span", shownToken(token) + (token.endsWith("\n") ? "\n" : ""), token.trim() === "" ? { class: "space" } : {});
      span.addEventListener("click", () => { shown.query = i; drawTokens(); });
      return span;
    });
    byId("tokens").replaceChildren(...spans);
    byId("tokens").hidden = byId("tokens-h").hidden = !spans.length;
    byId("window-note").textContent = note;
    byId("order-organized").disabled = byId("larger-organized").disabled = !hasOrder(theWindow());
    if (!hasOrder(theWindow())) shown.organized = false;
  }
  async function load() {
    const wanted = [chosen, ...(other >= 0 && other !== chosen ? [other] : [])], number = shown.window;
    const loaded = await Promise.all(wanted.map((head) => fieldsOf(number, head)));
    if (wanted[0] !== chosen || number !== shown.window) return;
    shown.heads = wanted; shown.fields = loaded;
    byId("readout").textContent = "Point at a picture to read its values.";
    drawPictures(); drawTokens(); drawLarger();
    byId("pictures").dataset.drawn = names[chosen];
    byId("pictures").dataset.other = wanted.length > 1 ? names[wanted[1]] : "";
  }
  for (const [id] of FRAMES) {
    const canvas = byId(id), cell = [0, 0];
    const point = () => { byId("readout").textContent = tellCell(...cell); };
    const look = () => { if (!shown.organized || !isCoarse(theWindow())) { shown.query = tokensOfCell(theWindow(), "query", cell[0], shown.organized)[0]; drawTokens(); } };
    const limit = (value, axis) => Math.min(cellsOf(theWindow())[axis] - 1, Math.max(0, value));
    canvas.addEventListener("mousemove", (event) => {
      if (!shown.fields.length) return;
      const box = canvas.getBoundingClientRect(), cells = cellsOf(theWindow());
      cell[0] = limit(Math.floor(((event.clientY - box.top) / box.height) * cells[0]), 0);
      cell[1] = limit(Math.floor(((event.clientX - box.left) / box.width) * cells[1]), 1);
      point();
    });
    canvas.addEventListener("click", look);
    canvas.addEventListener("dblclick", () => openLarger(canvas));
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Enter") openLarger(canvas);
      if (event.key === " ") look();
      if (event.key === " " || step) event.preventDefault();
      if (!step || !shown.fields.length) return;
      cell[0] = limit(cell[0] + step[0], 0); cell[1] = limit(cell[1] + step[1], 1);
      point();
    });
  }
  for (const number of windows.keys()) byId("window-choice").append(element("option", String(number + 1), { value: number }));
  byId("window-label").hidden = windows.length < 2;
  byId("window-choice").addEventListener("change", (event) => { shown.window = Number(event.target.value); layTokens(); setOrder(shown.organized); load(); });
  function setOrder(value) {
    shown.organized = value;
    for (const start of ["order", "larger"]) press([`${start}-original`, `${start}-organized`], value ? `${start}-organized` : `${start}-original`);
    if (shown.fields.length) { drawPictures(); drawLarger(); }
  }
  for (const start of ["order", "larger"]) {
    byId(`${start}-original`).addEventListener("click", () => setOrder(false));
    byId(`${start}-organized`).addEventListener("click", () => setOrder(true));
  }
  byId("compare").append(...names.map((name, i) => element("option", name, { value: i })));
  byId("compare").addEventListener("change", (event) => compareWith(event.target.value === "" ? -1 : Number(event.target.value)));
  byId("enlarge").addEventListener("click", () => openLarger(byId("enlarge")));
  layTokens();
  addView("pictures", () => { byId("compare").value = other >= 0 ? String(other) : ""; return load(); }, drawPictures);
}
setUpPictures();
setUpLarger();
