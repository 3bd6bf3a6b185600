"""The ONNX graph while it is written, and the walk over a traced program that writes it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from sgno.errors import InputError

# A loop is written out; longer ones would make files of a size that nobody wants.
_LONGEST_LOOP = 64
_INLINED = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "remat2",
    "checkpoint",
)


class Tensor(NamedTuple):
    """A value that depends on the state: the names of its parts, real or real and imaginary.

    `shape` is the shape that JAX sees; in ONNX the batch stands before it.
    """

    parts: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype


Value = Tensor | Any


def is_complex(value: Value) -> bool:
    return len(value.parts) == 2 if isinstance(value, Tensor) else np.iscomplexobj(value)


class Graph:
    """Nodes and constants of the ONNX graph while it is written."""

    def __init__(self, onnx: Any):
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._constants: dict[tuple, str] = {}
        self._batch: str | None = None

    def node(self, kind: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        name = output or f"t{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def const(self, value: Any) -> str:
        array = np.ascontiguousarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = name = f"c{len(self._constants)}"
            self.initializers.append(self.onnx.numpy_helper.from_array(array, name))
        return self._constants[key]

    def parts(self, value: Value, count: int) -> tuple[str, ...]:
        """The names of a value's parts, with a zero imaginary part where two are wanted of a real value."""
        if isinstance(value, Tensor):
            names = value.parts
        elif np.iscomplexobj(value):
            names = (self.const(plain(value.real)), self.const(plain(value.imag)))
        else:
            names = (self.const(plain(value)),)
        if count == 2 and len(names) == 1:
            zero = np.zeros((), np.float32)
            names = (names[0], self.const(zero))
        return names

    def tensor(self, value: Value, count: int = 1) -> Tensor:
        """A value as a tensor with at least `count` parts; a constant is repeated for every state."""
        if isinstance(value, Tensor) and len(value.parts) >= count:
            return value
        names = self.parts(value, max(count, 2 if is_complex(value) else 1))
        if isinstance(value, Tensor):
            return Tensor((names[0], self.mul(names[0], names[1])), value.shape, value.dtype)
        if self._batch is None:
            size = self.node("Shape", ["u"])
            self._batch = self.node("Gather", [size, self.const(np.array([0], np.int64))], axis=0)
        shape = self.node("Concat", [self._batch, self.const(np.array(value.shape, np.int64))], axis=0)
        names = tuple(self.node("Expand", [name, shape]) for name in names)
        return Tensor(names, value.shape, plain(value.real).dtype)

    def run(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr; what depends on constants alone is computed at once."""
        env: dict[Any, Value] = {}
        env.update(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, arguments, strict=True))
        read = lambda v: np.asarray(v.val) if isinstance(v, jex.Literal) else env[v]
        for equation in jaxpr.eqns:
            inputs = [read(v) for v in equation.invars]
            if not any(isinstance(x, Tensor) for x in inputs):
                results = equation.primitive.bind(*map(jnp.asarray, inputs), **equation.params)
                results = results if equation.primitive.multiple_results else [results]
                results = [np.asarray(r) for r in results]
            else:
                results = self._translate(equation, inputs)
            env.update(zip(equation.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _translate(self, equation: Any, inputs: list[Value]) -> list[Value]:
        name, params = equation.primitive.name, equation.params
        if name in _INLINED:
            inner = next(params[k] for k in ("jaxpr", "call_jaxpr", "fun_jaxpr") if k in params)
            consts = [np.asarray(c) for c in getattr(inner, "consts", ())]
            return self.run(getattr(inner, "jaxpr", inner), consts, inputs)
        if name == "scan":
            return self._scan(params, inputs)
        if name == "split":
            return self._pieces(inputs[0], params["sizes"], params["axis"])
        out = equation.outvars[0].aval
        rule = RULES.get(name)
        if rule is None:
            raise InputError(
                f"The step uses the operation '{name}', which has no translation to ONNX. "
                "Export it with --to stablehlo instead."
            )
        parts = rule(self, inputs, params, out)
        dtype = np.dtype(np.float32) if np.issubdtype(out.dtype, np.complexfloating) else np.dtype(out.dtype)
        return [Tensor(tuple(parts), tuple(out.shape), dtype)]

    def _scan(self, params: dict[str, Any], inputs: list[Value]) -> list[Value]:
        """A loop of known length, written out."""
        length, body = params["length"], params["jaxpr"]
        if length > _LONGEST_LOOP:
            raise InputError(
                f"The step loops {length} times inside, but at most {_LONGEST_LOOP} are written out in ONNX. "
                "Export it with --to stablehlo instead."
            )
        num_consts, num_carry = params["num_consts"], params["num_carry"]
        fixed, carry, xs = (
            inputs[:num_consts],
            inputs[num_consts:][:num_carry],
            inputs[num_consts + num_carry :],
        )
        stacked: list[list[Value]] = []
        order = range(length - 1, -1, -1) if params["reverse"] else range(length)
        consts = [np.asarray(c) for c in body.consts]
        for i in order:
            now = [self._entry(x, i) for x in xs]
            results = self.run(body.jaxpr, consts, [*fixed, *carry, *now])
            carry, ys = results[:num_carry], results[num_carry:]
            stacked.append(ys)
        if params["reverse"]:
            stacked.reverse()
        return [*carry, *(self._stack(list(each)) for each in zip(*stacked, strict=True))]

    def _pieces(self, x: Value, sizes: Sequence[int], axis: int) -> list[Value]:
        x, pieces, start = self.tensor(x), [], 0
        for size in sizes:
            bounds = [self.const(np.array([n], np.int64)) for n in (start, start + size, axis + 1)]
            names = tuple(self.node("Slice", [part, *bounds]) for part in x.parts)
            pieces.append(Tensor(names, (*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype))
            start += size
        return pieces

    def _entry(self, x: Value, i: int) -> Value:
        if not isinstance(x, Tensor):
            return np.asarray(x[i])
        names = tuple(self.node("Gather", [p, self.const(np.int64(i))], axis=1) for p in x.parts)
        return Tensor(names, x.shape[1:], x.dtype)

    def _stack(self, values: list[Value]) -> Value:
        if not any(isinstance(v, Tensor) for v in values):
            return np.stack([np.asarray(v) for v in values])
        shape = (1, *values[0].shape)
        parts = self.join([self.reshaped(v, shape) for v in values], axis=0)
        return Tensor(tuple(parts), (len(values), *shape[1:]), np.dtype(np.float32))

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        if not isinstance(value, Tensor):
            return value.reshape(shape)
        return Tensor(tuple(self.reshape(p, shape) for p in value.parts), tuple(shape), value.dtype)

    def join(self, values: Sequence[Value], axis: int) -> list[str]:
        count = 2 if any(map(is_complex, values)) else 1
        tensors = [self.tensor(v, count) for v in values]
        return [self.node("Concat", [t.parts[k] for t in tensors], axis=axis + 1) for k in range(count)]

    # Pieces that several rules share. The batch is axis 0 throughout.

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        return self.node("Reshape", [name, self.const(np.array([-1, *shape], np.int64))])

    def transpose(self, name: str, order: Sequence[int] | np.ndarray) -> str:
        if tuple(order) == tuple(range(len(order))):
            return name
        return self.node("Transpose", [name], perm=[0, *(int(i) + 1 for i in order)])

    def add(self, a: str, b: str) -> str:
        return self.node("Add", [a, b])

    def sub(self, a: str, b: str) -> str:
        return self.node("Sub", [a, b])

    def mul(self, a: str, b: str) -> str:
        return self.node("Mul", [a, b])

    def take(self, name: str, size: int, index: np.ndarray, fill: str | None = None) -> str:
        """Entries of a flattened tensor by constant index; -1 stands for `fill`, one number a state."""
        flat = self.reshape(name, (size,))
        if fill is not None and (index < 0).any():
            flat = self.node("Concat", [flat, self.reshape(fill, (1,))], axis=1)
            index = np.where(index < 0, size, index)
        taken = self.node("Gather", [flat, self.const(index.reshape(-1).astype(np.int64))], axis=1)
        return self.reshape(taken, index.shape)

    def along(self, name: str, shape: tuple[int, ...], axis: int, matrix: np.ndarray) -> str:
        """A product with a constant matrix `(n, m)` along one axis."""
        last = len(shape) - 1
        order = [i for i in range(last + 1) if i != axis] + [axis]
        product = self.node("MatMul", [self.transpose(name, order), self.const(matrix.astype(np.float32))])
        return self.transpose(product, np.argsort(order))


def zero(graph: Graph) -> str:
    return graph.const(np.zeros((), np.float32))


def plain(array: Any) -> np.ndarray:
    """In a type that ONNX Runtime computes with."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype == np.float64 else array


Rule = Callable[[Graph, list[Value], dict[str, Any], Any], Sequence[str]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def keep(translate: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, translate))
        return translate

    return keep
