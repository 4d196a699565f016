# SPDX-License-Identifier: BSD-3-Clause
"""Sorting, gathering and scattering along one dimension while work is cut along another."""

import pytest
import torch
from compare import agrees

SHAPES = [(64, 700), (3, 70, 900), (700, 64), (40, 50, 60)]


def numbers(shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(shape, generator=generator).mul(50).to(dtype)


def indices(shape, dim, size, seed=4):
    return torch.randint(size, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_sort_and_topk(dim, shape, dtype):
    x = numbers(shape, dtype)
    agrees(lambda t: torch.sort(t, dim=dim, stable=True), x)
    agrees(lambda t: torch.sort(t, dim=dim, stable=True, descending=True), x.mT)
    if dtype != torch.bool and shape[dim] >= 5:
        agrees(lambda t: torch.topk(t, 5, dim).values, x)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("fewer", [0, 3])
def test_gather_and_scatter(fewer, dim, shape):
    x, source = numbers(shape), numbers(shape).flip(0)
    smaller = [size - fewer for size in shape]
    index = indices(smaller, dim, shape[dim])
    once = numbers(smaller).argsort(dim)  # no place twice: the order of writing does not matter

    agrees(lambda t, i: torch.gather(t, dim, i), x, index)
    agrees(lambda t, i, s: t.scatter(dim, i, s), x, once, source)
    agrees(lambda t, i: t.scatter(dim, i, 2.5), x, index)
    agrees(lambda t, i: t.clone().scatter_(dim, i, 2.5, reduce="multiply"), x, once)
    agrees(lambda t, i, s: t.scatter_add(dim, i, s), x, index, source)
    for how in ("sum", "mean", "amax", "prod"):
        agrees(lambda t, i, s, r=how: t.scatter_reduce(dim, i, s, r), x, once, source)


@pytest.mark.parametrize("shape", [(64, 700), (4, 80, 900)], ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_glu(dim, shape):
    agrees(lambda t: torch.nn.functional.glu(t, dim), numbers(shape))


@pytest.mark.parametrize("shape", [(300, 700), (700, 300), (5, 90, 80), (2, 3, 40, 50), (0, 4)])
@pytest.mark.parametrize("diagonal", [-500, -7, 0, 3, 650])
def test_triangles(diagonal, shape):
    for function in (torch.tril, torch.triu):
        agrees(lambda t, f=function: f(t, diagonal), numbers(shape))
        agrees(lambda t, f=function: f(t.mT, diagonal), numbers(shape))
    agrees(lambda t: t.clone().tril_(diagonal), numbers(shape))


@pytest.mark.parametrize("longer", [(0, 3), (143, 0), (90, 7)], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_a_source_may_be_longer_than_the_indices(dim, longer):
    index = numbers((257, 64)).argsort(dim)
    source = numbers((257 + longer[0], 64 + longer[1]))

    def within(function):
        def run(whole, places, values):
            function(whole[:257], places[:257], values)
            return whole

        return run

    whole, places = torch.zeros(600, 64), torch.cat([index, torch.full((343, 64), 2**40)])
    agrees(within(lambda t, i, s: t.scatter_(dim, i, s)), whole, places, source)
    agrees(within(lambda t, i, s: t.scatter_add_(dim, i, s)), whole, places, source)
    agrees(within(lambda t, i, s: t.scatter_reduce_(dim, i, s, "amax")), whole, places, source)


def test_triangles_of_strided_batches_in_place_and_far_diagonals():
    def strided(whole, diagonal):
        whole[::2, ::2, ::2, ::2].tril_(diagonal)
        return whole

    for diagonal in (-1, 0, 40):
        agrees(lambda t, k=diagonal: strided(t, k), numbers((6, 34, 4, 130)))
    for diagonal in (2**63 - 1, 2**63 - 2, -(2**63 - 1), -(2**63)):
        agrees(lambda t, k=diagonal: (t.tril(k), t.triu(k)), numbers((600, 500)))
