# SPDX-License-Identifier: BSD-3-Clause
"""What a process of the op_db sweep does: run one operator on two devices and compare.

`python op_db_worker.py DEVICE` answers each index on standard input with a row on standard output.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from op_db_differences import HOST_ARGUMENTS, NOT_COMPARED
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import toleranceOverride

SAMPLES = 2


@dataclasses.dataclass(frozen=True)
class Row:
    """What one entry of op_db (an operator, or a variant of one) did."""

    name: str
    variant: str = ""
    status: str = "agrees"  # agrees | differs | crash | hang
    detail: str = ""
    compared: str = "values"  # values | metadata, where values mean nothing | error, raised by both
    fallbacks: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return self.status == "agrees"


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

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._tensors:
                self._tensors[id(value)] = (value, self._tensor(value))
                self.moved.append(self._tensors[id(value)][1])
            return self._tensors[id(value)][1]
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


def call(info: Any, sample: Any, device: str) -> Outcome:

    mover = Mover(device)
    rest = Mover("cpu") if info.name in HOST_ARGUMENTS else mover
    args = (map_leaves(mover, sample.input), *map_leaves(rest, sample.args))
    kwargs = map_leaves(rest, sample.kwargs)
    torch.manual_seed(7)
    try:
        result, error = info.op(*args, **kwargs), None
        if device != "cpu":
            torch.accelerator.synchronize()
    except Exception as raised:
        result, error = None, raised
    return Outcome(result, error, mover.moved)


def shared_with(tensor: Any, arguments: list[Any]) -> list[int]:
    """Which arguments the tensor shares memory with."""
    return [i for i, each in enumerate(arguments) if torch._C._is_alias_of(tensor, each)]


def compare_tensor(where: str, actual: Any, expected: Any, close: dict[str, float] | None) -> None:
    for attribute in ("dtype", "layout", "shape", "requires_grad"):
        got, wanted = getattr(actual, attribute), getattr(expected, attribute)
        if got != wanted:
            raise DifferenceError(f"{where}: {attribute} {got}, on cpu {wanted}")
    if actual.layout == torch.strided and actual.stride() != expected.stride():
        raise DifferenceError(f"{where}: strides {actual.stride()}, on cpu {expected.stride()}")
    if close is None:
        return
    if actual.is_floating_point() and actual.element_size() == 1:
        close = {"rtol": 0.0, "atol": 0.0}  # assert_close takes nothing else for float8
    try:
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True, **close)
    except AssertionError as error:
        raise DifferenceError(f"{where}: " + " ".join(str(error).split())[:200]) from None


def compare(
    actual: Outcome, expected: Outcome, device: str, close: dict[str, float] | None
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
        if ours.device.type != device:
            raise DifferenceError(f"{where}: on device {ours.device}")
        compare_tensor(where, ours, theirs, close)
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

    rtol, atol = default_tolerances(dtype)
    for decorate in (*info.decorators, *info.skips):
        for decorator in getattr(decorate, "decorators", [decorate]):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                granted = decorator.d[dtype]
                atol, rtol = max(atol, granted.atol), max(rtol, granted.rtol)
    return {"rtol": rtol, "atol": atol}


def pick_dtype(info: Any) -> Any:
    """float32, or what an operator without it takes: integers, truth values, complex numbers."""
    wanted = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.float64)
    return next((dtype for dtype in wanted if dtype in info.dtypes), torch.float32)


def fallbacks_taken(device: str) -> tuple[str, ...]:
    if device == "cpu":
        return ()
    report = sorted(torch.loom.fallbacks())
    torch.loom.reset_fallbacks()
    return tuple(report)


def samples_of(info: Any, dtype: Any) -> Iterator[Any]:

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    return itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES)


def run_entry(info: Any, device: str, metadata_only: bool) -> Row:
    row = Row(info.name, info.variant_test_name, compared="error")
    dtype = pick_dtype(info)
    close = None if metadata_only else tolerances(info, dtype)
    fallbacks_taken(device)
    number = -1
    try:
        for sample in samples_of(info, dtype):
            number += 1
            expected = call(info, sample, "cpu")
            compare(call(info, sample, device), expected, device, close)
            if expected.error is None:
                row = dataclasses.replace(row, compared="metadata" if metadata_only else "values")
    except DifferenceError as difference:
        row = dataclasses.replace(row, status="differs", detail=f"sample {number}: {difference}")
    except Exception as error:  # of the samples themselves, or of the comparison
        row = dataclasses.replace(row, status="differs", detail=f"sweep: {describe(error)}")
    return dataclasses.replace(row, fallbacks=fallbacks_taken(device))


def work(device: str) -> None:
    """Answers each index on standard input with a row on standard output, as JSON lines."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what operators print is not an answer

    warnings.simplefilter("ignore")
    if device != "cpu":
        import torch_loom  # noqa: F401
    from torch.testing._internal.common_methods_invocations import op_db

    answers.write(json.dumps([(info.name, info.variant_test_name) for info in op_db]) + "\n")
    for line in sys.stdin:
        info = op_db[int(line)]
        row = run_entry(info, device, info.name in NOT_COMPARED)
        answers.write(json.dumps(dataclasses.asdict(row)) + "\n")


if __name__ == "__main__":
    work(sys.argv[1])
