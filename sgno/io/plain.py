"""Plain data from strangers as checked fields of a dataclass: every name known, every value of its type."""

import dataclasses
import math
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sgno.errors import InputError, unknown_name

# Nothing that we write comes near these.
_LONGEST_TEXT, _LONGEST_LIST, _DEEPEST = 10_000, 10_000, 20


def checked_fields(kind: type, content: Any, what: str) -> dict[str, Any]:
    """The fields of a dataclass from JSON.

    **Arguments:**

    - `kind`: the dataclass, whose annotations say what each field takes.
    - `content`: what JSON gave, of any kind.
    - `what`: what messages call it.

    **Raises:** `InputError` for a name that is not known, one that is missing, or a value of another type.
    """
    if not isinstance(content, Mapping):
        raise InputError(
            f"The settings of {what} are a {type(content).__name__}, but an object was expected."
        )
    hints = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in content:
        if name not in fields:
            raise unknown_name(f"setting of {what}", str(name)[:100], fields)
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in content:
            raise InputError(f"The settings of {what} lack '{name}'. It is of another version, or damaged.")
    for name, value in content.items():
        if not fits(value, hints[name]):
            raise InputError(
                f"The setting {name} of {what} is {_shown(value)}, but {_named(hints[name])} was expected."
            )
    return {name: float(v) if hints[name] is float else v for name, v in content.items()}


def fits(value: Any, kind: Any, depth: int = 0) -> bool:
    """Whether plain data is of an annotated type. A float may be a whole number, never NaN."""
    if depth > _DEEPEST:
        return False
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return type(value) in (str, int, bool) and value in parts
    if origin in (Union, types.UnionType):
        return any(fits(value, part, depth + 1) for part in parts)
    if origin in (tuple, list) or (isinstance(origin, type) and issubclass(origin, Sequence)):
        inner = parts[0] if parts else Any
        listed = isinstance(value, (list, tuple)) and len(value) <= _LONGEST_LIST
        return listed and all(fits(entry, inner, depth + 1) for entry in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    if kind is float:
        return type(value) in (int, float) and _finite(value)
    if kind is str:
        return isinstance(value, str) and len(value) <= _LONGEST_TEXT
    if kind is Any:
        return True
    return type(value) is kind or (kind is type(None) and value is None)


def _finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _named(kind: Any) -> str:
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if parts and get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_named(part) for part in parts)
    return "none" if kind is type(None) else getattr(kind, "__name__", str(kind))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
