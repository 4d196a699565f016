# SPDX-License-Identifier: BSD-3-Clause
"""What a process of the sweep of refusals does: the calls of one operator, judged (refusals.py).

`python refusal_worker.py` answers each [index, kind] on standard input with a report on standard
output; kinds are the names in KINDS.
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
from pathlib import Path
from typing import Any

import numpy
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from refusals import Call, bad_outputs, bad_selves, changes, judge

from support.oracle import leaves, map_leaves

SAMPLES = 3


def samples_of(info: Any) -> Iterator[Call]:
    dtypes = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.float64)
    dtype = next((dtype for dtype in dtypes if dtype in info.dtypes), torch.float32)
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    samples = info.sample_inputs("cpu", dtype, requires_grad=False)
    for number, sample in enumerate(itertools.islice(samples, SAMPLES)):
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        yield Call(f"sample {number}", info.op, args, kwargs)


def error_inputs(info: Any) -> Iterator[Call]:
    if info.error_inputs_func is None:
        return
    for number, error in enumerate(info.error_inputs("cpu")):
        sample = error.sample_input
        args = (sample.input, *sample.args)
        yield Call(f"error input {number}", info.op, args, dict(sample.kwargs))


def changed(info: Any) -> Iterator[Call]:
    for call in samples_of(info):
        yield from changes(call)


def outputs(info: Any) -> Iterator[Call]:
    if info.supports_out:
        for call in samples_of(info):
            yield from bad_outputs(call)


def in_place(info: Any) -> Iterator[Call]:
    if info.inplace_variant is None:
        return
    for call in samples_of(info):
        call = dataclasses.replace(call, function=info.inplace_variant)
        yield from bad_selves(call)
        yield from changes(call)


def deterministic(info: Any) -> Iterator[Call]:
    """Forward and backward, where only deterministic algorithms are wanted."""
    torch.use_deterministic_algorithms(True)  # until the worker is asked for something else
    for call in samples_of(info):
        yield call
        if info.supports_autograd:
            yield dataclasses.replace(call, name=f"{call.name}, gradient", function=gradient(info))


def gradient(info: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        def require(value: Any) -> Any:
            floats = isinstance(value, torch.Tensor) and value.is_floating_point()
            if floats:
                wanted.append(value.detach().requires_grad_())
                return wanted[-1]
            return value

        wanted: list[torch.Tensor] = []
        results = info.op(*map_leaves(require, args), **map_leaves(require, kwargs))
        sums = [
            each.sum()
            for each in leaves(results)
            if isinstance(each, torch.Tensor) and each.is_floating_point() and each.requires_grad
        ]
        if sums:
            torch.autograd.grad(sum(sums[1:], sums[0]), wanted, allow_unused=True)

    return run


KINDS: dict[str, Callable[[Any], Iterator[Call]]] = {
    "error inputs": error_inputs,
    "changed": changed,
    "outputs": outputs,
    "in place": in_place,
    "deterministic": deterministic,
}


def report(info: Any, kind: str) -> dict[str, Any]:
    """How many calls cpu refuses because of their metadata, and what loom does otherwise."""
    refused, findings, problems = 0, [], []
    calls = KINDS[kind](info)
    while True:
        try:
            call = next(calls)
            finding = judge(call)
        except StopIteration:
            break
        except Exception as error:  # of the samples themselves, or of copies of them
            problems.append(f"{type(error).__name__}: {error}"[:200])
            if len(problems) > 20:
                break
            continue
        if finding is not False:
            refused += 1
        if finding:
            findings.append(dataclasses.astuple(finding))
    return {"refused": refused, "findings": findings, "problems": problems}


def work() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what operators print is not an answer

    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

    import torch_loom  # noqa: F401

    answers.write(json.dumps([(info.name, info.variant_test_name) for info in op_db]) + "\n")
    for line in sys.stdin:
        index, kind = json.loads(line)
        answers.write(json.dumps(report(op_db[index], kind)) + "\n")
        torch.use_deterministic_algorithms(False)


if __name__ == "__main__":
    work()
