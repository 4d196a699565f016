# SPDX-License-Identifier: BSD-3-Clause
"""Variances, standard deviations and their means of rows, columns and planes."""

import pytest
import torch
from compare import agrees, assert_same, natively, to_loom

FUNCTIONS = {
    "var": torch.var,
    "std": torch.std,
    "var_mean": torch.var_mean,
    "std_mean": torch.std_mean,
}


def random(*sizes, dtype=torch.float32):
    return (torch.randn(sizes, generator=torch.Generator().manual_seed(7)) + 3).to(dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("sizes", "dims"),
    [
        ((300, 70), 0),
        ((300, 70), 1),
        ((20, 3), 0),
        ((20, 3), 1),
        ((5, 100000), 1),
        ((3, 5000, 17), 1),
        ((40, 3000), 0),
        ((7, 6, 9, 11), (0, 2, 3)),
        ((7, 6, 90, 11), (2, 3)),
        ((7, 6, 9, 11), (0, 1)),
        ((70, 6, 9, 11), (1, 3)),
        ((4, 70000), 0),
    ],
)
def test_sizes(name, sizes, dims):
    function = FUNCTIONS[name]
    agrees(lambda x: function(x, dims), random(*sizes))
    agrees(lambda x: function(x, dims, correction=0, keepdim=True), random(*sizes))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_dtypes(dtype):
    for dim in (0, 1):
        agrees(lambda x, dim=dim: torch.var_mean(x, dim), random(200, 50, dtype=dtype))


def test_layouts():
    x = random(8, 16, 9, 11)
    for layout in (x.to(memory_format=torch.channels_last), x.transpose(0, 3), x[:, ::2]):
        for dims in ((0, 2, 3), (2, 3), (1,), (0,)):
            agrees(lambda x, dims=dims: torch.std_mean(x, dims), layout)


@pytest.mark.parametrize("dims", [0, 1])
@pytest.mark.parametrize("size", [1e-25, 1e-12, 1e12, 1e25])
def test_large_and_small_numbers(size, dims):
    x = random(200, 300) * size
    assert_same(natively(torch.std, to_loom(x) / size, dims), torch.std(x / size, dims))
    got = torch.std(to_loom(x), dims).cpu().double()
    torch.testing.assert_close(got, x.double().std(dims), rtol=1e-5, atol=0)


def test_numbers_that_are_none():
    x = random(200, 40)
    x[3, 1], x[7, 2], x[199, 3], x[:, 4] = torch.nan, torch.inf, -torch.inf, torch.inf
    for dims in (0, 1):
        agrees(lambda x, dims=dims: torch.var_mean(x, dims), x)
        agrees(lambda x, dims=dims: torch.var_mean(x, dims), torch.full((64, 70), 3.3))


def test_far_from_zero():
    x = random(5000, 40) + 1e5
    for dims in (0, 1):
        torch.testing.assert_close(
            torch.var(x.to("loom"), dims).cpu().double(), x.double().var(dims), rtol=1e-4, atol=0
        )


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_fewer_elements_than_the_correction():
    for dims in (0, 1):
        agrees(lambda x, dims=dims: torch.var(x, dims, correction=50), random(50, 50))
    agrees(lambda x: torch.var(x, 0), random(1, 50))


BYTES = """
import hashlib, torch
torch.manual_seed(0)
x = torch.randn(3000, 700).to("loom")
for dim in (0, 1):
    for tensor in torch.var_mean(x, dim):
        print(hashlib.sha256(tensor.cpu().numpy().tobytes()).hexdigest())
"""


@pytest.mark.thorough
def test_results_do_not_depend_on_the_number_of_cores(check):
    runs = [check(BYTES, LOOM_THREADS=cores).out for cores in ("1", "3")]
    assert runs[0]
    assert runs[0] == runs[1]
