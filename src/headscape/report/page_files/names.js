// Names and families: what a head does, in words, and the color of each family. Studies without names have none.
const FAMILY = "family";
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

const COLUMNS = [
  ...(nameMeasure ? [nameMeasure] : []),
  ...data.measures.filter((measure) => measure !== nameMeasure),
  { key: "layer", title: "layer", meaning: "Number of the layer, from 0.", numeric: true, values: data.heads.layer },
  { key: "head", title: "number in the layer", meaning: "Number of the head in its layer, from 0.", numeric: true, values: data.heads.head },
];
const findHeads = (text) => findAmong(text, names, headName, COLUMNS);

function setUpHeadSearch() {
  setUpSearch({
    find: findHeads,
    say: (head) => `${names[head]}${headName(head) ? `  ${headName(head)}` : ""}`,
    go: (head) => { choose(head, "search"); return names[head]; },
    more: (heads, words, close) => {
      if (heads.length < 2) return undefined;
      const button = element("button", `Select ${heads.length === names.length ? "all" : "these"} ${heads.length} heads`, { type: "button" });
      button.addEventListener("click", () => { select(heads, `found by “${words}”`); close(); });
      return button;
    },
  });
}
