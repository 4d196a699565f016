# SPDX-License-Identifier: BSD-3-Clause
"""What a process of the op_db sweep does: run one operator on two devices and compare.

`python op_db_worker.py DEVICE [compiled]` answers each index on standard input with a row on
standard output. With `compiled`, a compiled function calls the operator on the device.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from op_db_differences import HOST_ARGUMENTS, NOT_COMPARED

from support.oracle import DifferenceError, call, compare, describe, tolerances

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


def compiled_call(info: Any) -> Any:
    """A function that calls the operator, compiled anew."""
    torch._dynamo.reset()
    return torch.compile(lambda *args, **kwargs: info.op(*args, **kwargs), dynamic=False)


def run_entry(info: Any, device: str, metadata_only: bool, compiled: bool = False) -> Row:
    row = Row(info.name, info.variant_test_name, compared="error")
    dtype = pick_dtype(info)
    close = None if metadata_only else tolerances(info, dtype)
    on_host = info.name in HOST_ARGUMENTS
    fallbacks_taken(device)
    number = -1
    try:
        for sample in samples_of(info, dtype):
            number += 1
            expected = call(info.op, sample, "cpu", on_host)
            operator = compiled_call(info) if compiled else info.op
            compare(call(operator, sample, device, on_host), expected, device, close)
            if expected.error is None:
                row = dataclasses.replace(row, compared="metadata" if metadata_only else "values")
    except DifferenceError as difference:
        row = dataclasses.replace(row, status="differs", detail=f"sample {number}: {difference}")
    except Exception as error:  # of the samples themselves, or of the comparison
        row = dataclasses.replace(row, status="differs", detail=f"sweep: {describe(error)}")
    return dataclasses.replace(row, fallbacks=fallbacks_taken(device))


def work(device: str, compiled: bool = False) -> None:
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
        row = run_entry(info, device, info.name in NOT_COMPARED, compiled)
        answers.write(json.dumps(dataclasses.asdict(row)) + "\n")


if __name__ == "__main__":
    work(sys.argv[1], "compiled" in sys.argv[2:])
