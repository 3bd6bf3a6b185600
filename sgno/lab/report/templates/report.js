"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const root = document.documentElement;

/* Texts come from records that anyone may have written: they are set as text, and Plotly, which
   reads some markup in labels, gets them without angle brackets. */
const plain = (text) => String(text).replace(/</g, "‹").replace(/>/g, "›").replace(/&/g, "＆");

/* ---- theme ---- */
let theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
let printing = false;
const tone = () => (printing ? "light" : theme);
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const colour = (model) => data.models[model][tone()];
function showTheme() {
  root.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
  redraw();
}
$("theme").addEventListener("click", () => { theme = theme === "dark" ? "light" : "dark"; showTheme(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => { theme = e.matches ? "dark" : "light"; showTheme(); });
function forPrint(on) {
  if (printing === on) return;
  printing = on;
  root.dataset.theme = on ? "light" : theme;
  redraw();
}
addEventListener("beforeprint", () => forPrint(true));
addEventListener("afterprint", () => forPrint(false));
matchMedia("print").addEventListener("change", (e) => forPrint(e.matches));

/* ---- sortable tables ---- */
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const original = [...body.rows];
  heads.forEach((head, column) => {
    const numeric = head.classList.contains("num");
    const key = (row) => {
      const cell = row.cells[column];
      if (cell.dataset.value !== undefined) {
        const text = cell.dataset.value;
        return text === "inf" ? Infinity : Number(text);
      }
      return numeric ? null : cell.textContent.toLowerCase();
    };
    const less = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    head.querySelector("button").addEventListener("click", () => {
      const was = head.getAttribute("aria-sort");
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (was === "descending") { body.append(...original); return; }
      const sign = was === "ascending" ? -1 : 1;
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const keyed = original.map((row) => [key(row), row]);
      // What was not run has nothing to sort by and stays at the end either way.
      const known = keyed.filter((k) => k[0] !== null).sort((a, b) => sign * less(a[0], b[0]));
      body.append(...known.map((k) => k[1]), ...keyed.filter((k) => k[0] === null).map((k) => k[1]));
    });
  });
}

/* ---- what there is to draw ---- */
const spectraRows = data.rows.filter((row) => row.spectra.models);
const needs = { rows: data.rows, samples: data.samples, spectra: spectraRows, ratios: data.ratios, ablation: data.ablation };
for (const part of document.querySelectorAll("[data-needs]")) part.hidden = needs[part.dataset.needs].length === 0;

function fill(select, entries) {
  select.replaceChildren(...entries.map(([value, text]) => {
    const option = document.createElement("option");
    option.value = value; option.textContent = text;
    return option;
  }));
}

/* What a reader sees first: the task that most models ran on. */
function start(select, rows, size) {
  const most = rows.reduce((best, row) => (best === null || size(row) > size(best) ? row : best), null);
  if (most) select.value = most.id ?? most.row;
}

/* ---- model chips ---- */
const shown = new Set(Object.keys(data.models).filter((model) => !data.models[model].variant));
const DASH = { solid: "", dot: "2 3", dash: "6 3", longdash: "9 3", dashdot: "6 3 2 3", longdashdot: "9 3 2 3" };
const SVG = "http://www.w3.org/2000/svg";
for (const [model, look] of Object.entries(data.models)) {
  const chip = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox"; box.checked = shown.has(model);
  box.addEventListener("change", () => { box.checked ? shown.add(model) : shown.delete(model); drawGrowth(); drawSpectra(); drawCost(); });
  const swatch = document.createElementNS(SVG, "svg");
  swatch.setAttribute("width", "24"); swatch.setAttribute("height", "8"); swatch.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(SVG, "line");
  for (const [k, v] of Object.entries({ x1: 0, x2: 24, y1: 4, y2: 4, "stroke-width": 3, "stroke-dasharray": DASH[look.dash] || "" })) line.setAttribute(k, v);
  line.dataset.model = model;
  swatch.append(line);
  chip.append(box, swatch, document.createTextNode(look.label));
  $("chips").append(chip);
}

/* ---- plotly ---- */
const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], doubleClick: "reset" };
function layout(x, y, more) {
  const axis = { gridcolor: css("--rule"), zerolinecolor: css("--rule"), linecolor: css("--faint"), automargin: true };
  return Object.assign({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 64, r: 14, t: 14, b: 46 },
    font: { family: css("--sans"), size: 13, color: css("--ink") }, hovermode: "closest",
    // On paper nobody can point at a line or read the chips.
    showlegend: printing, legend: { orientation: "h", y: 1.12 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--faint"), activecolor: css("--accent") },
    hoverlabel: { bgcolor: css("--surface"), bordercolor: css("--rule"), font: { color: css("--ink"), family: css("--sans") } },
    xaxis: Object.assign({}, axis, x), yaxis: Object.assign({}, axis, { exponentformat: "power" }, y),
  }, more);
}
// Whole decades as ticks, at most ten or so of them, unless there is less than about one decade to show.
function logAxis(values) {
  const known = values.filter((v) => v !== null && v > 0);
  const decades = Math.log10(Math.max(...known) / Math.min(...known));
  return { type: "log", dtick: decades > 1.08 ? Math.ceil(decades / 10) : undefined };
}
const faint = (hex) => hex + "2e";
const line = (model) => ({ color: colour(model), width: model === "sgno" || model === "sgno-x" ? 3 : 1.8, dash: data.models[model].dash });

fill($("growth-row"), data.rows.map((row) => [row.id, row.title]));
start($("growth-row"), data.rows, (row) => Object.keys(row.curves).length);
function drawGrowth() {
  const row = data.rows.find((r) => r.id === $("growth-row").value);
  if (!row) return;
  const traces = [];
  for (const [model, curve] of Object.entries(row.curves)) {
    if (!shown.has(model)) continue;
    const steps = curve.median.map((_, i) => i + 1);
    if (curve.lower) {
      const cut = curve.upper.findIndex((v) => v === null);
      const end = cut < 0 ? steps.length : cut;
      traces.push({ x: [...steps.slice(0, end), ...steps.slice(0, end).reverse()], y: [...curve.upper.slice(0, end), ...curve.lower.slice(0, end).reverse()],
        fill: "toself", fillcolor: faint(colour(model)), line: { width: 0 }, hoverinfo: "skip", showlegend: false, mode: "lines", type: "scatter" });
    }
    traces.push({ x: steps, y: curve.median, mode: "lines", type: "scatter", name: plain(data.models[model].label), line: line(model), connectgaps: false,
      hovertemplate: `${plain(data.models[model].label)}<br>step %{x}: %{y:.3g} (${curve.n} seed${curve.n > 1 ? "s" : ""})<extra></extra>` });
  }
  const scale = $("growth-linear").checked ? { type: "linear", rangemode: "tozero" } : logAxis(traces.flatMap((t) => t.y));
  Plotly.react("growth-plot", traces, layout({ title: { text: "rollout step" }, zeroline: false }, { title: { text: "mean nRMSE" }, ...scale }), CONFIG);
}
$("growth-row").addEventListener("change", drawGrowth);
$("growth-linear").addEventListener("change", drawGrowth);

fill($("spectra-row"), spectraRows.map((row) => [row.id, row.title]));
start($("spectra-row"), spectraRows, (row) => Object.keys(row.curves).length);
function drawSpectra() {
  const row = spectraRows.find((r) => r.id === $("spectra-row").value);
  if (!row) return;
  const s = row.spectra, slider = $("spectra-time");
  slider.max = s.steps.length - 1;
  const t = Math.min(Number(slider.value), s.steps.length - 1);
  $("spectra-text").textContent = s.steps[t];
  const energy = (line) => line.map((v) => (v === null ? null : 10 ** (v / 100)));
  const radius = s.reference[t].map((_, k) => k);
  const traces = [{ x: radius, y: energy(s.reference[t]), mode: "lines", type: "scatter", name: "reference", line: { color: css("--ink"), width: 5 }, opacity: 0.35,
    hovertemplate: "reference<br>|k| = %{x}: %{y:.2e}<extra></extra>" }];
  for (const [model, lines] of Object.entries(s.models)) {
    if (!shown.has(model)) continue;
    traces.push({ x: radius, y: energy(lines[t]), mode: "lines", type: "scatter", name: plain(data.models[model].label), line: line(model),
      hovertemplate: `${plain(data.models[model].label)}<br>|k| = %{x}: %{y:.2e}<extra></extra>` });
  }
  // One range for all times, so that the slider shows change; set by the reference, with room for errors.
  const all = s.reference.flat().filter((v) => v !== null && v > -1600);
  const range = [Math.max(-14, Math.min(...all) / 100 - 1), Math.max(...all) / 100 + 2];
  Plotly.react("spectra-plot", traces, layout({ title: { text: "wavenumber |k|" }, zeroline: false }, { title: { text: "energy" }, type: "log", dtick: 2, range }), CONFIG);
}
$("spectra-row").addEventListener("change", drawSpectra);
$("spectra-time").addEventListener("input", drawSpectra);

// Bars grow from parity: down is better, up is worse.
const fromParity = (ratios) => ({ base: ratios.map(() => 1), y: ratios.map((r) => (r === null ? null : r - 1)), customdata: ratios });
function drawRatios() {
  if (!data.ratios.length) return;
  const names = Object.keys(data.diagnostics);
  const first = data.ratios.map((r) => ({ ...r, use: r.against[0] }));
  const palette = printing || theme === "light" ? ["#4B3FA7", "#0A5A9C", "#3A9BDC", "#009E73", "#8A8A1F", "#D55E00"] : ["#A79BFF", "#4C93E6", "#8FD0FF", "#41D9A6", "#CFCB55", "#FF8F3F"];
  const traces = names.map((name, i) => ({
    type: "bar", name: data.diagnostics[name], marker: { color: palette[i % palette.length] },
    x: first.map((r) => plain(`${r.name} / ${data.models[r.use.model].label}`)), ...fromParity(first.map((r) => r.use.ratios[name])),
    hovertemplate: `%{x}<br>${data.diagnostics[name]}: %{customdata:.3g}<extra></extra>`,
  }));
  Plotly.react("ratios-plot", traces, layout({ type: "category" }, { title: { text: "SGNO error / baseline error" }, ...logAxis([1, ...first.flatMap((r) => Object.values(r.use.ratios))]) },
    { barmode: "group", showlegend: true, legend: { orientation: "h", y: 1.16 }, shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { dash: "dash", width: 1.5, color: css("--ink") } }] }), CONFIG);
}
function drawAblation() {
  if (!data.ablation.length) return;
  const variants = Object.keys(data.ablation[0].ratios).filter((model) => data.models[model]);
  const traces = variants.map((model) => ({
    type: "bar", name: plain(data.models[model].label), marker: { color: colour(model) },
    x: data.ablation.map((r) => plain(r.title)), ...fromParity(data.ablation.map((r) => r.ratios[model] ?? null)),
    hovertemplate: "%{x}: ×%{customdata:.3g}<extra></extra>",
  }));
  const gone = data.ablation.reduce((sum, r) => sum + r.nonfinite.length, 0);
  Plotly.react("ablation-plot", traces, layout({ type: "category" }, { title: { text: "error / full SGNO's" }, ...logAxis([1, ...data.ablation.flatMap((r) => Object.values(r.ratios))]) },
    { barmode: "group", showlegend: true, legend: { orientation: "h", y: 1.16 },
      annotations: gone ? [{ text: `${gone} non-finite, not drawn`, xref: "paper", yref: "paper", x: 1, xanchor: "right", y: 1.15, showarrow: false, font: { size: 12, color: css("--soft") } }] : [],
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { dash: "dash", width: 1.5, color: css("--ink") } }] }), CONFIG);
}
fill($("cost-row"), data.rows.map((row) => [row.id, row.title]));
start($("cost-row"), data.rows, (row) => Object.keys(row.curves).length);
function drawCost() {
  const row = data.rows.find((r) => r.id === $("cost-row").value);
  if (!row) return;
  const traces = Object.entries(row.cost).filter(([model, c]) => shown.has(model) && c[0] !== null && c[1] !== null).map(([model, c]) => ({
    type: "scatter", mode: "markers+text", x: [c[0]], y: [c[1]], text: [plain(data.models[model].label)], textposition: "top center", cliponaxis: false, showlegend: false,
    marker: { color: colour(model), size: 13, line: { color: css("--surface"), width: 1 } }, textfont: { color: colour(model) },
    hovertemplate: `${plain(data.models[model].label)}<br>%{x:.3g} s, GMean100 %{y:.3g}, ${c[2].toLocaleString("en")} real numbers<extra></extra>`,
  }));
  Plotly.react("cost-plot", traces, layout({ title: { text: "training time, s" }, ...logAxis(traces.map((t) => t.x[0])) }, { title: { text: "GMean100" }, ...logAxis(traces.map((t) => t.y[0])) }), CONFIG);
}
$("cost-row").addEventListener("change", drawCost);

/* ---- fields on canvas ---- */
const FIELD = ["#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f"];
const ERROR = ["#2d004b", "#542788", "#8073ac", "#b2abd2", "#d8daeb", "#f7f7f7", "#fee0b6", "#fdb863", "#e08214", "#b35806", "#7f3b08"];
function table(stops) {
  const rgb = stops.map((h) => [1, 3, 5].map((i) => parseInt(h.slice(i, i + 2), 16)));
  const out = new Uint8ClampedArray(255 * 3);
  for (let i = 0; i < 255; i++) {
    const p = (i / 254) * (rgb.length - 1), k = Math.min(rgb.length - 2, Math.floor(p));
    for (let c = 0; c < 3; c++) out[3 * i + c] = rgb[k][c] + (p - k) * (rgb[k + 1][c] - rgb[k][c]);
  }
  return out;
}
const LUT = { field: table(FIELD), error: table(ERROR) };
const decoded = new Map();
async function decode(text, columns) {
  if (!decoded.has(text)) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const codes = new Uint8Array(await new Response(stream).arrayBuffer());
    for (let i = 0; i < codes.length; i++) if (i % columns) codes[i] = (codes[i] + codes[i - 1]) & 255;
    decoded.set(text, codes);
  }
  return decoded.get(text);
}
function paint(image, at, code, lut) {
  if (code === 255) {
    // Diagonal hatching: no colour of the scale may stand for what is not a number.
    const x = (at >> 2) % image.width, y = Math.floor((at >> 2) / image.width), on = (x + y) % 4 < 2 ? 60 : 150;
    image.data[at] = image.data[at + 1] = image.data[at + 2] = on;
  } else {
    image.data[at] = lut[3 * code]; image.data[at + 1] = lut[3 * code + 1]; image.data[at + 2] = lut[3 * code + 2];
  }
  image.data[at + 3] = 255;
}
function picture(codes, shape, lut, t) {
  const [times, panels, rows, columns] = shape;
  const buffer = document.createElement("canvas");
  if (rows === 1) {
    // Space-time: time to the right, space upwards, the whole rollout at once.
    buffer.width = times; buffer.height = columns;
    const image = buffer.getContext("2d").createImageData(times, columns);
    for (let i = 0; i < times; i++) for (let j = 0; j < columns; j++) paint(image, 4 * ((columns - 1 - j) * times + i), codes[i * columns + j], lut);
    buffer.getContext("2d").putImageData(image, 0, 0);
    return buffer;
  }
  const gap = 2, width = panels * columns + (panels - 1) * gap;
  buffer.width = width; buffer.height = rows;
  const image = buffer.getContext("2d").createImageData(width, rows);
  for (let p = 0; p < panels; p++) for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++)
    paint(image, 4 * (i * width + p * (columns + gap) + j), codes[((t * panels + p) * rows + i) * columns + j], lut);
  buffer.getContext("2d").putImageData(image, 0, 0);
  return buffer;
}
function place(canvas, source, shape, t) {
  const oneD = shape[2] === 1;
  const width = Math.max(120, Math.round(canvas.clientWidth * devicePixelRatio));
  canvas.width = width;
  canvas.height = Math.round(width * (oneD ? 0.52 : source.height / source.width));
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(source, 0, 0, canvas.width, canvas.height);
  if (oneD) {
    const x = ((t + 0.5) / shape[0]) * canvas.width;
    pen.fillStyle = tone() === "dark" ? "rgba(20,22,26,.66)" : "rgba(255,255,255,.66)";
    pen.fillRect(x, 0, canvas.width - x, canvas.height);
    pen.fillStyle = "#111"; pen.fillRect(Math.round(x) - 1, 0, 2 * Math.ceil(devicePixelRatio), canvas.height);
  }
}
function bar(canvas, lut) {
  canvas.width = 255; canvas.height = 1;
  const pen = canvas.getContext("2d"), image = pen.createImageData(255, 1);
  for (let i = 0; i < 255; i++) paint(image, 4 * i, i, lut);
  pen.putImageData(image, 0, 0);
}
function ends(id, texts) {
  $(id).replaceChildren(...texts.map((text) => { const s = document.createElement("span"); s.textContent = text; return s; }));
}
const digits = (x) => Number(x.toPrecision(2)).toString();
fill($("field-row"), data.samples.map((sample) => [sample.row, sample.title]));
start($("field-row"), data.samples, (sample) => Object.keys(sample.predictions).length);
const current = () => data.samples.find((s) => s.row === $("field-row").value);
function chooseTask() {
  const sample = current();
  if (!sample) return;
  const models = Object.keys(sample.predictions);
  const entries = models.map((m) => [m, `${data.models[m].label} (seed ${sample.predictions[m].seed})`]);
  fill($("field-a"), entries); fill($("field-b"), entries);
  const preferred = (list) => list.find((m) => models.includes(m));
  $("field-a").value = preferred(["sgno", "sgno-x"]) ?? models[0];
  $("field-b").value = sample.rival && models.includes(sample.rival) ? sample.rival : models.find((m) => m !== $("field-a").value) ?? models[0];
  const slider = $("time");
  slider.max = sample.shape[0] - 1;
  slider.value = sample.dims === 1 ? sample.shape[0] - 1 : Math.min(8, sample.shape[0] - 1);
  bar($("bar-field"), LUT.field); bar($("bar-error"), LUT.error);
  const a = sample.amplitude, e = data.errorScale;
  ends("ends-field", [`−${digits(a)}`, "0", digits(a)]);
  ends("ends-error", [`−${digits(a * e.top)}`, `linear within ±${digits(a * e.floor)}`, digits(a * e.top)]);
  // Both rows of square fields should fit on a screen.
  $("viewer").style.maxWidth = sample.dims === 2 ? "980px" : "";
  $("profile-box").hidden = sample.dims !== 1;
  drawFields();
}
let drawing = 0;
async function drawFields() {
  const sample = current();
  if (!sample) return;
  const ticket = ++drawing, t = Number($("time").value), columns = sample.shape[3];
  $("time-text").textContent = t * sample.every;
  const [a, b] = [$("field-a").value, $("field-b").value];
  const [pa, pb] = [sample.predictions[a], sample.predictions[b]];
  const [truth, fa, ea, fb, eb] = await Promise.all([sample.truth, pa.field, pa.error, pb.field, pb.error].map((text) => decode(text, columns)));
  if (ticket !== drawing) return;
  $("name-a").textContent = $("name-ea").textContent = data.models[a].label;
  $("name-b").textContent = $("name-eb").textContent = data.models[b].label;
  for (const [id, codes, lut] of [["canvas-truth", truth, LUT.field], ["canvas-a", fa, LUT.field], ["canvas-b", fb, LUT.field], ["canvas-ea", ea, LUT.error], ["canvas-eb", eb, LUT.error]])
    place($(id), picture(codes, sample.shape, lut, t), sample.shape, t);
  if (sample.dims === 1) profile(truth, [[a, fa], [b, fb]], columns, t);
  $("viewer").dataset.step = String(t * sample.every);
}
function profile(truth, others, n, t) {
  const canvas = $("profile");
  canvas.width = Math.max(120, canvas.clientWidth * devicePixelRatio); canvas.height = canvas.width * 0.4;
  const pen = canvas.getContext("2d"), h = canvas.height;
  const curve = (codes, style, width, dash) => {
    pen.beginPath(); pen.strokeStyle = style; pen.lineWidth = width * devicePixelRatio; pen.setLineDash(dash.map((d) => d * devicePixelRatio));
    let up = true;
    for (let j = 0; j < n; j++) {
      const c = codes[t * n + j];
      if (c === 255) { up = true; continue; }
      const x = (j / (n - 1)) * canvas.width, y = h * (0.95 - 0.9 * (c / 254));
      up ? pen.moveTo(x, y) : pen.lineTo(x, y); up = false;
    }
    pen.stroke();
  };
  curve(truth, css("--faint"), 4.5, []);
  for (const [model, codes] of others.reverse()) curve(codes, colour(model), 1.8, model === "sgno" ? [] : [5, 3]);
}
$("field-row").addEventListener("change", chooseTask);
for (const id of ["field-a", "field-b"]) $(id).addEventListener("change", drawFields);
$("time").addEventListener("input", drawFields);

/* ---- playing ---- */
function player(button, slider, draw, frames) {
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; button.textContent = "▶ Play"; button.setAttribute("aria-pressed", "false"); };
  button.addEventListener("click", () => {
    if (timer) return stop();
    if (Number(slider.value) >= Number(slider.max)) slider.value = 0;
    button.textContent = "❚❚ Pause"; button.setAttribute("aria-pressed", "true");
    timer = setInterval(() => {
      if (Number(slider.value) >= Number(slider.max)) return stop();
      slider.value = Number(slider.value) + 1; draw();
    }, Math.max(40, frames / Math.max(1, Number(slider.max))));
  });
}
player($("play"), $("time"), drawFields, 8000);
player($("spectra-play"), $("spectra-time"), drawSpectra, 6000);

/* ---- all at once ---- */
function redraw() {
  for (const mark of document.querySelectorAll("#chips line")) mark.setAttribute("stroke", colour(mark.dataset.model));
  drawGrowth(); drawSpectra(); drawRatios(); drawAblation(); drawCost(); drawFields();
}
let pending = null;
addEventListener("resize", () => { clearTimeout(pending); pending = setTimeout(drawFields, 120); });
chooseTask();
showTheme();
})();
