# SPDX-License-Identifier: BSD-3-Clause
"""Chains of pointwise operators written by hand, some with a reduction over the last dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workloads.workload import Call, Workload, Wrap

COLUMNS = 1024

Inputs = Sequence[Tensor]


@dataclass(frozen=True)
class Chain:
    """A function of tensors, the tensors for about n elements, and its traffic per element."""

    function: Callable[..., Tensor | tuple[Tensor, ...]]
    inputs: Callable[[int], Inputs]
    bytes_per_element: float
    quick: bool = False
    huge: bool = False
    dtype: torch.dtype = torch.float32


def normal(count: int) -> Callable[[int], Inputs]:
    return lambda n: [torch.randn(n) for _ in range(count)]


def rows(parameters: int) -> Callable[[int], Inputs]:
    """Rows of COLUMNS elements, and row vectors."""
    return lambda n: [
        torch.randn(max(n // COLUMNS, 1), COLUMNS),
        *(torch.randn(COLUMNS) for _ in range(parameters)),
    ]


def square(n: int) -> tuple[int, int]:
    side = math.isqrt(n)
    return side, side


def relu_multiply_add(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.relu(x * a + b)


def gelu_by_hand(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def black_scholes(spot: Tensor, strike: Tensor, years: Tensor) -> tuple[Tensor, Tensor]:
    """The prices of a call and of a put."""
    rate, volatility = 0.02, 0.3
    deviation = volatility * torch.sqrt(years)
    d1 = (torch.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / deviation
    d2 = d1 - deviation
    half_root = 0.7071067811865476
    n1 = 0.5 * (1.0 + torch.erf(d1 * half_root))
    n2 = 0.5 * (1.0 + torch.erf(d2 * half_root))
    discounted = strike * torch.exp(-rate * years)
    call = spot * n1 - discounted * n2
    return call, call - spot + discounted


def options(n: int) -> Inputs:
    return [50 + 100 * torch.rand(n), 50 + 100 * torch.rand(n), 0.1 + 2 * torch.rand(n)]


def adam_by_hand(p: Tensor, m: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, ...]:
    m.mul_(0.9).add_(g * 0.1)
    v.mul_(0.999).add_(g * g * 0.001)
    p.sub_(1e-3 * m / (torch.sqrt(v) + 1e-8))
    return p, m, v


def adam_state(n: int) -> Inputs:
    return [torch.randn(n), torch.zeros(n), torch.zeros(n), torch.randn(n)]


def layer_norm_by_hand(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + 1e-5) * weight + bias


def rms_norm_by_hand(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def softmax_by_hand(x: Tensor) -> Tensor:
    exponentials = torch.exp(x - x.amax(-1, keepdim=True))
    return exponentials / exponentials.sum(-1, keepdim=True)


def select_and_scale(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x * 1.25, x * 0.1) * 0.5


def masked(n: int) -> Inputs:
    x = torch.randn(n)
    return [x, torch.randn(n) > 0]


def complex_magnitude(z: Tensor) -> Tensor:
    return z.abs()


def magnitude_of_parts(real: Tensor, imaginary: Tensor) -> Tensor:
    return torch.sqrt(real * real + imaginary * imaginary)


def integer_chain(x: Tensor, y: Tensor) -> Tensor:
    return ((x * 3 + y) & 0xFFFF) ^ (x >> 2)


def integers(dtype: torch.dtype) -> Callable[[int], Inputs]:
    return lambda n: [torch.randint(-(2**20), 2**20, (n,), dtype=dtype) for _ in range(2)]


def bool_chain(x: Tensor, y: Tensor) -> Tensor:
    return ((x > 0.5) & (y < 0.25)) | ~(x >= y)


def strided_chain(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x.t() * y + 1.0)


def every_second(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x[::2] * y[1::2] + 1.0)


def scale_and_shift_rows(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(x * weight + bias)


def column_and_row(n: int) -> Inputs:
    count = max(n // COLUMNS, 1)
    return [torch.randn(count, COLUMNS), torch.randn(count, 1), torch.randn(1, COLUMNS)]


CHAINS: dict[str, Chain] = {
    "relu(x*a+b)": Chain(relu_multiply_add, normal(3), 16, quick=True, huge=True),
    "gelu (tanh)": Chain(gelu_by_hand, normal(1), 8, quick=True, huge=True),
    "Black-Scholes": Chain(black_scholes, options, 20, quick=True),
    "Adam": Chain(adam_by_hand, adam_state, 28, quick=True, huge=True),
    "layer norm": Chain(layer_norm_by_hand, rows(2), 8, quick=True),
    "RMS norm": Chain(rms_norm_by_hand, rows(1), 8),
    "softmax": Chain(softmax_by_hand, rows(0), 8, quick=True, huge=True),
    "where and scale": Chain(select_and_scale, masked, 9),
    "abs of complex": Chain(
        complex_magnitude,
        lambda n: [torch.randn(n, dtype=torch.complex64)],
        12,
        dtype=torch.complex64,
    ),
    "sqrt(re*re+im*im)": Chain(magnitude_of_parts, normal(2), 12),
    "integers": Chain(integer_chain, integers(torch.int32), 12, dtype=torch.int32),
    "long integers": Chain(integer_chain, integers(torch.int64), 24, dtype=torch.int64),
    "comparisons and bool": Chain(bool_chain, normal(2), 9, dtype=torch.bool),
    "transposed operand": Chain(
        strided_chain, lambda n: [torch.randn(square(n)), torch.randn(square(n))], 12
    ),
    # The slices are of 2n elements, and whole cache lines travel.
    "every second element": Chain(
        every_second, lambda n: [torch.randn(2 * n), torch.randn(2 * n)], 20
    ),
    "row vectors": Chain(scale_and_shift_rows, rows(2), 8),
    "column and row vector": Chain(scale_and_shift_rows, column_and_row, 8),
}


def maker(chain: Chain, size: int) -> Callable[[str, Wrap], Call]:
    def make(device: str, wrap: Wrap) -> Call:
        inputs = [tensor.to(device) for tensor in chain.inputs(size)]
        function = wrap(chain.function)

        def call() -> Sequence[Tensor]:
            result = function(*inputs)
            return result if isinstance(result, tuple) else (result,)

        return call

    return make


def workloads() -> list[Workload]:
    return [
        Workload(
            "pointwise",
            name,
            maker(chain, size),
            size=size,
            dtype=chain.dtype,
            bytes=int(chain.bytes_per_element * size),
            quick=chain.quick and 10**5 <= size <= 10**7,
            common=size < 10**8 or chain.huge,
        )
        for size in (10**4, 10**5, 10**6, 10**7, 10**8)
        for name, chain in CHAINS.items()
    ]
