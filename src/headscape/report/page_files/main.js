// Puts the page together: sections that have data, theme, first choice, charts when they are wanted.
function setUpSections() {
  const has = (name) => (Array.isArray(data[name]) ? data[name].length > 0 : Boolean(data[name]));
  for (const section of document.querySelectorAll("[data-needs]")) section.hidden = !has(section.dataset.needs);
  const titles = { findings: "Findings", map: "Map", tree: "Tree", affinity: "Affinity", entropy: "Entropy", energy: "Energy", ablation: "Ablation", heads: "Heads", about: "About" };
  for (const [id, title] of Object.entries(titles)) {
    if (!byId(id).hidden) byId("nav").append(element("a", title, { href: `#${id}` }));
  }
  const set = (name, ...parts) => { if (has(name)) for (const part of parts) part(); };
  set("geometry", setUpMap); set("measures", setUpMeasures); set("geometry", setUpTree, setUpAffinity);
  set("entropy", setUpEntropy); set("energy", setUpEnergy, setUpInvariants, setUpSpread); set("ablation", setUpAblation);
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

// The chart library lies in the page as text. To compile it takes longer than everything else together.
function loadPlotly() {
  if (typeof Plotly !== "undefined") return;
  const script = element("script");
  script.text = byId("plotly").textContent;
  document.head.append(script);
}

const pause = () => new Promise((next) => setTimeout(next));
const painted = () => new Promise((next) => requestAnimationFrame(() => setTimeout(next)));

// Draws charts that come near the screen, one per task; resolves when those on the screen can be seen.
function watchCharts() {
  const waiting = new Map(views.filter((view) => !view.drawn).map((view) => [byId(view.id), view]));
  const onScreen = ({ boundingClientRect: box }) => box.top < innerHeight && box.bottom > 0;
  return new Promise((seen) => {
    const near = new IntersectionObserver(async (entries) => {
      const draw = async (wanted) => {
        for (const { target } of wanted) { near.unobserve(target); await drawChart(waiting.get(target)); await pause(); }
      };
      const wanted = entries.filter((entry) => entry.isIntersecting);
      await draw(wanted.filter(onScreen));
      await painted(); seen(); await pause();
      await draw(wanted.filter((entry) => !onScreen(entry)));
    }, { rootMargin: "300px 0px" });
    for (const box of waiting.keys()) near.observe(box);
  });
}

function setUpPrinting() {
  addEventListener("beforeprint", () => { loadPlotly(); for (const view of views) drawChart(view); });
}

async function start() {
  chosen = firstChoice();
  setUpTheme(); setUpPrinting(); setUpSections();
  for (const view of views) if (view.drawn) markView(view, "start");
  // Words, table and panel are on the screen and answer before the charts begin.
  await painted();
  loadPlotly();
  await watchCharts();
  document.documentElement.dataset.ready = "yes";
}
start();
