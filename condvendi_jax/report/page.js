"use strict";
(() => {
  const $ = (selector, of = document) => of.querySelector(selector);
  const all = (selector, of = document) => [...of.querySelectorAll(selector)];
  const heat = $(".heat"), body = $("tbody", heat);
  document.documentElement.classList.add("ready");

  // Sorting: the value of a cell, or its place in the first order; empty cells stay last.
  all("thead th", heat).forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const up = heading.ariaSort !== "ascending";
      all("[aria-sort]", heat).forEach(other => other.removeAttribute("aria-sort"));
      heading.ariaSort = up ? "ascending" : "descending";
      const value = row => row.cells[column].dataset.v;
      body.append(...[...body.rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        return (x === "") - (y === "") || (up ? x - y : y - x);
      }));
    });
  });

  // The outputs of one prompt, below the table.
  const rowOf = panel => panel && $(`a[href="#${$("div[id]", panel).id}"]`, body).closest("tr");
  const current = () => $(".prompt.current");
  function show(id) {
    const target = document.getElementById(id), panel = target && target.closest(".prompt");
    if (!panel) return;
    all(".current", $("#prompts")).forEach(old => old.classList.remove("current"));
    all(".found").forEach(old => old.classList.remove("found"));
    panel.classList.add("current");
    rowOf(panel).classList.add("current");
    for (let box = target; (box = box.parentElement.closest("details"));) box.open = true;
    $("#viewer").hidden = false;
    if (target.matches("li")) target.classList.add("found");
    (target.matches("li") ? target : $("#viewer")).scrollIntoView({ block: target.matches("li") ? "center" : "start" });
    $("div[id]", panel).focus({ preventScroll: true });
  }
  const go = id => { history.replaceState(null, "", `#${id}`); show(id); };
  document.addEventListener("click", event => {
    const link = event.target.closest('a[href^="#p"]');
    const row = event.target.closest(".heat tbody tr");
    const id = (link || (row && $("a", row)))?.hash.slice(1);
    if (id && document.getElementById(id)?.closest(".prompt")) { event.preventDefault(); go(id); }
  });
  const step = by => {
    const row = rowOf(current()), next = row && (by > 0 ? row.nextElementSibling : row.previousElementSibling);
    if (next) go($("a", next).hash.slice(1));
  };
  const back = () => { if (current()) $("a", rowOf(current())).focus(); };
  $("#next").addEventListener("click", () => step(1));
  $("#previous").addEventListener("click", () => step(-1));
  $("#back").addEventListener("click", back);
  document.addEventListener("keydown", event => { if (event.key === "Escape") back(); });
  window.addEventListener("hashchange", () => show(location.hash.slice(1)));
  show(location.hash.slice(1));
})();
