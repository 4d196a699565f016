# SPDX-License-Identifier: BSD-3-Clause
"""Prints the coefficients of cpp/loom/fusion/vector_formulas.h, erf_table.h and cdf_table.h.

Needs mpmath and numpy.

Lawson's algorithm: least squares, weighted again and again by the error, until it is equal
everywhere. Each error is relative to the function that is computed in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mpmath as mp
import numpy as np

mp.mp.dps = 40
Function = Callable[[mp.mpf], mp.mpf]
POINTS, ROUNDS = 800, 300
HALF_ULP = 2.0**-24


def minimax(
    wanted: Function, weight: Function, powers: Sequence[int], low: float, high: float
) -> tuple[float, list[float]]:
    """The largest weighted error of the best sum of powers, and the factors as float32."""
    x = (low + high) / 2 + (high - low) / 2 * np.cos(np.linspace(0, np.pi, POINTS))
    exact = [mp.mpf(float(v)) for v in x]
    weights = np.array([float(weight(v)) for v in exact])
    target = np.array([float(wanted(v)) for v in exact]) * weights
    terms = np.stack([x**k for k in powers], 1) * weights[:, None]
    share = np.ones(POINTS) / POINTS
    best = np.inf, terms[0]
    for _ in range(ROUNDS):
        root = np.sqrt(share)
        factors = np.linalg.lstsq(terms * root[:, None], target * root, rcond=None)[0]
        error = np.abs(target - terms @ factors)
        if error.max() < best[0]:
            best = error.max(), factors
        share = np.maximum(share * error, 1e-30)
        share /= share.sum()
    return best[0], [float(np.float32(v)) for v in best[1]]


def show(name: str, fit: tuple[float, list[float]]) -> None:
    print(f"{name}: error {fit[0] / HALF_ULP:.3f} half ulp")
    print("   ", ", ".join(f"{v:.9g}F" for v in fit[1]))


def exponentials() -> None:
    bound = float(mp.log(2) / 2) * 1.0005

    def tail(r: mp.mpf) -> mp.mpf:
        return (mp.e**r - 1 - r) / r**2 if abs(r) > 1e-8 else mp.mpf(1) / 2 + r / 6

    show("exp, r^2 and up", minimax(tail, lambda r: r * r / mp.e**r, range(5), -bound, bound))
    show("expm1, r^2 and up", minimax(tail, lambda r: abs(r), range(5), -bound, bound))
    show(
        "exp2, x and up",
        minimax(
            lambda x: (mp.mpf(2) ** x - 1) / x if abs(x) > 1e-8 else mp.log(2),
            lambda x: abs(x) / mp.mpf(2) ** x,
            range(6),
            -0.5,
            0.5,
        ),
    )


def logarithms() -> None:
    for name, factor in (("log", mp.mpf(1)), ("log2", 1 / mp.log(2))):

        def tail(f: mp.mpf, factor: mp.mpf = factor) -> mp.mpf:
            exact = (mp.log1p(f) - f) / f**2 if abs(f) > 1e-6 else mp.mpf(-1) / 2 + f / 3
            return factor * exact

        def weight(f: mp.mpf, factor: mp.mpf = factor) -> mp.mpf:
            return f**2 / abs(factor * mp.log1p(f)) if f != 0 else mp.mpf(0)

        show(f"{name}, f^2 and up", minimax(tail, weight, range(8), -0.25, 0.5))


def error_function() -> None:
    """The columns of the table: polynomials at multiples of a quarter.

    To the first piece x itself is added, so it is that of erf(x) - x.
    """
    for k in range(16):
        centre = mp.mpf(k) / 4
        if k == 0:
            fit = minimax(
                lambda x: (mp.erf(x) / x if x > 1e-9 else 2 / mp.sqrt(mp.pi)) - 1,
                lambda x: x / mp.erf(x) if x > 1e-9 else mp.sqrt(mp.pi) / 2,
                (0, 2, 4),
                0.0,
                0.1251,
            )
            first, third, fifth = fit[1]
            show("erf at 0", (fit[0], [0.0, first, 0.0, third, 0.0, fifth]))
            continue
        first = float(np.float32(float(mp.erf(centre))))
        fit = minimax(
            lambda x, centre=centre, first=first: mp.erf(centre + x) - first,
            lambda x, centre=centre: 1 / mp.erf(centre + x),
            range(1, 6),
            -0.12513,
            0.12513 if k < 15 else 0.17518,
        )
        show(f"erf at {k}/4", (fit[0], [first, *fit[1]]))


def normal_distribution() -> None:
    """The columns of the table, by their numbers modulo 32, and its rows."""
    scale, columns = mp.mpf("2.8"), {-16: [0.0] * 5, 15: [1.0] + [0.0] * 4}
    for n in range(-15, 15):
        centre = n / scale
        error, columns[n] = minimax(
            lambda x, centre=centre: mp.ncdf(centre + x),
            lambda x, centre=centre: 1 / mp.ncdf(centre + x),
            range(5),
            -0.1787,
            0.1787,
        )
        print(f"normal distribution at {n} / {scale}: error 2^{np.log2(error):.1f}")
    for power in range(5):
        row = [columns[n if n < 16 else n - 32][power] for n in range(32)]
        print("   ", ", ".join(f"{v:.9g}F" for v in row))


if __name__ == "__main__":
    exponentials()
    logarithms()
    error_function()
    normal_distribution()
