// Puts the page together: sections that have data, theme, first choice.
function setUpSections() {
  const has = (name) => (Array.isArray(data[name]) ? data[name].length > 0 : Boolean(data[name]));
  for (const section of document.querySelectorAll("[data-needs]")) section.hidden = !has(section.dataset.needs);
  const titles = { findings: "Findings", map: "Map", tree: "Tree", affinity: "Affinity", entropy: "Entropy", energy: "Energy", heads: "Heads", about: "About" };
  for (const [id, title] of Object.entries(titles)) {
    if (!byId(id).hidden) byId("nav").append(element("a", title, { href: `#${id}` }));
  }
  const set = (name, ...parts) => { if (has(name)) for (const part of parts) part(); };
  set("geometry", setUpMap); set("measures", setUpMeasures); set("geometry", setUpTree, setUpAffinity);
  set("entropy", setUpEntropy); set("energy", setUpEnergy, setUpInvariants, setUpSpread);
  setUpPanelNumbers(); set("window", setUpPictures); set("haar", setUpHaar); set("geometry", setUpNearest);
  setUpTable();
}

function setUpTheme() {
  const wish = matchMedia("(prefers-color-scheme: dark)");
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    byId("theme").textContent = theme === "dark" ? "☀" : "☾";
  };
  set(wish.matches ? "dark" : "light");
  const redraw = () => { for (const view of views) if (view.draw) view.draw(); };
  byId("theme").addEventListener("click", () => { set(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); redraw(); });
  wish.addEventListener("change", () => { set(wish.matches ? "dark" : "light"); redraw(); });
  // Paper is white whatever the screen is.
  let before = null;
  addEventListener("beforeprint", () => { before = document.documentElement.dataset.theme; if (before === "dark") { set("light"); redraw(); } });
  addEventListener("afterprint", () => { if (before === "dark") { set("dark"); redraw(); } });
}

function firstChoice() {
  const wanted = new URLSearchParams(location.hash.slice(1)).get("head");
  const index = names.indexOf(wanted);
  return index >= 0 ? index : data.first;
}

async function start() {
  chosen = firstChoice();
  setUpTheme(); setUpSections();
  // One chart per frame: the words can be read before the last chart is there.
  for (const view of views) {
    await view.first();
    byId(view.id).dataset.chosen = names[chosen];
    await new Promise((next) => setTimeout(next));
  }
  document.documentElement.dataset.ready = "yes";
}
start();
