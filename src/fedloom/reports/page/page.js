"use strict";
// Sorting: a click on a column sorts by it, a second click the other way round.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const units = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
      const value = (row) => {
        const text = row.cells[column].textContent.trim();
        const found = /^([+-]?[\d.]+(?:e[+-]?\d+)?)(?: ([kMGTP])B?$)?/.exec(text.replace(/,/g, "").replace("\u2212", "-"));
        return { text, number: found ? found[1] * (units[found[2]] || 1) : NaN };
      };
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (Number.isNaN(x.number) !== Number.isNaN(y.number)) return Number.isNaN(x.number) ? 1 : -1;
        const order = Number.isNaN(x.number) ? y.text.localeCompare(x.text) : y.number - x.number;
        return down ? order : -order;
      };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
    });
  });
}
// Values under the pointer, or under a finger.
const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);
document.addEventListener("pointermove", (event) => {
  const text = event.target.closest?.("[data-tip]")?.dataset.tip;
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4);
  const top = event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 8 : event.clientY + 18;
  tip.style.left = `${Math.max(left, 4)}px`;
  tip.style.top = `${Math.max(top, 4)}px`;
});
// Folded parts are printed, too.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
// While runs go on, the live page asks what has changed.
const live = document.body.dataset.state;
if (live) {
  setInterval(async () => {
    try {
      const answer = await fetch("state", { cache: "no-store" });
      if (answer.ok && (await answer.text()) !== live) location.reload();
    } catch { /* the server has ended; the page stays as it is */ }
  }, 2000);
}
