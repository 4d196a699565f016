# SPDX-License-Identifier: BSD-3-Clause
"""Conversions between every two dtypes, of values that the result holds and of others.

What C++ leaves undefined (numbers out of range) is what cpu makes of it. To uint32 that depends on
the length there: its vectors convert other numbers than its scalar code, and where a vector ends is
nobody's business. loom does what the scalar code does, for any length.
"""

import itertools
from collections.abc import Callable

import pytest
import torch

FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
NARROW = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
WIDE = [torch.uint16, torch.uint32, torch.uint64]
ALL = [torch.bool, *INTEGERS, *WIDE, *FLOATING, *NARROW, *COMPLEX]
# What can be computed with, and so be fused.
COMPUTED = [*INTEGERS, *FLOATING]

EDGES = [0, 1, 2, 127, 128, 129, 255, 256, 257, 300, 32767, 32768, 32769, 65535, 65536, 65537]
EDGES += [2**31 - 129, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**53 + 1]
EDGES += [2**62, 2**63 - 1025, 2**63 - 1, 2**63, 2**63 + 4096, 2**64 - 2048, 2**64 - 1, 2**64]
NUMBERS = [
    *EDGES,
    0.4,
    1.5,
    2.5,
    300.7,
    448.0,
    65504.0,
    1e10,
    1e20,
    1e30,
    3e38,
    1e300,
    float("inf"),
]
# Not a whole number of vectors.
LENGTH = 37


def _values(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if not dtype.is_floating_point and not dtype.is_complex:
        limits = torch.iinfo(dtype)
        whole = {s * n for n in EDGES for s in (1, -1) if limits.min <= s * n <= limits.max}
        return torch.tensor(sorted({*whole, limits.min, limits.max}), dtype=dtype)
    signed = [s * float(n) for n in NUMBERS for s in (1, -1)]
    return torch.tensor([*signed, float("nan"), 1e-310, -1e-40], dtype=torch.float64).to(dtype)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bits; what a NaN is made of counts for nothing."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.is_floating_point():
        wide = tensor.double()
        return torch.where(wide.isnan(), float("nan"), wide).view(torch.int64)
    return tensor.view(torch.uint8)


def _by_scalar_code(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype != torch.uint32 or x.dtype not in (*FLOATING, *COMPLEX):
        return x.to(dtype)
    return torch.stack([x[i : i + 1].to(dtype)[0] for i in range(len(x))])


def _agree(
    source: torch.dtype, dtype: torch.dtype, x: torch.Tensor, convert: Callable[..., torch.Tensor]
) -> None:
    expected = _by_scalar_code(x, dtype)
    made = convert(x.to("loom"), dtype).cpu()
    assert made.dtype == dtype
    wrong = (_bits(made) != _bits(expected)).reshape(len(x), -1).any(1)
    assert not wrong.any(), [
        (a.item(), m.item(), e.item())
        for a, m, e in zip(x[wrong][:5], made[wrong][:5], expected[wrong][:5], strict=True)
    ]


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("source", ALL, ids=str)
def test_conversion_alone(source: torch.dtype, dtype: torch.dtype) -> None:
    x = _values(source)
    _agree(source, dtype, x, lambda a, to: a.to(to))
    # The same values at every place of vectors, and one of them beside itself.
    longer = x.repeat_interleave(3).repeat(LENGTH)
    _agree(source, dtype, longer, lambda a, to: a.to(to))
    _agree(source, dtype, x, lambda a, to: torch.empty_like(a, dtype=to).copy_(a))
    apart = x.repeat_interleave(2)
    expected = _by_scalar_code(x, dtype)
    assert torch.equal(_bits(apart.to("loom")[::2].to(dtype).cpu()), _bits(expected))


@pytest.mark.parametrize("dtype", [torch.bool, *COMPUTED], ids=str)
@pytest.mark.parametrize("source", COMPUTED, ids=str)
def test_conversion_inside_a_fused_program(source: torch.dtype, dtype: torch.dtype) -> None:
    x = _values(source).repeat(LENGTH)

    def convert(a: torch.Tensor, to: torch.dtype) -> torch.Tensor:
        converted = torch.maximum(a, a).to(to)  # the same values, computed
        return converted.bitwise_or(converted) if not to.is_floating_point else converted.abs()

    on_cpu = convert(x, dtype)
    assert torch.equal(_bits(convert(x.to("loom"), dtype).cpu()), _bits(on_cpu))


@pytest.mark.parametrize("value", [2147483649.0, -1.0, 300.7, float("inf"), float("nan")])
def test_conversion_of_one_number(value: float) -> None:
    for source, dtype in itertools.product(FLOATING, INTEGERS):
        x = torch.tensor(value, dtype=torch.float64).to(source)
        assert x.to("loom").to(dtype).item() == x.to(dtype).item()
        assert (x.to("loom") * 1).to(dtype).item() == x.to(dtype).item()
