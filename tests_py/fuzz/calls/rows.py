# SPDX-License-Identifier: BSD-3-Clause
"""Reductions, scans, orders and norms along dimensions."""

from __future__ import annotations

import dataclasses

from calls.call import Call
from calls.draw import COMPLEX, DTYPES, FLOATS, INTEGERS, Draw

REDUCTIONS = """
sum mean amax amin prod any all nansum nanmean var std logsumexp count_nonzero norm var_mean
std_mean
""".split()
ROUNDED = "mean nanmean var std logsumexp norm var_mean std_mean".split()
ONE_DIMENSION = """
argmax argmin cumsum cumprod cummax cummin logcumsumexp softmax log_softmax max min median
nanmedian mode sort argsort topk kthvalue aminmax msort quantile nanquantile diff logcumsum unique
softmin
""".split()
IN_ORDER = """
argmax argmin cummax cummin max min median nanmedian mode sort argsort topk kthvalue aminmax msort
""".split()


def a_dtype(draw: Draw, floats_only: bool = False) -> object:
    return draw.float if floats_only or draw.chance(0.7) else draw.pick(DTYPES)


def reduction(draw: Draw) -> Call:
    shape = draw.shape()
    name = draw.pick(REDUCTIONS)
    dtype = a_dtype(draw, name in ROUNDED)
    dims = draw.random.sample(range(len(shape)), draw.upto(len(shape), least=min(1, len(shape))))
    if draw.chance(0.3):
        dims = [d - len(shape) for d in dims]
    if name == "prod" and dims:
        dims = dims[0]
    arguments = draw.made("a") if dtype in FLOATS else "a"
    more = f", keepdim={draw.chance(0.4)}"
    if name == "norm":
        code = (
            f"torch.linalg.vector_norm({arguments}, {draw.pick([2, 1, 'inf', 0, 3])}, {dims}{more})"
        )
    elif name == "count_nonzero":
        code = f"torch.count_nonzero({arguments}, {dims})"
    elif not shape or (draw.chance(0.2) and name in ("sum", "mean", "prod", "any", "all")):
        code = (
            f"torch.{name}({arguments})"
            if name not in ("amax", "logsumexp")
            else f"{arguments}.sum()"
        )
    else:
        if name in ("var", "std", "var_mean", "std_mean"):
            more += f", correction={draw.pick([1, 0, 2])}"
        elif name in ("sum", "prod", "nansum", "mean") and draw.chance(0.2):
            more += (
                f", dtype={draw.pick([draw.float, *(DTYPES[:4] if name == 'mean' else DTYPES)])}"
            )
        code = f"torch.{name}({arguments}, {dims}{more})"
    exact = dtype not in FLOATS + COMPLEX and name not in ROUNDED and "dtype=torch.f" not in code
    exact &= "dtype=torch.b" not in code and "dtype=torch.c" not in code
    out = name in ("sum", "mean", "amax", "prod", "any", "all", "nansum") and dims != []
    call = Call("reduction", code, (draw.read(shape, dtype),), exact=exact)
    return draw.way(call, gradients=dtype in FLOATS, out=out and "_(" not in code and "," in code)


def scan_or_order(draw: Draw) -> Call:
    shape = draw.shape() or (1,)
    d = draw.random.randrange(len(shape))
    n = max(shape[d], 1)
    name = draw.pick(ONE_DIMENSION)
    dtype = a_dtype(draw, "soft" in name or "quantile" in name or name.startswith("log"))
    a = draw.made("a") if dtype in FLOATS else "a"
    forms = {
        "sort": f"torch.sort({a}, dim={d}, descending={draw.chance(0.5)}, stable=True)",
        "argsort": f"torch.argsort({a}, dim={d}, descending={draw.chance(0.5)}, stable=True)",
        "topk": f"torch.topk({a}, {draw.upto(n)}, {d}, largest={draw.chance(0.5)})[0]",
        "kthvalue": f"torch.kthvalue({a}, {draw.upto(n)}, {d})[0]",
        "median": f"torch.median({a}, {d})[0]",
        "nanmedian": f"torch.nanmedian({a}, {d})[0]",
        "mode": f"torch.mode({a}, {d})[0]",
        "aminmax": f"torch.aminmax({a}, dim={d})",
        # Equal elements have no order without `stable`, nor have -0 and 0.
        "msort": f"torch.msort({a} + 0)",
        "quantile": f"torch.quantile({a}.to(torch.float32), 0.25, dim={d})",
        "nanquantile": f"torch.nanquantile({a}.to(torch.float32), 0.9, dim={d})",
        "logcumsum": f"torch.cumsum({a}, {d}, dtype=torch.{draw.pick(['float32', 'float64'])})",
        # Each NaN is another one: which of them has which place is nobody's.
        "unique": f"torch.unique({'a.nan_to_num() + 0' if dtype in FLOATS else 'a'}, "
        "return_inverse=True, return_counts=True)",
        "softmin": f"F.softmin({a}, {d})",
        "cumprod": f"torch.cumprod({a}{' * 0.3 + 1' * (dtype in FLOATS)}, {d})",
    }
    code = forms.get(name, f"torch.{name}({a}, {d})")
    values = draw.values if not draw.chance(0.3) else "whole"
    exact = name in IN_ORDER or dtype in [*INTEGERS, *DTYPES[9:10]]
    # Of medians of elements that share memory cpu gives other numbers each time.
    read = draw.operand if "median" in name else draw.read
    call = Call("scan_or_order", code, (read(shape, dtype, values=values),),
                exact=exact and "quantile" not in name and "dtype" not in code
                and "(torch.float" not in code and not a.endswith(".tanh()"))  # fmt: skip
    out = name in ("cumsum", "cumprod", "softmax", "log_softmax", "argmax", "logcumsumexp")
    return draw.way(call, gradients=dtype in FLOATS and name != "unique", out=out)


def norm(draw: Draw) -> Call:
    draw.finite_products()
    shape = list(draw.shape(3000, dims=draw.pick([2, 3, 3, 4, 4, 5])))
    kind = draw.pick(
        "layer layer rms rms group group batch batch instance local normalize renorm weight".split()
    )
    channels = shape[1]
    parameter = draw.pick([draw.float, draw.float, DTYPES[0]])
    operands = [draw.operand(shape)]
    a = draw.made("a")
    if kind in ("layer", "rms"):
        inner = shape[-draw.upto(len(shape) - 1) :]
        count = draw.pick([0, 1, 2]) if kind == "layer" else draw.pick([0, 1])
        operands += [draw.operand(inner) for _ in range(count)]
        names = ["", ", b", ", b, c"][count]
        eps = draw.pick(["", "", ", eps=1e-3"])
        code = f"F.{kind}_norm({a}, {inner}{names}{eps})"
    elif kind == "group":
        groups = draw.pick([g for g in range(1, channels + 1) if channels % g == 0] or [1])
        both = draw.chance(0.6)
        operands += [draw.operand([channels], parameter) for _ in range(2 * both)]
        code = f"F.group_norm({a}, {groups}{', b, c' if both else ''})"
    elif kind in ("batch", "instance"):
        both, training = draw.chance(0.7), draw.chance(0.6)
        operands += [
            draw.constant([channels], parameter, values="normal", layout="dense"),
            draw.constant([channels], parameter, values="positive", layout="dense"),
        ]
        # Of infinite weights and finite elements cpu makes NaN, on the way.
        values = "normal" if draw.values == "infinite" else draw.values
        operands += [draw.operand([channels], parameter, values=values) for _ in range(2 * both)]
        weights = ", d, e" if both else ""
        flag = f"training={training}" if kind == "batch" else f"use_input_stats={training}"
        code = f"F.{kind}_norm({a}, b, c{weights}, {flag})"
    elif kind == "local":
        code = f"F.local_response_norm({a}, {draw.upto(5)})"
    elif kind == "normalize":
        code = (
            f"F.normalize({a}, dim={draw.random.randrange(len(shape))}, p={draw.pick([1.0, 2.0])})"
        )
    elif kind == "weight":
        operands.append(draw.operand([shape[0], *[1] * (len(shape) - 1)]))
        code = "torch._weight_norm(a, b, 0)"
    else:
        code = f"torch.renorm(a, {draw.pick([1, 2, 3])}, {draw.random.randrange(len(shape))}, 0.7)"
    call = Call("norm", draw.used(code), tuple(operands))
    way = draw.way(call, gradients=True)
    if kind in ("batch", "instance") and way.way in ("vmap", "jvp"):
        return call  # statistics are written in place
    if kind in ("batch", "instance"):
        # cpu misreads gradients in other layouts where a dimension has one element:
        # test_operand_layouts.py has them.
        way = dataclasses.replace(way, seed=way.seed // 4 * 4)
    return way


FAMILIES = [reduction, scan_or_order, norm]
