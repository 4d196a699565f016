# SPDX-License-Identifier: BSD-3-Clause
"""Operators of elements: all dtypes, mixed ones, broadcast, numbers, in place and into memory."""

from __future__ import annotations

import torch

from calls.call import Call, Operand
from calls.draw import COMPLEX, DTYPES, FLOATS, INTEGERS, Draw

UNARY = """
sqrt rsqrt reciprocal floor ceil round trunc exp exp2 expm1 log log2 log10 log1p sin cos tan asin
acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid frac abs neg sign
sgn square relu logical_not isnan isinf isfinite isposinf isneginf signbit positive clone logit sinc
i0 angle real conj_physical deg2rad nan_to_num special.entr special.ndtri special.log_ndtr
special.i1 special.erfcx special.bessel_j0 special.i0e bitwise_not
""".split()
ACTIVATIONS = """
silu gelu leaky_relu hardswish softplus elu selu celu mish hardsigmoid hardtanh relu6 softsign
logsigmoid tanhshrink softshrink hardshrink threshold(,.1,-3.) elu(,.5) softplus(,1.3,2.)
leaky_relu(,.2) hardtanh(,-.3,.6) celu(,.7) gelu(,approximate='tanh') hardshrink(,.2)
""".split()
ARITHMETIC = "add sub mul div true_divide floor_divide maximum minimum fmod remainder pow".split()
BINARY = """
atan2 hypot copysign fmax fmin eq ne lt le gt ge logical_and logical_or logical_xor logaddexp
logaddexp2 xlogy nextafter heaviside rsub float_power ldexp special.xlog1py special.zeta
""".split()
OF_BITS = """
bitwise_and bitwise_or bitwise_xor gcd lcm bitwise_left_shift bitwise_right_shift
""".split()
EXACT = """
floor ceil round trunc abs neg sign relu logical_not isnan isinf isfinite isposinf isneginf signbit
positive clone real conj_physical nan_to_num bitwise_not maximum minimum fmax fmin eq ne lt le gt ge
logical_and logical_or logical_xor nextafter heaviside copysign
""".split()
# Of integers, too.
ROUNDED = """
atan2 hypot logaddexp logaddexp2 xlogy float_power special.xlog1py special.zeta mvlgamma polygamma
special.polygamma
""".split()
ROUNDED += [name for name in UNARY if name not in (*EXACT, "square", "sgn", "bitwise_not")]
# Whose derivative is a difference of near numbers over a small one.
CANCELLING = ["sinc"]
NUMBERS = [0, 1, 2, -1, 3, 0.5, -0.5, 2.0, 0.1, -1.7, 1e-3, 100, 7, True]


def dtype_of(draw: Draw, name: str) -> torch.dtype:
    if name in OF_BITS or name == "bitwise_not":
        return draw.pick([*INTEGERS, torch.bool])
    return draw.float if draw.chance(0.55) else draw.pick(DTYPES)


def special_more_often(draw: Draw) -> None:
    if draw.values == "normal" and draw.chance(0.4):
        draw.values = draw.pick(["special", "special", "huge", "tiny", "whole"])


def is_exact(name: str, operands: list[Operand]) -> bool:
    inexact = [o for o in operands if o.dtype.is_floating_point or o.dtype.is_complex]
    if name in ROUNDED or any(o.dtype.is_complex for o in operands):
        return False
    return name in EXACT or not inexact


def finished(
    draw: Draw, name: str, code: str, operands: list[Operand], family: str, rounded: bool = False
) -> Call:
    """In place, into memory, or as it is; `rounded`: of integers, too."""
    exact = is_exact(name, operands) and name not in UNARY[:6] + UNARY[7:29] and not rounded
    # What is left of a difference is as precise as what was subtracted.
    call = Call(family, code, tuple(operands), pointwise=name != "tanhshrink", exact=exact)
    floats = all(o.dtype.is_floating_point for o in operands) and name not in CANCELLING
    method = hasattr(torch.Tensor, f"{name}_") and f"torch.{name}(a" in (
        code[:-1],
        code.split(",")[0],
    )
    if method and draw.chance(0.2):
        rest = code[len(f"torch.{name}(a") :].lstrip(", ")
        in_place = Call(family, f"a.{name}_({rest}", tuple(operands), pointwise=True, exact=exact)
        return draw.way(in_place, gradients=False)
    out = code.startswith("torch.") and code.count("(") == 1 and name not in ("clone", "positive")
    if out or not floats or draw.chance(0.5):
        return draw.way(call, gradients=floats, out=out)
    used = draw.used(code)
    alone = used == code and name != "tanhshrink"
    return draw.way(Call(family, used, tuple(operands), pointwise=alone), gradients=floats)


def unary(draw: Draw) -> Call:
    special_more_often(draw)
    name = draw.pick(UNARY)
    operands = [draw.read(draw.shape(), dtype_of(draw, name))]
    return finished(draw, name, f"torch.{name}(a)", operands, "unary")


def activation(draw: Draw) -> Call:
    special_more_often(draw)
    name, _, more = draw.pick(ACTIVATIONS).partition("(")
    code = f"F.{name}(a{more or ')'}"
    operands = [draw.read(draw.shape())]
    if draw.chance(0.1):
        shape = [draw.upto(5), draw.upto(9), draw.upto(30)]
        operands = [draw.operand(shape), draw.operand([draw.pick([1, shape[1]])])]
        code = "F.prelu(a, b)"
    elif draw.chance(0.1):
        code = f"F.glu(torch.cat([a, a], -1), {draw.pick([-1, 0])})"
    return finished(draw, name, code, operands, "activation")


def binary(draw: Draw) -> Call:
    special_more_often(draw)
    name = draw.pick(ARITHMETIC * 2 + BINARY + OF_BITS)
    dtype = dtype_of(draw, name)
    shape = draw.shape()
    first = draw.read(shape, dtype)
    number: object = None
    if draw.chance(0.3):
        number = draw.pick(NUMBERS)
        if name in ("bitwise_left_shift", "bitwise_right_shift"):
            number = draw.pick([0, 1, 3, 7, 9])
        code, operands = f"torch.{name}(a, {number})", [first]
    else:
        same = draw.chance(0.75) or name in OF_BITS
        other = dtype if same else draw.pick(DTYPES)
        limit = 8 if "shift" in name else None
        second = draw.read(draw.less(shape), other, limit=limit)
        code, operands = f"torch.{name}(a, b)", [first, second]
        if draw.chance(0.2):
            code = f"torch.{name}(b, a)"
    if name in ("add", "sub") and draw.chance(0.3):
        code = code[:-1] + f", alpha={draw.pick([2, -1, 0.5]) if dtype in FLOATS else 2})"
    if name == "div" and draw.chance(0.4):
        code = code[:-1] + f", rounding_mode={draw.pick(['trunc', 'floor'])!r})"
        name = "div_"  # exact of integers only
    rounded = name == "pow" and isinstance(number, float)
    return finished(draw, name, code, operands, "binary", rounded)


def ternary(draw: Draw) -> Call:
    special_more_often(draw)
    dtype = draw.float if draw.chance(0.7) else draw.pick(DTYPES)
    shape = draw.shape()
    a, b, c = (draw.read(s, dtype) for s in (shape, draw.less(shape), draw.less(shape)))
    mask = draw.read(draw.less(shape), torch.bool)
    value = draw.pick([2, -1, 0.5]) if dtype in FLOATS + COMPLEX else draw.pick([2, 3])
    code, operands = draw.pick([
        (f"torch.addcmul(a, b, c, value={value})", [a, b, c]),
        (f"torch.addcdiv(a, b, c, value={value})", [a, b, c]),
        ("torch.lerp(a, b, c)", [a, b, c]),
        ("torch.lerp(a, b, 0.3)", [a, b]),
        ("torch.clamp(a, b, c)", [a, b, c]),
        (f"torch.clamp(a, {draw.pick([-1, 0, -0.5])}, {draw.pick([1, 2.5, 'None'])})", [a]),
        ("torch.clamp(a, min=b)", [a, b]),
        ("torch.where(a, b, c)", [mask, a, b]),
        (f"torch.where(a, b, {draw.pick([0, 1, 2])})", [mask, a]),
        ("torch.where(a > b, a, b)", [a, b]),
        (f"a.masked_fill(b, {draw.pick([0, 1, 3])})", [a, mask]),
        (f"a.masked_fill_(b, {draw.pick([0, 1, 3])})", [a, mask]),
        ("torch.fmax(a, b) - torch.fmin(b, c)", [a, b, c]),
        ("(a + b) * c - a", [a, b, c]),
        ("a.add_(b).mul_(c)", [a, b, c]),
        ("torch.polygamma(2, a)", [a]),
        ("torch.special.polygamma(1, a)", [a]),
        ("torch.nan_to_num(a, 1.0, 2.0, -2.0)", [a]),
        ("torch.isclose(a, b)", [a, b]),
        ("torch.frexp(a)", [a]),
        ("torch.round(a, decimals=2)", [a]),
        ("torch.mvlgamma(a.abs() + 3, 2)", [a]),
        ("torch.view_as_real(torch.complex(a, b) * 2)", [a, a]),
        ("torch.polar(a, b)", [a, a]),
    ])  # fmt: skip
    name = code.split("(")[0].removeprefix("torch.")
    return finished(draw, name, code, operands, "ternary")


def cast(draw: Draw) -> Call:
    """Conversions whose result C++ says: the numbers are in the range of the other dtype."""
    source, target = draw.pick(DTYPES), draw.pick(DTYPES)
    whole = source.is_floating_point or source.is_complex
    small = whole and not (target.is_floating_point or target.is_complex)
    values = draw.pick(["positive", "unit"]) if small else draw.values
    shape = draw.shape()
    operand = draw.read(shape, source, values=values)
    code = draw.pick([
        f"a.to({target})", f"a.to({target}) + 1", f"a.to({target}).to({source})",
        f"a.new_empty({tuple(shape)}, dtype={target}).copy_(a)",
        f"torch.zeros({tuple(shape)}, dtype={target}, device=device).add(a)",
        f"torch.empty_like(a, dtype={target}).copy_(a)",
        f"a.to({target}, memory_format=torch.contiguous_format)",
    ])  # fmt: skip
    return draw.way(Call("cast", code, (operand,), pointwise=True), gradients=False)


def lists(draw: Draw) -> Call:
    """Operators of lists of tensors, as optimisers use them."""
    special_more_often(draw)
    dtype = draw.float if draw.chance(0.85) else draw.pick(INTEGERS)
    shapes = [draw.shape(500), draw.shape(500)]
    operands = [draw.operand(shape, dtype) for shape in shapes * 3]
    if draw.chance(0.2):
        operands[1] = draw.operand(shapes[1])
    name = draw.pick("add sub mul div maximum minimum".split())
    number = draw.pick([2, -1]) if dtype in INTEGERS else draw.pick([2, 0.5, -1.5])
    one = draw.pick("sqrt exp neg abs sign reciprocal sigmoid tanh floor".split())
    code = draw.pick([
        f"torch._foreach_{name}([a, b], [c, d])",
        f"torch._foreach_{name}([a, b], {number})",
        f"torch._foreach_{name}([a, b], [{number}, 3])",
        f"torch._foreach_{name}_([a, b], [c, d])",
        f"torch._foreach_{name}_([a, b], {number})",
        f"torch._foreach_add([a, b], [c, d], alpha={number})",
        f"torch._foreach_{one}([a, b])",
        f"torch._foreach_{one}_([a, b])",
        f"torch._foreach_addcmul([a, b], [c, d], [e, f], value={number})",
        f"torch._foreach_addcdiv_([a, b], [c, d], [e, f], [{number}, 1])",
        "torch._foreach_lerp([a, b], [c, d], 0.3)",
        "torch._foreach_lerp_([a, b], [c, d], [e, f])",
        "torch._foreach_norm([a, b], 2)",
        "torch._foreach_pow([a, b], 2)",
        "torch._foreach_clamp_max([a, b], 1)",
        "torch._foreach_zero_([a, b])",
        "torch._foreach_copy_([a, b], [c, d])",
    ])  # fmt: skip
    call = Call("lists", code, tuple(operands), pointwise="norm" not in code)
    return draw.way(call, gradients="_(" not in code and dtype in FLOATS)


FAMILIES = [unary, activation, binary, ternary, cast, lists]
