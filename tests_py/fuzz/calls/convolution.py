# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions: signals, images and volumes; groups, depthwise, dilated, transposed."""

from __future__ import annotations

from calls.call import Call
from calls.draw import Draw


def channels(draw: Draw) -> tuple[int, int, int]:
    """Groups, and channels of input and output."""
    if draw.chance(0.25):
        groups = draw.pick([4, 8, 16, 24, 3, draw.upto(20, 80)])
        return groups, groups, groups * draw.pick([1, 1, 1, 2])
    groups = draw.pick([1, 1, 1, 1, 2, 3, 4])
    most = 12 if not draw.large else max(64 // groups, 2)
    sizes = [draw.pick([draw.upto(most), draw.pick([1, 3, 4, 8, 16])]) for _ in range(2)]
    return groups, groups * sizes[0], groups * sizes[1]


def convolution(draw: Draw) -> Call:
    dims = draw.pick([1, 2, 2, 2, 3])
    groups, inputs, outputs = channels(draw)
    transposed = draw.chance(0.3)
    window = draw.some(lambda: draw.pick([1, 2, 3, 3, 3, 4, 5]), dims)
    if draw.chance(0.2):
        window = [window[0]] * dims
    stride = draw.some(lambda: draw.pick([1, 1, 1, 2, 3]), dims)
    dilation = draw.some(lambda: draw.pick([1, 1, 1, 2, 3]), dims)
    padding = draw.some(lambda: draw.upto(3, least=0), dims)
    sizes = draw.some(lambda: draw.upto([60, 16, 7][dims - 1], [300, 44, 14][dims - 1]), dims)
    if draw.chance(0.7):
        sizes = [n + (k - 1) * d for n, k, d in zip(sizes, window, dilation, strict=True)]
    batch = draw.pick([[], [1], [1], [2], [draw.upto(5, 17)]]) if draw.chance(0.98) else [0]
    filters = [inputs, outputs // groups] if transposed else [outputs, inputs // groups]
    operands = [draw.operand([*batch, inputs, *sizes]), draw.operand([*filters, *window])]
    names = draw.made("a") + ", b"
    if draw.chance(0.5):
        operands.append(draw.operand([outputs]))
        names += ", c"
    more = f"stride={stride}, padding={padding}, dilation={dilation}, groups={groups}"
    if transposed:
        extra = [draw.upto(max(s, d) - 1, least=0) for s, d in zip(stride, dilation, strict=True)]
        more += f", output_padding={extra}"
    elif draw.chance(0.1):
        more = f"padding='same', dilation={dilation}, groups={groups}"
    name = f"conv{'_transpose' if transposed else ''}{dims}d"
    code = f"F.{name}({names}, {more})"
    if draw.values != "huge":  # of sums that overflow another operator makes a number
        code = draw.used(code)
    return draw.way(Call("convolution", code, tuple(operands)), gradients=True)


def other_convolution(draw: Draw) -> Call:
    """With other operators around it: weights are computed, results are taken by another one."""
    draw.finite_products()
    inputs, middle, outputs = draw.some(lambda: draw.upto(9, 40), 3)
    sizes = draw.some(lambda: draw.upto(12, 40), 2)
    operands = [
        draw.operand([draw.upto(3, 9), inputs, *sizes]),
        draw.operand([middle, inputs, 3, 3]),
        draw.operand([middle]),
        draw.operand([outputs, middle, 1, 1]),
    ]
    first = f"F.conv2d(a, {draw.pick(['b', 'b * 0.5', 'b.flip(2)'])}, c, padding=1)"
    code = draw.pick([
        f"F.conv2d({first}.relu(), d)",
        f"F.conv2d(F.silu({first}), d) + 1",
        f"F.conv2d(F.max_pool2d({first}, 2, ceil_mode=True), d)",
        f"F.conv2d(F.group_norm({first}, 1), d).relu()",
        "F.conv2d(F.pad(a, [1, 1, 1, 1], mode='reflect'), b, c)",
        "torch.conv_tbc(a[..., 0].permute(2, 0, 1).clone(), b[:, :, 0].permute(2, 1, 0).clone(), "
        "c, 1)",
        f"torch.cat([{first}, {first}.tanh()], 1)",
        f"{first} + F.conv2d(a, b, padding=1).mul_(2)",
    ])  # fmt: skip
    return draw.way(Call("other_convolution", code, tuple(operands)), gradients=True)


FAMILIES = [convolution, other_convolution]
