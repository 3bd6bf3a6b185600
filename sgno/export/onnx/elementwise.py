"""Arithmetic entry by entry, on real values and on pairs of real and imaginary parts."""

from collections.abc import Callable

import numpy as np

from sgno.export.onnx.graph import RULES, Rule, Tensor, is_complex, rule, zero


def _entrywise(*names: str) -> Callable[[Rule], Rule]:
    """A rule for operands of one shape, or of none: JAX lets a single number meet an array."""

    def keep(translate: Rule) -> Rule:
        def aligned(g, x, params, out):
            ones = lambda v: (1,) * (len(out.shape) - len(v.shape))
            x = [g.reshaped(v, ones(v) + v.shape) if isinstance(v, Tensor) and ones(v) else v for v in x]
            return translate(g, x, params, out)

        return rule(*names)(aligned)

    return keep


def _unary(kind: str) -> Rule:
    return lambda g, x, params, out: [g.node(kind, g.parts(x[0], 1))]


def _binary(kind: str) -> Rule:
    return lambda g, x, params, out: [g.node(kind, [g.parts(x[0], 1)[0], g.parts(x[1], 1)[0]])]


for _name, _kind in {
    "exp": "Exp", "log": "Log", "erf": "Erf", "tanh": "Tanh", "logistic": "Sigmoid", "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos", "sign": "Sign", "not": "Not", "floor": "Floor",
}.items():  # fmt: skip
    _entrywise(_name)(_unary(_kind))
for _name, _kind in {
    "max": "Max", "min": "Min", "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual",
    "eq": "Equal", "and": "And", "or": "Or", "pow": "Pow",
}.items():  # fmt: skip
    _entrywise(_name)(_binary(_kind))


def _sum(kind: str) -> Rule:
    def rule(g, x, params, out):
        count = 2 if any(map(is_complex, x)) else 1
        pairs = zip(g.parts(x[0], count), g.parts(x[1], count), strict=True)
        return [g.node(kind, [a, b]) for a, b in pairs]

    return rule


_entrywise("add", "add_any")(_sum("Add"))
_entrywise("sub")(_sum("Sub"))


@_entrywise("mul")
def _(g, x, params, out):
    if not any(map(is_complex, x)):
        return [g.mul(g.parts(x[0], 1)[0], g.parts(x[1], 1)[0])]
    if not all(map(is_complex, x)):
        real, other = sorted(x, key=is_complex)
        return [g.mul(g.parts(real, 1)[0], part) for part in g.parts(other, 2)]
    (a, b), (c, d) = g.parts(x[0], 2), g.parts(x[1], 2)
    return [g.sub(g.mul(a, c), g.mul(b, d)), g.add(g.mul(a, d), g.mul(b, c))]


@_entrywise("div")
def _(g, x, params, out):
    if not is_complex(x[1]):
        below = g.parts(x[1], 1)[0]
        return [g.node("Div", [part, below]) for part in g.parts(x[0], 2 if is_complex(x[0]) else 1)]
    (a, b), (c, d) = g.parts(x[0], 2), g.parts(x[1], 2)
    below = g.add(g.mul(c, c), g.mul(d, d))
    upper = g.add(g.mul(a, c), g.mul(b, d)), g.sub(g.mul(b, c), g.mul(a, d))
    return [g.node("Div", [part, below]) for part in upper]


@_entrywise("neg")
def _(g, x, params, out):
    return [g.node("Neg", [part]) for part in x[0].parts]


@_entrywise("abs")
def _(g, x, params, out):
    if not is_complex(x[0]):
        return [g.node("Abs", x[0].parts)]
    a, b = x[0].parts
    return [g.node("Sqrt", [g.add(g.mul(a, a), g.mul(b, b))])]


@_entrywise("square")
def _(g, x, params, out):
    return RULES["mul"](g, [x[0], x[0]], params, out)


@_entrywise("integer_pow")
def _(g, x, params, out):
    power, value = params["y"], x[0]
    if power < 1:
        return [g.node("Pow", [value.parts[0], g.const(np.float32(power))])]
    result = value
    for _ in range(power - 1):
        result = Tensor(tuple(RULES["mul"](g, [result, value], params, out)), value.shape, value.dtype)
    return result.parts


@_entrywise("rsqrt")
def _(g, x, params, out):
    return [g.node("Reciprocal", [g.node("Sqrt", x[0].parts)])]


@_entrywise("expm1")
def _(g, x, params, out):
    return [g.sub(g.node("Exp", x[0].parts), g.const(np.float32(1)))]


@_entrywise("log1p")
def _(g, x, params, out):
    return [g.node("Log", [g.add(x[0].parts[0], g.const(np.float32(1)))])]


@_entrywise("ne")
def _(g, x, params, out):
    if isinstance(x[0], Tensor) and isinstance(x[1], Tensor) and x[0].parts == x[1].parts:
        return [g.node("IsNaN", x[0].parts)]
    return [g.node("Not", [g.node("Equal", [g.parts(x[0], 1)[0], g.parts(x[1], 1)[0]])])]


@_entrywise("is_finite")
def _(g, x, params, out):
    bad = g.node("Or", [g.node("IsNaN", x[0].parts), g.node("IsInf", x[0].parts)])
    return [g.node("Not", [bad])]


@_entrywise("clamp")
def _(g, x, params, out):
    low, value, high = (g.parts(v, 1)[0] for v in x)
    return [g.node("Min", [g.node("Max", [value, low]), high])]


@_entrywise("select_n")
def _(g, x, params, out):
    chosen, otherwise, then = x
    count = 2 if is_complex(then) or is_complex(otherwise) else 1
    condition = g.parts(chosen, 1)[0]
    pairs = zip(g.parts(then, count), g.parts(otherwise, count), strict=True)
    return [g.node("Where", [condition, a, b]) for a, b in pairs]


@_entrywise("real")
def _(g, x, params, out):
    return [x[0].parts[0]]


@_entrywise("imag")
def _(g, x, params, out):
    return [x[0].parts[1]]


@_entrywise("conj")
def _(g, x, params, out):
    a, b = g.parts(x[0], 2)
    return [a, g.node("Neg", [b])]


@_entrywise("complex")
def _(g, x, params, out):
    # Both parts need the batch, or a later reshape of the pair would not fit.
    return [g.tensor(v).parts[0] for v in x]


@_entrywise("convert_element_type", "copy", "copy_p", "stop_gradient", "reduce_precision")
def _(g, x, params, out):
    value = x[0]
    if np.issubdtype(out.dtype, np.complexfloating):
        if is_complex(value):
            return value.parts
        return [value.parts[0], g.mul(value.parts[0], zero(g))]
    if is_complex(value):
        return [value.parts[0]]
    if value.dtype == out.dtype:
        return value.parts
    return [g.node("Cast", value.parts, to=g.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(out.dtype)))]
