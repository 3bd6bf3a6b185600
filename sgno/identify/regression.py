"""Ridge regression of many modes at once, in float64, the data taken in blocks."""

import numpy as np

# The power of rounding errors that float32 states gather over a trajectory, relative to the strongest mode:
# what a fit must not explain.
ROUNDING = 1e-13
_RIDGE = 1e-11
# OpenBLAS gives larger products to several threads, whose meetings took 10 to 50 times as long as the small
# products of `Gram.add` themselves. Measured for 9 to 61 columns; but never fewer samples than these.
_ONE_THREAD, _LEAST_SAMPLES = 2**15, 8


class Gram:
    """The normal equations of y(k) = sum_a c_a(k) x_a(k), one small system for each channel and mode.

    Sums over samples of `x* x`, `x* y` and `|y|²` are all that is kept of the data, so samples may come in
    any number of blocks, and any subset of the columns can be fitted afterwards.
    """

    def __init__(self):
        self.count = 0
        self.xx = np.zeros((1, 1, 1, 1), complex)
        self.xy = np.zeros((1, 1, 1), complex)
        self.yy = np.zeros((1, 1))

    def add(self, x: np.ndarray, y: np.ndarray) -> None:
        """Add samples: `x` is `(samples, channels, columns, modes)`, `y` is `(samples, channels, modes)`."""
        samples, channels, columns, modes = x.shape
        # Samples last and y as a column of its own: one product of contiguous matrices for each mode.
        both = np.empty((channels, modes, columns + 1, samples), np.complex128)
        both[:, :, :-1], both[:, :, -1] = x.transpose(1, 3, 2, 0), y.transpose(1, 2, 0)
        at_once = max(_LEAST_SAMPLES, _ONE_THREAD // (columns + 1) ** 2)
        products = np.zeros((channels, modes, columns + 1, columns + 1), np.complex128)
        for i in range(0, samples, at_once):
            part = both[..., i : i + at_once]
            products += part.conj() @ part.swapaxes(-1, -2)
        self.count += samples
        self.xx = self.xx + products[..., :-1, :-1]
        self.xy = self.xy + products[..., :-1, -1]
        self.yy = self.yy + products[..., -1, -1].real

    def power(self) -> np.ndarray:
        """Mean square of each column, `(channels, modes, columns)`."""
        return np.einsum("ckaa->cka", self.xx).real / self.count

    def noise(self) -> np.ndarray:
        """Mean square of each column's rounding error in one mode, `(channels, 1, columns)`."""
        return ROUNDING * self.power().max(axis=1, keepdims=True)

    def solve(self, columns: np.ndarray | None = None) -> np.ndarray:
        """Coefficients of the chosen columns, `(channels, modes, columns)`.

        The ridge is the rounding error of each column: a mode that holds nothing else is not fitted, its
        coefficients go to zero. A further, tiny, relative ridge settles columns that cannot be told apart.
        """
        columns = np.arange(self.xx.shape[-1]) if columns is None else columns
        xx = self.xx[..., columns[:, None], columns]
        noise = np.broadcast_to(self.count * self.noise(), (*self.xx.shape[:2], self.xx.shape[-1]))
        size = np.sqrt(np.einsum("ckaa->cka", xx).real + noise[..., columns]) + 1e-150
        scaled = xx / (size[..., :, None] * size[..., None, :])
        diagonal = _RIDGE + noise[..., columns] / size**2
        scaled = scaled + diagonal[..., None] * np.eye(len(columns))
        rhs = self.xy[..., columns] / size
        return np.linalg.solve(scaled, rhs[..., None])[..., 0] / size

    def error(self, coefficients: np.ndarray, columns: np.ndarray | None = None) -> np.ndarray:
        """Mean square of what the coefficients leave, `(channels, modes)`, on these samples."""
        columns = np.arange(self.xx.shape[-1]) if columns is None else columns
        xx, xy = self.xx[..., columns[:, None], columns], self.xy[..., columns]
        fitted = np.einsum("cka,ckab,ckb->ck", coefficients.conj(), xx, coefficients).real
        cross = (coefficients.conj() * xy).sum(-1).real
        return np.maximum(self.yy - 2 * cross + fitted, 0) / self.count
