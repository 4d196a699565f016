# SPDX-License-Identifier: BSD-3-Clause
"""Extrema that say where they are, against cpu: places of equal elements and of NaN, too."""

import pytest
import torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Of rows, of columns, of both; parts of a long row; lines that end within a vector.
CASES = [
    ((40,), 0),
    ((100_003,), 0),
    ((2, 70_001), 1),
    ((300, 257), 1),
    ((300, 257), 0),
    ((3, 21, 65), 1),
    ((2, 19, 4, 9), 1),
    ((2, 3, 4, 33), -1),
    ((7, 1), 1),
    ((1, 64), 0),
]


def few_values(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """So few that many elements are equal; both zeros are among them."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-3, 4, shape, generator=generator).to(dtype)
    return torch.where(torch.rand(shape, generator=generator) < 0.1, -values, values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), CASES)
@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.usefixtures("no_fallback")
def test_places_are_the_first_ones(name, shape, dim, dtype):
    for seed in range(3):
        x = few_values(shape, dtype, seed)
        expected = getattr(x, name)(dim)
        found = getattr(x.to("loom"), name)(dim)
        assert torch.equal(found.indices.cpu(), expected.indices)
        assert torch.equal(found.values.cpu(), expected.values)
        assert torch.equal(found.values.cpu().signbit(), expected.values.signbit())
        place = getattr(x.to("loom"), f"arg{name}")
        assert torch.equal(place(dim, keepdim=True).cpu(), expected.indices.unsqueeze(dim))
        assert torch.equal(place().cpu(), getattr(x, f"arg{name}")())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), CASES)
def test_a_nan_is_before_all_others(shape, dim, dtype):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator).to(dtype)
    x[torch.rand(shape, generator=generator) < 0.02] = torch.nan
    x[(0,) * x.dim()] = torch.inf
    for name in ("max", "min"):
        expected = getattr(x, name)(dim)
        found = getattr(x.to("loom"), name)(dim)
        assert torch.equal(found.indices.cpu(), expected.indices)
        assert torch.equal(found.values.cpu().isnan(), expected.values.isnan())


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_infinite(dtype):
    for number in (torch.inf, -torch.inf, torch.nan):
        for shape, dim in CASES:
            x = torch.full(shape, number, dtype=dtype)
            found = x.to("loom").argmax(dim).cpu()
            assert torch.equal(found, torch.zeros_like(found))


def test_results_that_are_given():
    x = torch.randn(40, 70, generator=torch.Generator().manual_seed(2)).to("loom")
    for given in (torch.empty(140, device="loom")[::2], torch.empty(0, device="loom")):
        places = torch.empty_like(given, dtype=torch.int64)
        torch.max(x.t(), 1, out=(given, places))
        expected = x.cpu().t().max(1)
        assert torch.equal(given.cpu(), expected.values)
        assert torch.equal(places.cpu(), expected.indices)


def test_the_gradient_goes_to_the_place():
    x = few_values((5, 33), torch.float32, 3)
    gradients = []
    for device in ("cpu", "loom"):
        leaf = x.clone().to(device).requires_grad_()
        leaf.max(1).values.sum().backward()
        gradients.append(leaf.grad.cpu())
    assert torch.equal(*gradients)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["amax", "amin"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_extrema_of_columns(keepdim, name, dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 17, 33, generator=generator).to(dtype)
    x[3, 2, 1], x[7, 2, 1], x[5, 0, 0] = torch.nan, torch.inf, -torch.inf
    function = getattr(torch, name)
    for dim in (0, 1, -2, (0, 1), (0, 2)):
        expected = function(x, dim, keepdim)
        made = function(x.to("loom"), dim, keepdim)
        assert made.stride() == expected.stride()
        assert torch.equal(made.cpu().nan_to_num(7), expected.nan_to_num(7))
        out = torch.empty(0, dtype=dtype, device="loom")
        assert torch.equal(function(x.to("loom"), dim, keepdim, out=out).cpu().nan_to_num(7),
                           expected.nan_to_num(7))  # fmt: skip
    strided = torch.zeros(33, 17, dtype=dtype, device="loom").T
    function(x.to("loom"), 0, out=strided)
    assert torch.equal(strided.cpu().nan_to_num(7), function(x, 0).nan_to_num(7))
    part = x[:, :, ::2]
    assert torch.equal(function(part.to("loom"), 0).cpu().nan_to_num(7),
                       function(part, 0).nan_to_num(7))  # fmt: skip
