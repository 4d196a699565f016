# SPDX-License-Identifier: BSD-3-Clause
"""cpu as the oracle: the same call on two devices, and all that it leaves behind compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._comparison import default_tolerances


class DifferenceError(Exception):
    """The two devices did not do the same."""


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Rebuilds nested lists, tuples, named tuples and dicts with `function` of each leaf."""
    if isinstance(value, dict):
        return {key: map_leaves(function, item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(function, item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_leaves(function, item) for item in value)
    return function(value)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        yield value
        return
    for item in value:
        yield from leaves(item)


class Mover:
    """Copies arguments to a device: same geometry, same aliasing between them."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._storages: dict[int, Any] = {}
        self._tensors: dict[int, Any] = {}
        self.moved: list[Any] = []
        self.device_given = False

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            if id(value) not in self._tensors:
                self._tensors[id(value)] = (value, self._tensor(value))
                self.moved.append(self._tensors[id(value)][1])
            return self._tensors[id(value)][1]
        if value == "cpu" or (isinstance(value, torch.device) and value.type == "cpu"):
            self.device_given = True
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(self._device)
        if isinstance(value, str) and value == "cpu":
            return self._device
        return value

    def _tensor(self, tensor: Any) -> Any:
        if tensor.layout != torch.strided:
            return tensor.to(self._device)
        if tensor.is_conj():
            return self._tensor(tensor.conj()).conj()
        if tensor.is_neg():
            return torch._neg_view(self._tensor(torch._neg_view(tensor)))
        storage = tensor.untyped_storage()
        key = (storage._cdata, tensor.dtype)
        if key not in self._storages:
            flat = torch.empty(0, dtype=tensor.dtype).set_(storage)
            self._storages[key] = torch.empty_like(flat, device=self._device).copy_(flat)
        moved = torch.empty(0, dtype=tensor.dtype, device=self._device)
        moved.set_(
            self._storages[key].untyped_storage(),
            tensor.storage_offset(),
            tensor.size(),
            tensor.stride(),
        )
        return moved.requires_grad_(tensor.requires_grad)


@dataclasses.dataclass
class Outcome:
    """What a call left behind: its result, or its error, and its arguments."""

    result: Any
    error: Exception | None
    arguments: list[Any]
    on_device: bool = True  # whether any argument says where


def call(
    function: Callable[..., Any], sample: Any, device: str, host_arguments: bool = False
) -> Outcome:
    """Calls function(input, *args, **kwargs) with copies of a sample's tensors on the device; with
    `host_arguments` only the input is moved.
    """
    mover = Mover(device)
    rest = Mover("cpu") if host_arguments else mover
    args = (map_leaves(mover, sample.input), *map_leaves(rest, sample.args))
    kwargs = map_leaves(rest, sample.kwargs)
    torch.manual_seed(7)
    try:
        result, error = function(*args, **kwargs), None
        if device != "cpu":
            torch.accelerator.synchronize()
    except Exception as raised:
        result, error = None, raised
    tensors = any(t.dim() > 0 for t in mover.moved)
    return Outcome(result, error, mover.moved, tensors or mover.device_given)


def shared_with(tensor: Any, arguments: list[Any]) -> list[int]:
    """Which arguments the tensor shares memory with."""
    return [i for i, each in enumerate(arguments) if torch._C._is_alias_of(tensor, each)]


def significant(tensor: Any) -> list[int]:
    """The strides that say where elements are: not those of dimensions with one of them or none."""
    if tensor.numel() <= 1:
        return []
    return [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]


def compare_tensor(
    where: str, actual: Any, expected: Any, close: dict[str, float] | None, strides: bool = True
) -> None:
    for attribute in ("dtype", "layout", "shape", "requires_grad"):
        got, wanted = getattr(actual, attribute), getattr(expected, attribute)
        if got != wanted:
            raise DifferenceError(f"{where}: {attribute} {got}, on cpu {wanted}")
    strides = strides and actual.layout == torch.strided
    if strides and significant(actual) != significant(expected):
        raise DifferenceError(f"{where}: strides {actual.stride()}, on cpu {expected.stride()}")
    if close is None or actual.dim() > 64:  # more dimensions than comparing takes
        return
    if actual.is_floating_point() and actual.element_size() == 1:
        close = {"rtol": 0.0, "atol": 0.0}  # assert_close takes nothing else for float8
    elif actual.is_floating_point() or actual.is_complex():
        # Of integers, too: what the result's dtype can tell.
        rtol, atol = default_tolerances(actual.dtype)
        close = {"rtol": max(rtol, close["rtol"]), "atol": max(atol, close["atol"])}
    try:
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True, **close)
    except AssertionError as error:
        raise DifferenceError(f"{where}: " + " ".join(str(error).split())[:200]) from None


def compare(
    actual: Outcome,
    expected: Outcome,
    device: str,
    close: dict[str, float] | None,
    strides: bool = True,
) -> None:
    if (actual.error is None) != (expected.error is None) or (
        type(actual.error) is not type(expected.error)
    ):
        raise DifferenceError(f"{describe(actual.error)}; on cpu {describe(expected.error)}")
    got, wanted = list(leaves(actual.result)), list(leaves(expected.result))
    if len(got) != len(wanted):
        raise DifferenceError(f"{len(got)} results, on cpu {len(wanted)}")
    for index, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        where = f"result {index}"
        if type(ours) is not type(theirs):
            raise DifferenceError(f"{where}: {type(ours).__name__}, on cpu {type(theirs).__name__}")
        if not isinstance(theirs, torch.Tensor):
            different = ours != theirs and ours == ours
            if different and close is not None and not isinstance(theirs, torch.device):
                raise DifferenceError(f"{where}: {ours}, on cpu {theirs}")
            continue
        # A factory that is not told where makes its result on the host on every accelerator.
        factory = not actual.on_device and theirs.device == ours.device
        if ours.device.type != device and not factory:
            raise DifferenceError(f"{where}: on device {ours.device}")
        compare_tensor(where, ours, theirs, close, strides)
        if shared_with(ours, actual.arguments) != shared_with(theirs, expected.arguments):
            raise DifferenceError(f"{where}: shares memory with other arguments than on cpu")
    for index, (ours, theirs) in enumerate(zip(actual.arguments, expected.arguments, strict=True)):
        compare_tensor(f"argument {index} afterwards", ours, theirs, close)


def describe(error: Exception | None) -> str:
    if error is None:
        return "no error"
    return f"{type(error).__name__}: " + " ".join(str(error).split())[:200]


def tolerances(info: Any, dtype: Any) -> dict[str, float]:
    """The loosest of what assert_close takes for the dtype and what op_db grants the operator."""
    # Takes a second to import, which not everybody needs.
    from torch.testing._internal.common_device_type import toleranceOverride

    rtol, atol = default_tolerances(dtype)
    for decorate in (*info.decorators, *info.skips):
        for decorator in getattr(decorate, "decorators", [decorate]):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                granted = decorator.d[dtype]
                atol, rtol = max(atol, granted.atol), max(rtol, granted.rtol)
    return {"rtol": rtol, "atol": atol}
