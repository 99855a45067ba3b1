// Attention and energy of the chosen head, with the tokens.
const shownToken = (token) => (token.trim() === "" ? token.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥") || "∅" : token.replace(/\n/g, "⏎"));

function setUpPictures() {
  const { tokens, query_order: queryOrder, key_order: keyOrder, attention, energy, rows, columns } = data.window;
  const identity = (n) => Array.from({ length: n }, (_, i) => i);
  let organized = false, query = Math.min(rows - 1, 16), probs = null, field = null;
  const orders = () => (organized ? [queryOrder, keyOrder] : [identity(rows), identity(columns)]);
  const probability = (q, k) => (probs[q * columns + k] / 255) ** 2 * attention.high[chosen];
  const energyAt = (q, k) => (field[q * columns + k] === 0 ? null : ((field[q * columns + k] - 128) / 126) * energy.limit[chosen]);
  const tokenAt = (list, i) => (list.length ? shownToken(list[i]) : String(i));

  function paint(id, color) {
    const canvas = byId(id);
    canvas.width = columns; canvas.height = rows;
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    const [down, across] = orders();
    for (let y = 0; y < rows; y += 1) for (let x = 0; x < columns; x += 1) {
      const rgb = color(down[y] * columns + across[x]);
      const i = 4 * (y * columns + x);
      image.data[i] = rgb[0]; image.data[i + 1] = rgb[1]; image.data[i + 2] = rgb[2]; image.data[i + 3] = rgb[3] ?? 255;
    }
    context.putImageData(image, 0, 0);
    canvas.dataset.order = organized ? "organized" : "original";
  }
  function draw() {
    if (!probs) return;
    // The bytes are square roots; a little more root keeps weak attention visible beside a sink.
    paint("attention", (i) => viridis((probs[i] / 255) ** 0.66));
    if (field) paint("energy-picture", (i) => (field[i] === 0 ? [128, 128, 128, 40] : diverging((field[i] - 2) / 252)));
  }
  const spans = tokens.query.map((token, i) => {
    const span = element("span", shownToken(token) + (token.endsWith("\n") ? "\n" : ""), token.trim() === "" ? { class: "space" } : {});
    span.addEventListener("click", () => { query = i; drawTokens(); });
    return span;
  });
  function drawTokens() {
    if (!probs || !spans.length || tokens.key.length !== spans.length) return;
    let most = 0;
    for (let k = 0; k < columns; k += 1) most = Math.max(most, probability(query, k));
    spans.forEach((span, k) => {
      span.classList.toggle("query", k === query);
      const share = most ? probability(query, k) / most : 0;
      span.style.background = share > 0.02 ? `color-mix(in srgb, var(--mark) ${Math.round(share * 70)}%, transparent)` : "";
      span.title = `${show(probability(query, k))} from the token at ${query}`;
    });
    byId("tokens").dataset.query = query;
  }
  function tell(q, k) {
    const value = probability(q, k), e = field ? energyAt(q, k) : null;
    byId("readout").textContent = `query ${q} “${tokenAt(tokens.query, q)}” → key ${k} “${tokenAt(tokens.key, k)}”: attention ${show(value)}${field ? `, energy ${e === null ? "hidden by the mask" : show(e)}` : ""}`;
  }
  for (const id of ["attention", "energy-picture"]) {
    const canvas = byId(id);
    const cell = { y: 0, x: 0 };
    const point = () => { const [down, across] = orders(); tell(down[cell.y], across[cell.x]); };
    canvas.addEventListener("mousemove", (event) => {
      if (!probs) return;
      const box = canvas.getBoundingClientRect();
      cell.y = Math.min(rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * rows)));
      cell.x = Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * columns)));
      point();
    });
    canvas.addEventListener("click", () => { query = orders()[0][cell.y]; drawTokens(); });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Enter") { query = orders()[0][cell.y]; drawTokens(); }
      if (!step || !probs) return;
      event.preventDefault();
      cell.y = Math.min(rows - 1, Math.max(0, cell.y + step[0])); cell.x = Math.min(columns - 1, Math.max(0, cell.x + step[1]));
      point();
    });
  }
  if (!energy) byId("energy-picture").closest("figure").hidden = true;
  byId("tokens").replaceChildren(...spans);
  if (!spans.length) { byId("tokens").hidden = true; byId("tokens-h").hidden = true; }
  byId("window-note").textContent = data.window.note;
  for (const [id, value] of [["order-original", false], ["order-organized", true]]) {
    byId(id).addEventListener("click", () => { organized = value; press(["order-original", "order-organized"], id); draw(); });
  }
  const mark = async (index) => {
    const loaded = await Promise.all([grayPicture(attention.png[index]), energy ? grayPicture(energy.png[index]) : null]);
    if (index !== chosen) return;
    [probs, field] = loaded;
    byId("readout").textContent = "Point at a picture to read its values.";
    draw(); drawTokens();
    byId("pictures").dataset.drawn = names[index];
  };
  addView("pictures", mark, draw);
}
setUpPictures();
