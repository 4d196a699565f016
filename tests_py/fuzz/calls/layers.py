# SPDX-License-Identifier: BSD-3-Clause
"""Losses, and layers with state: recurrent ones and cells."""

from __future__ import annotations

import torch

from calls.call import Call, Operand
from calls.draw import DERIVED, Draw


def recurrent(draw: Draw) -> Call:
    draw.values = "normal"
    kind = draw.pick(["lstm", "gru", "rnn_tanh", "rnn_relu"])
    layers, both = draw.upto(2), draw.chance(0.4)
    bias, batch_first = draw.chance(0.7), draw.chance(0.5)
    inputs, hidden = draw.upto(20, 100), draw.upto(40, 130)
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    directions = 2 if both else 1
    batch, steps = draw.upto(8, 20), draw.upto(8, 20)
    shape = [batch, steps, inputs] if batch_first else [steps, batch, inputs]
    states = 2 if kind == "lstm" else 1
    operands = [draw.operand(shape)]
    operands += [draw.operand([layers * directions, batch, hidden]) for _ in range(states)]
    for layer in range(layers):
        size = inputs if layer == 0 else hidden * directions
        for _ in range(directions):
            operands += [draw.operand([gates * hidden, n], values="small") for n in (size, hidden)]
            operands += [draw.operand([gates * hidden]) for _ in range(2 * bias)]
    names = Call("", "", tuple(operands)).names()
    scaled = ", ".join(f"{n} * 0.3" if draw.chance(0.02) else n for n in names[1 + states :])
    state = "(b, c)" if kind == "lstm" else "b"
    code = (
        f"torch.{kind}(a, {state}, [{scaled}], {bias}, {layers}, 0.0, True, {both}, {batch_first})"
    )
    # Gradients of weights lie as the products that made them, which are not cpu's.
    call = Call("recurrent", code, tuple(operands), strides=False)
    way = draw.way(call, gradients=True)
    # Which states are above zero depends on how those before them are rounded.
    jumps = kind == "rnn_relu" and draw.float in (torch.float16, torch.bfloat16)
    if jumps and way.way in DERIVED:
        return call
    return way if way.way not in ("vmap", "jvp") else call


def cell(draw: Draw) -> Call:
    kind = draw.pick(["lstm", "gru", "rnn_tanh"])
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    batch, inputs, hidden = draw.upto(9, 60), draw.upto(30, 100), draw.upto(40, 130)
    shapes = [[batch, inputs], [batch, hidden], [batch, hidden], [gates * hidden, inputs],
              [gates * hidden, hidden], [gates * hidden], [gates * hidden]]  # fmt: skip
    state = "(b, c)" if kind == "lstm" else "b"
    code = f"torch.{kind}_cell(a, {state}, d, e, f, g)"
    draw.values = "normal"
    # One kernel makes what cpu composes, whose results lie as its products do.
    call = Call("cell", code, tuple(map(draw.operand, shapes)), strides=False)
    return draw.way(call, gradients=True)


def loss(draw: Draw) -> Call:
    n, classes = draw.upto(40, 400), draw.upto(60, 300)
    red = f"reduction={draw.pick(['none', 'mean', 'sum'])!r}"
    a, b = draw.operand([n, classes]), draw.operand([n, classes])
    y = draw.indices([n], classes)
    w = draw.constant([classes], values="unit")
    smooth = f"label_smoothing={draw.pick([0.0, 0.0, 0.1])}"
    ignore = f"ignore_index={draw.pick([-100, 0])}"
    image = [draw.upto(4), classes, draw.upto(6), draw.upto(6)]
    places = draw.indices([image[0], *image[2:]], classes)
    signs = Operand((n,), torch.float32, 5, values="whole", grad=False)
    code, operands = draw.pick([
        (f"F.cross_entropy(a, b, {red}, {smooth}, {ignore})", (a, y)),
        (f"F.cross_entropy(a, b, c, {red}, {smooth}, {ignore})", (a, y, w)),
        (f"F.cross_entropy(a, b.softmax(1), {red}, {smooth})", (a, b)),
        (f"F.cross_entropy(a, b, {red}, {smooth})", (draw.operand(image), places)),
        (f"F.nll_loss(a.log_softmax(-1), b, {red}, {ignore})", (a, y)),
        (f"F.nll_loss(a.log_softmax(1), b, {red})", (draw.operand(image), places)),
        (f"F.binary_cross_entropy(a.sigmoid(), b.sigmoid(), {red})", (a, b)),
        (f"F.binary_cross_entropy_with_logits(a, b.sigmoid(), {red})", (a, b)),
        (f"F.binary_cross_entropy_with_logits(a, b.sigmoid(), c, {red}, pos_weight=c)", (a, b, w)),
        (f"F.mse_loss(a, b, {red})", (a, b)), (f"F.l1_loss(a, b, {red})", (a, b)),
        (f"F.huber_loss(a, b, {red}, delta=0.6)", (a, b)),
        (f"F.smooth_l1_loss(a, b, {red}, beta=0.7)", (a, b)),
        (f"F.kl_div(a.log_softmax(-1), b.softmax(-1), {red})", (a, b)),
        (f"F.kl_div(a.log_softmax(-1), b.log_softmax(-1), {red}, log_target=True)", (a, b)),
        (f"F.multi_margin_loss(a, b, {red})", (a, y)),
        (f"F.multilabel_soft_margin_loss(a, b.sigmoid().round(), {red})", (a, b)),
        (f"F.triplet_margin_loss(a, b, a.flip(0), {red})", (a, b)),
        (f"F.margin_ranking_loss(a, b, a.sign(), {red})", (a, b)),
        (f"F.hinge_embedding_loss(a, b.sign(), {red})", (a, b)),
        (f"F.cosine_embedding_loss(a, b, c.sign(), {red})", (a, b, signs)),
        (f"F.soft_margin_loss(a, b.sign(), {red})", (a, b)),
        (f"F.gaussian_nll_loss(a, b, b.abs() + 0.1, {red})", (a, b)),
        (f"F.poisson_nll_loss(a, b.abs(), {red})", (a, b)),
        ("F.ctc_loss(a.log_softmax(-1)[:, None], b[None, :3] % (a.shape[1] - 1) + 1, "
         f"(a.shape[0],), (3,), {red}, zero_infinity=True)",
         (draw.operand([draw.upto(30, 60, 8), classes + 2]), draw.indices([5], classes))),
    ])  # fmt: skip
    return draw.way(Call("loss", code, operands), gradients=True)


FAMILIES = [recurrent, cell, loss]
