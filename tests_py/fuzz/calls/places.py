# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes at given places: indices, masks, embeddings, orders of elements."""

from __future__ import annotations

import dataclasses
import math

from calls.call import Call, Operand
from calls.draw import DTYPES, FLOATS, Draw

MOST_ELEMENTS = 300_000


def a_matrix(draw: Draw) -> tuple[list[int], int]:
    """Sizes, and the dimension of the indices."""
    shape = list(draw.shape(dims=draw.pick([1, 2, 2, 3])))
    return shape, draw.random.randrange(len(shape))


def how_many(draw: Draw, most: int, most_if_large: int, shape: list[int], d: int) -> int:
    """Indices along a dimension, each of which takes a slice or an element of all others."""
    others = math.prod(n for i, n in enumerate(shape) if i != d)
    return min(draw.upto(most, most_if_large), max(MOST_ELEMENTS // max(others, 1), 1))


def along(draw: Draw) -> Call:
    """index_select and its kin: one index for a whole slice."""
    shape, d = a_matrix(draw)
    count = how_many(draw, 60, 3000, shape, d)
    dtype = draw.float if draw.chance(0.7) else draw.pick(DTYPES)
    slices = [count if i == d else n for i, n in enumerate(shape)]
    index = draw.indices([count], shape[d], any=True)
    alone = Operand((shape[d],), index.dtype, index.seed, values="permutation")
    operand, source = draw.operand(shape, dtype), draw.operand(slices, dtype)
    alpha = draw.pick([1, 1, 2]) if dtype in DTYPES[:9] else 1
    mode = draw.pick(["prod", "mean", "amax", "amin"])
    code, operands = draw.pick([
        (f"torch.index_select(a, {d}, b)", (operand, index)),
        (f"a.index_add({d}, b, c, alpha={alpha})", (operand, index, source)),
        (f"a.index_add_({d}, b, c)", (operand, index, source)),
        (f"a.index_copy({d}, b.long(), c)", (operand, dataclasses.replace(alone, dtype=DTYPES[8]),
                                             draw.operand(shape, dtype))),
        (f"a.index_fill({d}, b.long(), 3)", (operand, index)),
        (f"a.index_reduce({d}, b, c, {mode!r}, include_self={draw.chance(0.5)})",
         (operand, index, source)),
        (f"a.select({d}, 0) * 2", (operand,)),
        (f"torch.repeat_interleave(a, b.long() % 4, dim={d})",
         (operand, draw.indices([shape[d]], 4))),
    ])  # fmt: skip
    call = Call("along", code, operands, exact="add" not in code and "reduce" not in code)
    return draw.way(call, gradients=dtype in FLOATS and "_(" not in code,
                    out=code.startswith("torch.index_select"))  # fmt: skip


def by_element(draw: Draw) -> Call:
    """Gather and scatter: an index for each element."""
    shape, d = a_matrix(draw)
    dtype = draw.float if draw.chance(0.7) else draw.pick(DTYPES)
    count = how_many(draw, 40, 400, shape, d)
    places = [count if i == d else draw.upto(max(n, 1)) for i, n in enumerate(shape)]
    index = draw.indices(places, shape[d])
    operand, source = draw.operand(shape, dtype), draw.operand(places, dtype)
    each = Operand((shape[d],), DTYPES[8], 3, values="permutation")
    spread = f"b{''.join('[None]' for _ in range(d))}{'[..., None]' * (len(shape) - 1 - d)}"
    reduce = draw.pick(["sum", "prod", "mean", "amax", "amin"])
    code, operands = draw.pick([
        (f"torch.gather(a, {d}, b)", (operand, index)),
        (f"a.scatter_add({d}, b, c)", (operand, index, source)),
        (f"a.scatter({d}, b, 2)", (operand, index)),
        (f"a.scatter({d}, {spread}.expand(a.shape), c)",
         (operand, each, draw.operand(shape, dtype))),
        (f"a.scatter_reduce({d}, b, c, {reduce!r}, include_self={draw.chance(0.6)})",
         (operand, index, source)),
        (f"torch.take_along_dim(a, b, {d})", (operand, draw.indices(
            [draw.upto(9) if i == d else n for i, n in enumerate(shape)], shape[d]))),
    ])  # fmt: skip
    exact = "add" not in code and "reduce" not in code
    call = Call("by_element", code, operands, exact=exact)
    return draw.way(call, gradients=dtype in FLOATS, out=code.startswith("torch.g"))


def indexed(draw: Draw) -> Call:
    """What square brackets do."""
    shape = list(draw.shape(dims=draw.pick([2, 3, 4]))) if draw.chance(0.97) else [0, 3]
    dtype = draw.float if draw.chance(0.6) else draw.pick(DTYPES)
    most = how_many(draw, 20, 500, shape, min((0, 1), key=shape.__getitem__))
    places = draw.pick([[most], [draw.upto(4), draw.upto(9)], []])
    first, second = draw.indices(places, shape[0]), draw.indices(places, shape[1])
    operand = draw.operand(shape, dtype)
    mask = draw.read(shape[: draw.upto(2)], DTYPES[9])
    accumulate = draw.chance(0.5)
    code, operands = draw.pick([
        ("a[b]", (operand, first)),
        ("a[:, b]", (operand, second)),
        ("a[b, c]", (operand, first, second)),
        ("a[b, ..., 0]", (operand, first)),
        ("a[b]", (operand, mask)),
        ("a[b, None]", (operand, first)),
        ("torch.masked_select(a, b)", (operand, draw.read(draw.less(tuple(shape)), DTYPES[9]))),
        ("torch.nonzero(a)", (operand,)),
        ("torch.argwhere(a > 0)", (operand,)),
        (f"a.index_put((b,), c, accumulate={accumulate})",
         (operand, Operand((shape[0],), DTYPES[8], 4, values="permutation"),
          draw.operand(shape, dtype))),
        ("a.index_put((b, c), d, accumulate=True)",
         (operand, first, second, draw.operand([*places, *shape[2:]], dtype))),
        ("a.index_put_((b,), c[0], accumulate=True)", (operand, first, draw.operand(shape, dtype))),
        ("a.put_(b, c, accumulate=True)",
         (operand, draw.indices(places, shape[0]), draw.operand(places, dtype))),
        ("a.take(b)", (operand, draw.indices(places, shape[0] * shape[1]))),
        ("a.masked_scatter(b, c)",
         (operand, draw.read(shape, DTYPES[9]), draw.operand(shape, dtype))),
    ])  # fmt: skip
    call = Call("indexed", code, operands, exact="accumulate" not in code)
    return draw.way(call, gradients=dtype in FLOATS and "_(" not in code and "nonzero" not in code
                    and "argw" not in code)  # fmt: skip


def embedding(draw: Draw) -> Call:
    rows, width = draw.upto(40, 2000), draw.upto(70, 300)
    weight = draw.operand([rows, width])
    places = draw.pick([[draw.upto(60, 500)], [draw.upto(9, 60), draw.upto(9, 40)]])
    index = draw.indices(places, rows, any=True)
    padding = draw.pick(["", "", f", padding_idx={draw.upto(rows) - 1}"])
    mode = draw.pick(["sum", "mean", "max"])
    code, operands = draw.pick([
        (f"F.embedding(b, a{padding})", (weight, index)),
        (f"F.embedding(b, a{padding}, scale_grad_by_freq=True)", (weight, index)),
        (f"F.embedding_bag(b, a, mode={mode!r}{padding})",
         (weight, draw.indices([draw.upto(9, 60), draw.upto(9, 40)], rows))),
        ("F.embedding_bag(b, a, per_sample_weights=c, mode='sum')",
         (weight, draw.indices([5, 7], rows), draw.operand([5, 7]))),
        (f"F.one_hot(b.long(), {rows})", (weight, index)),
        ("torch.bincount(b.long().flatten())", (weight, index)),
        ("torch.bincount(b.long().flatten(), c)",
         (weight, index, draw.constant([index_count(places)]))),
    ])  # fmt: skip
    return draw.way(Call("embedding", code, operands), gradients="a" in code.split("(")[1])


def index_count(places: list[int]) -> int:
    count = 1
    for n in places:
        count *= n
    return count


def sought(draw: Draw) -> Call:
    """Where numbers are among others."""
    dtype = draw.float if draw.chance(0.6) else draw.pick(DTYPES[4:9])
    n, m = draw.upto(200, 5000), draw.upto(200, 5000)
    a = draw.read([n], dtype, values=draw.pick(["whole", "normal"]))
    b = draw.read(
        draw.pick([[m], [3, draw.upto(40)]]), dtype, values=draw.pick(["whole", "normal"])
    )
    bins = draw.upto(30)
    code = draw.pick([
        f"torch.searchsorted(torch.sort(a)[0], b, right={draw.chance(0.5)})",
        "torch.bucketize(b, torch.sort(a)[0])",
        f"torch.isin(b, a, invert={draw.chance(0.5)})",
        f"torch.histc(b.to(torch.float32), {bins}, -2, 2)",
        f"torch.histogram(b.to(torch.float32), {bins}, range=(-2.0, 2.0))[0]",
        "torch.unique_consecutive(torch.sort(a + 0)[0], return_counts=True)",
        "torch.equal(a, a.clone())",
        "torch.tril(b.expand(3, *b.shape)[..., None].expand(3, *b.shape, 3), 1)",
        "torch.combinations(a[:9], 2)",
        "torch.cartesian_prod(a[:9], a[:5])",
    ])  # fmt: skip
    return draw.way(Call("sought", code, (a, b), exact=True), gradients=False)


FAMILIES = [along, by_element, indexed, embedding, sought]
