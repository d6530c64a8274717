(function () {
  "use strict";
  const all = (selector, root) => Array.from((root || document).querySelectorAll(selector));

  // A click in the legend shows or hides a line in all charts.
  for (const button of all("button[data-series]")) {
    button.addEventListener("click", () => {
      const show = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(show));
      for (const g of all("g.series")) {
        if (g.dataset.series === button.dataset.series) g.toggleAttribute("hidden", !show);
      }
    });
  }

  // Show the title of a mark beside it. Without this script the browser shows its own tooltip.
  const tip = document.getElementById("tip");
  for (const mark of all("g.series .mark")) {
    const title = mark.querySelector("title");
    const text = title.textContent;
    title.remove();
    mark.setAttribute("aria-label", text);
    const show = () => {
      tip.textContent = text;
      tip.hidden = false;
      const at = mark.getBoundingClientRect(), room = tip.getBoundingClientRect();
      tip.style.left = Math.max(8, Math.min(at.right + 10, innerWidth - room.width - 8)) + "px";
      tip.style.top = Math.max(8, at.top - room.height - 6) + "px";
    };
    const hide = () => { tip.hidden = true; };
    mark.addEventListener("pointerenter", show);
    mark.addEventListener("pointerleave", hide);
    mark.addEventListener("focus", show);
    mark.addEventListener("blur", hide);
  }

  // A click on a heading sorts the table by its column, a second click in reverse order.
  const body = document.querySelector("tbody");
  const value = (row, i) => row.cells[i].dataset.key || row.cells[i].textContent;
  all("th").forEach((th, i) => th.addEventListener("click", () => {
    const up = th.getAttribute("aria-sort") !== "ascending";
    all("th").forEach((other) => other.removeAttribute("aria-sort"));
    th.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = Array.from(body.rows);
    const numbers = th.classList.contains("n");
    const compare = (a, b) => numbers ? Number(a) - Number(b) : a.localeCompare(b);
    rows.sort((a, b) => (up ? 1 : -1) * compare(value(a, i), value(b, i)));
    body.append(...rows);
  }));

  document.documentElement.dataset.ready = "true";
})();
