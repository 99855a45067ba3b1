// A "?" beside every term of ours: by mouse, touch and keyboard.
const DOCS = { patterns: "docs/guides/analyze.md", sinks: "docs/guides/analyze.md", geometry: "docs/theory/trees.md", folders: "docs/theory/trees.md", entropy: "docs/theory/haar.md", energy: "docs/theory/energy.md", regularity: "docs/theory/haar.md", softmax: "docs/theory/softmax.md", ablation: "docs/guides/ablate.md" };
const docsOf = (stage) => DOCS[stage] || "docs/glossary.md";
let helped = null;

function closeHelp() {
  byId("help").hidden = true;
  if (helped) { helped.setAttribute("aria-expanded", "false"); helped.removeAttribute("aria-describedby"); }
  helped = null;
}

function openHelp(button, title, text, docs) {
  closeHelp();
  helped = button;
  button.setAttribute("aria-expanded", "true"); button.setAttribute("aria-describedby", "help");
  const box = byId("help");
  const more = element("p", "More in the documentation: ", { class: "quiet small" });
  more.append(element("code", docs));
  box.replaceChildren(element("b", title), element("p", text), more);
  box.hidden = false;
  const at = button.getBoundingClientRect();
  box.style.left = `${scrollX + Math.max(8, Math.min(at.left - 20, innerWidth - box.offsetWidth - 8))}px`;
  const below = at.bottom + box.offsetHeight + 12 < innerHeight;
  box.style.top = `${scrollY + (below ? at.bottom + 6 : Math.max(8, at.top - box.offsetHeight - 6))}px`;
}

function helpButton(title, text, docs) {
  const button = element("button", "?", { type: "button", class: "help", "aria-label": `What is ${title}?`, "aria-expanded": "false" });
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    if (helped === button) closeHelp(); else openHelp(button, title, text, docs);
  });
  return button;
}

function setUpHelp() {
  for (const heading of document.querySelectorAll("[data-help]")) {
    heading.append(" ", helpButton(heading.textContent.trim(), heading.dataset.help, heading.dataset.docs || docsOf("")));
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && helped) { const back = helped; closeHelp(); back.focus(); } });
  document.addEventListener("click", (event) => { if (helped && !byId("help").contains(event.target)) closeHelp(); });
}
