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


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Of a normal distribution, the same for all dtypes but for their rounding; on the cpu."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def complexes(*shape: int, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    parts = (numbers(*shape, seed=seed, dtype=torch.float64) for seed in (3, 4))
    return torch.complex(*parts).to(dtype)


def busy() -> None:
    """Work of some milliseconds: what is called next is recorded before the device comes to it."""
    x = torch.empty(512, 512, device="loom")
    torch.mm(x, x)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Of rows, by hand: a chain with two reductions."""
    y = (x - x.amax(-1, keepdim=True)).exp()
    return y / y.sum(-1, keepdim=True)


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    """Of rows, by hand."""
    y = x - x.mean(-1, keepdim=True)
    return y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-5)


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
