// The panel of the chosen head: its numbers.
function setUpPanelNumbers() {
  const box = byId("panel-measures");
  addView("panel", (index) => {
    byId("panel-title").textContent = `Head ${names[index]}`;
    box.replaceChildren();
    for (const measure of data.measures.filter((m) => m.panel)) {
      const item = element("div");
      item.append(element("dt", measure.title, { title: measure.meaning }));
      const value = element("dd", show(measure.values[index], 3), { "data-measure": measure.key, "data-value": JSON.stringify(measure.values[index]) });
      if (measure.numeric && !measure.key.endsWith("_count") && typeof measure.values[index] === "number") {
        const below = measure.values.filter((v) => v !== null && v < measure.values[index]).length;
        value.append(element("small", ` ${below + 1}/${names.length}`, { title: "rank among all heads, 1 is the lowest" }));
      }
      item.append(value);
      box.append(item);
    }
  });
  byId("previous").addEventListener("click", () => choose((chosen + names.length - 1) % names.length, "panel"));
  byId("next").addEventListener("click", () => choose((chosen + 1) % names.length, "panel"));
}
