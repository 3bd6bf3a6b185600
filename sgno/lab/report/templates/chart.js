/* Charts in SVG: lines with bands, points with labels, bars from parity. Texts are set as text, never as markup. */
"use strict";
const Chart = (() => {
const SVG = "http://www.w3.org/2000/svg";
const DASH = { solid: "", dot: "2 3", dash: "6 3", longdash: "9 3", dashdot: "6 3 2 3", longdashdot: "9 3 2 3" };
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const known = (v) => v !== null && v !== undefined && Number.isFinite(v);

function element(parent, tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}
function number(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e-3 && size < 1e5) return String(Number(x.toPrecision(3)));
  const [mantissa, power] = x.toExponential(2).split("e");
  return `${Number(mantissa)}e${Number(power)}`;
}
/* A decade as people write it. */
const UP = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const decade = (p) => (p >= -2 && p <= 3 ? String(Number((10 ** p).toPrecision(1))) : "10" + (p < 0 ? "⁻" : "") + [...String(Math.abs(p))].map((d) => UP[d]).join(""));

/* A scale from values to pixels, with its ticks. `log` keeps what is above zero. */
function scale(values, { log = false, range = null, zero = false, most = 7 }, from, to) {
  const good = values.filter((v) => known(v) && (!log || v > 0));
  let [low, high] = range ?? [Math.min(...good), Math.max(...good)];
  if (!good.length && !range) [low, high] = log ? [0.1, 1] : [0, 1];
  if (zero) low = Math.min(0, low);
  const f = log ? Math.log10 : (v) => v;
  let a = f(low), b = f(high);
  if (!range && log && b - a > 0.8) { a -= 0.04 * (b - a); b += 0.04 * (b - a); }
  if (b - a < 1e-9) { a -= 0.5; b += 0.5; }
  const place = (v) => from + ((f(v) - a) / (b - a)) * (to - from);
  const ticks = [];
  if (log && b - a >= 1) {
    const step = Math.max(1, Math.ceil((b - a) / most));
    for (let p = Math.ceil(a - 1e-9); p <= b + 1e-9; p++) if (p % step === 0) ticks.push([10 ** p, decade(p)]);
  } else {
    const [lo, hi] = log ? [10 ** a, 10 ** b] : [a, b];
    const raw = (hi - lo) / most, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + 1e-9 * step; i++) if (!log || i > 0) ticks.push([i * step, number(Number((i * step).toPrecision(12)))]);
  }
  return { place, ticks, inside: (v) => known(v) && (!log || v > 0) };
}

function frame(host, x, y, height, least = 0) {
  host.replaceChildren();
  const width = Math.max(260, least, host.clientWidth || 900);
  const box = { left: 62, right: width - 14, top: 12, bottom: height - 44 };
  const svg = element(host, "svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  svg.setAttribute("aria-label", `${y.title} against ${x.title ?? "category"}`);
  element(svg, "title", {}, `${y.title} against ${x.title ?? "category"}`);
  return { svg, width, height, box };
}
function axes({ svg, width, height, box }, x, y, sx, sy) {
  const soft = { fill: css("--soft"), "font-size": 12 };
  for (const [v, text] of sy.ticks) {
    const at = sy.place(v);
    if (at < box.top - 1 || at > box.bottom + 1) continue;
    element(svg, "line", { x1: box.left, x2: box.right, y1: at, y2: at, stroke: css("--rule") });
    element(svg, "text", { ...soft, x: box.left - 7, y: at + 4, "text-anchor": "end" }, text);
  }
  for (const [v, text] of sx?.ticks ?? []) {
    const at = sx.place(v);
    element(svg, "line", { x1: at, x2: at, y1: box.bottom, y2: box.bottom + 5, stroke: css("--faint") });
    element(svg, "text", { ...soft, x: Math.min(at, width - 12), y: box.bottom + 19, "text-anchor": "middle" }, text);
  }
  element(svg, "line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, stroke: css("--faint") });
  if (x.title) element(svg, "text", { ...soft, x: (box.left + box.right) / 2, y: height - 7, "text-anchor": "middle" }, x.title);
  element(svg, "text", { ...soft, transform: `translate(14 ${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.title);
}
function legend(host, entries, only = "") {
  const list = document.createElement("div");
  list.className = `key ${only}`;
  for (const { name, color, dash, bar } of entries) {
    const item = document.createElement("span"), mark = document.createElementNS(SVG, "svg");
    mark.setAttribute("width", 24); mark.setAttribute("height", 10); mark.setAttribute("aria-hidden", "true");
    if (bar) element(mark, "rect", { x: 6, y: 0, width: 12, height: 10, fill: color });
    else element(mark, "line", { x1: 0, x2: 24, y1: 5, y2: 5, stroke: color, "stroke-width": 3, "stroke-dasharray": DASH[dash] ?? "" });
    item.append(mark, document.createTextNode(name));
    list.append(item);
  }
  host.append(list);
}
/* What is under the pointer, in a box that stays inside the chart. */
function tips(host, svg, width, find) {
  const tip = document.createElement("div"), mark = element(svg, "circle", { r: 5, fill: "none", "stroke-width": 2, visibility: "hidden" });
  tip.className = "tip"; tip.hidden = true;
  host.append(tip);
  const hide = () => { tip.hidden = true; mark.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    const area = svg.getBoundingClientRect(), ratio = width / area.width;
    const found = find((event.clientX - area.left) * ratio, (event.clientY - area.top) * ratio);
    if (!found) return hide();
    for (const [name, value] of Object.entries({ cx: found.x, cy: found.y, stroke: found.color, visibility: "visible" })) mark.setAttribute(name, value);
    tip.textContent = found.text; tip.hidden = false;
    const left = found.x / ratio, room = area.width - tip.offsetWidth - 4;
    tip.style.left = `${Math.max(2, Math.min(left + 12, room))}px`;
    tip.style.top = `${Math.max(2, found.y / ratio - tip.offsetHeight - 10)}px`;
  });
}
function path(points) {
  let text = "", up = true;
  for (const p of points) { if (!p) { up = true; continue; } text += `${up ? "M" : "L"}${p[0].toFixed(1)} ${p[1].toFixed(1)}`; up = false; }
  return text;
}

/* series: { name, color, dash, width, x, y, lower, upper, opacity, tip(i) } */
function lines(host, series, x, y, { height = 420, key = "print" } = {}) {
  const f = frame(host, x, y, height), { svg, box } = f;
  const sx = scale(series.flatMap((s) => s.x), { ...x, most: Math.max(3, f.width / 130) }, box.left + 4, box.right - 4);
  const sy = scale(series.flatMap((s) => [...s.y, ...(s.lower ?? [])]), y, box.bottom - 4, box.top + 4);
  axes(f, x, y, sx, sy);
  const id = `clip-${host.id}`;
  element(element(svg, "clipPath", { id }), "rect", { x: box.left, y: box.top - 2, width: box.right - box.left, height: box.bottom - box.top + 2 });
  const inside = element(svg, "g", { "clip-path": `url(#${id})` });
  const at = (s, values) => values.map((v, i) => (sy.inside(v) && sx.inside(s.x[i]) ? [sx.place(s.x[i]), sy.place(v)] : null));
  for (const s of series) if (s.lower) {
    const cut = s.upper.findIndex((v) => !sy.inside(v)), end = cut < 0 ? s.upper.length : cut;
    const rim = [...at(s, s.upper).slice(0, end), ...at(s, s.lower).slice(0, end).reverse()].filter(Boolean);
    if (rim.length > 2) element(inside, "path", { d: path(rim) + "Z", fill: s.color, "fill-opacity": 0.17, class: "band" });
  }
  const placed = series.map((s) => {
    const points = at(s, s.y);
    element(inside, "path", { d: path(points), fill: "none", stroke: s.color, "stroke-width": s.width ?? 1.8, "stroke-dasharray": DASH[s.dash] ?? "", "stroke-linejoin": "round", "stroke-opacity": s.opacity ?? 1, class: "line" });
    return points;
  });
  tips(host, svg, f.width, (px, py) => {
    let best = null, near = 40 ** 2;
    placed.forEach((points, k) => points.forEach((p, i) => {
      if (!p) return;
      const d = (p[0] - px) ** 2 + (p[1] - py) ** 2;
      if (d < near) { near = d; best = { x: p[0], y: p[1], color: series[k].color, text: series[k].tip(i) }; }
    }));
    return best;
  });
  legend(host, series, key);
}

/* points: { name, color, x, y, tip }. A label goes where it hides none that stands already, or nowhere. */
function points(host, entries, x, y, { height = 380 } = {}) {
  const f = frame(host, x, y, height), { svg, box } = f;
  const sx = scale(entries.map((e) => e.x), { ...x, most: Math.max(3, f.width / 130) }, box.left + 40, box.right - 60);
  const sy = scale(entries.map((e) => e.y), y, box.bottom - 16, box.top + 20);
  axes(f, x, y, sx, sy);
  const taken = entries.map((e) => ({ l: sx.place(e.x) - 8, r: sx.place(e.x) + 8, t: sy.place(e.y) - 8, b: sy.place(e.y) + 8 }));
  for (const e of entries) {
    const px = sx.place(e.x), py = sy.place(e.y);
    element(svg, "circle", { cx: px, cy: py, r: 6, fill: e.color, stroke: css("--surface"), class: "point" });
    const label = element(svg, "text", { "font-size": 12.5, fill: e.color }, e.name), size = label.getComputedTextLength(), gap = 11;
    const tries = [["middle", px, py - gap], ["start", px + gap, py + 4], ["end", px - gap, py + 4], ["middle", px, py + gap + 9], ["start", px + 8, py - 10], ["end", px - 8, py + 18]];
    const free = tries.find(([anchor, lx, ly]) => {
      const l = lx - (anchor === "middle" ? size / 2 : anchor === "end" ? size : 0), area = { l, r: l + size, t: ly - 11, b: ly + 3 };
      if (area.l < box.left + 2 || area.r > f.width || area.t < 0 || area.b > box.bottom) return false;
      if (taken.some((o) => !(o.r < area.l || o.l > area.r || o.b < area.t || o.t > area.b) && !(anchor !== "middle" && false))) return false;
      taken.push(area);
      return true;
    });
    if (!free) { label.remove(); continue; }
    for (const [name, value] of Object.entries({ "text-anchor": free[0], x: free[1], y: free[2] })) label.setAttribute(name, value);
  }
  tips(host, svg, f.width, (px, py) => {
    const by = entries.map((e) => [(sx.place(e.x) - px) ** 2 + (sy.place(e.y) - py) ** 2, e]).sort((a, b) => a[0] - b[0])[0];
    return by && by[0] < 30 ** 2 ? { x: sx.place(by[1].x), y: sy.place(by[1].y), color: by[1].color, text: by[1].tip } : null;
  });
}

/* Bars from parity: down is better, up is worse. series: { name, color, y }, one value a category. */
function bars(host, categories, series, y, { height = 380 } = {}) {
  const f = frame(host, {}, y, height + 26, 62 + 14 + categories.length * (14 + 11 * series.length));
  const { svg, box } = f;
  box.bottom -= 26;
  const sy = scale([1, ...series.flatMap((s) => s.y)], { log: true, ...y }, box.bottom - 4, box.top + 4);
  axes({ ...f, height: f.height }, {}, y, null, sy);
  const slot = (box.right - box.left) / categories.length, wide = Math.min(26, (slot - 10) / series.length), one = sy.place(1);
  categories.forEach((name, i) => {
    const middle = box.left + slot * (i + 0.5), start = middle - (wide * series.length) / 2;
    series.forEach((s, k) => {
      const v = s.y[i];
      if (!sy.inside(v)) return;
      const at = sy.place(v), rect = element(svg, "rect", { x: start + k * wide, width: wide - 1, y: Math.min(at, one), height: Math.max(1, Math.abs(at - one)), fill: s.color, class: "bar" });
      element(rect, "title", {}, `${name}, ${s.name}: ${number(v)}`);
    });
    // As many words a line as the slot has room for, at most three lines.
    const text = element(svg, "text", { x: middle, y: box.bottom + 16, "text-anchor": "middle", "font-size": 11.5, fill: css("--soft") });
    let line = "", row = 0;
    const flush = () => { if (line && row < 3) element(text, "tspan", { x: middle, dy: row++ ? 13 : 0 }, line); line = ""; };
    for (const word of name.split(" ")) { if (line && (line.length + word.length) * 6.3 > slot) flush(); line = line ? `${line} ${word}` : word; }
    flush();
  });
  element(svg, "line", { x1: box.left, x2: box.right, y1: one, y2: one, stroke: css("--ink"), "stroke-width": 1.5, "stroke-dasharray": "5 3" });
  const list = document.createElement("div");
  host.prepend(list);
  legend(list, series.map((s) => ({ ...s, bar: true })));
}
return { lines, points, bars, number, DASH };
})();
