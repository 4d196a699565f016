# SPDX-License-Identifier: BSD-3-Clause
"""The ways in which a call is made: each runs on any device and returns all that is compared."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

import torch_loom
from calls.call import WRITABLE, Call, normals
from support.oracle import Mover, leaves, map_leaves

SECONDS_HELD = 5e-3


class Attempt:
    """A call on one device, with operands of its own."""

    def __init__(self, call: Call, device: str, operands: list[Tensor]) -> None:
        self.call, self.device = call, device
        mover = Mover(device)
        self.operands: list[Tensor] = map_leaves(mover, operands)
        self.code = compile(call.code, "<call>", "eval")

    def __call__(self, *operands: Tensor) -> Any:
        names = dict(zip(self.call.names(), operands, strict=True))
        scope = {"torch": torch, "F": F, "inf": math.inf, "nan": math.nan, "device": self.device}
        return eval(self.code, {**scope, **names})

    def random(self, like: Tensor, expanded: bool = True) -> Tensor:
        """Numbers that are the same on each device, laid out in a way that the seed decides."""
        generator = torch.Generator().manual_seed(self.call.seed)
        if like.is_complex():
            made = torch.randn(like.shape, generator=generator, dtype=torch.complex128)
        else:
            made = normals(like.shape, generator)
        narrow = next((o.dtype for o in self.call.operands if o.dtype.is_floating_point), None)
        to = narrow if narrow and not like.is_complex() else made.dtype
        made = made.to(to, copy=True).to(like.dtype)
        layout = self.call.seed % 4
        if layout == 1 and made.dim() >= 3:
            made = made.movedim(1, -1).contiguous().movedim(-1, 1)
        elif layout == 2 and made.dim() >= 2:
            made = made.transpose(0, -1).contiguous().transpose(0, -1)
        elif layout == 3 and expanded:
            made = made.new_full((), 0.5).expand(made.shape)  # as sum() leaves it
        return Mover(self.device)(made)

    def wanted(self) -> list[Tensor]:
        """Operands whose gradients are wanted, of which they are from now on."""
        pairs = zip(self.operands, self.call.operands, strict=True)
        floats = [t for t, o in pairs if o.grad and (t.is_floating_point() or t.is_complex())]
        return [t.requires_grad_() for t in floats]


def detached(value: Any) -> Any:
    return map_leaves(lambda x: x.detach() if isinstance(x, Tensor) else x, value)


def differentiable(result: Any) -> list[Tensor]:
    return [x for x in leaves(result) if isinstance(x, Tensor) and x.requires_grad]


def plain(attempt: Attempt) -> Any:
    return attempt(*attempt.operands)


def gradients(attempt: Attempt) -> Any:
    wanted = attempt.wanted()
    result = attempt(*attempt.operands)
    roots = differentiable(result)
    seeds = [attempt.random(root) for root in roots]
    found = torch.autograd.grad(roots, wanted, seeds, allow_unused=True) if roots else ()
    return [detached(result), list(found)]


def through_leaves(attempt: Attempt) -> Any:
    """Gradients that add up in the operands, over two calls."""
    wanted = attempt.wanted()
    for _ in range(2):
        result = attempt(*attempt.operands)
        for root in differentiable(result)[:1]:
            root.backward(attempt.random(root))
    return [detached(result), [x.grad for x in wanted]]


def second_gradients(attempt: Attempt) -> Any:
    wanted = attempt.wanted()
    roots = differentiable(attempt(*attempt.operands))[:1]
    if not roots:
        return []
    seeds = [attempt.random(root).requires_grad_() for root in roots]
    first = torch.autograd.grad(roots, wanted, seeds, allow_unused=True, create_graph=True)
    again = [g for g in first if g is not None and g.requires_grad]
    if not again:
        return detached(list(first))
    more = torch.autograd.grad(
        again, [*wanted, *seeds], [attempt.random(g) for g in again], allow_unused=True
    )
    return [detached(list(first)), list(more)]


@contextlib.contextmanager
def held(device: str) -> Iterator[None]:
    """What is called within is queued before any of it runs, unless it waits, or takes so long."""
    if device == "cpu":
        yield
        return
    hold = torch_loom._C._Hold(-1, SECONDS_HELD)
    try:
        yield
    finally:
        hold.release()


def queued(attempt: Attempt) -> Any:
    """What is called is taken by the next call, and operands are overwritten, with no wait."""
    with held(attempt.device):
        return queued_calls(attempt)


def queued_calls(attempt: Attempt) -> Any:
    operands = attempt.operands
    first = attempt(*operands)
    values = [x for x in leaves(first) if isinstance(x, Tensor)]
    later = [x.add(x) if x.dtype != torch.bool else x.logical_not() for x in values]
    pairs = zip(operands, attempt.call.operands, strict=True)
    kept = [x.clone() for x in values if shares(x, operands)]
    for tensor, operand in pairs:
        if operand.layout in WRITABLE and tensor.is_floating_point():
            tensor.mul_(-0.5).add_(0.25)
    again = attempt(*operands)
    alone = [x for x in values if not shares(x, operands)]
    return [alone, kept, later, again]


def shares(tensor: Tensor, others: list[Tensor]) -> bool:
    return any(torch._C._is_alias_of(tensor, other) for other in others)


def on_a_stream(attempt: Attempt) -> Any:
    """On a second stream, of operands that the first one is still to compute."""
    if attempt.device != "loom":
        return cloned(attempt(*[x.clone() for x in attempt.operands]))
    stream = torch.loom.Stream()
    with held("loom"):
        operands = [x.clone() for x in attempt.operands]
        stream.wait_stream(torch.loom.current_stream())
        with torch.loom.stream(stream):
            result = attempt(*operands)
        torch.loom.current_stream().wait_stream(stream)
        for x in operands:
            x.record_stream(stream)
        return cloned(result)


def cloned(value: Any) -> Any:
    return map_leaves(lambda x: x.clone() if isinstance(x, Tensor) else x, value)


def twice(attempt: Attempt) -> Any:
    """The second call finds what the first one has left behind: kept inferences, memory."""
    attempt(*attempt.operands)
    return attempt(*attempt.operands)


def out(attempt: Attempt) -> Any:
    """Into memory that is there: of the right shape in some layout, or to be resized."""
    assert attempt.call.code.endswith(")")
    shown = attempt(*attempt.operands)
    if not isinstance(shown, Tensor):
        return shown
    kind = attempt.call.seed % 4
    if kind == 0 or shown.dim() == 0:
        target = shown.new_empty(0)
        view = target
    elif kind == 1:
        target = shown.new_full((*shown.shape[:-1], shown.shape[-1] + 2), 3)
        view = target[..., 1:-1]
    elif kind == 2:
        target = shown.new_full(tuple(reversed(shown.shape)), 3)
        view = target.permute(tuple(reversed(range(shown.dim()))))
    else:
        target = view = shown.new_full(shown.shape, 3)
    code = compile(attempt.call.code[:-1] + ", out=result)", "<call>", "eval")
    names = dict(zip(attempt.call.names(), attempt.operands, strict=True))
    eval(code, {"torch": torch, "F": F, "inf": math.inf, "nan": math.nan, "result": view, **names})
    return [view, target]


def mapped(attempt: Attempt) -> Any:
    """Over a new dimension of the operands with gradients, behind vmap."""
    floats = [o.grad and o.dtype.is_floating_point for o in attempt.call.operands]
    if not any(floats):
        return plain(attempt)
    pairs = zip(attempt.operands, floats, strict=True)
    stacked = [torch.stack([x, -x, x * 0.5]) if f else x for x, f in pairs]
    return torch.vmap(attempt, in_dims=tuple(0 if f else None for f in floats))(*stacked)


def forward_mode(attempt: Attempt) -> Any:
    pairs = zip(attempt.operands, attempt.call.operands, strict=True)
    which = [n for n, (x, o) in enumerate(pairs) if o.grad and x.is_floating_point()]
    if not which:
        return plain(attempt)
    inputs = tuple(attempt.operands[n] for n in which)

    def function(*some: Tensor) -> Any:
        operands = list(attempt.operands)
        for n, tensor in zip(which, some, strict=True):
            operands[n] = tensor
        return attempt(*operands)

    return torch.func.jvp(
        function, inputs, tuple(attempt.random(x, expanded=False) for x in inputs)
    )


def autocast(attempt: Attempt) -> Any:
    """cpu's list of operators is another one: cpu takes no part, but for its float64."""
    with torch.autocast(attempt.device, torch.bfloat16, enabled=attempt.device == "loom"):
        return attempt(*attempt.operands)


WAYS: dict[str, Callable[[Attempt], Any]] = {
    "plain": plain,
    "gradients": gradients,
    "leaves": through_leaves,
    "second": second_gradients,
    "queued": queued,
    "stream": on_a_stream,
    "twice": twice,
    "out": out,
    "vmap": mapped,
    "jvp": forward_mode,
    "autocast": autocast,
}
