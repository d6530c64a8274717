(function () {
  "use strict";
  const all = (selector, root) => Array.from((root || document).querySelectorAll(selector));
  const width = 1000000;

  // Show the title of a span beside it. Without this script the browser shows its own tooltip.
  const tip = document.getElementById("tip");
  for (const rect of all(".track rect")) {
    const title = rect.querySelector("title");
    const text = title.textContent;
    title.remove();
    rect.setAttribute("aria-label", text);
    rect.addEventListener("pointerenter", () => {
      tip.textContent = text;
      tip.hidden = false;
      const at = rect.getBoundingClientRect(), room = tip.getBoundingClientRect();
      const middle = (Math.max(at.left, 0) + Math.min(at.right, innerWidth)) / 2;
      tip.style.left = Math.max(8, Math.min(middle, innerWidth - room.width - 8)) + "px";
      tip.style.top = (at.top > room.height + 8 ? at.top - room.height - 6 : at.bottom + 6) + "px";
    });
    rect.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  const units = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]];
  // The time in a unit, with enough digits to tell apart times that differ by step.
  const format = (ns, step) => {
    const [unit, size] = units.filter(([, s]) => s <= Math.max(ns, step)).pop() || units[0];
    const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / size)) + 1));
    return Number((ns / size).toFixed(digits)).toLocaleString("en") + " " + unit;
  };

  for (const timeline of all(".timeline")) {
    const total = Number(timeline.dataset.total), tracks = all(".track", timeline), labels = all(".ticks span", timeline);
    let from = 0, length = width;
    const show = (start, size) => {
      length = Math.max(width * 20 / total, Math.min(width, size));
      from = Math.max(0, Math.min(width - length, start));
      for (const t of tracks) t.setAttribute("viewBox", from + " 0 " + length + " " + t.getAttribute("height"));
      labels.forEach((label, i) => {
        const part = i / (labels.length - 1);
        label.textContent = format((from + part * length) / width * total, length / width * total / (labels.length - 1));
      });
      timeline.dataset.view = Math.round(from) + " " + Math.round(length);
    };
    const zoom = timeline.querySelector(".zoom");
    zoom.hidden = false;
    const actions = {
      in: () => show(from + length / 4, length / 2), out: () => show(from - length / 2, length * 2),
      left: () => show(from - length / 2, length), right: () => show(from + length / 2, length), all: () => show(0, width),
    };
    for (const button of all("button", zoom)) button.addEventListener("click", actions[button.dataset.do]);

    for (const track of tracks) {
      let begin = null, mark = null;
      const at = (e) => {
        const box = track.getBoundingClientRect();
        return from + Math.max(0, Math.min(1, (e.clientX - box.left) / box.width)) * length;
      };
      track.addEventListener("pointerdown", (e) => {
        begin = at(e);
        mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        mark.setAttribute("class", "selection");
        mark.setAttribute("height", track.getAttribute("height"));
        track.append(mark);
        track.setPointerCapture(e.pointerId);
      });
      track.addEventListener("pointermove", (e) => {
        if (begin === null) return;
        const end = at(e);
        mark.setAttribute("x", Math.min(begin, end));
        mark.setAttribute("width", Math.abs(end - begin));
      });
      const done = (e) => {
        if (begin === null) return;
        const start = Math.min(begin, at(e)), size = Math.abs(at(e) - begin);
        mark.remove();
        begin = null;
        if (size > length / 100) show(start, size);
      };
      track.addEventListener("pointerup", done);
      track.addEventListener("pointercancel", () => { if (mark) mark.remove(); begin = null; });
    }
  }

  // A click on a heading sorts its table by the column, a second click in reverse order.
  for (const table of all("table")) {
    const body = table.tBodies[0], headings = all("th", table);
    const value = (row, i) => row.cells[i].dataset.key || row.cells[i].textContent;
    headings.forEach((th, i) => th.addEventListener("click", () => {
      const up = th.getAttribute("aria-sort") !== "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", up ? "ascending" : "descending");
      const numbers = th.classList.contains("n");
      const compare = (a, b) => numbers ? Number(a) - Number(b) : a.localeCompare(b);
      const rows = Array.from(body.rows);
      rows.sort((a, b) => (up ? 1 : -1) * compare(value(a, i), value(b, i)));
      body.append(...rows);
    }));
  }

  document.documentElement.dataset.ready = "true";
})();
