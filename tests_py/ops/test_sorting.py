# SPDX-License-Identifier: BSD-3-Clause
"""Sorting and looking for elements: values and places of cpu, however rows are cut."""

import pytest
import torch
from compare import agrees, assert_same, natively

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]
# Rows that the cores share, that have a core each, too short for digits, and columns.
SHAPES = [
    ((70000,), 0),
    ((3, 40000), 1),
    ((40, 700), -1),
    ((300, 90), 0),
    ((2, 500, 3), 1),
    ((700, 100), 1),
    ((9, 5), 0),
]


def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 3) -> torch.Tensor:
    """Some of them equal, and some special."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul(60)
    if dtype.is_floating_point:
        x = x.to(dtype)
        flat = x.view(-1)
        flat[::7] = flat[::7].round()
        flat[3::50] = float("nan")
        flat[4::50] = -0.0
        flat[9::50] = 0.0
        flat[5::90] = float("inf")
        flat[6::90] = -float("inf")
        return x
    if dtype == torch.uint8:
        x = x.abs()
    return (x > 0) if dtype == torch.bool else x.clamp(-120, 120).to(dtype)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_elements_stay_in_order(dtype: torch.dtype, descending: bool) -> None:
    for shape, dim in SHAPES:
        x = numbers(shape, dtype)
        agrees(lambda t, d=dim: torch.sort(t, dim=d, stable=True, descending=descending), x)
        agrees(lambda t, d=dim: torch.sort(t, dim=d, descending=descending).values, x)
        agrees(lambda t, d=dim: torch.argsort(t, dim=d, stable=True, descending=descending), x)


@pytest.mark.parametrize("dtype", DTYPES[:6], ids=str)
def test_tensors_lie_anyhow(dtype: torch.dtype) -> None:
    x = numbers((600, 80), dtype)
    for dim in (0, 1):
        agrees(lambda t, d=dim: torch.sort(t, dim=d, stable=True), x.t())
        agrees(lambda t, d=dim: torch.sort(t, dim=d, stable=True), x[:, ::2])
    agrees(lambda t: torch.sort(t.expand(3, 600, 80), dim=1, stable=True), x)
    wide = numbers((40000, 2), dtype)[:, 1]
    agrees(lambda t: torch.sort(t, stable=True), wide)


def test_large_integers_have_all_their_digits() -> None:
    g = torch.Generator().manual_seed(3)
    for low, high in ((-(2**62), 2**62), (2**61, 2**61 + 5000), (-5, 2**40)):
        x = torch.randint(low, high, (50000,), generator=g)
        for descending in (False, True):
            agrees(lambda t, d=descending: torch.sort(t, stable=True, descending=d), x)
    agrees(lambda t: torch.sort(t, stable=True), torch.full((5000,), 7))
    ends = torch.tensor([2**63 - 1, -(2**63), 0, 5] * 200)
    agrees(lambda t: torch.sort(t, stable=True), ends)


def test_results_may_be_given() -> None:
    x = numbers((900,), torch.float32)
    on_loom = x.to("loom")
    expected = torch.sort(x, stable=True)
    values = torch.empty(1800, device="loom")[::2]
    places = torch.empty(1800, device="loom", dtype=torch.int64)[1::2]
    torch.sort(on_loom, stable=True, out=(values, places))
    assert_same((values, places), tuple(expected), strides=False)


@pytest.mark.parametrize("dtype", DTYPES[:6], ids=str)
def test_first_elements_of_a_long_row(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(3)
    x = torch.randperm(120, generator=g).to(dtype)  # each once, where a dtype tells them apart
    x = torch.cat([x.add(5), torch.zeros(100_000, dtype=dtype)])[torch.randperm(100_120)]
    for shape in ((100_120,), (1, 100_120), (100_120, 1)):
        dim = shape.index(100_120)
        for k in (1, 17, 100):
            agrees(lambda t, d=dim, k=k: torch.topk(t, k, dim=d), x.view(shape))
        agrees(lambda t, d=dim: torch.topk(t.neg(), 50, dim=d, largest=False), x.view(shape))
    actual = natively(torch.topk, x.to("loom"), 40, sorted=False)
    expected = torch.topk(x, 40)
    assert_same(actual.values.sort(descending=True).values, expected.values)
    assert_same(x.to("loom")[actual.indices], actual.values.cpu())


def test_first_elements_are_not_numbers() -> None:
    x = numbers((90000,), torch.float32)
    agrees(lambda t: torch.topk(t, 2000).values, x)
    agrees(lambda t: torch.topk(t, 2000, largest=False).values, x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.int8], ids=str)
def test_elements_are_looked_up(dtype: torch.dtype) -> None:
    for shape in ((50000,), (30, 900), (7, 2, 1000), ()):
        x = torch.randint(-100, 100, shape, generator=torch.Generator().manual_seed(3)).to(dtype)
        for among in (torch.arange(-90, 90, 7), torch.arange(5), torch.empty(0), x.flatten()[::3]):
            agrees(lambda t, a: torch.isin(t, a), x, among.to(dtype))
            agrees(lambda t, a: torch.isin(t, a, invert=True), x, among.to(dtype))
        agrees(lambda t: torch.isin(t, 5), x)
    unique = torch.randperm(60000, generator=torch.Generator().manual_seed(3))
    agrees(lambda t: torch.isin(t[:50000], t[40000:], assume_unique=True), unique)
