// What is chosen: one head, and a selection of heads. How pictures are decoded and colored.
const names = data.heads.names;
let chosen = -1;
const chosenName = () => names[chosen];
// { heads: a Set, words, families }, or null if nothing is selected.
let selection = null;
const selectionListeners = [];

function choose(index, from) {
  if (!(index >= 0 && index < names.length)) return;
  chosen = index;
  markAll(from);
  byId("announce").textContent = `Head ${names[index]} chosen`;
  keepInLink();
}

// Selects heads in all views; no heads clear the selection.
function select(heads, words = "", families = []) {
  selection = heads.length ? { heads: new Set(heads), words, families } : null;
  for (const listener of selectionListeners) listener();
}
const isSelected = (head) => !selection || selection.heads.has(head);

// Gray pictures travel as PNG; the bytes come back through a canvas.
async function grayPicture(base64) {
  const image = new Image();
  image.src = `data:image/png;base64,${base64}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.width; canvas.height = image.height;
  const context = canvas.getContext("2d", { willReadFrequently: true, colorSpace: "srgb" });
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, image.width, image.height).data;
  const out = new Uint8Array(image.width * image.height);
  for (let i = 0; i < out.length; i += 1) out[i] = pixels[4 * i];
  return out;
}

const rgbOf = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
const DIVERGING = ["#2166ac", "#67a9cf", "#d1e5f0", "#f7f7f7", "#fddbc7", "#ef8a62", "#b2182b"];
function ramp(anchors) {
  const parts = anchors.map(rgbOf);
  return (share) => {
    const at = Math.min(Math.max(share, 0), 1) * (parts.length - 1);
    const low = Math.min(Math.floor(at), parts.length - 2);
    return parts[low].map((v, c) => Math.round(v + (parts[low + 1][c] - v) * (at - low)));
  };
}
const viridis = ramp(VIRIDIS);
const diverging = ramp(DIVERGING);

function headButton(index) {
  const button = element("button", names[index], { type: "button", "data-head": names[index] });
  button.addEventListener("click", () => choose(index, "button"));
  return button;
}

const measureOf = (key) => data.measures.find((measure) => measure.key === key);
const layers = [...new Set(data.heads.layer)].sort((a, b) => a - b);
const numbers = [...new Set(data.heads.head)].sort((a, b) => a - b);
