"use strict";
(async () => {
const $ = (id) => document.getElementById(id);
const bytes = Uint8Array.from(atob($("data").textContent), (c) => c.charCodeAt(0));
const data = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
/* The page of a user's own data has some of these parts, the page of a study has others. */
const on = (id, event, act) => $(id)?.addEventListener(event, act);
const root = document.documentElement;

/* ---- theme ---- */
let theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
let printing = false;
const tone = () => (printing ? "light" : theme);
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const colour = (model) => data.models[model][tone()];
function showTheme() {
  root.dataset.theme = theme;
  if ($("theme")) $("theme").textContent = theme === "dark" ? "Light" : "Dark";
  redraw();
}
on("theme", "click", () => { theme = theme === "dark" ? "light" : "dark"; showTheme(); });
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
  if (!select) return;
  select.replaceChildren(...entries.map(([value, text]) => {
    const option = document.createElement("option");
    option.value = value; option.textContent = text;
    return option;
  }));
}

/* What a reader sees first: the task that most models ran on. */
function start(select, rows, size) {
  const most = rows.reduce((best, row) => (best === null || size(row) > size(best) ? row : best), null);
  if (most && select) select.value = most.id ?? most.row;
}

/* ---- model chips ---- */
const shown = new Set(Object.keys(data.models).filter((model) => !data.models[model].variant));
const SVG = "http://www.w3.org/2000/svg";
for (const [model, look] of Object.entries(data.models)) {
  const chip = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox"; box.checked = shown.has(model);
  box.addEventListener("change", () => { box.checked ? shown.add(model) : shown.delete(model); drawGrowth(); drawSpectra(); drawCost(); });
  const swatch = document.createElementNS(SVG, "svg");
  swatch.setAttribute("width", "24"); swatch.setAttribute("height", "8"); swatch.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(SVG, "line");
  for (const [k, v] of Object.entries({ x1: 0, x2: 24, y1: 4, y2: 4, "stroke-width": 3, "stroke-dasharray": Chart.DASH[look.dash] ?? "" })) line.setAttribute(k, v);
  line.dataset.model = model;
  swatch.append(line);
  chip.append(box, swatch, document.createTextNode(look.label));
  $("chips")?.append(chip);
}

/* ---- charts ---- */
const line = (model) => ({ color: colour(model), width: model === "sgno" || model === "sgno-x" ? 3 : 1.8, dash: data.models[model].dash, name: data.models[model].label });
const chosen = (rows, id) => rows.find((r) => r.id === $(id)?.value) ?? rows[0];
const many = (row) => Object.keys(row.curves).length;

fill($("growth-row"), data.rows.map((row) => [row.id, row.title]));
start($("growth-row"), data.rows, many);
function drawGrowth() {
  const row = chosen(data.rows, "growth-row");
  if (!row || !$("growth-plot")) return;
  const series = Object.entries(row.curves).filter(([model]) => shown.has(model)).map(([model, curve]) => ({
    ...line(model), x: row.steps, y: curve.median, lower: curve.lower, upper: curve.upper,
    tip: (i) => `${data.models[model].label}, step ${row.steps[i]}: ${Chart.number(curve.median[i])} (${curve.n} seed${curve.n > 1 ? "s" : ""})`,
  }));
  const linear = $("growth-linear")?.checked;
  Chart.lines($("growth-plot"), series, { title: "rollout step" }, { title: "mean nRMSE", log: !linear, zero: linear });
}
on("growth-row", "change", drawGrowth);
on("growth-linear", "change", drawGrowth);

fill($("spectra-row"), spectraRows.map((row) => [row.id, row.title]));
start($("spectra-row"), spectraRows, many);
function drawSpectra() {
  const row = chosen(spectraRows, "spectra-row");
  if (!row || !$("spectra-plot")) return;
  const s = row.spectra, slider = $("spectra-time");
  slider.max = s.steps.length - 1;
  const t = Math.min(Number(slider.value), s.steps.length - 1);
  $("spectra-text").textContent = s.steps[t];
  const energy = (values) => values.map((v) => (v === null ? null : 10 ** (v / 100)));
  const radius = s.reference[t].map((_, k) => k);
  const one = (name, values, look) => ({ ...look, name, x: radius, y: energy(values), tip: (i) => `${name}, |k| = ${i}: ${Chart.number(10 ** (values[i] / 100))}` });
  const series = [one("reference", s.reference[t], { color: css("--ink"), width: 5, opacity: 0.35 })];
  for (const [model, lines] of Object.entries(s.models)) if (shown.has(model)) series.push(one(data.models[model].label, lines[t], line(model)));
  // One range for all times, so that the slider shows change; set by the reference, with room for errors.
  const all = s.reference.flat().filter((v) => v !== null && v > -1600);
  const range = [10 ** Math.max(-14, Math.min(...all) / 100 - 1), 10 ** (Math.max(...all) / 100 + 2)];
  Chart.lines($("spectra-plot"), series, { title: "wavenumber |k|" }, { title: "energy", log: true, range }, { key: $("chips") ? "print" : "" });
}
on("spectra-row", "change", drawSpectra);
on("spectra-time", "input", drawSpectra);

function drawRatios() {
  if (!data.ratios?.length || !$("ratios-plot")) return;
  const palette = tone() === "light" ? ["#4B3FA7", "#0A5A9C", "#3A9BDC", "#009E73", "#8A8A1F", "#D55E00"] : ["#A79BFF", "#4C93E6", "#8FD0FF", "#41D9A6", "#CFCB55", "#FF8F3F"];
  const first = data.ratios.map((r) => ({ name: `${r.name} / ${data.models[r.against[0].model].label}`, ratios: r.against[0].ratios }));
  const series = Object.keys(data.diagnostics).map((name, i) => ({ name: data.diagnostics[name], color: palette[i], y: first.map((r) => r.ratios[name]) }));
  Chart.bars($("ratios-plot"), first.map((r) => r.name), series, { title: "SGNO error / baseline error" });
}
function drawAblation() {
  if (!data.ablation?.length || !$("ablation-plot")) return;
  const variants = [...new Set(data.ablation.flatMap((r) => Object.keys(r.ratios)))].filter((model) => data.models[model]);
  const series = variants.map((model) => ({ name: data.models[model].label, color: colour(model), y: data.ablation.map((r) => r.ratios[model] ?? null) }));
  Chart.bars($("ablation-plot"), data.ablation.map((r) => r.name), series, { title: "error / full SGNO's" });
  const gone = data.ablation.flatMap((r) => r.nonfinite.map((model) => `${r.name}: ${data.models[model]?.label ?? model}`));
  if (gone.length) $("ablation-plot").append(Object.assign(document.createElement("p"), { className: "note", textContent: `Non-finite and not drawn: ${gone.join("; ")}.` }));
}
fill($("cost-row"), data.rows.map((row) => [row.id, row.title]));
start($("cost-row"), data.rows, many);
function drawCost() {
  const row = chosen(data.rows, "cost-row");
  if (!row || !$("cost-plot")) return;
  // What was solved in closed form took no updates: at the left edge of a logarithmic axis it says nothing.
  const entries = Object.entries(row.cost).filter(([model, c]) => shown.has(model) && c[0] > 0 && c[1] !== null).map(([model, c]) => ({
    name: data.models[model].label, color: colour(model), x: c[0], y: c[1], tip: `${data.models[model].label}: ${Chart.number(c[0])} s, GMean100 ${Chart.number(c[1])}, ${c[2].toLocaleString("en")} real numbers`,
  }));
  Chart.points($("cost-plot"), entries, { title: "training time, s", log: true }, { title: "GMean100", log: true });
}
on("cost-row", "change", drawCost);

function drawHorizon() {
  const h = data.horizon;
  if (!h || !$("horizon-plot")) return;
  const bound = { name: "error stays below", color: css("--focus"), width: 2.6, x: h.at, y: h.bound, tip: (i) => `step ${h.at[i]}: below ${h.bound[i] === null ? "nothing" : Chart.number(h.bound[i])}` };
  const ends = [h.at[0], h.at[h.at.length - 1]];
  const level = { name: `level ${h.level}`, color: css("--bad"), width: 1.5, dash: "dash", x: ends, y: [h.level, h.level], tip: () => `level ${h.level}` };
  Chart.lines($("horizon-plot"), [bound, level], { title: "step" }, { title: "error (nRMSE)", log: true }, { height: 300, key: "" });
}

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
/* A film is one picture, its frames beneath each other: prediction where it is far from the truth, else the
   error on its own scale. From the frame `end` on there are no finite numbers. */
const decoded = new Map();
async function codesOf(image) {
  if (!decoded.has(image)) {
    const picture = new Image();
    picture.src = `data:image/webp;base64,${image}`;
    await picture.decode();
    const buffer = document.createElement("canvas");
    buffer.width = picture.width; buffer.height = picture.height;
    const pen = buffer.getContext("2d", { willReadFrequently: true });
    pen.drawImage(picture, 0, 0);
    decoded.set(image, pen.getImageData(0, 0, buffer.width, buffer.height).data.filter((_, i) => i % 4 === 0).map((c) => Math.min(c, 254)));
  }
  return decoded.get(image);
}
const RISE = Math.asinh(data.errorScale.top / data.errorScale.floor);
const ERRORS = Float32Array.from({ length: 255 }, (_, c) => Math.sinh(((c - 127) / 127) * RISE) * data.errorScale.floor);
const level = (share) => Math.round(127 + 127 * Math.max(-1, Math.min(1, share)));
const errorLevel = (share) => level(Math.asinh(share / data.errorScale.floor) / RISE);
async function film(sample, model) {
  const name = `${sample.row} ${model}`;
  if (decoded.has(name)) return decoded.get(name);
  const { image, kinds, end } = sample.predictions[model], size = sample.shape[1] * sample.shape[2] * sample.shape[3];
  const [truth, codes] = await Promise.all([codesOf(sample.truth), image ? codesOf(image) : new Uint8ClampedArray(0)]);
  const field = new Uint8ClampedArray(truth.length).fill(255), error = new Uint8ClampedArray(truth.length).fill(255);
  for (let t = 0; t < end; t++) for (let i = t * size; i < (t + 1) * size; i++) {
    const isField = kinds[t] === "f";
    field[i] = isField ? codes[i] : level((truth[i] - 127) / 127 + ERRORS[codes[i]]);
    error[i] = isField ? errorLevel((codes[i] - truth[i]) / 127) : codes[i];
  }
  decoded.set(name, { truth, field, error });
  return decoded.get(name);
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
    paint(image, 4 * (i * width + p * (columns + gap) + j), codes[((t * rows + i) * panels + p) * columns + j], lut);
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
const digits = (x) => Number(x.toPrecision(2)).toString().replace("-", "−");
fill($("field-row"), data.samples.map((sample) => [sample.row, sample.title]));
start($("field-row"), data.samples, (sample) => Object.keys(sample.predictions).length);
const current = () => data.samples.find((s) => s.row === $("field-row")?.value) ?? data.samples[0];
function chooseTask() {
  const sample = current();
  if (!sample) return;
  const models = Object.keys(sample.predictions);
  const entries = models.map((m) => [m, `${data.models[m].label} (seed ${sample.predictions[m].seed})`]);
  fill($("field-a"), entries); fill($("field-b"), entries);
  const preferred = (list) => list.find((m) => models.includes(m));
  $("field-a").value = preferred([sample.first, "sgno", "sgno-x"]) ?? models[0];
  $("field-b").value = sample.rival && models.includes(sample.rival) ? sample.rival : models.find((m) => m !== $("field-a").value) ?? models[0];
  const slider = $("time");
  slider.max = sample.shape[0] - 1;
  slider.value = sample.dims === 1 ? sample.shape[0] - 1 : Math.min(8, sample.shape[0] - 1);
  bar($("bar-field"), LUT.field); bar($("bar-error"), LUT.error);
  const a = sample.amplitude, e = data.errorScale, c = sample.center;
  ends("ends-field", [digits(c - a), digits(c), digits(c + a)]);
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
  const [one, two] = await Promise.all([film(sample, a), film(sample, b)]);
  if (ticket !== drawing) return;
  const { truth, field: fa, error: ea } = one, { field: fb, error: eb } = two;
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
on("field-row", "change", chooseTask);
for (const id of ["field-a", "field-b"]) on(id, "change", drawFields);
on("time", "input", drawFields);

/* ---- playing ---- */
function player(button, slider, draw, frames) {
  if (!button) return;
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
  drawGrowth(); drawSpectra(); drawRatios(); drawAblation(); drawCost(); drawHorizon(); drawFields();
}
let pending = null, wide = innerWidth;
addEventListener("resize", () => {
  // Scrolling on a phone hides its address bar: that is no new width.
  if (innerWidth === wide) return;
  wide = innerWidth; clearTimeout(pending); pending = setTimeout(redraw, 120);
});
chooseTask();
showTheme();
})();
