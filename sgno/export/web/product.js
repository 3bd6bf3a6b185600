// Products of row-major float32 matrices: in plain JavaScript, and in WebAssembly with four numbers at a time
// where a browser has it. The program is written out here, instruction by instruction: it is one loop nest.
"use strict";

const sgnoProducts = (() => {
  // out = left right; `o`, `l`, `r` are where they start. Tiles of 4 x 4 stay in registers.
  function plain(out, left, right, o, l, r, rows, inner, columns) {
    const tiledRows = rows - rows % 4, tiledColumns = columns - columns % 4;
    for (let i = 0; i < tiledRows; i += 4) {
      const l0 = l + i * inner, l1 = l0 + inner, l2 = l1 + inner, l3 = l2 + inner;
      for (let j = 0; j < tiledColumns; j += 4) {
        let c00 = 0, c01 = 0, c02 = 0, c03 = 0, c10 = 0, c11 = 0, c12 = 0, c13 = 0;
        let c20 = 0, c21 = 0, c22 = 0, c23 = 0, c30 = 0, c31 = 0, c32 = 0, c33 = 0;
        for (let k = 0, at = r + j; k < inner; k++, at += columns) {
          const b0 = right[at], b1 = right[at + 1], b2 = right[at + 2], b3 = right[at + 3];
          const a0 = left[l0 + k], a1 = left[l1 + k], a2 = left[l2 + k], a3 = left[l3 + k];
          c00 += a0 * b0; c01 += a0 * b1; c02 += a0 * b2; c03 += a0 * b3;
          c10 += a1 * b0; c11 += a1 * b1; c12 += a1 * b2; c13 += a1 * b3;
          c20 += a2 * b0; c21 += a2 * b1; c22 += a2 * b2; c23 += a2 * b3;
          c30 += a3 * b0; c31 += a3 * b1; c32 += a3 * b2; c33 += a3 * b3;
        }
        let to = o + i * columns + j;
        out[to] = c00; out[to + 1] = c01; out[to + 2] = c02; out[to + 3] = c03; to += columns;
        out[to] = c10; out[to + 1] = c11; out[to + 2] = c12; out[to + 3] = c13; to += columns;
        out[to] = c20; out[to + 1] = c21; out[to + 2] = c22; out[to + 3] = c23; to += columns;
        out[to] = c30; out[to + 1] = c31; out[to + 2] = c32; out[to + 3] = c33;
      }
    }
    edge(out, left, right, o, l, r, 0, tiledRows, tiledColumns, inner, columns);
    edge(out, left, right, o, l, r, tiledRows, rows, 0, inner, columns);
  }

  // Rows `first` to `last`, columns from `from` on.
  function edge(out, left, right, o, l, r, first, last, from, inner, columns) {
    for (let i = first; i < last; i++) for (let j = from; j < columns; j++) {
      let c = 0;
      for (let k = 0, a = l + i * inner, b = r + j; k < inner; k++, a++, b += columns) c += left[a] * right[b];
      out[o + i * columns + j] = c;
    }
  }

  // ---- WebAssembly: product(a, b, c, rows, aRow, row), pointers and lengths of rows in bytes ----

  // Rows come by four and columns by eight, so that a tile is eight vectors of four numbers.
  const ROWS = 4, COLUMNS = 8;

  function program() {
    const number = n => { const out = []; do { out.push((n & 127) | (n > 127 ? 128 : 0)); n >>>= 7; } while (n); return out; };
    const vector = items => [...number(items.length), ...items.flat()];
    const section = (id, content) => [id, ...number(content.length), ...content];
    const get = i => [0x20, ...number(i)], set = i => [0x21, ...number(i)], constant = n => [0x41, ...number(n)];
    const add = [0x6a], lessThan = [0x49], end = [0x0b], zero = [0xfd, 0x0c, ...new Array(16).fill(0)];
    const load = offset => [0xfd, 0x00, 2, ...number(offset)], store = offset => [0xfd, 0x0b, 2, ...number(offset)];
    const splat = [0xfd, 0x09, 2, 0], plus = [0xfd, 0xe4, 1], times = [0xfd, 0xe6, 1];
    const loop = (...body) => [0x03, 0x40, ...body.flat(), 0x0d, 0, ...end];
    const step = (i, by) => [get(i), by, add, set(i)].flat();
    const [a, b, c, rows, aRow, row, at, stop, column, to, ...rest] = Array.from({ length: 25 }, (_, i) => i);
    const lefts = rest.slice(0, ROWS), sums = rest.slice(ROWS, ROWS + 8), [b0, b1, value] = rest.slice(ROWS + 8);
    const tile = Array.from({ length: ROWS }, (_, i) => i);
    const code = loop(
      [...constant(0), ...set(column)],
      loop(
        sums.flatMap(s => [...zero, ...set(s)]),
        [...get(a), ...set(lefts[0])],
        tile.slice(1).flatMap(i => [...get(lefts[i - 1]), ...get(aRow), ...add, ...set(lefts[i])]),
        [...get(b), ...get(column), ...add, ...set(at)],
        [...get(a), ...get(aRow), ...add, ...set(stop)],
        loop(
          [...get(at), ...load(0), ...set(b0), ...get(at), ...load(16), ...set(b1)],
          tile.flatMap(i => [
            ...get(lefts[i]), ...splat, ...set(value),
            ...[b0, b1].flatMap((part, j) => [
              ...get(sums[2 * i + j]), ...get(value), ...get(part), ...times, ...plus, ...set(sums[2 * i + j]),
            ]),
            ...step(lefts[i], constant(4)),
          ]),
          step(at, get(row)),
          [...get(lefts[0]), ...get(stop), ...lessThan],
        ),
        [...get(c), ...get(column), ...add, ...set(to)],
        tile.flatMap(i => [
          ...get(to), ...get(sums[2 * i]), ...store(0), ...get(to), ...get(sums[2 * i + 1]), ...store(16),
          ...step(to, get(row)),
        ]),
        step(column, constant(4 * COLUMNS)),
        [...get(column), ...get(row), ...lessThan],
      ),
      tile.flatMap(() => [...step(a, get(aRow)), ...step(c, get(row))]),
      [...get(rows), ...constant(ROWS), 0x6b, ...set(rows)],
      [...constant(0), ...get(rows), ...lessThan],
    );
    const i32 = 0x7f, v128 = 0x7b, numbers = 4 + ROWS, vectors = 8 + 3;
    const body = [...vector([[numbers, i32], [vectors, v128]]), ...code, ...end];
    const name = text => vector([...text].map(s => [s.charCodeAt(0)]));
    return Uint8Array.from([
      0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
      ...section(1, vector([[0x60, ...vector(new Array(6).fill([i32])), 0]])),
      ...section(2, vector([[...name("js"), ...name("memory"), 2, 0, 1]])),
      ...section(3, vector([[0]])),
      ...section(7, vector([[...name("product"), 0, 0]])),
      ...section(10, vector([[...number(body.length), ...body]])),
    ]);
  }

  // The memory of the program: constants from the bottom up, and above them one place for a product's operands.
  class Fast {
    constructor() {
      this.memory = new WebAssembly.Memory({ initial: 1 });
      const module = new WebAssembly.Module(program());
      this.product = new WebAssembly.Instance(module, { js: { memory: this.memory } }).exports.product;
      this.kept = 0;
      this.view = new Float32Array(this.memory.buffer);
    }

    reserve(floats) {
      const missing = 4 * floats - this.memory.buffer.byteLength;
      if (missing > 0) {
        this.memory.grow(Math.ceil(missing / 65536));
        this.view = new Float32Array(this.memory.buffer);
      }
    }

    // A function that computes out = left right for `count` pairs of matrices; the pairs start at `l` and `r`.
    // Matrices marked as constant are copied once.
    plan(out, left, right, l, r, rows, inner, columns) {
      const tall = up(rows, ROWS), wide = up(columns, COLUMNS), sizes = [tall * inner, inner * wide, tall * wide];
      const lefts = left.constant ? this.keep(left.data, l, tall * inner, rows, inner, inner) : null;
      const rights = right.constant ? this.keep(right.data, r, inner * wide, inner, columns, wide) : null;
      return () => {
        this.reserve(this.kept + sizes[0] + sizes[1] + sizes[2]);
        const { view } = this, a = this.kept, b = a + sizes[0], c = b + sizes[1];
        for (let i = 0; i < l.length; i++) {
          if (!lefts && (i === 0 || l[i] !== l[i - 1])) copy(left.data, l[i], inner, view, a, inner, rows, inner);
          if (!rights && (i === 0 || r[i] !== r[i - 1])) copy(right.data, r[i], columns, view, b, wide, inner, columns);
          this.product(4 * (lefts ? lefts[i] : a), 4 * (rights ? rights[i] : b), 4 * c, tall, 4 * inner, 4 * wide);
          copy(view, c, wide, out, i * rows * columns, columns, rows, columns);
        }
      };
    }

    keep(data, starts, size, rows, columns, width) {
      const places = new Map();
      return starts.map(start => {
        if (!places.has(start)) {
          const at = this.kept;
          this.kept += up(size, 4);
          this.reserve(this.kept);
          copy(data, start, columns, this.view, at, width, rows, columns);
          places.set(start, at);
        }
        return places.get(start);
      });
    }
  }

  const up = (n, by) => Math.ceil(n / by) * by;

  function copy(from, start, stride, to, place, width, rows, columns) {
    if (stride === width) to.set(from.subarray(start, start + rows * stride), place);
    else for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) to[place + i * width + j] = from[start + i * stride + j];
  }

  // Below this many multiplications, copying costs more than the vectors save.
  const LEAST = 4096;

  // What runs the products of one place in a graph: `left` and `right` are {data, constant}.
  function planned(fast, out, left, right, l, r, rows, inner, columns) {
    if (fast && rows * inner * columns >= LEAST) return fast.plan(out, left, right, l, r, rows, inner, columns);
    return () => {
      for (let i = 0; i < l.length; i++) {
        plain(out, left.data, right.data, i * rows * columns, l[i], r[i], rows, inner, columns);
      }
    };
  }

  // null where a browser has no WebAssembly vectors.
  function makeFast() {
    try {
      return new Fast();
    } catch {
      return null;
    }
  }

  return { planned, makeFast, plain };
})();

if (typeof module !== "undefined") module.exports = sgnoProducts;
