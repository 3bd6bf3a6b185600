"""What a search found: an equation, and how sure of it the data are."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from sgno.grid import Grid
from sgno.identify.equation.step import EquationConfig, EquationStep
from sgno.identify.equation.terms import Equation, Term, readable


@dataclass(frozen=True)
class Discovery:
    """An equation and how sure of it the data are.

    - `rejected`: terms of the library that were left out, with the standard deviations by which the final fit
      would move them away from zero; the most tempting first.
    - `dt`: the time between two frames, the median if it varies.
    - `noise`: estimated standard deviation of the noise of each channel, 0 if there is none to speak of.
    - `held_out`: closed-loop relative error on trajectories that the search did not fit, geometric mean over
      frames. With noisy data it includes the noise of the first and of every later frame.
    - `persistence`: the same error of the forecast that nothing changes.
    - `misfit`: for noisy data, that of held-out trajectories from fitted initial states, in standard
      deviations of the noise: 1 is perfect.
    - `found`: whether the held-out data support the equation.
    - `notes`: what a user should know, one line each.
    """

    equation: Equation
    rejected: tuple[tuple[Term, float], ...]
    dt: float
    noise: tuple[float, ...]
    held_out: float
    persistence: float
    misfit: float | None
    found: bool
    notes: tuple[str, ...]

    def intervals(self, deviations: float = 1.96) -> list[tuple[float, float]]:
        """An interval for each coefficient, by default of 95 %."""
        pairs = zip(self.equation.coefficients, self.equation.standard_errors, strict=True)
        return [(c - deviations * e, c + deviations * e) for c, e in pairs]

    @property
    def forecast(self) -> Equation:
        """The equation to forecast with: the best candidate, or u_t = 0 if it does worse than persistence."""
        if self.found or self.held_out < self.persistence:
            return self.equation
        return replace(self.equation, terms=(), coefficients=(), standard_errors=())

    def step(self, grid: Grid) -> EquationStep:
        """The step of `forecast` from one frame of the data to the next; another dt by `at`."""
        equation = self.forecast
        about = {"found": self.found, "held_out": self.held_out, "notes": self.notes}
        return EquationConfig(self.dt, equation.lengths, equation, **about).build(grid)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, with the equation in words, LaTeX and as SymPy reads it."""
        equation = self.equation
        rows = []
        for term, value, error in zip(
            equation.terms, equation.coefficients, equation.standard_errors, strict=True
        ):
            shown, scaled = readable(term, value)
            width = 1.96 * error * (abs(scaled / value) if value else 1.0)
            rows.append((shown, scaled, (scaled - width, scaled + width)))
        plain = lambda x: x if x is not None and math.isfinite(x) else None
        return {
            "found": self.found,
            "equation": str(equation).splitlines(),
            "conserves_mean": equation.conserves_mean,
            "fields": [asdict(field) for field in equation.fields],
            "latex": equation.latex(),
            "sympy": equation.sympy(),
            "terms": [
                {
                    "channel": equation.channels[term.target],
                    "term": equation.name_of(term),
                    **asdict(term),
                    "coefficient": value,
                    "interval": list(interval),
                }
                for term, value, interval in rows
            ],
            "rejected": [
                {"term": equation.name_of(term), "deviations": plain(size)} for term, size in self.rejected
            ],
            "dt": self.dt,
            "lengths": list(equation.lengths),
            "max_step": equation.max_step,
            "noise": list(self.noise),
            "held_out": plain(self.held_out),
            "persistence": plain(self.persistence),
            "misfit": plain(self.misfit),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        equation = str(self.equation)
        lines = [equation if self.found else f"Not found. The best candidate:\n{equation}"]
        lines += [f"  {line}" for line in self.equation.details()]
        lines.append(f"  held-out error {self.held_out:.3g} (persistence {self.persistence:.3g})")
        if self.misfit is not None:
            lines.append(f"  held-out misfit {self.misfit:.3g} standard deviations of the noise")
        return "\n".join([*lines, *(f"  {n}" for n in self.notes)])
