# SPDX-License-Identifier: BSD-3-Clause
"""Shifts of integers, and division by numbers that are known: parts of programs, exact."""

import pytest
import torch
from ops_support import held

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DIVISORS = [1, 2, 3, 7, 10, 100, 127, -1, -3, -128, 255, 30000, -(2**20) + 1, 2**31 - 1, 2**40]


def numbers(dtype: torch.dtype) -> torch.Tensor:
    """Small ones of both signs, all sizes, and the limits but the least one (-1 divides it not)."""
    limits = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(limits.min + 1, limits.max, (4099,), dtype=dtype, generator=generator)
    small = torch.arange(-160, 160)
    x[: len(small)] = small.clamp(limits.min + 1, limits.max).to(dtype)
    x[len(small)] = limits.max
    if dtype == torch.int64:  # near multiples of the divisors, where floating point is not exact
        x[1000:2000] = x[1000:2000] // 30000 * 30000 + small[:8].repeat(125)
    return x


def programs_of(function, *operands: torch.Tensor) -> list[tuple[str, ...]]:
    """The operators of the programs that `function` was, in a queue that is busy meanwhile."""
    torch.loom.synchronize()
    torch.loom.reset_fusion_report()
    with held():
        kept = function(*operands)
    torch.loom.synchronize()
    del kept
    return [program.operators for program in torch.loom.fusion_report()]


DIVISIONS = {
    "floor_divide": lambda x, n: x // n,
    "remainder": lambda x, n: x % n,
    "fmod": torch.fmod,
    "floor": lambda x, n: torch.div(x, n, rounding_mode="floor"),
    "trunc": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    "chain": lambda x, n: (x // n) * n + x % n,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("division", DIVISIONS.values(), ids=list(DIVISIONS))
def test_division_by_a_number(division, dtype):
    x = numbers(dtype)
    limits = torch.iinfo(dtype)
    for divisor in DIVISORS:
        if not limits.min <= divisor <= limits.max:
            continue
        expected = division(x, divisor)
        on_loom = x.to("loom")
        for _ in range(2):  # interpreted, compiled
            result = division(on_loom, divisor).cpu()
            assert result.dtype == expected.dtype
            assert torch.equal(result, expected), divisor


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts(dtype):
    x = numbers(dtype)
    for by in (0, 1, 5, 7, 31, 63):
        assert torch.equal((x.to("loom") >> by).cpu(), x >> by)
        assert torch.equal((x.to("loom") << by).cpu(), x << by)
    by = x.clamp(0, 7)
    assert torch.equal((x.to("loom") >> by.to("loom")).cpu(), x >> by)


def test_division_in_place():
    x = numbers(torch.int32)
    on_loom = x.to("loom")
    for t in (x, on_loom):
        t.floor_divide_(7).remainder_(100).bitwise_left_shift_(2)
    assert torch.equal(on_loom.cpu(), x)


def test_a_chain_of_integers_is_one_program():
    x = numbers(torch.int32).to("loom")
    programs = programs_of(lambda x: ((x * 3 + 1) & 0xFFFF) ^ (x >> 2), x)
    assert programs == [("mul", "add", "bitwise_and", "bitwise_right_shift", "bitwise_xor")]
    programs = programs_of(lambda x: (x // 7) * 3 + x % 10, x)
    assert programs == [("div", "mul", "remainder", "add")]


def test_division_by_zero_is_an_error_of_the_next_wait():
    x = numbers(torch.uint8).to("loom")
    for divisor in (0, torch.zeros_like(x)):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            torch.div(x, divisor, rounding_mode="floor").cpu()
