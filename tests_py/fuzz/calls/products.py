# SPDX-License-Identifier: BSD-3-Clause
"""Products of matrices, sums of products, and attention."""

from __future__ import annotations

import torch

from calls.call import Call
from calls.draw import COMPLEX, INTEGERS, Draw

ACTIVATIONS = ["{}", "torch.relu({})", "F.gelu({})", "F.silu({})", "torch.tanh({})", "({}) * 2"]


def lengths(draw: Draw, count: int) -> list[int]:
    return [draw.pick([draw.upto(5), draw.upto(40), draw.upto(130, 600)]) for _ in range(count)]


def product(draw: Draw) -> Call:
    m, k, n = lengths(draw, 3)
    if draw.chance(0.03):
        m, k, n = draw.pick([(0, k, n), (m, 0, n), (m, k, 0)])
    b = draw.upto(7)
    dtype = draw.float
    if draw.chance(0.15):
        dtype = draw.pick(INTEGERS + COMPLEX)
        m, k, n = min(m, 50), min(k, 50), min(n, 50)
    alpha, beta = draw.pick([(1, 1), (2, 0.5), (1, 0), (0.5, 1), (0, 1)])
    if dtype in INTEGERS:
        alpha, beta = draw.pick([(1, 1), (2, 3), (1, 0)])
    scaled = f"alpha={alpha}, beta={beta}"
    added = draw.pick([[n], [m, n], [1, n], [m, 1], []])
    forms = {
        "torch.mm(a, b)": ([m, k], [k, n]),
        f"torch.addmm(a, b, c, {scaled})": (added, [m, k], [k, n]),
        "torch.bmm(a, b)": ([b, m, k], [b, k, n]),
        f"torch.baddbmm(a, b, c, {scaled})": (
            [b, *added] if added[1:] else added,
            [b, m, k],
            [b, k, n],
        ),
        f"torch.addbmm(a, b, c, {scaled})": (added, [b, m, k], [b, k, n]),
        "torch.matmul(a, b)": ([b, m, k], [k, n]),
        "torch.matmul(b, a)": ([k, n], [2, b, m, k]),
        "a @ b": ([m, k], [b, k, n]),
        "torch.mv(a, b)": ([m, k], [k]),
        f"torch.addmv(a, b, c, {scaled})": ([m], [m, k], [k]),
        "torch.dot(a, b)": ([m * k], [m * k]),
        "torch.vdot(a, b)": ([k], [k]),
        "torch.outer(a, b)": ([m], [n]),
        f"torch.addr(a, b, c, {scaled})": ([m, n], [m], [n]),
        "torch.inner(a, b)": ([b, k], [m, k]),
        "torch.einsum('bik,bjk->bij', a, b)": ([b, m, k], [b, n, k]),
        "torch.einsum('bhik,bhkj->bihj', a, b)": ([2, b, m, k], [2, b, k, n]),
        "torch.tensordot(a, b, 1)": ([b, m, k], [k, n]),
        "torch.linalg.multi_dot([a, b, c])": ([m, k], [k, n], [n, m]),
        "torch.kron(a, b)": ([draw.upto(6), draw.upto(6)], [draw.upto(6), draw.upto(6)]),
        "a.addmm_(b, c)": ([m, n], [m, k], [k, n]),
        "torch.chain_matmul(a, b)": ([m, k], [k, n]),
    }
    code = draw.pick(list(forms))
    if "(b, a)" in code:
        code = "torch.matmul(a, b)"
        shapes: tuple[list[int], ...] = (
            ([2, b, m, k], [k, n]) if draw.chance(0.5) else ([k], [b, k, n])
        )
    else:
        shapes = forms[code]
    inplace = "_(" in code
    operands = [draw.operand(shape, dtype) for shape in shapes]
    if not inplace and draw.chance(0.2):
        operands = [draw.read(shape, dtype) for shape in shapes]
    out = code.startswith(("torch.mm", "torch.add", "torch.b", "torch.matmul", "torch.mv"))
    if not out and not inplace and dtype.is_floating_point and draw.values != "huge":
        code = draw.used(code)
    gradients = not inplace and dtype.is_floating_point
    call = Call("product", code, tuple(operands), exact=dtype in INTEGERS)
    return draw.way(call, gradients=gradients, out=out)


def linear(draw: Draw) -> Call:
    draw.finite_products()
    m, k, n = lengths(draw, 3)
    lead = draw.pick([[m], [draw.upto(5), m], [], [2, 3, m]])
    operands = [draw.operand([*lead, k]), draw.operand([n, k])]
    bias = draw.chance(0.6)
    if bias:
        operands.append(draw.operand([n]))
    first = f"F.linear({draw.made('a')}, b{', c' if bias else ''})"
    code = draw.pick(ACTIVATIONS).format(first)
    follow = draw.pick(["", "", "residual", "norm", "bilinear"])
    if follow == "residual":
        operands.append(draw.operand([*lead, n]))
        code += f" + {'d' if bias else 'c'}"
    elif follow == "norm":
        code = f"F.layer_norm({code}, [{n}])"
    elif follow == "bilinear":
        o = draw.upto(9)
        operands = [draw.operand([m, k]), draw.operand([m, n]), draw.operand([o, k, n])]
        code = "F.bilinear(a, b, c)"
    return draw.way(Call("linear", code, tuple(operands)), gradients=True)


def attention(draw: Draw) -> Call:
    draw.finite_products()
    keys = draw.upto(4)
    heads = keys * draw.upto(4)
    batch = draw.upto(3)
    queries = draw.pick([1, 1, 2, 3, draw.upto(50), draw.upto(150, 400)])
    length = draw.pick([queries, draw.upto(40), draw.upto(200, 700)])
    size = draw.pick([8, 16, 32, 64, draw.upto(80), 128])
    other = draw.pick([size] * 5 + [draw.upto(64)])
    causal = draw.chance(0.3)
    values = "normal" if draw.values == "infinite" else draw.values
    operands = [
        draw.operand([batch, heads, queries, size], values=values),
        draw.operand([batch, keys, length, size], values=values),
        draw.operand([batch, keys, length, other], values=values),
    ]
    mask = ""
    if not causal and draw.chance(0.6):
        shape = draw.pick([[queries, length], [batch, 1, queries, length], [1, 1, 1, length],
                           [batch, heads, queries, length]])  # fmt: skip
        dtype = draw.pick([torch.bool, draw.float])
        operands.append(draw.constant(shape, dtype, values="normal"))
        mask = ", attn_mask=d"
    scale = draw.pick(["", "", ", scale=0.3"])
    code = (
        f"F.scaled_dot_product_attention(a, b, c{mask}, is_causal={causal}, enable_gqa=True{scale})"
    )
    call = Call("attention", draw.used(code), tuple(operands), strides=False)
    return draw.way(call, gradients=True)


def distance(draw: Draw) -> Call:
    m, k, n = (min(x, 60) for x in lengths(draw, 3))
    one = "torch.eye(4, device=device, dtype=a.dtype)"
    code, shapes = draw.pick([
        (f"torch.cdist(a, b, p={draw.pick([0.5, 1.0, 2.0, 3.0])})", ([m, k], [n, k])),
        ("torch.cdist(a, b)", ([2, m, k], [2, n, k])),
        ("F.pdist(a)", ([m, k],)),
        ("F.pairwise_distance(a, b)", ([m, k], [m, k])),
        ("F.cosine_similarity(a, b, dim=-1)", ([m, k], [m, k])),
        ("torch.cov(a)", ([m, k],)),
        ("torch.corrcoef(a)", ([m, k],)),
        ("torch.linalg.cross(a, b)", ([m, 3], [m, 3])),
        ("torch.trapezoid(a, b)", ([m, k], [m, k])),
        ("torch.linalg.det(a)", ([m % 5 + 1, m % 5 + 1],)),
        (f"torch.linalg.inv(a + 5 * {one})", ([n, 4, 4],)),
        (f"torch.linalg.solve(a + 9 * {one}, b)", ([4, 4], [4, n])),
        ("torch.linalg.matrix_norm(a)", ([n, m, k],)),
        ("torch.linalg.vector_norm(a, 3, dim=-1)", ([n, m, k],)),
        ("torch.matrix_power(a * 0.1, 3)", ([4, 4],)),
        ("torch.trace(a)", ([m, k],)),
        (f"torch.linalg.cholesky(a @ a.mT + 3 * {one})", ([n, 4, 4],)),
    ])  # fmt: skip
    values = draw.pick(["normal", "normal", "whole", draw.values])
    operands = tuple(draw.operand(shape, values=values) for shape in shapes)
    return draw.way(Call("distance", code, operands), gradients=True)


FAMILIES = [product, linear, attention, distance]
