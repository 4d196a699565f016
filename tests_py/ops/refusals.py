# SPDX-License-Identifier: BSD-3-Clause
"""What cpu refuses because of metadata, and whether loom refuses it at the call, in the same words.

A call is run on cpu, with its own values and with all values zero and one: if it is refused in the
same way each time, values do not matter. Then it is run on loom, where the error has to come before
anything is synchronised.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.oracle import Mover, map_leaves


@dataclasses.dataclass(frozen=True)
class Call:
    """function(*args, **kwargs), whose tensors are on cpu."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)

    def filled(self, value: int) -> Call:
        """The same with other values in all tensors."""
        fill = Filled(value)
        return dataclasses.replace(
            self, args=map_leaves(fill, self.args), kwargs=map_leaves(fill, self.kwargs)
        )


class Filled(Mover):
    """Copies whose memory is all of one value."""

    def __init__(self, value: int) -> None:
        super().__init__("cpu")
        self._value = value

    def __call__(self, value: Any) -> Any:
        moved = super().__call__(value)
        if isinstance(moved, torch.Tensor) and moved.layout == torch.strided:
            everything = torch.empty(0, dtype=moved.dtype).set_(moved.untyped_storage())
            everything.copy_(torch.full((), self._value).expand_as(everything))
        return moved


@dataclasses.dataclass(frozen=True)
class Refused:
    """An error: its type, and its text without names of devices."""

    kind: str
    text: str
    late: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def plain(text: str) -> str:
    """The first line of a message as cpu has it."""
    text = (text.splitlines() or [""])[0]
    text = text.replace("torch.loom.", "torch.").replace("loom:0", "cpu")
    return re.sub(r"\bloom(?=[A-Z]\w*Type)", "CPU", text).replace("loom", "cpu").strip()


def outcome(call: Call, device: str) -> Refused | None:
    """What happens to copies of the call's arguments, on the device."""
    mover = Mover(device)
    args, kwargs = map_leaves(mover, call.args), map_leaves(mover, call.kwargs)
    torch.manual_seed(7)
    late = False
    try:
        call.function(*args, **kwargs)
        if device != "cpu":
            late = True
            torch.accelerator.synchronize()
    except Exception as error:
        return Refused(type(error).__name__, plain(str(error)), late)
    return None


def without_numbers(refused: Refused | None) -> tuple[str, str] | None:
    return refused and (refused.kind, re.sub(r"-?\d+(\.\d+)?", "N", refused.text))


@dataclasses.dataclass(frozen=True)
class Finding:
    """How loom's refusal of a call differs from cpu's."""

    name: str
    how: str  # late | missing | other type | other text
    found: str
    expected: str


def judge(call: Call) -> Finding | bool | None:
    """A finding, None if loom refuses the call as cpu does, False if cpu does not refuse it, or
    because of values.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = outcome(call, "cpu")
        if expected is None:
            return False
        for value in (0, 1):
            if without_numbers(outcome(call.filled(value), "cpu")) != without_numbers(expected):
                return False
        found = outcome(call, "loom")
    if found is None:
        how = "missing"
    elif found.late:
        how = "late"
    elif found.kind != expected.kind:
        how = "other type"
    elif found.text != expected.text:
        how = "other text"
    else:
        return None
    return Finding(call.name, how, str(found), str(expected))


# --- calls that may be refused: changes of the metadata of a call that is not ------------------

OTHER_DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.complex64,
)


def tensors_of(call: Call) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def look(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and not any(value is other for other in found):
            found.append(value)
        return value

    map_leaves(look, (call.args, call.kwargs))
    return found


def replaced(call: Call, change: str, replace: Callable[[Any], Any]) -> Call:
    """The call with some of its leaves replaced, and `change` in its name."""
    return Call(
        f"{call.name}: {change}",
        call.function,
        map_leaves(replace, call.args),
        map_leaves(replace, call.kwargs),
    )


def other_shapes(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    for dim in range(tensor.dim()):
        if tensor.size(dim) > 0:
            yield f"dim {dim} empty", tensor.narrow(dim, 0, 0)
        if tensor.size(dim) > 1:
            yield f"dim {dim} shorter", tensor.narrow(dim, 0, tensor.size(dim) - 1)
    yield "a dim more", tensor.unsqueeze(0)
    if tensor.dim() > 0 and tensor.size(0) > 0:
        yield "a dim less", tensor.select(0, 0)


def changes(call: Call) -> Iterator[Call]:
    """The call with other dtypes, shapes, numbers and flags, one at a time."""
    tensors = tensors_of(call)
    for position, tensor in enumerate(tensors):

        def put(other: Any, tensor: torch.Tensor = tensor) -> Callable[[Any], Any]:
            return lambda value: other if value is tensor else value

        for dtype in OTHER_DTYPES:
            if tensor.dtype != dtype:
                yield replaced(call, f"tensor {position} as {dtype}", put(tensor.to(dtype)))
        if tensor.layout == torch.strided:
            for how, other in other_shapes(tensor):
                yield replaced(call, f"tensor {position}, {how}", put(other))
    if len(tensors) > 1:
        for dtype in OTHER_DTYPES:
            yield replaced(call, f"all as {dtype}", _all_as(dtype))
    yield from other_numbers(call)


def _all_as(dtype: torch.dtype) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        floats = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if floats else value

    return convert


def other_numbers(call: Call) -> Iterator[Call]:
    """The call with another number or flag at each place."""
    places: list[Any] = []
    map_leaves(lambda value: places.append(value), (call.args, call.kwargs))
    for place, old in enumerate(places):
        if isinstance(old, bool):
            others: tuple[Any, ...] = (not old,)
        elif isinstance(old, int):
            others = (-1, -7, old + 1, 1 + 2j)
        elif isinstance(old, float):
            others = (-1.5, 1 + 2j)
        else:
            continue
        for other in others:
            yield replaced(call, f"{other} at place {place}", _at_place(place, other))


def _at_place(place: int, other: Any) -> Callable[[Any], Any]:
    count = iter(range(1 << 20))
    return lambda value: other if next(count) == place else value


# --- out= and in place -------------------------------------------------------------------------


def bad_outputs(call: Call) -> Iterator[Call]:
    """The call with out= of wrong dtypes, of one place for all elements, and of wrong sizes."""
    try:
        result = outcome_values(call)
    except Exception:
        return
    several = isinstance(result, (tuple, list))
    results = list(result) if several else [result]
    if not all(isinstance(each, torch.Tensor) for each in results):
        return
    for position, good in enumerate(results):
        for how, bad in _spoiled(good):
            outputs = [torch.empty_like(each) for each in results]
            outputs[position] = bad
            kwargs = {**call.kwargs, "out": tuple(outputs) if several else outputs[0]}
            yield Call(f"{call.name}: out {position} {how}", call.function, call.args, kwargs)
        for number, tensor in enumerate(tensors_of(call)):
            if tensor.dtype == good.dtype and tensor.numel() > 1 and good.numel() > 1:
                yield from _over_an_operand(call, results, position, tensor, number, several)


def _spoiled(good: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    for dtype in (torch.bool, torch.int64, torch.float32, torch.complex64):
        if dtype != good.dtype:
            yield f"as {dtype}", torch.empty_like(good, dtype=dtype)
    if good.numel() > 1:
        yield "of one place", torch.zeros((), dtype=good.dtype).expand(good.shape)


def _over_an_operand(
    call: Call,
    results: list[torch.Tensor],
    position: int,
    tensor: torch.Tensor,
    number: int,
    several: bool,
) -> Iterator[Call]:
    good = results[position]
    places = torch.zeros(tensor.numel() + good.numel(), dtype=tensor.dtype)
    places[1 : 1 + tensor.numel()] = tensor.detach().reshape(-1)
    operand = places[1 : 1 + tensor.numel()].view(tensor.shape)
    outputs = [torch.empty_like(each) for each in results]
    outputs[position] = places[: good.numel()].view(good.shape)
    moved = replaced(
        call,
        f"out {position} over tensor {number}",
        lambda value: operand if value is tensor else value,
    )
    kwargs = {**moved.kwargs, "out": tuple(outputs) if several else outputs[0]}
    yield dataclasses.replace(moved, kwargs=kwargs)


def outcome_values(call: Call) -> Any:
    mover = Mover("cpu")
    args, kwargs = map_leaves(mover, call.args), map_leaves(mover, call.kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call.function(*args, **kwargs)


def bad_selves(call: Call) -> Iterator[Call]:
    """A call of a form in place, whose self has one place for all elements or another dtype."""
    self = call.args[0]
    if not isinstance(self, torch.Tensor) or self.numel() < 2 or self.layout != torch.strided:
        return
    expanded = torch.ones((), dtype=self.dtype).expand(self.shape)
    yield replaced(call, "self of one place", lambda v: expanded if v is self else v)
    for dtype in OTHER_DTYPES:
        if dtype != self.dtype:
            other = self.to(dtype)
            yield replaced(
                call,
                f"self as {dtype}",
                lambda v, other=other: other if v is self else v,
            )
    places = torch.zeros(self.numel() + 1, dtype=self.dtype)
    for number, tensor in enumerate(tensors_of(call)[1:], 1):
        if tensor.dtype == self.dtype and tensor.shape == self.shape:
            moved = {
                id(self): places[1:].view(self.shape),
                id(tensor): places[:-1].view(self.shape),
            }
            yield replaced(
                call,
                f"self over tensor {number}",
                lambda v, moved=moved: moved.get(id(v), v) if isinstance(v, torch.Tensor) else v,
            )
