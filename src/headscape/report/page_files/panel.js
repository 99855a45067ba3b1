// The panel of the chosen head: what it is called, its numbers, pinned heads; on narrow screens it is a sheet.
let other = -1; // the head it is compared with
const pins = new Map(); // index of a head -> note

// All that the link keeps: #head=16.0&with=11.1&pins=11.1:note,3.4: with every note escaped.
function fragment() {
  const kept = [...pins].map(([index, note]) => `${names[index]}:${encodeURIComponent(note)}`);
  return `#head=${names[chosen]}${other >= 0 ? `&with=${names[other]}` : ""}${kept.length ? `&pins=${kept.join(",")}` : ""}`;
}
const keepInLink = () => history.replaceState(null, "", fragment());

function readLink() {
  const value = (name) => location.hash.slice(1).split("&").find((part) => part.startsWith(`${name}=`))?.slice(name.length + 1) || "";
  const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
  other = names.indexOf(value("with"));
  pins.clear();
  for (const pin of value("pins").split(",")) {
    const [name, ...note] = pin.split(":");
    if (names.includes(name)) pins.set(names.indexOf(name), decoded(note.join(":")).slice(0, 200));
  }
  return names.indexOf(value("head"));
}

function compareWith(index) {
  other = index;
  keepInLink();
  for (const view of views) if (view.id === "pictures") markView(view, "panel");
}

// The smallest folder with a name that says something.
function folderWords(index) {
  const { folder_names: called, folders, order } = data.geometry || {};
  if (!called || !order) return "";
  const place = order.indexOf(index), says = (i) => called[i] && called[i] !== "mixed" && folders.stop[i] - folders.start[i] > 1;
  const inside = called.map((_, i) => i).filter((i) => says(i) && folders.start[i] <= place && place < folders.stop[i]);
  inside.sort((a, b) => folders.stop[a] - folders.start[a] - (folders.stop[b] - folders.start[b]));
  if (!inside.length) return "";
  const size = `${folders.stop[inside[0]] - folders.start[inside[0]]} heads`, [where, ...shared] = called[inside[0]].split(": ");
  if (!where.startsWith(size)) return `${called[inside[0]]} (${size})`;
  return `In a group of ${where}${shared.length ? `; as a group they ${shared.join(": ")}` : ""}`;
}

// What the best ranking says: when the head goes, and what it costs to switch it off with all that go before it.
function verdictWords(index) {
  const { curves = [], counts = [], heads, intact } = data.ablation || {};
  const judged = curves.filter((curve) => !curve.random && !curve.repaired && curve.order.includes(names[index]));
  const better = (curve) => Number(curve.verdict.startsWith("better")), cost = (curve) => curve.increase.reduce((a, b) => a + b, 0);
  const [curve] = judged.sort((a, b) => better(b) - better(a) || cost(a) - cost(b));
  if (!curve) return "";
  const place = curve.order.indexOf(names[index]) + 1, at = counts.findIndex((count) => count >= place);
  const loss = at < 0 ? "" : `; with the first ${counts[at]} off, the loss is ${show((100 * curve.increase[at]) / intact, 2)} % higher`;
  return `number ${place} of ${heads} to go by ${curve.method}${curve.verdict ? ` (${curve.verdict})` : ""}${loss}`;
}

function setUpPanelWords() {
  const words = element("dl", undefined, { id: "panel-words", class: "words" });
  byId("panel-measures").before(words);
  return (index) => {
    const named = measureOf("name");
    const said = data.patterns?.words[index], layer = `Layer ${data.heads.layer[index]}, head ${data.heads.head[index]} (counted from 0)`;
    const rows = [["Where", layer], ["What it does", named ? `${named.values[index]}${said ? `: ${said}` : ""}` : ""], ["Group", folderWords(index)], ["Ablation", verdictWords(index)]].filter(([, text]) => text);
    words.replaceChildren(...rows.flatMap(([title, text]) => [element("dt", title), element("dd", text)]));
    words.hidden = !rows.length;
  };
}

function setUpPins() {
  const button = element("button", "Pin", { type: "button", id: "pin", "aria-pressed": "false" });
  byId("previous").before(button);
  const list = element("ul", undefined, { id: "pins", "aria-label": "Pinned heads" });
  byId("panel-measures").after(list);
  function draw() {
    list.hidden = !pins.size;
    list.replaceChildren(...[...pins].map(([index, note]) => {
      const row = element("li", undefined, { "data-head": names[index] });
      const field = element("input", undefined, { type: "text", placeholder: "note", maxlength: "200", "aria-label": `Note on head ${names[index]}` });
      field.value = note;
      field.addEventListener("input", () => { pins.set(index, field.value); keepInLink(); });
      const compare = element("button", "compare", { type: "button", "aria-label": `Compare with head ${names[index]}` });
      compare.addEventListener("click", () => compareWith(index));
      const remove = element("button", "×", { type: "button", "aria-label": `Remove the pin of head ${names[index]}` });
      remove.addEventListener("click", () => { pins.delete(index); keepInLink(); draw(); button.focus(); });
      row.append(headButton(index), field, compare, remove);
      return row;
    }));
    mark();
  }
  const mark = () => {
    button.setAttribute("aria-pressed", String(pins.has(chosen)));
    for (const row of list.children) row.firstChild.classList.toggle("chosen", row.dataset.head === names[chosen]);
  };
  button.addEventListener("click", () => { if (!pins.delete(chosen)) pins.set(chosen, ""); keepInLink(); draw(); });
  addEventListener("hashchange", () => {
    if (!location.hash.startsWith("#head=")) return; // a link inside the page
    const index = readLink();
    draw();
    choose(index >= 0 ? index : chosen, "link");
  });
  readLink();
  draw();
  return mark;
}

function setUpPanelNumbers() {
  const box = byId("panel-measures");
  const also = [setUpPanelWords(), setUpPins()], raise = setUpSheet();
  addView("panel", (index, from) => {
    byId("panel-title").textContent = `Head ${names[index]}`;
    for (const mark of also) mark(index);
    raise(`Head ${names[index]}`, from);
    box.replaceChildren();
    for (const measure of data.measures.filter((m) => m.panel && m.key !== "name")) {
      const item = element("div");
      const title = element("dt", measure.title);
      const value = element("dd", show(measure.values[index], 3), { "data-measure": measure.key, "data-value": JSON.stringify(measure.values[index]) });
      if (measure.numeric && !measure.key.endsWith("_count") && typeof measure.values[index] === "number") {
        const below = measure.values.filter((v) => v !== null && v < measure.values[index]).length;
        value.append(element("small", ` ${below + 1}/${names.length}`));
      }
      const ranked = value.querySelector("small") ? " The small number is the rank of the head among all, 1 for the lowest." : "";
      title.append(" ", helpButton(measure.title, measure.meaning + ranked, docsOf(measure.stage)));
      item.append(title, value);
      box.append(item);
    }
  });
  byId("previous").addEventListener("click", () => choose((chosen + names.length - 1) % names.length, "panel"));
  byId("next").addEventListener("click", () => choose((chosen + 1) % names.length, "panel"));
}
