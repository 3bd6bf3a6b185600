// The playground: models that run in the page, a state that can be drawn on, and what becomes of it.
"use strict";

const playground = (() => {
  const $ = id => document.getElementById(id);
  const content = JSON.parse($("models").textContent);
  // Pictures kept for scrubbing back.
  const MOST_BYTES = 64e6, PAST = 300;
  const steps = new Map();
  let first, second, start, channel = 0, playing = false, frames = [], dropped = 0, shown = 0, top = 1, rate = null;

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // ---- the rollout ----

  async function load(name) {
    const model = content.models.find(m => m.name === name);
    if (!steps.has(name)) {
      $("status").textContent = `Loading ${name}.`;
      steps.set(name, new OnnxStep(await unpack(model.onnx)));
    }
    return { ...model, step: steps.get(name) };
  }

  // Those of a model's own task come first: "ks1d/sgno" starts from "ks1d, test 0".
  const task = name => name.split(/[/,]/)[0];
  const ownFirst = (list, model) => {
    const fits = list.filter(x => x.name !== model.name && String(x.shape) === String(model.shape));
    return [...fits.filter(x => task(x.name) === task(model.name)), ...fits.filter(x => task(x.name) !== task(model.name))];
  };
  const startsOf = model => ownFirst(content.starts, model);

  // Another first model brings its own starts and its own rival.
  async function choose(changed = true) {
    first = await load($("first").value);
    const others = ownFirst(content.models, first).map(m => [m.name, m.name]);
    const related = others.filter(([name]) => task(name) === task(first.name)).length;
    others.splice(related, 0, ["", "nothing"]);
    fill($("second"), others, changed);
    fill($("start"), [...startsOf(first).map((s, i) => [String(i), s.name]), ["flat", "an empty state"]], changed);
    fill($("channel"), Array.from({ length: first.shape[0] }, (_, i) => [String(i), String(i)]));
    $("channels").hidden = first.shape[0] === 1;
    $("brushes").hidden = first.shape.length === 2;
    second = $("second").value ? await load($("second").value) : null;
    channel = Number($("channel").value);
    await restart();
  }

  function fill(select, options, anew = false) {
    const before = select.options.length && !anew ? select.value : null;
    select.replaceChildren(...options.map(([value, label]) => new Option(label, value)));
    if (options.some(([value]) => value === before)) select.value = before;
  }

  async function restart() {
    const found = startsOf(first)[Number($("start").value)];
    const size = first.shape.reduce((a, b) => a * b, 1);
    start = found ? new Float32Array((await unpack(found.data)).buffer) : new Float32Array(size);
    begin(start);
  }

  // A new rollout of both models from one state.
  function begin(state) {
    const u = Float32Array.from(state);
    frames = [record(u, second && u)];
    dropped = shown = 0;
    const known = startsOf(first)[0];
    top = Math.max(largest(u), known ? known.largest : 1) * 1.1;
    draw();
  }

  function record(u, v) {
    const frame = { u, v, size: rms(u), sizeOfSecond: v && rms(v) };
    if (v) {
      let sum = 0;
      for (let i = 0; i < u.length; i++) sum += (u[i] - v[i]) ** 2;
      frame.difference = Math.sqrt(sum / u.length) / Math.max(frame.size, 1e-30);
    }
    return frame;
  }

  const last = () => frames.at(-1);
  const rms = u => { let sum = 0; for (let i = 0; i < u.length; i++) sum += u[i] * u[i]; return Math.sqrt(sum / u.length); };
  const largest = u => { let most = 0; for (let i = 0; i < u.length; i++) most = Math.max(most, Math.abs(u[i])); return most; };

  function advance(count) {
    // Going on from where the reader has scrubbed to.
    frames.length = shown + 1;
    for (let i = 0; i < count; i++) {
      const { u, v } = last(), before = performance.now();
      const next = Float32Array.from(first.step.run(u));
      const other = second && Float32Array.from(second.step.run(v));
      const took = performance.now() - before;
      rate = rate === null ? took : 0.9 * rate + 0.1 * took;
      frames.push(record(next, other));
      if (frames.length * next.byteLength * (second ? 2 : 1) > MOST_BYTES) { frames.shift(); dropped++; }
      if (!Number.isFinite(last().size)) { pause(); break; }
    }
    shown = frames.length - 1;
  }

  // ---- time ----

  function play() { playing = true; $("play").textContent = "Pause"; requestAnimationFrame(tick); }
  function pause() { playing = false; $("play").textContent = "Play"; }
  function tick() {
    if (!playing) return;
    advance(Number($("speed").value));
    draw();
    if (playing) requestAnimationFrame(tick);
  }

  // ---- drawing on the state ----

  // In 1D the line follows the pointer; in 2D and 3D a bump is added or taken away, in 3D in the middle slice.
  function paint(x, y, strength = Number($("brush").value)) {
    const u = Float32Array.from(frames[shown].u), points = first.shape.slice(1), size = points.reduce((a, b) => a * b, 1);
    const near = (i, place, n) => { const d = Math.abs(i - place); return Math.min(d, n - d); };
    const offset = channel * size;
    if (points.length === 1) {
      const [n] = points, width = n / 40, value = (1 - 2 * y) * top;
      for (let i = 0; i < n; i++) {
        const w = Math.exp(-0.5 * (near(i, x * n, n) / width) ** 2);
        u[offset + i] += w * (value - u[offset + i]);
      }
    } else {
      // The first of the last two axes goes to the right, the second upwards, as in the figures of the package.
      const at = [...points.slice(0, -2).map(n => n >> 1), x * points.at(-2), (1 - y) * points.at(-1)];
      for (let i = 0; i < size; i++) {
        let rest = i, squares = 0;
        for (let d = points.length - 1; d >= 0; d--) {
          squares += (near(rest % points[d], at[d], points[d]) / (points[d] / 24)) ** 2;
          rest = Math.floor(rest / points[d]);
        }
        u[offset + i] += 0.3 * strength * top * Math.exp(-0.5 * squares);
      }
    }
    begin(u);
  }

  function listen(canvas) {
    let held = false;
    const at = event => {
      const box = canvas.getBoundingClientRect(), part = (v, from, size) => Math.min(Math.max((v - from) / size, 0), 1);
      paint(part(event.clientX, box.left, box.width), part(event.clientY, box.top, box.height));
    };
    canvas.addEventListener("pointerdown", event => { held = true; canvas.setPointerCapture(event.pointerId); at(event); });
    canvas.addEventListener("pointermove", event => held && at(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { held = false; });
  }

  // ---- pictures ----

  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Blue, white, red, and back to dark at both ends.
  const STOPS = [[5, 48, 97], [67, 147, 195], [247, 247, 247], [214, 96, 77], [103, 0, 31]];
  const SHADES = Array.from({ length: 256 }, (_, i) => {
    const x = i / 255 * (STOPS.length - 1), j = Math.min(Math.floor(x), STOPS.length - 2);
    return STOPS[j].map((v, c) => v + (x - j) * (STOPS[j + 1][c] - v));
  });

  function image(canvas, width, height, value, scale) {
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    const context = canvas.getContext("2d"), picture = context.createImageData(width, height);
    for (let y = 0, to = 0; y < height; y++) for (let x = 0; x < width; x++, to += 4) {
      const v = value(x, y);
      // What has not happened yet stays empty; what is not finite is grey.
      if (v === undefined) continue;
      const shade = v === v ? SHADES[Math.min(Math.max(Math.round(127.5 + 127.5 * v / scale), 0), 255)] : [136, 136, 136];
      picture.data[to] = shade[0]; picture.data[to + 1] = shade[1]; picture.data[to + 2] = shade[2]; picture.data[to + 3] = 255;
    }
    context.putImageData(picture, 0, 0);
  }

  function sized(canvas) {
    const scale = window.devicePixelRatio || 1, width = Math.round(canvas.clientWidth * scale), height = Math.round(canvas.clientHeight * scale);
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    return context;
  }

  function line(context, values, low, high, style) {
    const { clientWidth: width, clientHeight: height } = context.canvas;
    context.strokeStyle = style;
    context.lineWidth = 1.8;
    context.beginPath();
    values.forEach((v, i) => {
      const x = values.length < 2 ? 0 : i / (values.length - 1) * width, y = height * (1 - (v - low) / (high - low));
      if (Number.isFinite(y)) context.lineTo(x, y);
    });
    context.stroke();
  }

  // Curves of several series in one frame, with the range written at the edges.
  function curves(canvas, series, { log = false, zero = false, label = v => v.toPrecision(2) } = {}) {
    const context = sized(canvas), put = v => (log ? Math.log10(Math.max(v, 1e-9)) : v);
    const values = series.map(s => s.values.map(put)), all = values.flat().filter(Number.isFinite);
    let low = zero ? 0 : Math.min(...all), high = Math.max(...all);
    if (!all.length) return;
    if (high - low < 1e-9) { low -= 0.5; high += 0.5; }
    const margin = 0.16 * (high - low);
    values.forEach((v, i) => line(context, v, low - (zero ? 0 : margin), high + margin, colour(series[i].colour)));
    context.fillStyle = colour("--soft");
    context.font = "12px system-ui, sans-serif";
    const back = v => label(log ? 10 ** v : v);
    context.fillText(back(high), 6, 14);
    context.fillText(back(low), 6, canvas.clientHeight - 6);
  }

  // The middle slice in 3D: (x, y) -> value with x to the right.
  function slice(u) {
    const points = first.shape.slice(1), size = points.reduce((a, b) => a * b, 1), [width, height] = points.slice(-2);
    const begin = channel * size + (points.length === 3 ? (points[0] >> 1) * width * height : 0);
    return { width, height, at: (x, y) => u[begin + x * height + height - 1 - y] };
  }

  function view(id, name, u, pick, scale) {
    const figure = $(id), [field, past] = figure.querySelectorAll("canvas"), flat = first.shape.length === 2;
    figure.querySelector("figcaption").textContent = name;
    past.hidden = !flat;
    if (flat) {
      const n = first.shape[1], from = channel * n, context = sized(field);
      context.fillStyle = colour("--line");
      context.fillRect(0, field.clientHeight / 2, field.clientWidth, 1);
      line(context, u.subarray(from, from + n), -scale, scale, colour(id === "view-second" ? "--two" : "--one"));
      // Time to the right, space upwards.
      const since = Math.max(0, shown - PAST + 1);
      image(past, PAST, n, (x, y) => (since + x <= shown ? pick(frames[since + x])[from + n - 1 - y] : undefined), scale);
    } else {
      const { width, height, at } = slice(u);
      image(field, width, height, at, scale);
      field.style.aspectRatio = `${width} / ${height}`;
    }
  }

  // Amplitudes of the modes, by shells of whole wavenumbers in 2D; a direct sum is quick enough here.
  function spectrum(u) {
    if (first.shape.length === 2) return transform([...u.subarray(channel * first.shape[1], (channel + 1) * first.shape[1])]).slice(1).map(c => Math.hypot(...c));
    const { width, height, at } = slice(u), rows = [];
    for (let x = 0; x < width; x++) rows.push(transform(Array.from({ length: height }, (_, y) => at(x, y))));
    const shells = new Array(Math.floor(Math.min(width, height) / 2)).fill(0);
    for (let k = 0; k < rows[0].length; k++) {
      const column = transform(rows.map(r => r[k][0]), rows.map(r => r[k][1]));
      column.forEach((c, j) => {
        const shell = Math.round(Math.hypot(k, Math.min(j, width - j))) - 1;
        if (shell >= 0 && shell < shells.length) shells[shell] += (k ? 2 : 1) * (c[0] ** 2 + c[1] ** 2);
      });
    }
    return shells.map(Math.sqrt);
  }

  // Mean of u e^(-i k x): half of the modes for real input, all for complex.
  const tables = new Map();
  function transform(real, imaginary = null) {
    const n = real.length, found = [];
    if (!tables.has(n)) tables.set(n, Array.from({ length: n }, (_, i) => [Math.cos(2 * Math.PI * i / n), Math.sin(2 * Math.PI * i / n)]));
    const table = tables.get(n);
    for (let k = 0; k < (imaginary ? n : n / 2 + 1); k++) {
      let a = 0, b = 0;
      for (let i = 0, at = 0; i < n; i++, at = (at + k) % n) {
        const [c, s] = table[at];
        a += real[i] * c; b -= real[i] * s;
        if (imaginary) { a += imaginary[i] * s; b += imaginary[i] * c; }
      }
      found.push([a / n, b / n]);
    }
    return found;
  }

  function draw() {
    const frame = frames[shown], size = frame.size;
    $("views").classList.toggle("line", first.shape.length === 2);
    for (const id of ["view-second", "view-difference", "errors"]) $(id).hidden = !second;
    view("view-first", `${first.name}: draw here`, frame.u, f => f.u, top);
    if (second) {
      const minus = f => f.u.map((x, i) => x - f.v[i]), error = minus(frame), scale = Math.max(largest(error), 1e-6 * top);
      view("view-second", `${second.name}: draw here`, frame.v, f => f.v, top);
      view("view-difference", `Difference, up to ${scale.toPrecision(2)}`, error, minus, scale);
    }
    const both = (u, v) => [{ values: u, colour: "--one" }, ...(second ? [{ values: v, colour: "--two" }] : [])];
    // Beyond one dimension the transform takes a while: at every eighth picture of a film.
    if (!playing || first.shape.length === 2 || shown % 8 === 0) {
      curves($("spectrum"), both(spectrum(frame.u), second && spectrum(frame.v)), { log: true, label: v => v.toExponential(0) });
    }
    const until = frames.slice(0, shown + 1);
    curves($("size"), both(until.map(f => f.size), until.map(f => f.sizeOfSecond)), { zero: true });
    if (second) curves($("difference"), [{ values: until.map(f => f.difference), colour: "--one" }], { log: true, label: v => v.toExponential(0) });
    $("scrub").max = frames.length - 1 + dropped;
    $("scrub").min = dropped;
    $("scrub").value = shown + dropped;
    $("now").textContent = shown + dropped;
    say(size, frame.sizeOfSecond);
  }

  // The monitor: a state that is not finite, or far larger or smaller than any state that the rollout started from.
  function say(size, other) {
    const known = startsOf(first), most = Math.max(...known.map(s => s.rms), frames[0].size), problems = [];
    for (const [model, value] of [[first, size], [second, other]]) {
      if (!model || value === null) continue;
      if (!Number.isFinite(value)) problems.push(`${model.name} is no longer finite at step ${shown + dropped}`);
      else if (value > 3 * most) problems.push(`${model.name} is ${(value / most).toFixed(1)} times as large as the states it started from`);
    }
    const difference = frames[shown].difference;
    const facts = [rate === null ? "Draw on the state, or press Play." : `${rate.toFixed(1)} ms per step.`, `Root mean square ${size.toPrecision(3)}.`];
    if (second) facts.push(`The two differ by ${(100 * difference).toPrecision(2)} %.`);
    $("status").textContent = problems.length ? `${problems.join("; ")}.` : facts.join(" ");
    $("status").classList.toggle("warn", problems.length > 0);
  }

  // ---- start ----

  const handle = (id, event, action) => $(id).addEventListener(event, action);
  handle("first", "change", () => choose());
  handle("second", "change", () => choose(false));
  handle("start", "change", restart);
  handle("channel", "change", () => { channel = Number($("channel").value); draw(); });
  handle("play", "click", () => (playing ? pause() : play()));
  handle("once", "click", () => { pause(); advance(1); draw(); });
  handle("again", "click", restart);
  handle("scrub", "input", () => { pause(); shown = Number($("scrub").value) - dropped; draw(); });
  window.addEventListener("resize", () => draw());
  for (const id of ["view-first", "view-second"]) listen($(id).querySelector(".field"));
  fill($("first"), content.models.map(m => [m.name, m.name]));
  const ready = choose();
  return { ready, advance: n => { advance(n); draw(); }, state: () => frames[shown].u, step: () => shown + dropped, paint };
})();
