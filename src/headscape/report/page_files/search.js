// Heads by number ("16.0", "16."), by words ("previous"), or by conditions ("layer >= 20, mu_K < 3").
function findAmong(text, labels, words, columns) {
  const wanted = text.trim().toLowerCase().replace(/^l(\d+)[ .]?h(\d+)$/, "$1.$2"); // L16H0 as others write it
  const all = labels.map((_, i) => i);
  if (!wanted) return { heads: all };
  if (/^\d+(\.\d*)?$/.test(wanted)) {
    const dotted = wanted.includes(".");
    const heads = all.filter((i) => (dotted ? labels[i].startsWith(wanted) : labels[i].split(".")[0] === wanted));
    return { heads: heads.sort((a, b) => (labels[b] === wanted) - (labels[a] === wanted)) };
  }
  if (/[<>=]|\bcontains\b/.test(wanted)) {
    const { tests, error } = parseFilter(text, columns);
    return error ? { heads: all, error } : { heads: all.filter((i) => tests.every((test) => test(i))) };
  }
  const parts = wanted.split(/[\s,]+/);
  return { heads: all.filter((i) => { const said = `${labels[i]} ${words(i)}`.toLowerCase(); return parts.every((part) => said.includes(part)); }) };
}

// The search in the top bar: one word, and the head is there. `more` adds an entry below those that were found.
function setUpSearch({ find, say, go, more = () => undefined }) {
  const box = byId("search"), list = byId("search-results");
  const close = () => { list.hidden = true; };
  const take = (head) => { box.value = go(head); close(); };
  function offer() {
    const { heads, error } = find(box.value);
    list.replaceChildren();
    list.hidden = !box.value.trim();
    for (const head of error ? [] : heads.slice(0, 8)) {
      const item = element("li"), button = element("button", say(head), { type: "button" });
      button.addEventListener("click", () => take(head));
      item.append(button); list.append(item);
    }
    const rest = error || !heads.length ? element("span", error || "No head found. Try 16.0 (layer.head) or a name such as induction.", { class: "quiet small" }) : more(heads, box.value.trim(), close);
    if (rest) { const item = element("li"); item.append(rest); list.append(item); }
    return error ? [] : heads;
  }
  box.addEventListener("input", offer);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "Enter" && box.value.trim()) { event.preventDefault(); const [head] = offer(); if (head !== undefined) take(head); }
  });
  box.parentElement.addEventListener("keydown", (event) => { if (event.key === "Escape") { close(); box.focus(); } });
  document.addEventListener("click", (event) => { if (!box.parentElement.contains(event.target)) close(); });
}
