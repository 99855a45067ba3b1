// What every page draws with: the data, elements, numbers as text, views that follow what is chosen, charts.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const views = [];

// Lists and pictures join with what they do when a head is chosen, and with how another theme paints them.
// The page has `chosen` and `chosenName()`.
function addView(id, mark, draw = () => {}) { views.push({ id, mark, draw, drawn: true }); }

// Charts are costly: each is drawn when it comes near the screen, with the head that is chosen then.
function addChart(id, draw, mark = draw) { views.push({ id, mark, draw, drawn: false }); }

function drawChart(view) {
  if (view.drawn) return undefined;
  view.drawn = true;
  byId(view.id).dataset.chosen = chosenName();
  return view.draw();
}

// For controls: a chart that is not drawn yet will find the new setting when it is.
function redraw(id) { for (const view of views) if (view.drawn && (!id || view.id === id)) view.draw(); }

function markView(view, from) {
  byId(view.id).dataset.chosen = chosenName();
  return view.mark(chosen, from);
}
function markAll(from) { for (const view of views) if (view.drawn) markView(view, from); }

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

function download(file, href) {
  const link = element("a", undefined, { href, download: file });
  document.body.append(link); link.click(); link.remove();
}

// Plotly reads a little markup in labels: what comes from models is shown as it is.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function show(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
}

function bytes(base64) {
  const text = atob(base64);
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) out[i] = text.charCodeAt(i);
  return out;
}
// Large things travel deflated.
async function inflate(base64) {
  const stream = new Blob([bytes(base64)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
const floats = (base64) => new Float32Array(bytes(base64).buffer);

// Breaks a text between words into lines of at most so many characters.
function lines(text, most) {
  const made = [];
  for (const word of text.split(" ")) {
    if (made.length && made.at(-1).length + 1 + word.length <= most) made[made.length - 1] += ` ${word}`; else if (word) made.push(word);
  }
  return made;
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function layout(extra) {
  const axis = { gridcolor: style("--grid"), zerolinecolor: style("--grid"), linecolor: style("--line"), tickfont: { size: 10 }, automargin: true };
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 46, r: 10, t: 8, b: 38 },
    font: { family: "system-ui, sans-serif", size: 11, color: style("--quiet") }, showlegend: false, hovermode: "closest", modebar: { bgcolor: "rgba(0,0,0,0)", color: style("--quiet"), activecolor: style("--accent") },
    hoverlabel: { bgcolor: style("--paper"), bordercolor: style("--line"), font: { color: style("--ink"), size: 12 } },
  };
  const made = { ...base, ...extra };
  for (const name of ["xaxis", "yaxis"]) made[name] = { ...axis, ...(extra[name] || {}) };
  return made;
}
// Zoom and back; saving has a menu of its own, which the keyboard reaches.
const BUTTONS = { flat: ["zoom2d", "pan2d", "resetScale2d"], map: ["zoom2d", "pan2d", "lasso2d", "select2d", "resetScale2d"], solid: ["orbitRotation", "resetCameraDefault3d"] };
const config = (kind) => ({ displaylogo: false, responsive: true, displayModeBar: kind in BUTTONS, modeBarButtons: [BUTTONS[kind] || []] });
const colorbar = (title) => ({ thickness: 10, outlinewidth: 0, tickfont: { size: 10 }, len: 0.9, title: { text: title, side: "right", font: { size: 11 } } });

function plot(id, traces, extra, onClick, kind = "flat") {
  const box = byId(id);
  Plotly.react(box, traces, layout(extra), config(kind));
  // A picture may hold no buttons: the box is a group with the chart's label, and what is drawn is silent.
  box.setAttribute("role", "group");
  for (const drawing of box.querySelectorAll(".main-svg")) drawing.setAttribute("aria-hidden", "true");
  if (onClick && !box.dataset.bound) { box.on("plotly_click", onClick); box.dataset.bound = "yes"; }
}

function press(ids, active) { for (const id of ids) byId(id).setAttribute("aria-pressed", String(id === active)); }

// Colors of Okabe and Ito, then five that stay apart from them for color-blind readers; symbols differ as well.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#882255", "#999933", "#332288", "#44aa99", "#aa4499"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "pentagon", "hexagon", "x", "bowtie", "hourglass"];
const MIXED = { color: "#98a2ad", symbol: "circle" };
