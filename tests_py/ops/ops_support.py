# SPDX-License-Identifier: BSD-3-Clause
"""What several tests of operators share."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import torch_loom

# Every dtype that arithmetic has.
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
]


def error_of(call: Callable[[str], Any], device: str) -> Exception | None:
    try:
        call(device)
        torch.loom.synchronize()
    except Exception as error:
        return error
    return None


def same_error(call: Callable[[str], Any], contains: str = "") -> None:
    """Requires that call("loom") raises what call("cpu") raises."""
    ours, theirs = error_of(call, "loom"), error_of(call, "cpu")
    assert theirs is not None
    assert type(ours) is type(theirs), f"{ours!r} instead of {theirs!r}"
    assert re.search(contains, str(ours)), str(ours)


def keep_busy(stream: torch.Stream | None = None) -> None:
    """Queues about a second of work on a stream, without waiting for any of it."""
    with torch.loom.stream(stream or torch.loom.current_stream()):
        x = torch.full((1024, 1024), 1e-3, device="loom")
        for _ in range(40):
            x = x @ x


@contextmanager
def held() -> Iterator[None]:
    """What is queued meanwhile waits for the end, ten seconds at most: nothing may look at it."""
    hold = torch_loom._C._Hold(torch.loom.current_device(), 10.0)
    try:
        yield
    finally:
        hold.release()


def assert_same(actual: Any, expected: torch.Tensor) -> None:
    """Requires equal values, dtype, shape and strides; NaN equals NaN."""
    assert actual.device.type == "loom"
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)
