// The chosen head as large as the screen, beside the one it is compared with: ticks, tokens, zoom, values.
const larger = { kind: "probs", scale: 0, x: 0, y: 0, cell: null, from: null, drag: null, fingers: new Map(), pinch: null };
const MARGIN = innerWidth < 600 ? { left: 66, top: 58 } : { left: 104, top: 92 };

function openLarger(from) {
  if (!shown.fields.length) return;
  larger.from = from;
  byId("larger").showModal();
  fitLarger();
  byId("larger-one").focus();
}

// Where the cells begin: a picture smaller than its room stands in the middle, with its ticks beside it.
function largerOrigin(canvas) {
  const [, columns] = cellsOf(theWindow()), [width] = largerSize(canvas);
  return [MARGIN.left + Math.round(Math.max(0, width - columns * larger.scale) / 2), MARGIN.top];
}
function largerSize(canvas) { return [canvas.clientWidth - MARGIN.left, canvas.clientHeight - MARGIN.top]; }
function fitScale() {
  const [rows, columns] = cellsOf(theWindow()), [width, height] = largerSize(byId("larger-one"));
  return Math.max(Math.min(width / columns, height / rows), 0.05);
}
function fitLarger() { layLarger(); larger.scale = fitScale(); larger.x = larger.y = 0; drawLarger(); }

// Both heads have the same place and size, so that they can be compared cell by cell.
function layLarger() { byId("larger-two").closest("figure").hidden = shown.heads.length < 2; }

function boundScale(scale) { return Math.min(Math.max(scale, fitScale()), 60); }

function zoomLarger(factor, at) {
  const [width, height] = largerSize(byId("larger-one"));
  const [px, py] = at || [width / 2, height / 2];
  const scale = boundScale(larger.scale * factor), [from] = largerOrigin(byId("larger-one"));
  const x = larger.x + px / larger.scale;
  larger.y += py / larger.scale - py / scale;
  larger.scale = scale;
  // A picture that no longer fits its room does not stand in the middle any more.
  larger.x = x - (px + from - largerOrigin(byId("larger-one"))[0]) / scale;
  drawLarger();
}

function moveLarger(x, y) { larger.x += x; larger.y += y; drawLarger(); }

function boundLarger() {
  const [rows, columns] = cellsOf(theWindow()), [width, height] = largerSize(byId("larger-one"));
  larger.x = Math.max(0, Math.min(larger.x, columns - width / larger.scale));
  larger.y = Math.max(0, Math.min(larger.y, rows - height / larger.scale));
}

// Ticks at every token where these have room, else at round numbers.
function tickStep(scale) { return [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000].find((step) => step * scale >= 12) || 2000; }
function tickText(w, axis, cell) {
  const positions = tokensOfCell(w, axis, cell, shown.organized), token = tokenAt(w, axis, positions[0]);
  if (positions.length > 1) return shown.organized ? `${positions.length} like ${token}` : `${positions[0]}–${positions.at(-1)}`;
  return `${token.slice(0, 10)} ${positions[0]}`.trim();
}

function drawTicks(context, w, [left, top], width, height) {
  const [rows, columns] = cellsOf(w), step = tickStep(larger.scale);
  context.fillStyle = style("--quiet"); context.strokeStyle = style("--line");
  context.font = "10px ui-monospace, Menlo, Consolas, monospace"; context.textBaseline = "middle"; context.textAlign = "right";
  const along = (origin, count, room, mark) => {
    for (let i = Math.ceil(origin / step) * step; i < Math.min(count, origin + room / larger.scale); i += step) {
      const at = (i + 0.5 - origin) * larger.scale;
      if (at >= 0 && at <= room) mark(i, at);
    }
  };
  along(larger.y, rows, height, (i, at) => context.fillText(tickText(w, "query", i), left - 6, Math.round(top + at), MARGIN.left - 10));
  context.textAlign = "left";
  along(larger.x, columns, width, (i, at) => {
    context.save(); context.translate(Math.round(left + at), top - 6); context.rotate(-Math.PI / 2);
    context.fillText(tickText(w, "key", i), 0, 0, MARGIN.top - 10); context.restore();
  });
}

function rangeWords(i, values) {
  if (larger.kind === "energy") { const limit = show(energyLimit(theWindow(), shown.heads[i]), 3); return `, blue −${limit} to red ${limit}`; }
  return `, dark 0 to bright ${show(once(i, "high", () => values.reduce((a, b) => Math.max(a, b), 0)), 3)}`;
}

function drawOneLarger(canvas, i) {
  const w = theWindow(), [rows, columns] = cellsOf(w), values = arrangedField(i, larger.kind);
  const ratio = devicePixelRatio || 1, [width, height] = largerSize(canvas);
  canvas.width = canvas.clientWidth * ratio; canvas.height = canvas.clientHeight * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const [left, top] = largerOrigin(canvas);
  drawTicks(context, w, [left, top], width, height);
  context.save(); context.beginPath(); context.rect(left, top, width, height); context.clip();
  context.translate(left - larger.x * larger.scale, top - larger.y * larger.scale);
  context.imageSmoothingEnabled = false;
  if (values) context.drawImage(paintedCells(i, larger.kind), 0, 0, columns * larger.scale, rows * larger.scale);
  if (larger.cell) {
    const size = Math.max(larger.scale, 3);
    context.strokeStyle = style("--mark"); context.lineWidth = 1.5;
    context.strokeRect(larger.cell[1] * larger.scale, larger.cell[0] * larger.scale, size, size);
  }
  context.restore();
  const name = `${larger.kind === "probs" ? "Probabilities" : "Energy"} of head ${names[shown.heads[i]]}`;
  canvas.setAttribute("aria-label", `${name}, queries down, keys to the right`);
  canvas.closest("figure").lastChild.textContent = values ? `${name}${rangeWords(i, values)}` : `${name}: only in the original order`;
}

function drawLarger() {
  if (!byId("larger").open || !shown.fields.length) return;
  layLarger(); boundLarger();
  byId("larger-energy").disabled = !shown.fields[0].energy;
  byId("larger-title").textContent = shown.heads.map((head) => `Head ${names[head]}`).join(" and ");
  ["larger-one", "larger-two"].slice(0, shown.heads.length).forEach((id, i) => drawOneLarger(byId(id), i));
  const [left, top] = largerOrigin(byId("larger-one"));
  Object.assign(byId("larger").dataset, { left, top, scale: larger.scale, x: larger.x, y: larger.y, kind: larger.kind, order: shown.organized ? "organized" : "original" });
  byId("larger-readout").textContent = larger.cell ? tellCell(...larger.cell) : "";
}

// Two fingers, in pixels of the canvas: the cell that was under their middle stays there, and grows as they part.
function spanOf([[ax, ay], [bx, by]]) { return { size: Math.hypot(ax - bx, ay - by), x: (ax + bx) / 2, y: (ay + by) / 2 }; }
function startPinch(canvas, fingers) {
  const span = spanOf(fingers), [left, top] = largerOrigin(canvas);
  return { size: Math.max(span.size, 1), scale: larger.scale, x: larger.x + (span.x - left) / larger.scale, y: larger.y + (span.y - top) / larger.scale };
}
function followPinch(canvas, fingers) {
  const start = larger.pinch, span = spanOf(fingers);
  larger.scale = boundScale((start.scale * span.size) / start.size);
  const [left, top] = largerOrigin(canvas);
  larger.x = start.x - (span.x - left) / larger.scale; larger.y = start.y - (span.y - top) / larger.scale;
  drawLarger();
}

function setUpLargerCanvas(canvas) {
  const spot = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const place = (event) => { const [px, py] = spot(event), [left, top] = largerOrigin(canvas); return [px - left, py - top]; };
  const read = (px, py) => {
    const [rows, columns] = cellsOf(theWindow()), y = Math.floor(larger.y + py / larger.scale), x = Math.floor(larger.x + px / larger.scale);
    larger.cell = px >= 0 && py >= 0 && y < rows && x < columns ? [y, x] : null;
  };
  const hold = () => {
    const fingers = [...larger.fingers.values()];
    larger.pinch = fingers.length === 2 ? startPinch(canvas, fingers) : null; larger.drag = fingers.length === 1 ? fingers[0] : null;
  };
  const release = (event) => { larger.fingers.delete(event.pointerId); hold(); };
  canvas.addEventListener("pointerdown", (event) => {
    larger.fingers.set(event.pointerId, spot(event)); canvas.setPointerCapture(event.pointerId); hold();
    if (larger.drag) read(...place(event));
    drawLarger();
  });
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = spot(event);
    if (larger.fingers.has(event.pointerId)) larger.fingers.set(event.pointerId, [px, py]);
    if (larger.pinch) { followPinch(canvas, [...larger.fingers.values()]); return; }
    if (larger.drag) { larger.x -= (px - larger.drag[0]) / larger.scale; larger.y -= (py - larger.drag[1]) / larger.scale; larger.drag = [px, py]; } else read(...place(event));
    drawLarger();
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.shiftKey) moveLarger((event.deltaX || event.deltaY) / larger.scale, 0); else zoomLarger(Math.exp(-event.deltaY * 0.002), place(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const zoom = { "+": 1.5, "=": 1.5, "-": 1 / 1.5 }[event.key];
    if (!step && !zoom && event.key !== "0") return;
    event.preventDefault();
    if (zoom) zoomLarger(zoom); else if (!step) fitLarger(); else if (event.shiftKey) moveLarger((step[1] * 60) / larger.scale, (step[0] * 60) / larger.scale); else stepLarger(...step);
  });
}

// The next cell, scrolled to if it is out of sight.
function stepLarger(down, across) {
  const [rows, columns] = cellsOf(theWindow()), [width, height] = largerSize(byId("larger-one"));
  const [y, x] = larger.cell || [-down, -across];
  larger.cell = [Math.min(rows - 1, Math.max(0, y + down)), Math.min(columns - 1, Math.max(0, x + across))];
  const seen = (at, origin, room) => Math.min(at, Math.max(origin, at + 1 - room / larger.scale));
  larger.y = seen(larger.cell[0], larger.y, height); larger.x = seen(larger.cell[1], larger.x, width);
  drawLarger();
}

function setUpLarger() {
  for (const id of ["larger-one", "larger-two"]) setUpLargerCanvas(byId(id));
  for (const kind of ["probs", "energy"]) {
    byId(`larger-${kind}`).addEventListener("click", () => { larger.kind = kind; press(["larger-probs", "larger-energy"], `larger-${kind}`); drawLarger(); });
  }
  byId("zoom-in").addEventListener("click", () => zoomLarger(1.5));
  byId("zoom-out").addEventListener("click", () => zoomLarger(1 / 1.5));
  byId("zoom-fit").addEventListener("click", fitLarger);
  byId("larger-close").addEventListener("click", () => byId("larger").close());
  byId("larger").addEventListener("close", () => { larger.cell = larger.drag = larger.pinch = null; larger.fingers.clear(); larger.from?.focus(); });
  addEventListener("resize", () => { if (byId("larger").open) fitLarger(); });
}
