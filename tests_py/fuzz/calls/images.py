# SPDX-License-Identifier: BSD-3-Clause
"""Resampling, pooling, windows and samples of signals, images and volumes."""

from __future__ import annotations

from calls.call import Call
from calls.draw import Draw

MODES = {
    1: ["nearest", "nearest-exact", "linear"],
    2: ["nearest", "nearest-exact", "bilinear", "bicubic"],
    3: ["nearest", "nearest-exact", "trilinear"],
}


def image(draw: Draw, dims: int, least: int = 1) -> list[int]:
    channels = draw.pick([1, 2, 3, 8, 16, 17, draw.upto(20, 70)])
    sizes = draw.some(
        lambda: draw.upto([60, 18, 9][dims - 1], [400, 60, 16][dims - 1], least), dims
    )
    return [draw.pick([1, 1, 2, 3, draw.upto(5, 16)]), channels, *sizes]


def resample(draw: Draw) -> Call:
    dims = draw.pick([1, 2, 2, 3])
    mode = draw.pick(MODES[dims])
    more = f"mode={mode!r}"
    if "near" not in mode:
        more += f", align_corners={draw.pick([None, True, False])}"
        if "bi" in mode and draw.chance(0.3):
            more += ", antialias=True"
    if draw.chance(0.5):
        more += f", size={draw.some(lambda: draw.upto([80, 30, 12][dims - 1]), dims)}"
    else:
        one = draw.pick([2, 3, 0.5, 1.7])
        many = draw.some(lambda: draw.random.uniform(0.4, 3), dims)
        more += f", scale_factor={draw.pick([one, many])}"
        if draw.chance(0.3):
            more += ", recompute_scale_factor=True"
    code = draw.used(f"F.interpolate({draw.made('a')}, {more})")
    return draw.way(Call("resample", code, (draw.operand(image(draw, dims)),)), gradients=True)


def pool(draw: Draw) -> Call:
    dims = draw.pick([1, 2, 2, 3])
    window = draw.some(lambda: draw.upto(4), dims)
    stride = draw.some(lambda: draw.upto(3), dims)
    padding = [draw.upto(k // 2, least=0) for k in window]
    more = f"{window}, stride={stride}, padding={padding}, ceil_mode={draw.chance(0.4)}"
    kind = draw.pick(["avg", "max", "adaptive_avg", "adaptive_max", "lp"])
    if kind == "avg":
        more += f", count_include_pad={draw.chance(0.5)}"
        if dims > 1 and draw.chance(0.2):
            more += f", divisor_override={draw.upto(9)}"
    elif kind == "max":
        more += f", dilation={draw.some(lambda: draw.pick([1, 1, 2]), dims)}"
    elif kind == "lp":
        more = f"2.0, {window}, {stride}, ceil_mode={draw.chance(0.3)}"
    else:
        more = f"{draw.some(lambda: draw.upto(7), dims)}"
    if "max" in kind and draw.chance(0.4):
        more += ", return_indices=True"
    code = f"F.{kind}_pool{dims}d({draw.made('a')}, {more})"
    if "return" not in more:
        code = draw.used(code)
    return draw.way(Call("pool", code, (draw.operand(image(draw, dims, 3)),)), gradients=True)


def windows(draw: Draw) -> Call:
    window = draw.some(lambda: draw.upto(4), 2)
    dilation, padding, stride = draw.upto(2), draw.upto(2, least=0), draw.upto(3)
    more = f"{window}, dilation={dilation}, padding={padding}, stride={stride}"
    if draw.chance(0.5):
        code = f"F.unfold({draw.made('a')}, {more})"
        return draw.way(Call("windows", code, (draw.operand(image(draw, 2, 3)),)), gradients=True)
    sizes = draw.some(lambda: draw.upto(20, 60, 4), 2)
    blocks = [(n + 2 * padding - dilation * (k - 1) - 1) // stride + 1
              for n, k in zip(sizes, window, strict=True)]  # fmt: skip
    shape = [draw.upto(4), draw.upto(6, 30) * window[0] * window[1], max(blocks[0] * blocks[1], 1)]
    code = draw.used(f"F.fold({draw.made('a')}, {sizes}, {more})")
    return draw.way(Call("windows", code, (draw.operand(shape),)), gradients=True)


def sample(draw: Draw) -> Call:
    """Reads at given places, and the orders of pixels."""
    kind = draw.pick(["grid", "grid3", "affine", "pixels", "unpool", "flat"])
    if kind in ("grid", "grid3"):
        dims = 2 if kind == "grid" else 3
        shape = image(draw, dims, 2)
        modes = ["bilinear", "nearest", "bicubic"][: 3 if dims == 2 else 2]
        mode = draw.pick(modes)
        more = f"{mode!r}, {draw.pick(['zeros', 'border', 'reflection'])!r}"
        grid = draw.operand([shape[0], *draw.some(lambda: draw.upto(12, 40), dims), dims],
                            values="normal")  # fmt: skip
        # Which pixel is nearest depends on how a product is rounded.
        places = "b" if mode == "nearest" else "b * 0.7"
        code = f"F.grid_sample(a, {places}, {more}, align_corners={draw.chance(0.5)})"
        call = Call("sample", code, (draw.operand(shape), grid))
    elif kind == "affine":
        size = [2, 3, draw.upto(9, 40), draw.upto(9, 40)]
        code = f"F.affine_grid(a, {size}, align_corners={draw.chance(0.5)})"
        call = Call("sample", code, (draw.operand([2, 2, 3]),))
    elif kind == "pixels":
        shape = [draw.upto(3), 4 * draw.upto(5), 2 * draw.upto(9, 30), 2 * draw.upto(9, 30)]
        code = draw.pick(["F.pixel_shuffle(a, 2)", "F.pixel_unshuffle(a, 2)",
                          "F.channel_shuffle(a, 4)", "F.channel_shuffle(a, 2)"])  # fmt: skip
        call = Call("sample", code, (draw.operand(shape),), exact=True)
    elif kind == "unpool":
        shape = image(draw, 2, 4)
        code = "F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), 2, output_size=a.shape)"
        call = Call("sample", code, (draw.operand(shape, values="normal"),))
    else:
        dims = draw.pick([1, 2, 3])
        mode = draw.pick(["constant", "reflect", "replicate", "circular"])
        pads = draw.some(lambda: draw.upto(3, least=0 if mode != "constant" else -1), 2 * dims)
        code = f"F.pad({draw.made('a')}, {pads}, mode={mode!r})"
        call = Call("sample", draw.used(code), (draw.operand(image(draw, dims, 4)),))
    return draw.way(call, gradients=True)


FAMILIES = [resample, pool, windows, sample]
