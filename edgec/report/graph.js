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
// All nodes, small, with a frame around what is in view; the frame can be dragged. move: to a point of the graph.
const smallMap = (svg, full, seen, move) => {
  const map = document.getElementById("map"), name = svg.namespaceURI;
  map.setAttribute("viewBox", `0 0 ${full.w} ${full.h}`);
  for (const g of svg.querySelectorAll(".op, .io")) {
    const mark = document.createElementNS(name, "g");
    mark.setAttribute("class", g.getAttribute("class").replace(/\bop\b/, ""));
    mark.setAttribute("transform", g.getAttribute("transform"));
    mark.append(g.querySelector("rect").cloneNode());
    map.append(mark);
  }
  const frame = document.createElementNS(name, "rect");
  frame.setAttribute("class", "frame");
  map.append(frame);
  let held = false;
  const follow = e => {
    const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(map.getScreenCTM().inverse());
    move(p.x, p.y);
  };
  map.addEventListener("pointerdown", e => { held = true; e.preventDefault(); follow(e); });
  window.addEventListener("pointermove", e => { if (held) follow(e); });
  for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => { held = false; });
  return {
    show: () => {
      const b = seen(), x = Math.max(0, b.x), y = Math.max(0, b.y);
      const to = { x: Math.min(full.w, b.x + b.w), y: Math.min(full.h, b.y + b.h) };
      for (const [key, value] of Object.entries({ x, y, width: to.x - x, height: to.y - y }))
        frame.setAttribute(key, Math.max(0, value));
    },
  };
};
const lookAround = (texts, describe) => {
  const svg = document.getElementById("graph"), view = document.getElementById("view");
  const about = document.getElementById("about"), search = document.getElementById("search");
  if (!svg) return;
  const nodes = new Map([...svg.querySelectorAll("[data-op]")].map(g => [Number(g.dataset.op), g]));
  const full = { w: Number(svg.dataset.width), h: Number(svg.dataset.height) };
  let box = { x: 0, y: 0, w: full.w, h: full.h }, chosen = null;   // what is in view

  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const ratio = () => view.clientHeight / Math.max(1, view.clientWidth);
  // As wide as the whole graph needs, a small one no larger than it is drawn.
  const whole = () => Math.max(full.w, full.h / ratio(), view.clientWidth / 1.2);
  const show = () => {
    const w = clamp(box.w, view.clientWidth / 4, whole()), h = w * ratio();
    const x = clamp(box.x + box.w / 2, 0, full.w) - w / 2, y = clamp(box.y + box.h / 2, 0, full.h) - h / 2;
    box = { x, y, w, h };
    svg.setAttribute("viewBox", [x, y, w, h].join(" "));
    view.classList.toggle("near", w < 0.99 * whole());
    small.show();
  };
  const fit = () => {
    const w = whole();
    box = { x: (full.w - w) / 2, y: (full.h - w * ratio()) / 2, w, h: w * ratio() };
    show();
  };
  const zoom = (factor, px = .5, py = .5) => {
    factor = clamp(box.w * factor, view.clientWidth / 4, whole()) / box.w;
    box.x += box.w * px * (1 - factor); box.y += box.h * py * (1 - factor);
    box.w *= factor; box.h *= factor; show();
  };
  const small = smallMap(svg, full, () => box, (x, y) => { box.x = x - box.w / 2; box.y = y - box.h / 2; show(); });
  const centre = g => {
    const m = g.transform.baseVal.consolidate().matrix;
    const w = Math.min(box.w, view.clientWidth);   // near enough to be read
    box = { x: m.e - w / 2, y: m.f - w * ratio() / 2, w, h: w * ratio() }; show();
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

  let drag = null, pinch = 0;
  const fingers = new Map();
  const apart = () => { const [a, b] = [...fingers.values()]; return Math.hypot(a.x - b.x, a.y - b.y); };
  view.addEventListener("pointerdown", e => {
    fingers.set(e.pointerId, { x: e.clientX, y: e.clientY });
    drag = { x: e.clientX, y: e.clientY, far: fingers.size > 1 };
    pinch = fingers.size === 2 ? apart() : 0;
  });
  window.addEventListener("pointermove", e => {
    if (!drag || !fingers.has(e.pointerId)) return;
    fingers.set(e.pointerId, { x: e.clientX, y: e.clientY });
    if (pinch && fingers.size === 2) {
      const r = view.getBoundingClientRect(), [a, b] = [...fingers.values()], now = Math.max(1, apart());
      zoom(pinch / now, ((a.x + b.x) / 2 - r.left) / r.width, ((a.y + b.y) / 2 - r.top) / r.height);
      pinch = now;
      return;
    }
    const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
    if (!drag.far && Math.abs(dx) + Math.abs(dy) < 5) return;
    const scale = box.w / Math.max(1, view.clientWidth);
    box.x -= dx * scale; box.y -= dy * scale;
    drag = { x: e.clientX, y: e.clientY, far: true };
    view.classList.add("drag"); show();
  });
  window.addEventListener("pointerup", e => {
    const moved = !drag || drag.far;
    fingers.delete(e.pointerId); drag = null; pinch = 0; view.classList.remove("drag");
    const g = e.target.closest ? e.target.closest("[data-op]") : null;
    if (!moved && g && svg.contains(g)) choose(Number(g.dataset.op), false);
  });
  window.addEventListener("pointercancel", e => { fingers.delete(e.pointerId); drag = null; pinch = 0; });
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
  window.addEventListener("resize", () => view.classList.contains("near") ? show() : fit());
  fit();
};
