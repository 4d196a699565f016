# SPDX-License-Identifier: BSD-3-Clause
"""The checks of one operator of op_db: the same call on loom and on cpu, however it is made."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch
import torch.autograd.forward_ad as forward_ad
from known import HOST_ARGUMENTS
from torch.testing._internal.opinfo.core import SampleInput

from support.oracle import call, compare, leaves, map_leaves

# Samples of an operator that the checks of its derivatives use, spread over all that it has.
DERIVATIVE_SAMPLES = 12
# Compiling one takes a second.
COMPILED_SAMPLES = 4

Close = dict[str, float] | None


def samples_of(info: Any, dtype: Any, requires_grad: bool = False) -> Iterator[Any]:
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    return info.sample_inputs("cpu", dtype, requires_grad=requires_grad)


def parts(sample: Any) -> Iterator[Any]:
    yield from leaves((sample.input, sample.args, sample.kwargs))


def spread(samples: Iterable[Any], count: int) -> list[Any]:
    every = list(samples)
    return every[:: max(1, len(every) // count)][:count]


class Check:
    """Runs a function of a sample on both devices, for all samples; counts what it has compared.

    With `compiled`, torch.compile makes the function of the device, and there are fewer samples.
    """

    def __init__(self, info: Any, device: str, close: Close, compiled: bool = False) -> None:
        self.info = info
        self.device = device
        self.close = close
        self.compiled = compiled
        self.count = 0
        self.sample = -1
        self.errors_expected = False
        self.strides = True
        self._on_host = info.name in HOST_ARGUMENTS

    def on_both(self, function: Callable[..., Any], sample: Any) -> None:
        expected = call(function, sample, "cpu", self._on_host)
        # What cpu cannot do is no check; compiled code has errors of its own.
        if expected.error is not None and (self.compiled or not self.errors_expected):
            return
        on_device = self.as_compiled(function) if self.compiled else function
        actual = call(on_device, sample, self.device, self._on_host)
        random = (
            sample.kwargs.get("dropout_p", 0.0) > 0.0 or sample.kwargs.get("dropout", 0.0) > 0.0
        )
        close = None if random else self.close
        compare(actual, expected, self.device, close, strides=self.strides)
        self.count += 1

    @staticmethod
    def as_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, compiled anew."""
        torch._dynamo.reset()
        return torch.compile(lambda *args, **kwargs: function(*args, **kwargs), dynamic=False)

    def each(self, samples: Iterable[Any]) -> Iterator[Any]:
        """The samples; which one it is is part of what is said of a difference."""
        if self.compiled:
            samples = spread(samples, COMPILED_SAMPLES)
        for self.sample, sample in enumerate(samples):
            yield sample

    def over(self, samples: Any, function: Callable[..., Any] | None = None) -> None:
        for sample in self.each(samples):
            self.on_both(function or self.info.op, sample)


def forward(check: Check, dtype: Any) -> None:
    check.errors_expected = True
    check.over(samples_of(check.info, dtype))


def noncontiguous(check: Check, dtype: Any) -> None:
    for sample in check.each(samples_of(check.info, dtype)):
        if not any(
            isinstance(v, torch.Tensor) and v.layout != torch.strided for v in parts(sample)
        ):
            check.on_both(check.info.op, sample.noncontiguous())


def zero_size(check: Check, dtype: Any) -> None:
    """The first dimension of every tensor cut to nothing: results or errors, the same on both."""
    check.errors_expected = True

    def cut(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.dim() > 0:
            return value[:0]
        return value

    for sample in check.each(spread(samples_of(check.info, dtype), DERIVATIVE_SAMPLES)):
        check.on_both(check.info.op, sample.transform(cut))


def out(check: Check, dtype: Any) -> None:
    """Into tensors that fit, that are strided, and that have to grow."""
    operator = check.info.op

    def into(make: Callable[[Any], Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            given = map_leaves(make, operator(*args, **kwargs))
            returned = operator(*args, **kwargs, out=given)
            same = [a is b for a, b in zip(leaves(returned), leaves(given), strict=True)]
            return [returned, same]

        return run

    def strided(like: Any) -> Any:
        return torch.empty((*like.shape, 2), dtype=like.dtype, device=like.device).zero_()[..., 0]

    for sample in check.each(samples_of(check.info, dtype)):
        for make in (torch.zeros_like, strided, lambda like: like.new_empty(0)):
            check.on_both(into(make), sample)


def in_place(check: Check, dtype: Any) -> None:
    check.errors_expected = True
    check.over(samples_of(check.info, dtype), check.info.inplace_variant)


def differentiable(values: Any) -> list[Any]:
    return [t for t in leaves(values) if isinstance(t, torch.Tensor) and t.requires_grad]


def weighted(results: Any) -> Any:
    """A scalar in which every element of every result has a weight of its own."""
    total = None
    for result in differentiable(results):
        if not (result.is_floating_point() or result.is_complex()):
            continue
        flat = result.reshape(-1)
        weights = torch.arange(1, flat.numel() + 1, dtype=torch.float64) / max(1, flat.numel())
        term = (flat.abs() if flat.is_complex() else flat) * weights.to(flat.device, torch.float32)
        total = term.sum() if total is None else total + term.sum()
    return total


def gradients_of(info: Any, order: int) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        inputs = differentiable((args, kwargs))
        results = info.op(*args, **kwargs)
        target = weighted(results)
        if target is None or not inputs:
            return [None]
        gradients = torch.autograd.grad(
            target, inputs, create_graph=order == 2, allow_unused=True, materialize_grads=True
        )
        if order == 1:
            return list(gradients)
        second = weighted(gradients)
        if second is None:
            return list(gradients)
        return list(torch.autograd.grad(second, inputs, allow_unused=True, materialize_grads=True))

    return run


def gradient(check: Check, dtype: Any) -> None:
    samples = spread(samples_of(check.info, dtype, requires_grad=True), 2 * DERIVATIVE_SAMPLES)
    check.over(samples, gradients_of(check.info, 1))


def second_gradient(check: Check, dtype: Any) -> None:
    # A sum has the strides of its first term, and autograd adds gradients up in an order of its own
    # on the thread that it has for every accelerator.
    check.strides = False
    samples = spread(samples_of(check.info, dtype, requires_grad=True), DERIVATIVE_SAMPLES)
    check.over(samples, gradients_of(check.info, 2))


def forward_mode(check: Check, dtype: Any) -> None:
    operator = check.info.op

    def run(*args: Any, **kwargs: Any) -> Any:
        with forward_ad.dual_level():

            def dual(value: Any) -> Any:
                if isinstance(value, torch.Tensor) and value.requires_grad:
                    tangent = torch.full_like(value.detach(), 0.5)
                    return forward_ad.make_dual(value.detach(), tangent)
                return value

            results = operator(*map_leaves(dual, args), **map_leaves(dual, kwargs))
            unpacked = []
            for result in leaves(results):
                if isinstance(result, torch.Tensor):
                    primal, tangent = forward_ad.unpack_dual(result)
                    unpacked += [primal.clone(), None if tangent is None else tangent.clone()]
            return unpacked

    samples = spread(samples_of(check.info, dtype, requires_grad=True), DERIVATIVE_SAMPLES)
    check.over(samples, run)


def vmap(check: Check, dtype: Any) -> None:
    """Over two copies of the input, the second one reversed."""
    operator = check.info.op

    def run(first: Any, *args: Any, **kwargs: Any) -> Any:
        batch = torch.stack([first, first.flip(0) if first.dim() else first])
        return torch.vmap(lambda each: operator(each, *args, **kwargs))(batch)

    for sample in check.each(spread(samples_of(check.info, dtype), DERIVATIVE_SAMPLES)):
        if isinstance(sample.input, torch.Tensor) and sample.input.layout == torch.strided:
            check.on_both(run, sample)


def errors(check: Check, dtype: Any) -> None:
    """Inputs that are errors: the same type of exception."""
    check.errors_expected = True
    for error in check.each(check.info.error_inputs("cpu")):
        sample = error.sample_input
        check.on_both(check.info.op, SampleInput(sample.input, sample.args, sample.kwargs))


FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
ALL = (*FLOATING, torch.int64, torch.bool, torch.complex64)
EXACT = (torch.float32, torch.float64, torch.complex64)

CHECKS: dict[str, tuple[Callable[[Check, Any], None], tuple[Any, ...]]] = {
    "forward": (forward, ALL),
    "out": (out, ALL),
    "in_place": (in_place, ALL),
    "noncontiguous": (noncontiguous, ALL),
    "zero_size": (zero_size, ALL),
    "errors": (errors, (torch.float32,)),
    "gradient": (gradient, (*FLOATING, torch.complex64)),
    "second_gradient": (second_gradient, EXACT),
    "forward_mode": (forward_mode, EXACT),
    "vmap": (vmap, ALL),
}


def applies(info: Any, name: str) -> bool:
    """Whether op_db says that the operator can be used so."""
    return {
        "out": info.supports_out,
        "in_place": info.inplace_variant is not None,
        "errors": info.error_inputs_func is not None,
        "gradient": info.supports_autograd,
        "second_gradient": info.supports_autograd and info.supports_gradgrad,
        "forward_mode": info.supports_forward_ad,
    }.get(name, True)


def dtypes_of(info: Any, name: str) -> list[Any]:
    """The dtypes in which a check runs."""
    if name == "errors":
        return [torch.float32]
    derivative = name in ("gradient", "second_gradient", "forward_mode")
    supported = (
        info.supported_backward_dtypes("cpu") if derivative else info.supported_dtypes("cpu")
    )
    return [dtype for dtype in CHECKS[name][1] if dtype in supported]
