// The fields of a head: computed from packed queries and keys, or read from pictures. Matrices are rows of keys, one row a query.
// Channel by channel, low bytes before high bytes, signs folded in: back to one row a token.
async function unpackRows(base64, points, rank, step) {
  const packed = await inflate(base64);
  const out = new Float32Array(points * rank);
  for (let c = 0; c < rank; c += 1) for (let p = 0; p < points; p += 1) {
    const folded = packed[c * points + p] | (packed[(rank + c) * points + p] << 8);
    out[p * rank + c] = step * (folded & 1 ? -(folded + 1) / 2 : folded / 2);
  }
  return out;
}

async function visibility(w, text) {
  if (text === "full") return () => true;
  if (text === "causal") return (q, k) => k <= q + w.columns - w.rows;
  const bits = await inflate(text);
  return (q, k) => { const i = q * w.columns + k; return (bits[i >> 3] >> (7 - (i & 7))) & 1; };
}

// probs: softmax over visible keys, with soft cap, bias and sink where the model has them; energy: centered products.
async function computedFields(w, index) {
  const group = w.key_of[index], rank = w.rank[group], { rows, columns } = w;
  const [queries, keys, visible] = await Promise.all([
    unpackRows(w.queries[index], rows, rank, w.query_step[group]), unpackRows(w.keys[group], columns, rank, w.key_step[group]), visibility(w, w.masks[w.mask_of[index]])]);
  const cap = w.softcap ? w.softcap[index] : null, sink = w.sinks ? w.sinks[index] : null;
  const bias = w.bias ? floats(w.bias[index]) : null;
  const probs = new Float32Array(rows * columns), energy = new Float32Array(rows * columns).fill(NaN);
  for (let q = 0; q < rows; q += 1) {
    const seen = [];
    let sum = 0, top = sink ?? -Infinity;
    for (let k = 0; k < columns; k += 1) {
      if (!visible(q, k)) continue;
      let product = 0;
      for (let c = 0; c < rank; c += 1) product += queries[q * rank + c] * keys[k * rank + c];
      const logit = (cap === null ? product : cap * Math.tanh(product / cap)) + (bias ? bias[k - q + rows - 1] : 0);
      const i = q * columns + k;
      seen.push(i); sum += product; top = Math.max(top, logit);
      energy[i] = product; probs[i] = logit;
    }
    let total = sink === null ? 0 : Math.exp(sink - top);
    for (const i of seen) { probs[i] = Math.exp(probs[i] - top); total += probs[i]; }
    for (const i of seen) { probs[i] /= total; energy[i] -= sum / seen.length; }
  }
  return { probs, energy };
}

async function picturedFields(w, index) {
  const read = async (kind, value) => (w[kind] ? Float32Array.from(await grayPicture(w[kind].png[index]), (byte) => value(byte, w[kind].limit[index])) : null);
  const rooted = (byte, limit) => (byte / 255) ** 2 * limit;
  const signed = (byte, limit) => (byte === 0 ? NaN : ((byte - 128) / 126) * limit);
  const [probs, energy, organized] = await Promise.all([read("attention", rooted), read("energy", signed), read("organized", rooted)]);
  return { probs, energy, organized };
}

// The last few heads stay: going back and forth computes nothing.
const lately = new Map();
async function fieldsOf(number, index) {
  const key = `${number}:${index}`, w = data.window.windows[number];
  if (!lately.has(key)) {
    lately.set(key, (w.queries ? computedFields : picturedFields)(w, index));
    if (lately.size > 6) lately.delete(lately.keys().next().value);
  }
  return lately.get(key);
}

const cellsOf = (w) => w.cells || [w.rows, w.columns];
const isCoarse = (w) => cellsOf(w)[0] < w.rows || cellsOf(w)[1] < w.columns;
const hasOrder = (w) => (isCoarse(w) ? Boolean(w.organized) : Boolean(w.order.query && w.order.key));

// The values of a picture as it is shown: null where there is none.
function arranged(w, fields, kind, organized) {
  if (!organized) return fields[kind];
  if (isCoarse(w)) return kind === "probs" ? fields.organized : null;
  const from = fields[kind], [rows, columns] = cellsOf(w);
  if (!from) return null;
  const out = new Float32Array(from.length);
  for (let y = 0; y < rows; y += 1) for (let x = 0; x < columns; x += 1) out[y * columns + x] = from[w.order.query[y] * columns + w.order.key[x]];
  return out;
}

// The tokens of a row or a column, as positions in the window.
function tokensOfCell(w, axis, cell, organized) {
  const cells = cellsOf(w)[axis === "query" ? 0 : 1], n = axis === "query" ? w.rows : w.columns;
  const found = [];
  for (let i = Math.floor((cell * n) / cells); i < Math.floor(((cell + 1) * n) / cells); i += 1) found.push(organized && w.order[axis] ? w.order[axis][i] : i);
  return found;
}
const shownToken = (token) => (token.trim() === "" ? token.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥") || "∅" : token.replace(/\n/g, "⏎"));
const tokenAt = (w, axis, i) => { const list = axis === "key" && w.tokens.key.length ? w.tokens.key : w.tokens.query; return list.length > i ? shownToken(list[i]) : ""; };
function cellName(w, axis, cell, organized) {
  const positions = tokensOfCell(w, axis, cell, organized), token = tokenAt(w, axis, positions[0]);
  if (positions.length === 1) return token ? `${positions[0]} “${token}”` : String(positions[0]);
  return organized ? `${positions.length} tokens like ${positions[0]} “${token}”` : `${positions[0]}–${positions.at(-1)}`;
}

const table = (ramp_) => Array.from({ length: 256 }, (_, i) => ramp_(i / 255));
const COLORS = { probs: table(viridis), energy: table(diverging) };
// How far a value is up the colors: a cube root keeps weak attention visible beside a sink.
function shares(kind, values, limit) {
  if (kind === "energy") return (v) => (v / (limit || 1) + 1) / 2;
  let high = 0;
  for (const v of values) if (v > high) high = v;
  return (v) => Math.cbrt(v / (high || 1));
}
function paintCells(canvas, kind, values, rows, columns, limit) {
  canvas.width = columns; canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows), share = shares(kind, values, limit);
  values.forEach((value, i) => {
    const hidden = Number.isNaN(value), rgb = hidden ? [128, 128, 128] : COLORS[kind][Math.round(255 * Math.min(Math.max(share(value), 0), 1))];
    image.data.set(rgb, 4 * i); image.data[4 * i + 3] = hidden ? 40 : 255;
  });
  context.putImageData(image, 0, 0);
}
const energyLimit = (w, index) => (w.energy_limit ? w.energy_limit[index] : w.energy.limit[index]);
