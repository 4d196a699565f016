# SPDX-License-Identifier: BSD-3-Clause
"""Copies, joins and views: all bits have to arrive."""

from __future__ import annotations

from calls.call import Call
from calls.draw import DTYPES, FLOATS, Draw


def joined(draw: Draw) -> Call:
    shape = list(draw.shape(1000, dims=draw.pick([1, 2, 3, 4])))
    d = draw.random.randrange(len(shape))
    dtype = draw.float if draw.chance(0.6) else draw.pick(DTYPES)
    other = dtype if draw.chance(0.8) else draw.pick(DTYPES)
    varied = [draw.upto(9) if i == d else n for i, n in enumerate(shape)]
    operands = [draw.read(shape, dtype), draw.read(varied, other), draw.read(shape, dtype)]
    code = draw.pick([
        f"torch.cat([a, b, c], {d})",
        f"torch.cat([a, b], dim={d - len(shape)})",
        f"torch.stack([a, c], {draw.random.randrange(len(shape) + 1)})",
        f"torch.cat([a * 2, b, c.flip(0)], {d})",
        "torch.hstack([a, c])", "torch.vstack([a, c])", "torch.dstack([a, c])",
        "torch.column_stack([a, c])",
        f"torch.cat([a, c], {d}).chunk(3, {d})[0] * 2",
        "torch.block_diag(a.reshape(-1, a.shape[-1]), c.reshape(-1, c.shape[-1]))",
        f"torch.cat([a.new_empty(0), b], {0})" if len(shape) > 1 else "torch.cat([b, a])",
        f"torch.tensor_split(torch.cat([a, c], {d}), 3, {d})[-1] + 1",
        "torch.meshgrid(a.flatten()[:9], c.flatten()[:5], indexing='ij')[0] * 2",
    ])  # fmt: skip
    out = code.startswith(("torch.cat([a, b", "torch.stack"))
    # Products with a number are rounded, sums of half types too.
    exact = "*" not in code and "+" not in code and dtype == other
    floats = dtype in FLOATS and other in FLOATS
    call = Call("joined", code, tuple(operands), pointwise=True, exact=exact)
    return draw.way(call, gradients=floats, out=out)


def moved(draw: Draw) -> Call:
    shape = list(draw.shape(dims=draw.pick([1, 2, 3, 4, 5])))
    dims = len(shape)
    d, e = draw.random.randrange(dims), draw.random.randrange(dims)
    order = draw.random.sample(range(dims), dims)
    n = max(shape[d], 1)
    start, step = draw.random.randrange(n), draw.pick([1, 2, 3])
    axes = sorted(draw.random.sample(range(dims), draw.upto(dims)))
    dtype = draw.float if draw.chance(0.6) else draw.pick(DTYPES)
    a, b = draw.read(shape, dtype), draw.read(draw.less(tuple(shape)), dtype)
    part = f"a[{':, ' * d}{start}::{step}]"
    code, operands = draw.pick([
        (f"torch.flip(a, {axes})", (a,)),
        (f"torch.roll(a, {draw.pick([1, -2, 5])}, {d})", (a,)),
        (f"torch.roll(a, {[1] * len(axes)}, {axes})", (a,)),
        (f"torch.rot90(a, {draw.upto(3)}, [{d}, {e}])" if d != e else "torch.flip(a, [0])", (a,)),
        (f"a.repeat({', '.join(['2'] * dims)})", (a,)),
        (f"torch.repeat_interleave(a, {draw.upto(3)}, {d})", (a,)),
        (f"torch.tile(a, {tuple(draw.some(lambda: draw.upto(3), dims))})", (a,)),
        (f"a.permute({order}).contiguous()", (a,)),
        (f"a.permute({order}).clone()", (a,)),
        (f"a.permute({order}).reshape(-1)", (a,)),
        (f"{part}.clone()", (a,)),
        (f"{part}.zero_()", (draw.operand(shape, dtype),)),
        (f"{part}.copy_(b{'' if len(b.shape) == dims else '.sum()'})",
         (draw.operand(shape, dtype), draw.read([1] * dims, dtype))),
        ("a.copy_(b)", (draw.operand(shape, dtype), b)),
        ("a.copy_(b)", (draw.operand(shape, dtype), draw.read(shape, dtype))),
        (f"torch.tril(a, {draw.pick([0, -1, 2])})", (a,)),
        (f"torch.triu(a, {draw.pick([0, -1, 2])})", (a,)),
        (f"torch.diagonal(a, {draw.pick([0, 1])}, {d}, {e}).clone()", (a,)),
        ("torch.diag_embed(a[..., :50])", (a,)),
        ("torch.diag(a[..., :50])", (a,)),
        (f"a.unfold({d}, {draw.upto(min(n, 9))}, {draw.upto(3)}).clone()", (a,)),
        (f"torch.diff(a, dim={d})", (a,)),
        (f"a.narrow({d}, {start}, {max((n - start) // 2, 0)}).flip({d})", (a,)),
        (f"a.expand(3, {', '.join(str(n) for n in shape)}).contiguous()", (a,)),
        (f"torch.movedim(a, {d}, {e}).contiguous()", (a,)),
        ("a.contiguous(memory_format=torch.channels_last)", (a,)),
        ("a.T.contiguous()" if dims == 2 else "a.flatten().clone()", (a,)),
        (f"a.transpose({d}, {e}).flip(0).contiguous()", (a,)),
        ("torch.zeros_like(a)", (a,)), ("torch.full_like(a, 1)", (a,)),
        ("torch.empty_like(a).fill_(1)", (a,)), (f"a.squeeze({d}).clone()", (a,)),
        ("a.view(torch.uint8).clone()", (draw.operand(shape, dtype, layout="dense"),)),
        (f"a.select_scatter(a.select({d}, 0) + 0, {d}, -1)", (a,)),
        (f"a.slice_scatter({part}.clone(), {d}, {start}, None, {step})", (a,)),
    ])  # fmt: skip
    in_place = "_(" in code
    call = Call(
        "moved", code, operands, pointwise=True, exact="+ 0" not in code and "diff" not in code
    )
    return draw.way(call, gradients=dtype in FLOATS and not in_place and "view" not in code)


def transform(draw: Draw) -> Call:
    """Fourier transforms and windows."""
    shape = list(draw.shape(dims=draw.pick([1, 2, 3])))
    d = draw.random.randrange(len(shape))
    dtype = draw.pick([DTYPES[0], DTYPES[0], DTYPES[3]])
    norm = draw.pick(["", ", norm='ortho'", ", norm='forward'"])
    code = draw.pick([
        f"torch.fft.fft(a, dim={d}{norm})", f"torch.fft.rfft(a, dim={d}{norm})",
        f"torch.fft.irfft(a, dim={d}{norm})", f"torch.fft.ifft(a, n={draw.upto(30)}, dim={d})",
        "torch.fft.fft2(a)" if len(shape) > 1 else "torch.fft.fftn(a)", f"torch.fft.rfftn(a{norm})",
        f"torch.fft.fftshift(a, {d})", f"torch.fft.hfft(a, dim={d})",
        f"torch.fft.irfft(torch.fft.rfft(a, dim={d}) * 2, dim={d})",
        "torch.fft.fft(torch.complex(a, a * 2)).abs()",
    ])  # fmt: skip
    call = Call("transform", code, (draw.read(shape, dtype),))
    return draw.way(call, gradients=True)


FAMILIES = [joined, moved, transform]
