# SPDX-License-Identifier: BSD-3-Clause
"""Plots of the demo: curves and bars for a terminal, a picture where matplotlib is there."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

__all__ = ["Curve", "bars", "curves", "save_picture"]

Curve = Sequence[tuple[int, float]]
"""Points (step, loss)."""

_WIDTH, _HEIGHT = 60, 10
_MARKS = "ox+*#"
_BOTH = "@"


def curves(title: str, by_device: Mapping[str, Curve]) -> str:
    """Draw losses over steps, a mark for each device. Losses that are not finite are left out."""
    points = {
        device: [(step, loss) for step, loss in curve if math.isfinite(loss)]
        for device, curve in by_device.items()
    }
    losses = [loss for curve in points.values() for _, loss in curve]
    if not losses:
        return f"{title}: no finite loss"
    low, high = min(losses), max(losses)
    last = max(step for curve in points.values() for step, _ in curve)
    canvas = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for mark, curve in zip(cycle(_MARKS), points.values(), strict=False):
        for step, loss in curve:
            column = (step - 1) * (_WIDTH - 1) // max(1, last - 1)
            share = (high - loss) / (high - low) if high > low else 0.0
            row = canvas[round(share * (_HEIGHT - 1))]
            row[column] = mark if row[column] in (" ", mark) else _BOTH
    labels = {0: f"{high:.3f}", _HEIGHT - 1: f"{low:.3f}"}
    width = max(map(len, labels.values()))
    lines = [
        f"{labels.get(number, ''):>{width}} |{''.join(row).rstrip()}"
        for number, row in enumerate(canvas)
    ]
    legend = "   ".join(
        f"{mark} {device}" for mark, device in zip(cycle(_MARKS), points, strict=False)
    )
    both = f"   {_BOTH} several" if len(points) > 1 else ""
    axis = f"1{f'step {last}':>{_WIDTH - 1}}"
    return "\n".join(
        [title, *lines, f"{'':>{width}} +{'-' * _WIDTH}", f"{'':>{width}}  {axis}", legend + both]
    )


def bars(title: str, seconds: Mapping[str, float]) -> str:
    """Draw how long each device took."""
    most = max(seconds.values())
    width = max(map(len, seconds))
    lines = [
        f"{device:>{width}} |{'#' * max(1, round(value / most * _WIDTH))} {value:.1f} s"
        for device, value in seconds.items()
    ]
    return "\n".join([title, *lines])


def save_picture(
    path: Path,
    losses: Mapping[str, Mapping[str, Curve]],
    seconds: Mapping[str, Mapping[str, float]],
) -> bool:
    """Save losses and times of each task as one picture, of the format that the name says.

    Args:
        path (Path): the file.
        losses (Mapping): for each task and device its curve.
        seconds (Mapping): for each task and device its time.

    Returns:
        bool: whether matplotlib is there.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(5 * len(losses), 6), layout="constrained")
    axes = figure.subplots(2, len(losses), squeeze=False)
    for number, (task, by_device) in enumerate(losses.items()):
        above, below = axes[0][number], axes[1][number]
        # Curves that lie on each other are told apart by their dashes.
        for style, (device, curve) in zip(cycle(("-", "--", ":")), by_device.items(), strict=False):
            above.plot(*zip(*curve, strict=True), style, linewidth=2.5, label=device)
        above.set(title=task, xlabel="step", ylabel="training loss")
        above.legend()
        below.barh(list(seconds[task]), list(seconds[task].values()))
        below.set(xlabel="seconds")
        below.invert_yaxis()
    figure.savefig(path)
    return True
