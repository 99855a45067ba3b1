// The frame of every page: sections in the top bar, light and dark, paper, charts when they are wanted.
function setUpNavigation(titles) {
  const links = byId("nav"), menu = byId("menu");
  const open = (is) => { links.classList.toggle("open", is); menu.setAttribute("aria-expanded", String(is)); };
  menu.addEventListener("click", () => open(!links.classList.contains("open")));
  links.addEventListener("click", () => open(false));
  links.addEventListener("keydown", (event) => { if (event.key === "Escape") { open(false); menu.focus(); } });
  for (const [id, title] of titles) if (!byId(id).hidden) links.append(element("a", title, { href: `#${id}` }));
}

// What scrolls must be reached by the keyboard.
function setUpScrolling() {
  for (const box of document.querySelectorAll(".scroll:not([tabindex])")) {
    const heading = box.closest("section, aside").querySelector("h2");
    for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", heading.firstChild.textContent.trim()]]) box.setAttribute(name, value);
  }
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

// The chart library lies in the page as text. To compile it takes longer than everything else together.
async function loadPlotly() {
  if (typeof Plotly !== "undefined") return;
  const text = new TextDecoder().decode(await inflate(byId("plotly").textContent));
  if (typeof Plotly !== "undefined") return;
  const script = element("script");
  script.text = text;
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
    if (!waiting.size) seen();
    for (const box of waiting.keys()) near.observe(box);
  });
}

// Charts have the width of the screen: on paper each gets a width that fits, before the browser lays out the page.
function setUpPrinting() {
  const drawnCharts = () => views.map((view) => byId(view.id)).filter((box) => box.classList.contains("chart") && box.querySelector(".main-svg"));
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    if (typeof Plotly === "undefined") return; // printed before the page was ready
    for (const view of views) drawChart(view);
    for (const box of drawnCharts()) Plotly.relayout(box, { width: box.clientWidth, height: box.clientHeight });
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    for (const box of drawnCharts()) Plotly.relayout(box, { width: null, height: null, autosize: true });
  });
}

async function start(setUpPage) {
  setUpTheme(); setUpPrinting(); setUpPage(); setUpSaving(); setUpHelp(); setUpScrolling(); setUpMenus();
  markAll("start");
  // Words, table and panel are on the screen and answer before the charts begin.
  await painted();
  await loadPlotly();
  await watchCharts();
  document.documentElement.dataset.ready = "yes";
}
