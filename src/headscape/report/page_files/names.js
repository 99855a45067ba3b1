// Names and families: what a head does, in words, and the color of each family. Studies without names have none.
const FAMILY = "family";
// Colors of Okabe and Ito, then five that stay apart from them for color-blind readers; symbols differ as well.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#882255", "#999933", "#332288", "#44aa99", "#aa4499"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "pentagon", "hexagon", "x", "bowtie", "hourglass"];
const MIXED = { color: "#98a2ad", symbol: "circle" };

const nameMeasure = measureOf("name") || measureOf("pattern");
const kindOf = (i) => (measureOf("pattern") ? measureOf("pattern").values[i] : String(nameMeasure.values[i]).replace(/ \([^()]*\)$/, "")) || "mixed";
const headName = (i) => (nameMeasure && nameMeasure.values[i]) || "";

// The largest first; heads that no name fits come last and stay gray.
const families = (() => {
  if (!nameMeasure) return [];
  const found = new Map();
  names.forEach((_, i) => found.set(kindOf(i), [...(found.get(kindOf(i)) || []), i]));
  const sorted = [...found].map(([name, heads]) => ({ name, heads })).sort((a, b) => (a.name === "mixed") - (b.name === "mixed") || b.heads.length - a.heads.length);
  return sorted.map((family, n) => ({ ...family, ...(family.name === "mixed" ? MIXED : { color: PALETTE[n % PALETTE.length], symbol: SYMBOLS[n % SYMBOLS.length] }) }));
})();
const familyOf = names.map((_, i) => families.findIndex((family) => family.heads.includes(i)));

const headText = (i, more = "") => `head ${names[i]}${headName(i) ? `<br>${plain(headName(i))}` : ""}${more ? `<br>${more}` : ""}`;

// What a color control offers: the name, the layer, every number.
function fillColors(select, { layer = true } = {}) {
  if (families.length) select.append(element("option", "Name", { value: FAMILY }));
  if (layer) select.append(element("option", "Layer", { value: "layer" }));
  for (const measure of data.measures.filter((m) => m.numeric && m.table)) select.append(element("option", measure.title, { value: measure.key }));
}

// The values behind a choice of color; one value alone still gets a scale.
function coloring(key) {
  if (key === FAMILY) return { title: "name", families: true, values: familyOf, say: () => "" };
  const measure = measureOf(key);
  const { title, values } = measure || { title: "layer", values: data.heads.layer };
  const numbersOnly = values.filter((v) => v !== null);
  let low = Math.min(...numbersOnly), high = Math.max(...numbersOnly);
  if (!numbersOnly.length) { low = 0; high = 1; }
  if (low === high) { low -= 0.5; high += 0.5; }
  const bar = colorbar(plain(title));
  if (values.every(Number.isInteger) && high - low <= 3) bar.dtick = 1;
  return { title, values, low, high, bar, say: (i) => `${plain(title)} ${show(values[i])}` };
}

// A legend of buttons: each selects the heads of its family in all views, further ones join it.
function setUpLegend(id, chart, control) {
  const box = byId(id);
  const buttons = families.map((family) => {
    const button = element("button", undefined, { type: "button", "aria-pressed": "false", "data-family": family.name });
    const swatch = element("span", undefined, { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = family.color;
    button.append(swatch, `${family.name} ${family.heads.length}`);
    button.addEventListener("click", () => {
      const had = selection ? selection.families : [];
      const wanted = had.includes(family.name) ? had.filter((name) => name !== family.name) : [...had, family.name];
      select(families.filter((f) => wanted.includes(f.name)).flatMap((f) => f.heads), wanted.join(", "), wanted);
    });
    box.append(button);
    return button;
  });
  const sync = () => {
    box.hidden = !families.length || control.value !== FAMILY;
    byId(chart).legend = box.hidden ? [] : families;
    for (const button of buttons) button.setAttribute("aria-pressed", String(Boolean(selection && selection.families.includes(button.dataset.family))));
  };
  selectionListeners.push(sync);
  control.addEventListener("change", sync);
  sync();
}

// One bar for the selection, wherever it was made.
function setUpSelection() {
  selectionListeners.push(() => {
    byId("selection").hidden = !selection;
    byId("selection-words").textContent = selection ? `${count(selection.heads.size, "head")} selected: ${selection.words}` : "";
  });
  byId("selection-clear").addEventListener("click", () => select([]));
}

// Heads by number ("16.0", "16."), by words of the name ("previous"), or by conditions ("layer >= 20, mu_K < 3").
function findHeads(text) {
  const wanted = text.trim().toLowerCase();
  const all = names.map((_, i) => i);
  if (!wanted) return { heads: all };
  if (/^\d+(\.\d*)?$/.test(wanted)) {
    const dotted = wanted.includes(".");
    const heads = all.filter((i) => (dotted ? names[i].startsWith(wanted) : names[i].split(".")[0] === wanted));
    return { heads: heads.sort((a, b) => (names[b] === wanted) - (names[a] === wanted)) };
  }
  if (/[<>=]|\bcontains\b/.test(wanted)) {
    const { tests, error } = parseFilter(text);
    return error ? { heads: all, error } : { heads: all.filter((i) => tests.every((test) => test(i))) };
  }
  const words = wanted.split(/[\s,]+/);
  return { heads: all.filter((i) => { const said = `${names[i]} ${headName(i)}`.toLowerCase(); return words.every((word) => said.includes(word)); }) };
}

// The search in the top bar: one word, and the head is there.
function setUpSearch() {
  const box = byId("search"), list = byId("search-results");
  const close = () => { list.hidden = true; };
  const go = (head) => { choose(head, "search"); box.value = names[head]; close(); };
  function offer() {
    const { heads, error } = findHeads(box.value);
    list.replaceChildren();
    list.hidden = !box.value.trim();
    for (const head of error ? [] : heads.slice(0, 8)) {
      const item = element("li"), button = element("button", `${names[head]}${headName(head) ? `  ${headName(head)}` : ""}`, { type: "button" });
      button.addEventListener("click", () => go(head));
      item.append(button); list.append(item);
    }
    const rest = element("li");
    if (error || !heads.length) rest.append(element("span", error || "No head found.", { class: "quiet small" }));
    else if (heads.length > 1) {
      const button = element("button", `Select ${heads.length === names.length ? "all" : "these"} ${heads.length} heads`, { type: "button" });
      button.addEventListener("click", () => { select(heads, `found by “${box.value.trim()}”`); close(); });
      rest.append(button);
    }
    list.append(rest);
    return error ? [] : heads;
  }
  box.addEventListener("input", offer);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && box.value.trim()) { const [head] = offer(); if (head !== undefined) go(head); }
  });
  box.parentElement.addEventListener("keydown", (event) => { if (event.key === "Escape") { close(); box.focus(); } });
  document.addEventListener("click", (event) => { if (!box.parentElement.contains(event.target)) close(); });
}
