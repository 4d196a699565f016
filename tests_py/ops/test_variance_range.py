# SPDX-License-Identifier: BSD-3-Clause
"""Variances, means and sums whose squares or partial sums are out of the range of floats."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

pytestmark = pytest.mark.thorough

INF, NAN = float("inf"), float("nan")
DTYPES = [torch.float32, torch.bfloat16]
SCALES = [1e-38, 1e-30, 1e-25, 1e-20, 1e-16, 1.0, 1e18, 1e19, 1e20, 1e38]


def numbers(*shape, dtype=torch.float32, scale=1.0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return (values.clamp(-3, 3) * scale).to(dtype)


def is_near(function, x):
    """The results are those for doubles, rounded to the dtype of `x`."""
    results = tree_leaves(function(x.to("loom"))), tree_leaves(function(x.double()))
    means = len(results[0]) == 2
    for got, wanted in zip(*results, strict=True):
        assert got.dtype == x.dtype
        torch.testing.assert_close(
            got.cpu(),
            wanted.to(x.dtype),
            rtol=2e-5 if x.dtype is torch.float32 else 1e-2,
            # Of numbers that cancel each other, a mean has the rounding errors of all of them.
            atol=1e-6 * x.double().abs().max().item() if means else 0,
        )


def is_as_finite_as_on_cpu(function, x):
    results = tree_leaves(function(x.to("loom"))), tree_leaves(function(x))
    for got, wanted in zip(*results, strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        assert torch.equal(got.cpu().isnan(), wanted.isnan())
        assert torch.equal(got.cpu().isposinf(), wanted.isposinf())
        assert torch.equal(got.cpu().isneginf(), wanted.isneginf())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("count", [2, 17, 1000, 5000, 300_000])
def test_variances_of_all_elements(count, scale, dtype):
    x = numbers(count, dtype=dtype, scale=scale)
    for function in (torch.std, torch.std_mean, torch.var_mean):
        is_near(function, x)
    is_near(lambda x: x.std(correction=0), x)
    if scale >= 1e-16:  # else a variance is a subnormal number or zero
        is_near(torch.var, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("shape", [(200_000, 3), (2, 150_000), (3, 50_000, 2), (9, 70)], ids=str)
def test_variances_of_rows_and_columns(shape, scale, dtype):
    x = numbers(*shape, dtype=dtype, scale=scale)
    for dim in (*range(len(shape)), (0, len(shape) - 1)):
        is_near(lambda x, dim=dim: x.std(dim), x)
        is_near(lambda x, dim=dim: torch.std_mean(x, dim, keepdim=True), x)
        if scale >= 1e-16:
            is_near(lambda x, dim=dim: x.var(dim), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [3e38, -3e38, 1e20, 1e-20, 1e-38, 0.0])
@pytest.mark.parametrize("count", [2, 17, 1000, 5000, 300_000])
def test_variances_of_equal_elements(count, value, dtype):
    x = torch.full((count,), value, dtype=dtype)
    for function in (torch.std_mean, torch.var_mean):
        spread, mean = (each.cpu() for each in function(x.to("loom")))
        # Distances are from a rounded mean, and the square of its error may be in float's range.
        bound = (1e-6 * value) ** 2 if function is torch.var_mean else 1e-6 * abs(value)
        assert spread <= (bound if value == 1e20 else 0)
        torch.testing.assert_close(mean, x[0], rtol=2e-6, atol=0)


def test_few_elements_of_another_scale():
    """Blocks of zeros and of small numbers beside those that count."""
    x = torch.zeros(600_000)
    x[5], x[-1] = 1e-25, 1e-30
    is_near(torch.std, x)
    x[300_000] = 1e25
    is_near(torch.std, x)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16, torch.float64])
@pytest.mark.parametrize("value", [INF, -INF, NAN])
@pytest.mark.parametrize("count", [2, 17, 1000, 5000, 300_000])
def test_elements_that_are_not_finite(count, value, dtype):
    for at in {0, count // 2, count - 1}:
        x = numbers(count, dtype=dtype)
        x[at] = value
        for function in (torch.std_mean, torch.var_mean, torch.std, torch.sum, torch.mean):
            is_as_finite_as_on_cpu(function, x)
        x[0] = -INF
        for function in (torch.std_mean, torch.var, torch.nansum, torch.mean):
            is_as_finite_as_on_cpu(function, x)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("value", [INF, -INF, NAN])
@pytest.mark.parametrize("shape", [(200_000, 3), (2, 150_000)], ids=str)
def test_rows_that_are_not_finite(shape, value, dtype):
    dim = 0 if shape[0] > shape[1] else 1
    for at in (0, shape[dim] // 2, shape[dim] - 1):
        x = numbers(*shape, dtype=dtype)
        x.select(dim, at)[..., 1] = value
        for function in (torch.std_mean, torch.var_mean, torch.std):
            is_as_finite_as_on_cpu(lambda x, f=function: f(x, dim), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [2, 16, 64, 1000, 5000, 300_000])
def test_sums_out_of_range(count, dtype):
    ones = torch.full((count,), 3e38, dtype=dtype)
    for function in (torch.sum, torch.mean, torch.nansum):
        is_as_finite_as_on_cpu(function, ones)
        is_as_finite_as_on_cpu(function, -ones)
    tenths = torch.full((count,), 3e37, dtype=dtype)
    for function in (torch.sum, torch.mean, torch.nansum):
        is_as_finite_as_on_cpu(function, tenths)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [131_072, 300_000])
def test_sums_that_cancel(count, dtype):
    x = torch.full((count,), 3e38, dtype=dtype)
    x[::2] *= -1
    for function in (torch.sum, torch.mean, torch.nansum):
        assert function(x.to("loom")).cpu() == 0
    assert torch.nansum(x[:4].to("loom")).cpu() == 0
