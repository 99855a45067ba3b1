// What is chosen: two networks (a pair), and a head of one of them.
let pairAt = 0;
let chosen = { side: 0, head: 0 };
const pair = () => data.pairs[pairAt];
const placeOf = (side) => (side === 0 ? pair().first : pair().second);
const sourceOf = (side) => data.sources[placeOf(side)];
const namesOf = (side) => sourceOf(side).heads.names;
const chosenName = () => `${sourceOf(chosen.side).label} ${namesOf(chosen.side)[chosen.head]}`;
const partnersOf = (side, head) => pair().partners[side][head] || [];
const patternOf = (side, head) => sourceOf(side).patterns[head] || "";
const percent = (share) => `${share >= 0.995 ? 100 : show(100 * share, 2)} %`;

// A color per network, the same in every chart.
const sourceColor = (place) => PALETTE[place % PALETTE.length];
const sideColor = (side) => sourceColor(placeOf(side));

// What shows a pair as a whole fills itself again when another is chosen.
const pairListeners = [];
function onPair(fill) { pairListeners.push(fill); fill(); }

function choose(side, head, from) {
  if (!(head >= 0 && head < namesOf(side).length)) return;
  chosen = { side, head };
  markAll(from);
  byId("announce").textContent = `${chosenName()} chosen. ${partnersSentence(side, head)}`;
  keepInLink();
}

function choosePair(index, from) {
  pairAt = index;
  chosen = firstHead();
  for (const fill of pairListeners) fill();
  redraw();
  markAll(from);
  keepInLink();
}

// The column that says which heads changed most: in units of the noise, or if all are inside it, how far they moved.
function leadColumn() {
  const [times, moved] = ["times", "moved"].map((key) => pair().columns.find((column) => column.key === key));
  return moved && !(times && times.values.some((value) => value > 1)) ? moved : times || null;
}

// The head that changed most, or the first one.
function firstHead() {
  const { rows } = pair(), lead = leadColumn();
  const order = rows.first.map((_, i) => i).sort((a, b) => (lead ? (lead.values[b] ?? -1) - (lead.values[a] ?? -1) : 0) || a - b);
  const [row] = order;
  if (row === undefined) return { side: 0, head: 0 };
  return rows.first[row] === null ? { side: 1, head: rows.second[row] } : { side: 0, head: rows.first[row] };
}

const rowOf = ({ side, head }) => pair().rows[side === 0 ? "first" : "second"].indexOf(head);

// All that the link keeps: #pair=0-1&head=0:4.2
const keepInLink = () => history.replaceState(null, "", `#pair=${pair().first}-${pair().second}&head=${chosen.side}:${namesOf(chosen.side)[chosen.head]}`);
function readLink() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const [first, second] = (wanted.get("pair") || "").split("-").map(Number);
  const found = data.pairs.findIndex((p) => p.first === first && p.second === second);
  pairAt = found >= 0 ? found : 0;
  const [side, name] = (wanted.get("head") || "").split(":");
  const head = ["0", "1"].includes(side) ? namesOf(Number(side)).indexOf(name) : -1;
  chosen = head >= 0 ? { side: Number(side), head } : firstHead();
}

// "It corresponds to head 4.2 of B." or "Most like heads 3.1 (42 %) and 2.7 (20 %) of B; the rest is spread over 12 more."
function partnersSentence(side, head) {
  const partners = partnersOf(side, head), there = namesOf(1 - side), label = sourceOf(1 - side).label;
  if (!partners.length) return `It has no partner in ${label}.`;
  if (pair().exact || partners[0][1] > 0.95) return `It ${pair().exact ? "corresponds to" : "is most like"} head ${there[partners[0][0]]} of ${label}.`;
  const shown = partners.slice(0, 3), rest = 1 - shown.reduce((sum, [, share]) => sum + share, 0);
  const said = shown.map(([i, share]) => `${there[i]} (${percent(share)})`);
  const list = said.length > 1 ? `${said.slice(0, -1).join(", ")} and ${said.at(-1)}` : said[0];
  return `It is most like ${said.length > 1 ? "heads" : "head"} ${list} of ${label}${rest > 0.01 ? `; ${percent(rest)} goes to others` : ""}.`;
}

function sideButton(side, head, text = namesOf(side)[head]) {
  const button = element("button", text, { type: "button", "data-side": side, "data-head": namesOf(side)[head] });
  button.addEventListener("click", () => choose(side, head, "button"));
  return button;
}

function legendOf(places) {
  return places.map((place) => {
    const entry = element("span", undefined, { class: "entry" }), swatch = element("span", undefined, { class: "swatch" });
    swatch.style.background = sourceColor(place);
    entry.append(swatch, data.sources[place].label);
    return entry;
  });
}

// The names of both networks wherever a legend or a column of a table has them.
function setUpPairNames() {
  onPair(() => {
    for (const box of document.querySelectorAll(".legend.sources")) box.replaceChildren(...legendOf([0, 1].map(placeOf)));
    for (const cell of document.querySelectorAll("th[data-side]")) cell.textContent = sourceOf(Number(cell.dataset.side)).label;
  });
}

// A difference beside the noise: "inside the noise", "4.5 × the noise".
const againstNoise = ({ verdict, times }) => (verdict === "changed" && typeof times === "number" && times < 999 ? `${show(times, 2)} × the noise` : verdict);

// A row of a table: the first cell is its title.
function tableRow(title, cells) {
  const row = element("tr"), first = element("th", undefined, { scope: "row" });
  first.append(title);
  row.append(first, ...cells.map((value) => element("td", show(value, 3), { class: typeof value === "number" ? "n" : "" })));
  return row;
}

function setUpSideSearch() {
  const heads = () => [0, 1].flatMap((side) => namesOf(side).map((name, head) => ({ side, head, name })));
  const words = ({ side, head }) => `${sourceOf(side).label} ${patternOf(side, head)}`.trim();
  setUpSearch({
    find: (text) => { const all = heads(); return findAmong(text, all.map((h) => h.name), (i) => words(all[i]), []); },
    say: (i) => { const found = heads()[i]; return `${found.name}  ${words(found)}`; },
    go: (i) => { const found = heads()[i]; choose(found.side, found.head, "search"); return found.name; },
  });
}
