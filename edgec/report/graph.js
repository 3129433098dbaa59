// Looking around in a graph (graph_svg.py): drag, zoom, search, choose an operation and read about it.
// texts: by operation, what the search looks in. describe: of an operation's number, the elements that tell about it.
const row = (list, name, text) => {
  if (text === "" || text === null || text === undefined) return;
  const dt = document.createElement("dt"), dd = document.createElement("dd");
  dt.textContent = name; dd.textContent = text; list.append(dt, dd);
};
const badge = (place, text) => {
  const b = document.createElement("span");
  b.className = "badge " + place; b.textContent = text; return b;
};
const lookAround = (texts, describe) => {
  const svg = document.getElementById("graph"), view = document.getElementById("view");
  const about = document.getElementById("about"), search = document.getElementById("search");
  if (!svg) return;
  const nodes = new Map([...svg.querySelectorAll("[data-op]")].map(g => [Number(g.dataset.op), g]));
  const full = { w: Number(svg.dataset.width), h: Number(svg.dataset.height) };
  let box = { x: 0, y: 0, w: full.w, h: full.h }, chosen = null;

  const show = () => svg.setAttribute("viewBox", [box.x, box.y, box.w, box.h].join(" "));
  const ratio = () => view.clientHeight / Math.max(1, view.clientWidth);
  const start = () => {            // readable at first: as wide as the view allows, from the top
    box.w = Math.min(Math.max(full.w, 400), view.clientWidth * 1.15);
    box.h = box.w * ratio();
    box.x = (full.w - box.w) / 2;
    box.y = 0;
    show();
  };
  const fit = () => { box = { x: 0, y: 0, w: full.w, h: full.h }; show(); };
  const zoom = (factor, px = .5, py = .5) => {
    box.x += box.w * px * (1 - factor); box.y += box.h * py * (1 - factor);
    box.w *= factor; box.h *= factor; show();
  };
  const centre = g => {
    const m = g.transform.baseVal.consolidate().matrix;
    box.x = m.e - box.w / 2; box.y = m.f - box.h / 2; show();
  };
  const choose = (i, move) => {
    const g = nodes.get(i);
    if (!g) return;
    if (chosen !== null) nodes.get(chosen).classList.remove("chosen");
    chosen = i; g.classList.add("chosen");
    if (move) centre(g);
    about.replaceChildren(...describe(i));
  };

  const words = texts.map(text => text.toLowerCase());
  search.addEventListener("input", () => {
    const word = search.value.trim().toLowerCase();
    let hits = 0;
    svg.classList.toggle("search", word !== "");
    nodes.forEach((g, i) => { const hit = word !== "" && words[i].includes(word); g.classList.toggle("hit", hit); hits += hit; });
    document.getElementById("found").textContent = word ? `${hits} found` : "";
  });
  search.addEventListener("keydown", e => {
    if (e.key !== "Enter") return;
    const hits = [...nodes.keys()].filter(i => nodes.get(i).classList.contains("hit"));
    const next = hits.find(i => chosen !== null && i > chosen) ?? hits[0];
    if (next !== undefined) choose(next, true);
  });

  let drag = null;
  view.addEventListener("pointerdown", e => { drag = { x: e.clientX, y: e.clientY, far: false }; });
  window.addEventListener("pointermove", e => {
    if (!drag) return;
    const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
    if (!drag.far && Math.abs(dx) + Math.abs(dy) < 5) return;
    const scale = 1 / svg.getScreenCTM().a;
    box.x -= dx * scale; box.y -= dy * scale;
    drag = { x: e.clientX, y: e.clientY, far: true };
    view.classList.add("drag"); show();
  });
  window.addEventListener("pointerup", e => {
    const moved = drag && drag.far;
    drag = null; view.classList.remove("drag");
    const g = e.target.closest ? e.target.closest("[data-op]") : null;
    if (!moved && g && svg.contains(g)) choose(Number(g.dataset.op), false);
  });
  view.addEventListener("wheel", e => {
    e.preventDefault();
    const r = view.getBoundingClientRect();
    zoom(e.deltaY > 0 ? 1.12 : 1 / 1.12, (e.clientX - r.left) / r.width, (e.clientY - r.top) / r.height);
  }, { passive: false });
  document.addEventListener("click", e => {
    const a = e.target.closest("a[data-op]");
    if (!a) return;
    e.preventDefault(); choose(Number(a.dataset.op), true);
    document.getElementById("picture").scrollIntoView();
  });
  document.addEventListener("keydown", e => {
    if (e.target === search || e.ctrlKey || e.metaKey || e.altKey) return;
    const g = e.target.closest ? e.target.closest("[data-op]") : null;
    if ((e.key === "Enter" || e.key === " ") && g) { e.preventDefault(); choose(Number(g.dataset.op), false); }
    else if (e.key === "/") { e.preventDefault(); search.focus(); }
    else if (e.key === "+") zoom(1 / 1.25);
    else if (e.key === "-") zoom(1.25);
    else if (e.key === "0") fit();
    else if (chosen !== null && e.key === "ArrowDown") { e.preventDefault(); choose(chosen + 1, true); }
    else if (chosen !== null && e.key === "ArrowUp") { e.preventDefault(); choose(chosen - 1, true); }
  });
  document.getElementById("in").addEventListener("click", () => zoom(1 / 1.25));
  document.getElementById("out").addEventListener("click", () => zoom(1.25));
  document.getElementById("fit").addEventListener("click", fit);
  window.addEventListener("beforeprint", fit);
  start();
};
