# SPDX-License-Identifier: BSD-3-Clause
"""Where fused operators round, and what they refuse, as on cpu: exactly, not nearly."""

import math

import pytest
import torch

SHORT = [torch.bfloat16, torch.float16]
EXACT = {
    "add": lambda x, n: x + n,
    "sub": lambda x, n: x - n,
    "rsub": lambda x, n: n - x,
    "mul": lambda x, n: x * n,
    "div": lambda x, n: x / n,
    "div from": lambda x, n: n / x,
    "div, cut": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    "div, cut, by a tensor": lambda x, n: torch.div(x, x.new_full((1,), n), rounding_mode="trunc"),
    "div, cut, by one of float32": lambda x, n: torch.div(
        x, torch.tensor(n, device=x.device), rounding_mode="trunc"
    ),
    "div, cut, by one expanded": lambda x, n: torch.div(
        x, x.new_full((1,), n).expand(4096), rounding_mode="trunc"
    ),
    "div, cut, by a row": lambda x, n: torch.div(x, x.new_full((4096,), n), rounding_mode="trunc"),
    "zero-dimensional": lambda x, n: x + torch.tensor(n),
    "alpha": lambda x, n: torch.add(x, x.flip(0), alpha=n),
    "minus alpha": lambda x, n: torch.sub(x, x.flip(0), alpha=n),
    "fmod": lambda x, n: torch.fmod(x, n),
    "remainder": lambda x, n: torch.remainder(x, n),
    "remainder, negative": lambda x, n: torch.remainder(x, -n),
    "pow": lambda x, n: x.abs().pow(n),
    "cube": lambda x, n: (x * n).pow(3),
    "inverse square": lambda x, n: (x * n).pow(-2),
    "clamp": lambda x, n: x.clamp(-n, n),
    "leaky_relu": lambda x, n: torch.nn.functional.leaky_relu(x, n),
    "addcmul": lambda x, n: torch.addcmul(x, x.flip(0), x.roll(1, 0), value=n),
    "addcdiv": lambda x, n: torch.addcdiv(x, x.flip(0), x.roll(1, 0), value=n),
    "lerp": lambda x, n: torch.lerp(x, x.flip(0), n),
    "threshold": lambda x, n: torch.ops.aten.threshold_backward(x, x.flip(0), n),
}


def numbers(dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(4096, generator=torch.Generator().manual_seed(3)) * 3).to(dtype)


@pytest.mark.parametrize("number", [0.1, 3.7, 1e-3])
@pytest.mark.parametrize("dtype", [*SHORT, torch.float32], ids=str)
@pytest.mark.parametrize("function", EXACT)
def test_numbers_are_rounded_as_on_cpu(function, dtype, number):
    if function == "pow" and dtype == torch.float32:
        return  # another implementation of the function
    x = numbers(dtype)
    expected = EXACT[function](x, number)
    assert torch.equal(EXACT[function](x.to("loom"), number).cpu(), expected)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
@pytest.mark.parametrize("function", [torch.mul, torch.div])
@pytest.mark.parametrize(
    "number",
    [torch.tensor(70001), torch.tensor([70001.0]), torch.tensor(1e-6), torch.tensor([[3]])],
    ids=["int64", "one of a vector", "small", "one of a matrix"],
)
def test_single_elements_of_other_dtypes_are_not_rounded_to_halves(function, number, dtype):
    """They were: quotients by 70001 were zero in float16, so was the gradient of nanmean()."""
    x = numbers(dtype)
    for first, second in [(x, number), (number, x), (x[:1], number)]:
        actual = function(first.to("loom"), second.to("loom"))
        torch.testing.assert_close(actual.cpu(), function(first, second), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [*SHORT, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("function", [torch.asinh, torch.acosh], ids=["asinh", "acosh"])
def test_large_arguments_have_results(function, dtype):
    largest = torch.finfo(dtype).max
    x = torch.tensor([1e3, 1e4, largest / 2, largest] * 8, dtype=torch.float64).to(dtype)
    torch.testing.assert_close(function(x.to("loom")).cpu(), function(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_erf_is_as_precise_near_zero(dtype):
    x = torch.logspace(-30, 0, 1000, dtype=dtype)
    torch.testing.assert_close(x.to("loom").erf().cpu(), x.erf(), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    "function",
    [torch.relu, lambda x: x.clamp(min=0), lambda x: x.clamp(max=0)],
    ids=["relu", "clamp min", "clamp max"],
)
def test_zeros_keep_their_signs(function):
    zeros = torch.tensor([-0.0, 0.0] * 16)
    assert function(zeros.to("loom")).cpu().signbit().equal(function(zeros).signbit())


def test_roots_of_infinity_are_those_of_cpu():
    x = torch.tensor([-math.inf, math.inf, -0.0] * 16, dtype=torch.float16)
    for power in (0.5, -0.5):
        got, expected = x.to("loom").pow(power).cpu(), x.pow(power)
        torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clamp(min=300),
        lambda x: x.clamp_max(-70000),
        lambda x: x.masked_fill(x > 0, 70000),
        lambda x: torch.add(x, x, alpha=70000),
    ],
    ids=["clamp", "clamp_max", "masked_fill", "add"],
)
@pytest.mark.parametrize("dtype", [torch.int8, torch.float16], ids=str)
def test_numbers_that_the_dtype_does_not_have_are_errors(function, dtype):
    x = torch.ones(64).to(dtype)
    try:
        expected = function(x)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="without overflow"):
            function(x.to("loom")).cpu()
        torch.loom.synchronize()
        return
    assert torch.equal(function(x.to("loom")).cpu(), expected)
