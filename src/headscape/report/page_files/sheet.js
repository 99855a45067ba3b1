// On narrow screens the panel comes up from below when a head is chosen, over everything else.
function setUpSheet() {
  const panel = byId("panel"), narrow = matchMedia("(max-width: 820px)");
  const behind = element("div", undefined, { id: "backdrop", hidden: "" });
  const grip = element("button", undefined, { type: "button", id: "sheet-close", "aria-label": "Close the panel" });
  const opener = element("button", "", { type: "button", id: "sheet-open", "aria-controls": "panel" });
  panel.prepend(grip);
  panel.after(behind, opener);
  const rest = () => [...document.body.children, ...panel.parentElement.children].filter((box) => box !== panel.parentElement && ![panel, behind, byId("help")].includes(box) && !["SCRIPT", "STYLE"].includes(box.tagName));
  let from = null;
  function set(open) {
    if (open === panel.classList.contains("open")) return;
    panel.classList.toggle("open", open);
    panel.style.transform = "";
    behind.hidden = !open;
    for (const box of rest()) box.inert = open;
    for (const [name, value] of [["role", "dialog"], ["aria-modal", "true"]]) if (open) panel.setAttribute(name, value); else panel.removeAttribute(name);
    if (open) { from = document.activeElement; grip.focus(); panel.scrollTop = 0; } else if (from?.isConnected) from.focus({ preventScroll: true });
  }
  const close = () => set(false);
  grip.addEventListener("click", close);
  behind.addEventListener("click", close);
  opener.addEventListener("click", () => set(true));
  panel.addEventListener("keydown", (event) => { if (event.key === "Escape" && !helped && !document.querySelector("dialog[open]")) close(); });
  narrow.addEventListener("change", close);
  let start = null;
  const drag = (event) => { if (start !== null) panel.style.transform = `translateY(${Math.max(0, event.clientY - start)}px)`; };
  grip.addEventListener("pointerdown", (event) => { start = event.clientY; grip.setPointerCapture(event.pointerId); });
  grip.addEventListener("pointermove", drag);
  for (const kind of ["pointerup", "pointercancel"]) {
    grip.addEventListener(kind, (event) => { if (start !== null && event.clientY - start > 70) close(); panel.style.transform = ""; start = null; });
  }
  return (title, source) => {
    opener.textContent = `${title} ▴`;
    if (narrow.matches && !["start", "panel", "link"].includes(source)) set(true);
  };
}
