"""The known inputs of a model on the command line, and the frames that a rollout starts from."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgno.errors import InputError, unknown_name


def known_inputs(
    step: Any, text: str | None, beside: Path, part: str | None = None, *, dt: float | None = None
) -> dict[str, np.ndarray]:
    """The inputs that a step needs, as arrays by name.

    **Arguments:**

    - `text`: a file, or values such as `nu=0.01,a=2`; without it they are looked for in the file `beside`, as
        `nu_test` or `nu` for the array `test`.
    - `dt`: the time step, if it was told: then it is not looked for.

    **Raises:** `InputError` for an input that the step does not have, or one that is not to be found.
    """
    from sgno.io.inputs import input_arrays
    from sgno.nn.conditioned import Conditioned

    names = [spec.name for spec in step.inputs] if isinstance(step, Conditioned) else []
    if dt is not None and "dt" in names:
        names.remove("dt")
    if not names:
        if text is not None:
            raise InputError(f"The model has no inputs, so --inputs {text} means nothing. Leave it out.")
        return {}
    if text is not None and "=" in text and not Path(text).exists():
        return {name: np.asarray(value) for name, value in _values(text, names).items()}
    file = beside if text is None else Path(text)
    try:
        return input_arrays(file, names, part)
    except InputError as error:
        if text is not None:
            raise
        raise InputError(
            f"The model was trained with the inputs {', '.join(names)}, which are not in {file}. Give "
            f"--inputs FILE, or values such as --inputs {names[0]}=0.01."
        ) from error


def at_time_step(step: Any, given: dict[str, np.ndarray], dt: float | None) -> Any:
    """The step with another time between frames, or with it among its inputs, for a model that can change it.

    **Raises:** `InputError` for a model that has learned one time step.
    """
    from sgno.nn.conditioned import Conditioned

    if dt is None:
        return step
    if not 0 < dt < float("inf"):
        raise InputError(f"--dt {dt:g} must be positive and finite.")
    if isinstance(step, Conditioned) and "dt" in [spec.name for spec in step.inputs]:
        given["dt"] = np.asarray(dt)
        return step
    return _changed(step, dt)


def _changed(step: Any, dt: float) -> Any:
    from sgno.identify.equation import EquationStep
    from sgno.nn.conditioned import Conditioned
    from sgno.nn.normalised import Normalised
    from sgno.nn.walled import Walled

    if isinstance(step, EquationStep):
        return step.at(dt)
    if isinstance(step, Conditioned | Normalised | Walled):
        return dataclasses.replace(step, step=_changed(step.step, dt))
    raise InputError(
        f"--dt {dt:g}: the model has learned one time step and cannot change it. Leave it out, fit --model "
        "equation, or train on trajectories of several time steps (sgno fit --dt NAME)."
    )


def _values(text: str, names: list[str]) -> Mapping[str, float]:
    found = {}
    for pair in text.split(","):
        name, _, value = (part.strip() for part in pair.partition("="))
        if name not in names:
            raise unknown_name("input of the model", name, names)
        try:
            found[name] = float(value)
        except ValueError:
            raise InputError(f"--inputs {text}: '{value}' is not a number. Write {name}=0.01.") from None
    if missing := [name for name in names if name not in found]:
        raise InputError(f"--inputs {text} lacks the input {missing[0]}. Write {missing[0]}=0.01 too.")
    return found
