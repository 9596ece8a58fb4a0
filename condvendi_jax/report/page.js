"use strict";
(() => {
  const $ = (selector, of = document) => of.querySelector(selector);
  const all = (selector, of = document) => [...of.querySelectorAll(selector)];
  document.documentElement.classList.add("ready");

  // Copies: a link saves a file where the browser does not let a page write to the clipboard.
  all(".copy").forEach(link => link.addEventListener("click", async event => {
    const [type, content] = link.href.slice(5).split(";base64,");
    if (!navigator.clipboard || link.dataset.saved) return;
    event.preventDefault();
    const bytes = Uint8Array.from(atob(content), character => character.charCodeAt(0));
    try {
      if (type === "image/png") await navigator.clipboard.write([new ClipboardItem({ [type]: new Blob([bytes], { type }) })]);
      else await navigator.clipboard.writeText(new TextDecoder().decode(bytes));
      $("#copied").textContent = `${link.textContent} is copied.`;
    } catch {
      link.dataset.saved = "yes";
      link.click();
    }
  }));
  window.addEventListener("beforeprint", () => all("main > details").forEach(part => { part.open = true; }));
  if (!$(".heat")) return;

  const heat = $(".heat"), body = $("tbody", heat), SHOWN = Math.max(body.rows.length, 1);

  // All prompts by their numbers: the rows of the table, and the panels of outputs, which are text
  // until they are shown. The browser lays out the first rows alone: thousands would take seconds.
  const text = id => $(id)?.textContent ?? "";
  const more = document.createElement("tbody");
  more.innerHTML = text("#rows");
  const rows = [...body.rows, ...more.rows];
  const panels = [...all(".prompt"), ...text("#rest").split(/(?=<details class="prompt">)/).filter(Boolean)];
  let model = "", current = -1, ordered = [...rows], listed = ordered, start = 0;
  function draw() {
    body.replaceChildren(...listed.slice(start, start + SHOWN));
    const end = start + body.rows.length, number = n => n.toLocaleString("en");
    $("#before").disabled = start === 0;
    $("#after").disabled = end >= listed.length;
    $("#before").hidden = $("#after").hidden = rows.length <= SHOWN;
    $("#count").textContent = `${number(Math.min(start + 1, end))} to ${number(end)} of ${number(listed.length)} prompts`;
  }
  const turn = by => { start += by * SHOWN; draw(); $(".tall").scrollTop = 0; };
  $("#before").addEventListener("click", () => turn(-1));
  $("#after").addEventListener("click", () => turn(1));

  // Search: the texts of each prompt and its outputs, as far as they are shown.
  let texts;
  const decoded = document.createElement("textarea");
  function textsOf(html) {
    decoded.innerHTML = [...html.matchAll(/<span class="t"[^>]*>([^<]*)/g)].map(match => match[1]).join("\n");
    return decoded.value.toLowerCase();
  }
  function list() {
    const words = $("#search").value.trim().toLowerCase();
    texts ||= words && panels.map(panel => textsOf(panel.outerHTML ?? panel));
    listed = ordered.filter(row => !words || texts[row.cells[0].dataset.v].includes(words));
    start = 0;
    draw();
  }
  $("#search").addEventListener("input", list);

  // Sorting: the value of a cell, or its place in the first order; empty cells stay last.
  all("thead th", heat).forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    heading.ariaSort = "none";
    button.addEventListener("click", () => {
      const up = heading.ariaSort !== "ascending";
      all("[aria-sort]", heat).forEach(other => { other.ariaSort = "none"; });
      heading.ariaSort = up ? "ascending" : "descending";
      const values = new Map(rows.map(row => [row, row.cells[column].dataset.v]));
      ordered = ordered.toSorted((a, b) => {
        const [x, y] = [values.get(a), values.get(b)];
        return (x === "") - (y === "") || (up ? x - y : y - x);
      });
      list();
    });
  });

  // The outputs of one prompt, below the table.
  function panelOf(id) {
    const there = document.getElementById(id)?.closest(".prompt");
    const number = there ? panels.indexOf(there) : panels.findIndex(panel => panel.includes?.(`id="${id}"`));
    if (!there && number >= 0) {
      $("#panels").insertAdjacentHTML("beforeend", panels[number]);
      panels[number] = $("#panels").lastElementChild;
    }
    return number;
  }
  function show(id) {
    const number = panelOf(id);
    if (number < 0) return;
    const panel = panels[number], target = document.getElementById(id), place = listed.indexOf(rows[number]);
    if (current >= 0) for (const old of [panels[current], rows[current]]) old.classList.remove("current");
    all(".found").forEach(old => old.classList.remove("found"));
    current = number;
    panel.classList.add("current");
    rows[number].classList.add("current");
    if (place >= 0 && !rows[number].isConnected) { start = place - place % SHOWN; draw(); }
    for (let box = target; (box = box.parentElement.closest("details"));) box.open = true;
    $("#viewer").hidden = false;
    const one = target.matches("li, section");  // One output, or those of one model.
    if (one) target.classList.add("found");
    (target.matches("li") ? target : $("#viewer")).scrollIntoView({ block: target.matches("li") ? "center" : "start" });
    model = /^(m\d+)-/.exec(id)?.[1] ?? "";
    if (model) target.scrollIntoView();
    $("div[id]", panel).focus({ preventScroll: true });
  }
  const go = id => { history.replaceState(null, "", `#${id}`); show(id); };
  document.addEventListener("click", event => {
    const link = event.target.closest('a[href^="#p"], a[href^="#m"]');
    const row = event.target.closest(".heat tbody tr");
    const id = (link || (row && $("a", row)))?.hash.slice(1);
    if (id && panelOf(id) >= 0) { event.preventDefault(); go(id); }
  });
  const step = by => {
    const next = current >= 0 && listed[listed.indexOf(rows[current]) + by];
    if (!next) return;
    const id = $("a", next).hash.slice(1), same = `${model}-${id.slice(1)}`;
    go(model && panelOf(same) >= 0 ? same : id);
  };
  const back = () => { if (current >= 0) $("a", rows[current]).focus(); };
  $("#next").addEventListener("click", () => step(1));
  $("#previous").addEventListener("click", () => step(-1));
  $("#back").addEventListener("click", back);
  document.addEventListener("keydown", event => { if (event.key === "Escape") back(); });
  window.addEventListener("hashchange", () => show(location.hash.slice(1)));
  draw();
  show(location.hash.slice(1));
})();
