// Runs the ONNX files that `sgno export` writes: a reader of the format, the operators that our exporter emits,
// and a plan made once for fixed shapes. Plain JavaScript, no network, for a page or for Node:
//
//     const step = new OnnxStep(bytes, 1);   // a batch of one state
//     const next = step.run(state);          // Float32Array in, Float32Array out (valid until the next run)
"use strict";

const OnnxStep = (() => {
  const products = typeof require === "undefined" ? sgnoProducts : require("./product.js");

  // ---- the format: protocol buffers, of which we need four kinds of fields ----

  class Reader {
    constructor(bytes) {
      this.bytes = bytes;
      this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      this.at = 0;
    }

    varint() {
      let value = 0n, shift = 0n, byte;
      do {
        byte = this.bytes[this.at++];
        value |= BigInt(byte & 127) << shift;
        shift += 7n;
      } while (byte & 128);
      // Negative numbers are written as 2^64 - n.
      return Number(BigInt.asIntN(64, value));
    }

    // Calls `take(field, value)` for every field: numbers as numbers, everything else as bytes.
    fields(take) {
      while (this.at < this.bytes.length) {
        const key = this.varint(), kind = key & 7;
        if (kind === 0) take(key >>> 3, this.varint());
        else if (kind === 5) { take(key >>> 3, this.view.getFloat32(this.at, true)); this.at += 4; }
        else if (kind === 2) {
          const size = this.varint();
          take(key >>> 3, this.bytes.subarray(this.at, this.at + size));
          this.at += size;
        } else throw new Error(`This is not an ONNX file: a field of kind ${kind}.`);
      }
    }
  }

  const text = bytes => new TextDecoder().decode(bytes);
  const read = (bytes, take) => new Reader(bytes).fields(take);
  const packed = value => {
    if (typeof value === "number") return [value];
    const reader = new Reader(value), found = [];
    while (reader.at < value.length) found.push(reader.varint());
    return found;
  };

  // Types of ONNX: 1 float32, 9 bool, 6 int32, 7 int64, 11 float64. Whole numbers are kept in 32 bits.
  const ARRAYS = { 1: Float32Array, 11: Float32Array, 9: Uint8Array, 6: Int32Array, 7: Int32Array };

  function readTensor(bytes) {
    const tensor = { shape: [], type: 1, name: "" };
    let raw = new Uint8Array(0);
    read(bytes, (field, value) => {
      if (field === 1) tensor.shape.push(...packed(value));
      else if (field === 2) tensor.type = value;
      else if (field === 8) tensor.name = text(value);
      else if (field === 9) raw = value;
    });
    const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
    const get = {
      1: i => view.getFloat32(4 * i, true), 11: i => view.getFloat64(8 * i, true), 9: i => view.getUint8(i),
      6: i => view.getInt32(4 * i, true), 7: i => Number(view.getBigInt64(8 * i, true)),
    }[tensor.type];
    if (!get) throw new Error(`The file has a constant of type ${tensor.type}, which is not read here.`);
    tensor.data = ARRAYS[tensor.type].from({ length: sizeOf(tensor.shape) }, (_, i) => get(i));
    return tensor;
  }

  function readNode(bytes) {
    const node = { inputs: [], outputs: [], kind: "", attributes: {} };
    read(bytes, (field, value) => {
      if (field === 1) node.inputs.push(text(value));
      else if (field === 2) node.outputs.push(text(value));
      else if (field === 4) node.kind = text(value);
      else if (field === 5) {
        let name = "", scalar, many = [];
        read(value, (field, value) => {
          if (field === 1) name = text(value);
          else if (field === 2 || field === 3) scalar = value;
          else if (field === 8) many.push(...packed(value));
        });
        node.attributes[name] = scalar ?? many;
      }
    });
    return node;
  }

  function readModel(bytes) {
    const model = { nodes: [], constants: new Map(), inputs: [], outputs: [], metadata: {} };
    const info = bytes => {
      const found = { name: "", shape: [] };
      read(bytes, (f, v) => {
        if (f === 1) found.name = text(v);
        else if (f === 2) read(v, (f, v) => f === 1 && read(v, (f, v) => f === 2 && read(v, (f, v) => {
          let size = null;
          read(v, (f, v) => { if (f === 1) size = v; });
          found.shape.push(size);
        })));
      });
      return found;
    };
    read(bytes, (field, value) => {
      if (field === 7) read(value, (field, value) => {
        if (field === 1) model.nodes.push(readNode(value));
        else if (field === 5) { const t = readTensor(value); model.constants.set(t.name, t); }
        else if (field === 11) model.inputs.push(info(value));
        else if (field === 12) model.outputs.push(info(value));
      });
      else if (field === 14) {
        const pair = [];
        read(value, (f, v) => { pair[f - 1] = text(v); });
        model.metadata[pair[0]] = JSON.parse(pair[1]);
      }
    });
    return model;
  }

  // ---- shapes ----

  const sizeOf = shape => shape.reduce((a, b) => a * b, 1);
  const stridesOf = shape => {
    const strides = new Array(shape.length).fill(1);
    for (let i = shape.length - 2; i >= 0; i--) strides[i] = strides[i + 1] * shape[i + 1];
    return strides;
  };

  function broadcast(...shapes) {
    const rank = Math.max(...shapes.map(s => s.length)), out = new Array(rank).fill(1);
    for (const shape of shapes) shape.forEach((n, i) => {
      const at = rank - shape.length + i;
      if (n !== 1 && out[at] !== 1 && out[at] !== n) throw new Error(`Shapes do not fit: ${shapes.join(" and ")}.`);
      if (n !== 1) out[at] = n;
    });
    return out;
  }

  // Sizes of nested loops over `shape`, with the stride of every operand in each; neighbours that any operand
  // walks through in one go are one loop.
  function loops(shape, strides) {
    const levels = [];
    shape.forEach((n, axis) => {
      if (n === 1) return;
      const steps = strides.map(s => s[axis]), last = levels.at(-1);
      if (last && last.steps.every((s, i) => s === steps[i] * n)) { last.n *= n; last.steps = steps; }
      else levels.push({ n, steps });
    });
    return levels.length ? levels : [{ n: 1, steps: strides.map(() => 0) }];
  }

  // A loop nest as a function of its own, so that the compiler of the browser sees one operation and one type.
  const kernels = new Map();
  function kernel(depth, operands, expression) {
    const key = `${depth} ${operands} ${expression}`;
    if (!kernels.has(key)) {
      const names = Array.from({ length: operands }, (_, i) => `x${i}`);
      let code = "", indent = names.map((_, i) => `let p${i}_0 = o[${i}];`).join(" ");
      code += `const f32 = Math.fround; let q = 0; ${indent}\n`;
      for (let d = 0; d < depth; d++) {
        code += `const n${d} = n[${d}]; ${names.map((_, i) => `const s${i}_${d} = s[${d}][${i}];`).join(" ")}\n`;
      }
      for (let d = 0; d < depth; d++) {
        if (d) code += names.map((_, i) => `let p${i}_${d} = p${i}_${d - 1};`).join(" ") + "\n";
        code += `for (let i${d} = 0; i${d} < n${d}; i${d}++) {\n`;
      }
      const last = depth - 1;
      const values = names.map((x, i) => `const ${"abc"[i]} = ${x}[p${i}_${last}];`).join(" ");
      code += `${values} out[q++] = ${expression};\n`;
      for (let d = last; d >= 0; d--) code += names.map((_, i) => `p${i}_${d} += s${i}_${d};`).join(" ") + "}\n";
      kernels.set(key, new Function("out", ...names, "n", "s", "o", "erf", code));
    }
    return kernels.get(key);
  }

  // The entries of `inputs`, walked by `strides` over `shape` from `offsets` on, through an expression of a, b, c.
  function walk(out, inputs, shape, strides, expression, offsets = inputs.map(() => 0)) {
    const levels = loops(shape, strides), run = kernel(levels.length, inputs.length, expression);
    const n = levels.map(l => l.n), s = levels.map(l => l.steps);
    const data = inputs.map(x => x.data);
    return () => run(out.data, ...data, n, s, offsets, erf);
  }

  // erf by its Taylor series around the nearest of 1,024 places; the remainder is below 1e-11.
  const PER_UNIT = 256, LIMIT = 4;
  const ERF = new Float64Array(LIMIT * PER_UNIT + 2), SLOPE = new Float64Array(LIMIT * PER_UNIT + 2);
  for (let i = 0; i < ERF.length; i++) {
    const x = i / PER_UNIT;
    SLOPE[i] = 2 / Math.sqrt(Math.PI) * Math.exp(-x * x);
    // erf x = 2/sqrt(pi) e^(-x²) sum_n 2^n x^(2n+1) / (1 3 5 ... (2n+1)): every term is positive.
    let term = x, sum = x;
    for (let n = 1; term > 1e-17 * sum; n++) sum += term *= 2 * x * x / (2 * n + 1);
    ERF[i] = SLOPE[i] * sum;
  }
  function erf(x) {
    const size = Math.abs(x);
    if (!(size < LIMIT)) return x === x ? Math.sign(x) : x;
    const i = (size * PER_UNIT + 0.5) | 0, y = i / PER_UNIT, d = size - y;
    const found = ERF[i] + SLOPE[i] * d * (1 - d * (y - d * (2 * y * y - 1) / 3));
    return x < 0 ? -found : found;
  }

  // ---- operators: each gets its output's shape and type, and returns what to run at every step ----

  const ENTRYWISE = {
    Add: "a + b", Sub: "a - b", Mul: "a * b", Div: "a / b", Pow: "Math.pow(a, b)", Neg: "-a", Abs: "Math.abs(a)",
    Exp: "Math.exp(a)", Log: "Math.log(a)", Sqrt: "Math.sqrt(a)", Reciprocal: "1 / a", Sin: "Math.sin(a)",
    Cos: "Math.cos(a)", Tanh: "Math.tanh(a)", Sigmoid: "1 / (1 + Math.exp(-a))", Erf: "erf(a)",
    Sign: "Math.sign(a)", Floor: "Math.floor(a)",
    // NaN wins, as in ONNX Runtime; written out because Math.max with two numbers is slow.
    Max: "a > b || a !== a ? a : b", Min: "a < b || a !== a ? a : b",
    Greater: "a > b ? 1 : 0", GreaterOrEqual: "a >= b ? 1 : 0", Less: "a < b ? 1 : 0",
    LessOrEqual: "a <= b ? 1 : 0", Equal: "a === b ? 1 : 0", And: "a & b", Or: "a | b", Not: "a ? 0 : 1",
    IsNaN: "a !== a ? 1 : 0", IsInf: "a === Infinity || a === -Infinity ? 1 : 0", Where: "a ? b : c",
  };
  const TRUTH = new Set(["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "And", "Or", "Not", "IsNaN", "IsInf"]);

  const OPERATORS = {
    MatMul: matmul,
    Conv: conv,

    Shape: (node, [x], output) => {
      const out = output([x.shape.length], 7);
      return () => out.data.set(x.shape);
    },

    Transpose: (node, [x], output) => {
      const order = node.attributes.perm, strides = stridesOf(x.shape);
      const out = output(order.map(i => x.shape[i]), x.type);
      return walk(out, [x], out.shape, [order.map(i => strides[i])], "a");
    },

    Expand: (node, [x, shape], output) => {
      const out = output(broadcast(x.shape, [...shape.data]), x.type);
      return walk(out, [x], out.shape, [aligned(x.shape, out.shape)], "a");
    },

    Cast: (node, [x], output) => {
      const out = output(x.shape, node.attributes.to);
      return walk(out, [x], [sizeOf(x.shape)], [[1]], node.attributes.to === 9 ? "a ? 1 : 0" : "a");
    },

    Slice: (node, [x, starts, ends, axes, steps], output) => {
      const shape = [...x.shape], strides = stridesOf(x.shape);
      let offset = 0;
      [...axes.data].forEach((axis, i) => {
        const n = x.shape[axis], step = steps ? steps.data[i] : 1, place = v => Math.min(Math.max(v < 0 ? v + n : v, 0), n);
        const from = place(starts.data[i]);
        shape[axis] = Math.max(0, Math.ceil((place(ends.data[i]) - from) / step));
        offset += from * strides[axis];
        strides[axis] *= step;
      });
      const out = output(shape, x.type);
      return walk(out, [x], shape, [strides], "a", [offset]);
    },

    Concat: (node, xs, output) => {
      const axis = node.attributes.axis, shape = [...xs[0].shape];
      shape[axis] = xs.reduce((sum, x) => sum + x.shape[axis], 0);
      const out = output(shape, xs[0].type), rows = sizeOf(shape.slice(0, axis)), width = sizeOf(shape.slice(axis));
      const parts = xs.map(x => [x, sizeOf(x.shape.slice(axis))]);
      return () => {
        let start = 0;
        for (const [x, size] of parts) {
          for (let row = 0; row < rows; row++) {
            const from = row * size, to = row * width + start;
            for (let i = 0; i < size; i++) out.data[to + i] = x.data[from + i];
          }
          start += size;
        }
      };
    },

    Gather: (node, [x, index], output) => {
      const axis = node.attributes.axis ?? 0, n = x.shape[axis], inner = sizeOf(x.shape.slice(axis + 1));
      const outer = sizeOf(x.shape.slice(0, axis)), places = Int32Array.from(index.data, i => (i < 0 ? i + n : i));
      const out = output([...x.shape.slice(0, axis), ...index.shape, ...x.shape.slice(axis + 1)], x.type);
      return () => {
        let to = 0;
        for (let o = 0; o < outer; o++) for (let p = 0; p < places.length; p++) {
          const from = (o * n + places[p]) * inner;
          for (let i = 0; i < inner; i++) out.data[to++] = x.data[from + i];
        }
      };
    },

    ReduceSum: (node, [x, axes], output) => reduce(node, x, [...axes.data], output, 0, "r + a"),
    ReduceMax: (node, [x], output) => reduce(node, x, node.attributes.axes, output, -Infinity, "a > r || a !== a ? a : r"),
    ReduceMin: (node, [x], output) => reduce(node, x, node.attributes.axes, output, Infinity, "a < r || a !== a ? a : r"),
  };
  for (const [kind, expression] of Object.entries(ENTRYWISE)) {
    OPERATORS[kind] = (node, inputs, output) => {
      const shape = broadcast(...inputs.map(x => x.shape));
      const out = output(shape, TRUTH.has(kind) ? 9 : inputs.at(-1).type);
      return walk(out, inputs, shape, inputs.map(x => aligned(x.shape, shape)), expression);
    };
  }

  // Strides of an operand in a larger shape: 0 along what is repeated.
  function aligned(shape, larger) {
    const strides = stridesOf(shape).map((s, i) => (shape[i] === 1 ? 0 : s));
    return [...new Array(larger.length - shape.length).fill(0), ...strides];
  }

  function reduce(node, x, axes, output, start, expression) {
    axes = axes.map(a => (a < 0 ? a + x.shape.length : a));
    const kept = x.shape.map((_, i) => i).filter(i => !axes.includes(i)), strides = stridesOf(x.shape);
    const shape = node.attributes.keepdims === 0 ? kept.map(i => x.shape[i])
      : x.shape.map((n, i) => (axes.includes(i) ? 1 : n));
    const out = output(shape, x.type), step = new Function("r", "a", `return ${expression};`);
    const places = which => offsets(which.map(i => x.shape[i]), which.map(i => strides[i]));
    const starts = places(kept), inside = places(axes);
    return () => {
      for (let o = 0; o < starts.length; o++) {
        let r = start;
        for (let i = 0; i < inside.length; i++) r = step(r, x.data[starts[o] + inside[i]]);
        out.data[o] = r;
      }
    };
  }

  function offsets(shape, strides) {
    let found = [0];
    shape.forEach((n, axis) => { found = found.flatMap(o => Array.from({ length: n }, (_, i) => o + i * strides[axis])); });
    return Int32Array.from(found);
  }

  function matmul(node, [left, right], output, fast) {
    let rows = left.shape.at(-2), over = broadcast(left.shape.slice(0, -2), right.shape.slice(0, -2));
    const inner = left.shape.at(-1), columns = right.shape.at(-1);
    const out = output([...over, rows, columns], left.type);
    if (sizeOf(right.shape) === inner * columns) {
      // One matrix for all: its rows are those of one tall product.
      rows *= sizeOf(over);
      over = [];
    }
    const starts = (x, size) =>
      over.length ? [...offsets(over, aligned(x.shape.slice(0, -2), over))].map(i => i * size) : [0];
    const operand = x => ({ data: x.data, constant: x.memory === undefined });
    return products.planned(fast, out.data, operand(left), operand(right), starts(left, rows * inner),
      starts(right, inner * columns), rows, inner, columns);
  }

  // A convolution as one product for each sample and group, of the kernel with the patches.
  function conv(node, [x, w], output, fast) {
    const [batch, channels, ...points] = x.shape, [filters, perGroup, ...size] = w.shape;
    const { strides, dilations, pads, group = 1 } = node.attributes, dims = points.length;
    const result = points.map((n, d) =>
      Math.floor((n + pads[d] + pads[d + dims] - dilations[d] * (size[d] - 1) - 1) / strides[d]) + 1);
    const out = output([batch, filters, ...result], x.type), columns = sizeOf(result), taps = sizeOf(size);
    const inner = perGroup * taps, perOut = filters / group, area = sizeOf(points);
    // For each tap and place of the result, the place in the input, or -1 in the padding.
    const from = new Int32Array(taps * columns), taken = stridesOf(points);
    const unravel = (i, shape) => shape.map((n, d) => Math.floor(i / stridesOf(shape)[d]) % n);
    for (let t = 0; t < taps; t++) for (let c = 0; c < columns; c++) {
      const tap = unravel(t, size), place = unravel(c, result);
      const at = place.map((p, d) => p * strides[d] - pads[d] + tap[d] * dilations[d]);
      const inside = at.every((p, d) => p >= 0 && p < points[d]);
      from[t * columns + c] = inside ? at.reduce((sum, p, d) => sum + p * taken[d], 0) : -1;
    }
    const patches = new Float32Array(inner * columns), found = new Float32Array(perOut * columns);
    const runs = Array.from({ length: group }, (_, g) => products.planned(fast, found,
      { data: w.data, constant: true }, { data: patches }, [g * perOut * inner], [0], perOut, inner, columns));
    return () => {
      for (let b = 0; b < batch; b++) for (let g = 0; g < group; g++) {
        for (let c = 0; c < perGroup; c++) {
          const start = (b * channels + g * perGroup + c) * area, to = c * taps * columns;
          for (let i = 0; i < from.length; i++) patches[to + i] = from[i] < 0 ? 0 : x.data[start + from[i]];
        }
        runs[g]();
        out.data.set(found, (b * filters + g * perOut) * columns);
      }
    };
  }

  // ---- the plan ----

  return class OnnxStep {
    // Shapes are known once the batch is, so that everything is laid out once and memory is used again.
    constructor(bytes, batch = 1, fast = products.makeFast()) {
      this.fast = fast;
      const model = readModel(bytes), tensors = new Map(model.constants), uses = new Map();
      this.metadata = model.metadata;
      this.work = [];
      for (const node of model.nodes) for (const name of node.inputs) uses.set(name, (uses.get(name) ?? 0) + 1);
      const [given] = model.inputs, [asked] = model.outputs;
      this.shape = given.shape.map((n, axis) => n ?? (axis === 0 ? batch : n));
      const data = new Float32Array(sizeOf(this.shape));
      this.input = { shape: this.shape, type: 1, data, memory: null };
      tensors.set(given.name, this.input);
      uses.set(asked.name, 1);
      const free = [];
      for (const node of model.nodes) {
        const inputs = node.inputs.map(name => tensors.get(name));
        // What does not depend on the state is computed now; shapes do not, either.
        const constant = node.kind === "Shape" || inputs.every(x => x.memory === undefined);
        tensors.set(node.outputs[0], this.plan(node, inputs, constant, free, uses.get(node.outputs[0]) ?? 0));
        for (const x of inputs) if (x.memory && --x.memory.uses === 0) free.push(x.memory);
      }
      this.output = tensors.get(asked.name);
    }

    plan(node, inputs, constant, free, uses) {
      const { kind } = node;
      if (kind === "Identity" || kind === "Reshape") {
        const x = inputs[0], shape = kind === "Identity" ? x.shape : reshaped(x.shape, [...inputs[1].data]);
        if (x.memory) x.memory.uses += uses;
        return { ...x, shape };
      }
      let out;
      const output = (shape, type) => {
        const Kind = ARRAYS[type], size = sizeOf(shape);
        if (constant) return (out = { shape, type, data: new Kind(size) });
        const found = free.findIndex(m => m.data.length === size && m.data instanceof Kind);
        const memory = found < 0 ? { data: new Kind(size) } : free.splice(found, 1)[0];
        memory.uses = uses;
        return (out = { shape, type, data: memory.data, memory });
      };
      if (!OPERATORS[kind]) throw new Error(`The file uses the operator ${kind}, which is not known here.`);
      const run = OPERATORS[kind](node, inputs, output, constant ? null : this.fast);
      if (constant) run();
      else this.work.push(run);
      return out;
    }

    run(state) {
      this.input.data.set(state);
      for (let i = 0; i < this.work.length; i++) this.work[i]();
      return this.output.data;
    }
  };

  function reshaped(shape, wanted) {
    const known = wanted.map((n, i) => (n === 0 ? shape[i] : n));
    const rest = sizeOf(shape) / sizeOf(known.filter(n => n >= 0));
    return known.map(n => (n < 0 ? rest : n));
  }
})();

if (typeof module !== "undefined") module.exports = { OnnxStep };
