"""Plain data as a checked dataclass: every name known, every value of its annotated type (by msgspec)."""

import dataclasses
import json
import math
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from sgno.errors import InputError, unknown_name

T = TypeVar("T")
Decoders = Mapping[type, Callable[[Any], Any]]


def decode(kind: type[T], content: Any, what: str, decoders: Decoders | None = None) -> T:
    """A dataclass from what JSON gave.

    **Arguments:**

    - `kind`: the dataclass, whose annotations say what each field takes.
    - `content`: a mapping of its fields.
    - `what`: what messages call it.
    - `decoders`: functions for fields that are annotated with one of these types.

    **Raises:** `InputError` for a name that is not known, one that is missing, or a value of another type.
    """
    if not isinstance(content, Mapping):
        raise InputError(
            f"The settings of {what} are a {type(content).__name__}, but an object was expected."
        )
    fields = decode_fields(kind, content, what, decoders)
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in content:
            raise InputError(
                f"The settings of {what} lack '{field.name}'. It is of another version, or damaged."
            )
    return kind(**fields)


def decode_fields(
    kind: type, content: Mapping[str, Any], what: str, decoders: Decoders | None = None, *, text: bool = False
) -> dict[str, Any]:
    """Some fields of a dataclass, checked. With `text` a string may stand for any value, as in a command."""
    hints = get_type_hints(kind)
    hints = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    fields = {}
    for name, value in content.items():
        if name not in hints:
            raise unknown_name(f"setting of {what}", str(name)[:100], hints)
        if decoders and hints[name] in decoders:
            fields[name] = decoders[hints[name]](value)
            continue
        try:
            parsed = _parse(value, hints[name]) if text and isinstance(value, str) else value
            fields[name] = msgspec.convert(parsed, hints[name], strict=parsed is not value or not text)
            if isinstance(fields[name], float) and not math.isfinite(fields[name]):
                raise ValueError("not finite")
        except (ValueError, RecursionError) as error:
            shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
            raise InputError(
                f"The setting {name} of {what} is {shown}, but {_named(hints[name])} was expected."
            ) from error
    return fields


def _parse(text: str, kind: Any) -> Any:
    """What a text stands for beyond numbers and words: `none`, or a list in JSON."""
    if text.lower() == "none" and type(None) in get_args(kind):
        return None
    return json.loads(text) if text.startswith("[") and kind is not str else text


def _named(kind: Any) -> str:
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if parts and get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_named(part) for part in parts)
    if parts:
        return str(kind).replace("collections.abc.", "").replace("typing.", "")
    return "none" if kind is type(None) else getattr(kind, "__name__", str(kind))
