# SPDX-License-Identifier: BSD-3-Clause
"""Calls of PyTorch's databases of operators and modules, as they are and scaled to a wanted number
of elements.

The database makes its samples from a few sizes (S, M, L) that are variables of its modules: larger
ones make larger samples. Samples with sizes of their own are repeated along their first dimension.
No operator is treated by its name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

SAMPLES = 24
ENOUGH = 0.5  # of what is wanted
MOST_SMALL = 1 << 20
TOO_MANY = 4.0
LARGEST_FACTOR = 4096
SECONDS = 5.0  # to look for larger samples
LONG = 0.1  # seconds of a call that is long enough, however few its elements are


@dataclasses.dataclass(frozen=True)
class Sample:
    """function(*args, **kwargs), on cpu; what has a gradient requires it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @functools.cached_property
    def is_long(self) -> bool:
        """Whether one call on cpu takes so long that a larger one would tell nothing new."""
        start = time.perf_counter()
        with contextlib.suppress(Exception):  # whoever measures it will see
            self.without_gradients()
        return time.perf_counter() - start > LONG

    @functools.cached_property
    def elements(self) -> int:
        """Of the largest tensor among the arguments and, if it can be inferred, the result."""
        found = tensors((self.args, self.kwargs))
        with contextlib.suppress(Exception):  # there is no inference, or it needs values
            found += tensors(self.mapped(lambda tensor: tensor.detach().to("meta"))())
        return max((tensor.numel() for tensor in found), default=0)

    def mapped(self, change: Callable[[torch.Tensor], Any]) -> Sample:
        return dataclasses.replace(
            self, args=mapped(self.args, change), kwargs=mapped(self.kwargs, change)
        )

    def __call__(self) -> Any:
        return self.function(*self.args, **self.kwargs)

    def without_gradients(self) -> Any:
        with torch.no_grad():
            return self()


def mapped(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(each, change) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(each, change) for each in value)
    if isinstance(value, dict):
        return {key: mapped(each, change) for key, each in value.items()}
    return value


def tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    mapped(value, found.append)
    return found


class Module:
    """A module of module_db with what an operator of op_db has. Its parameters are arguments."""

    def __init__(self, info: Any) -> None:
        self._info = info
        self.formatted_name = info.formatted_name
        self.dtypes = self.backward_dtypes = info.dtypes
        self.supports_autograd = info.supports_gradgrad is not None

    def sample_inputs(
        self, device: str, dtype: torch.dtype, *, requires_grad: bool
    ) -> Iterator[Sample]:
        made = self._info.module_inputs_func(
            self._info, device=device, dtype=dtype, requires_grad=requires_grad, training=True
        )
        for inputs in made:
            if inputs.forward_input is None:
                continue
            given = inputs.constructor_input
            module = self._info.module_cls(*given.args, **given.kwargs).to(device, dtype)
            state = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
            call = functools.partial(_call_module, module)
            kwargs = inputs.forward_input.kwargs | {"state": state}
            yield Sample(call, tuple(inputs.forward_input.args), kwargs)


def _call_module(
    module: torch.nn.Module, *args: Any, state: dict[str, torch.Tensor], **kwargs: Any
) -> Any:
    return torch.func.functional_call(module, state, args, kwargs)


@functools.cache
def database() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db

    return [*op_db, *map(Module, module_db)]


@contextlib.contextmanager
def sizes_times(factor: int) -> Iterator[None]:
    """The database makes its samples of sizes that are `factor` times as large."""
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith("torch.testing._internal.opinfo")
        or name == "torch.testing._internal.common_methods_invocations"
    ]
    before = [(m, k, getattr(m, k)) for m in modules for k in ("S", "M", "L") if hasattr(m, k)]
    for module, key, size in before:
        setattr(module, key, size * factor)
    try:
        yield
    finally:
        for module, key, size in before:
            setattr(module, key, size)


def dtype_of(info: Any) -> torch.dtype:
    for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64):
        if dtype in info.dtypes:
            return dtype
    return next(iter(info.dtypes))


def samples(info: Any, dtype: torch.dtype | None) -> Iterator[Sample]:
    """Of a dtype, or of one that the operator has."""
    torch.manual_seed(0)
    dtype = dtype or dtype_of(info)
    if dtype not in info.dtypes:
        return
    gradients = info.supports_autograd and dtype in info.backward_dtypes and dtype.is_floating_point
    made = info.sample_inputs("cpu", dtype, requires_grad=gradients)
    for sample in itertools.islice(made, SAMPLES):
        if not isinstance(sample, Sample):
            sample = Sample(info.op, (sample.input, *sample.args), dict(sample.kwargs))
        yield sample


def small(info: Any, dtype: torch.dtype | None = None) -> Sample | None:
    """The first sample that has elements, but not so many as those that test 64-bit indices."""
    fitting = (sample for sample in samples(info, dtype) if 0 < sample.elements <= MOST_SMALL)
    return next(fitting, None)


def large(info: Any, elements: int, dtype: torch.dtype | None = None) -> Sample | None:
    """The sample whose number of elements is nearest to what is wanted, from below if it can be,
    or the first one whose call is long.
    """
    best = small(info, dtype)
    factor, deadline = 2, time.monotonic() + SECONDS
    while factor <= LARGEST_FACTOR and not enough(best, elements) and time.monotonic() < deadline:
        found, too_large = _largest(info, dtype, factor, elements)
        if found is None or (best is not None and found.elements <= best.elements):
            break
        best = found
        if too_large or found.is_long:
            break
        factor *= 2
    if best is None or enough(best, elements) or best.is_long:
        return best
    times, most = 2, max(2, elements // best.elements)
    longer = repeated(best, times)
    while longer is not None and times < most and not longer.is_long:
        times = min(4 * times, most)
        longer = repeated(best, times) or longer
    return longer or best


def enough(sample: Sample | None, elements: int) -> bool:
    return sample is not None and sample.elements >= ENOUGH * elements


def _largest(
    info: Any, dtype: torch.dtype | None, factor: int, elements: int
) -> tuple[Sample | None, bool]:
    """The largest sample that is not too large, and whether there was one that was."""
    best = None
    with sizes_times(factor):
        for sample in samples(info, dtype):
            if sample.elements > TOO_MANY * elements:
                return best, True
            if best is None or sample.elements > best.elements:
                best = sample
    return best, False


def repeated(sample: Sample, times: int) -> Sample | None:
    """The sample with its first tensor repeated so many times along the first dimension, and with
    it the others of that length if cpu wants it; None if cpu takes neither.
    """
    given = [tensor for tensor in tensors((sample.args, sample.kwargs)) if tensor.dim() > 0]
    if not given or given[0].numel() == 0:
        return None
    length = given[0].size(0)

    def repeat(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.repeat(times, *(1,) * (tensor.dim() - 1))

    def alike(tensor: torch.Tensor) -> torch.Tensor:
        return repeat(tensor) if tensor.dim() > 0 and tensor.size(0) == length else tensor

    def first(tensor: torch.Tensor) -> torch.Tensor:
        return repeat(tensor) if tensor is given[0] else tensor

    for change in (alike, first):
        try:
            longer = sample.mapped(change)
            longer.without_gradients()
        except Exception:
            continue
        return longer
    return None
