# SPDX-License-Identifier: BSD-3-Clause
"""A process that measures operators: each [index in the database, kind, dtype or null, autocast's
dtype or null] on standard input is answered by the seconds of a call on cpu and on loom, measured
in turns.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import op_samples
import torch
from measure import SETTLE_SECONDS

ELEMENTS = 1_000_000
LEAST_ELEMENTS = ELEMENTS // 20
ROUNDS, MOST_ROUNDS = 5, 15
MORE_SECONDS = 2.0  # of an operator, for more than the first rounds
SPREAD = 0.1  # of the rounds' ratios, between the quartiles: with more of it there are more rounds
SECONDS = 0.012  # of a round
MOST_CALLS = 64  # of a batch
HELD_BYTES = 1 << 26

Call = Callable[[], Any]


def with_gradient(sample: op_samples.Sample) -> Call | None:
    """Forward and backward, or None if nothing has a gradient."""

    own = sample.mapped(lambda tensor: tensor.detach().requires_grad_(tensor.requires_grad))
    inputs = [each for each in op_samples.tensors((own.args, own.kwargs)) if each.requires_grad]
    outputs = [each for each in op_samples.tensors(own()) if each.requires_grad]
    gradients = [torch.ones_like(each) for each in outputs]
    if not inputs or not outputs:
        return None

    def call() -> Any:
        results = [each for each in op_samples.tensors(own()) if each.requires_grad]
        return torch.autograd.grad(results, inputs, gradients, allow_unused=True)

    call.gradients = gradients  # type: ignore[attr-defined]
    return call


def call_on(sample: op_samples.Sample, device: str, gradient: bool) -> Call | None:
    if gradient:
        return with_gradient(sample.mapped(lambda tensor: tensor.to(device)))
    return sample.mapped(lambda tensor: tensor.detach().to(device))


def bytes_of(result: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in op_samples.tensors(result))


def measure(call: Call, calls: int, waited: bool) -> float:
    """Seconds of a call. Results are held until all have run: what nobody sees is left out."""
    start = time.perf_counter()
    held = [call() for _ in range(calls)]
    if waited:
        torch.accelerator.synchronize()
    seconds = time.perf_counter() - start
    torch.accelerator.synchronize()
    held.clear()
    return seconds / calls


def under_autocast(sample: op_samples.Sample, dtype: torch.dtype) -> op_samples.Sample:
    def function(*args: Any, **kwargs: Any) -> Any:
        device = next(each.device.type for each in op_samples.tensors((args, kwargs)))
        with torch.autocast(device, dtype):
            return sample.function(*args, **kwargs)

    return dataclasses.replace(sample, function=function)


def compare(sample: op_samples.Sample, gradient: bool, waited: bool) -> dict[str, Any]:
    variants: dict[str, Call] = {}
    for device in ("cpu", "loom"):
        call = call_on(sample, device, gradient)
        if call is None:
            return {"problem": "no gradient"}
        variants[device] = call
        if waited and device == "cpu" and not computes(call, sample):
            return {"problem": "its results are views, so only the call counts"}
    most = max(1, min(MOST_CALLS, HELD_BYTES // max(1, bytes_of(variants["cpu"]()))))
    for call in variants.values():  # inferences and caches
        measure(call, 2, waited)
    seconds = measure(variants["cpu"], 1, waited)
    calls = max(1, min(most, int(SECONDS / max(seconds, 1e-7))))
    times: dict[str, list[float]] = {device: [] for device in variants}
    end = time.perf_counter() + MORE_SECONDS
    while not settled(times):
        enough = len(times["cpu"]) >= MOST_ROUNDS or time.perf_counter() > end
        if enough and len(times["cpu"]) >= ROUNDS:
            break
        for device, call in variants.items():
            time.sleep(SETTLE_SECONDS)
            measure(call, 1, waited)  # wakes threads and fills caches
            times[device].append(measure(call, calls, waited))
    return {device: statistics.median(each) for device, each in times.items()}


def settled(times: dict[str, list[float]]) -> bool:
    """Whether the rounds agree. That they are enough does not depend on which side is ahead."""
    ratios = [cpu / loom for cpu, loom in zip(times["cpu"], times["loom"], strict=True)]
    if len(ratios) < ROUNDS:
        return False
    low, middle, high = statistics.quantiles(ratios, n=4)
    return high - low < SPREAD * middle


def computes(call: Call, sample: op_samples.Sample) -> bool:
    """Whether there is anything to compute. Results of views, and those of their gradients, lie in
    memory that the arguments or the incoming gradients own: there only the call counts.
    """
    given = [*op_samples.tensors((sample.args, sample.kwargs)), *getattr(call, "gradients", ())]
    places = {tensor.untyped_storage().data_ptr() for tensor in given}
    results = op_samples.tensors((sample.without_gradients(), call()))
    return any(
        each.layout != torch.strided or each.untyped_storage().data_ptr() not in places
        for each in results
    )


def answer(index: int, kind: str, dtype_name: str | None, autocast: str | None) -> dict[str, Any]:
    info = op_samples.database()[index]
    waited = kind.startswith("large")
    dtype = getattr(torch, dtype_name) if dtype_name else None
    sample = op_samples.large(info, ELEMENTS, dtype) if waited else op_samples.small(info, dtype)
    if sample is None:
        return {"problem": "no sample has elements"}
    if waited and sample.elements < LEAST_ELEMENTS and not sample.is_long:
        return {"problem": f"its samples do not scale beyond {sample.elements} elements"}
    if autocast:
        sample = under_autocast(sample, getattr(torch, autocast))
    found = compare(sample, "gradient" in kind, waited)
    return {"elements": sample.elements} | found


def work() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what operators print is no answer
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        try:
            result = answer(*json.loads(line))
        except Exception as error:
            result = {"problem": f"{type(error).__name__}: {error}"[:200]}
        answers.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    work()
