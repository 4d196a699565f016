# SPDX-License-Identifier: BSD-3-Clause
"""Functions at the ends of their range: one number leaves it on loom where it does on cpu."""

import math
from collections.abc import Callable

import pytest
import torch
from compare import agrees

Tensor = torch.Tensor
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

# What leaves the range of float32 or float64: hyperbolic functions, powers of e and 2.
LIMITS = {
    "sinh": (89.41, 89.42, 710.47, 710.48),
    "cosh": (89.41, 89.42, 710.47, 710.48),
    "exp": (88.72, 88.73, 709.78, 709.79),
    "expm1": (88.72, 88.73, 709.78, 709.79),
    "exp2": (127.99, 128.0, 1023.99, 1024.0),
}


def ends(dtype: torch.dtype, *more: float) -> Tensor:
    """The largest and least numbers of a dtype, what is beside 1, what is no number, and `more`,
    all with both signs.
    """
    info = torch.finfo(dtype)
    least = info.smallest_normal * info.eps
    sizes = [0, 1, 1 + info.eps, 1 - info.eps / 2, info.max, info.max / 2, math.inf, math.nan]
    sizes += [info.smallest_normal, info.smallest_normal / 2, least, 3 * least, *more]
    of_both_signs = torch.tensor([sizes, [-x for x in sizes]], dtype=torch.float64)
    return of_both_signs.flatten().to(dtype)


def assert_as_far(got: Tensor, wanted: Tensor, units: float) -> None:
    """The same elements are finite, and those are so many units in the last place apart at most."""
    got, info = got.cpu(), torch.finfo(wanted.dtype)
    assert got.dtype == wanted.dtype
    assert torch.equal(got.isnan(), wanted.isnan())
    finite = wanted.isfinite()
    assert torch.equal(got[~finite].nan_to_num(), wanted[~finite].nan_to_num())
    got, wanted = got[finite].double(), wanted[finite].double()
    allowed = units * info.eps * wanted.abs().clamp_min(info.smallest_normal)
    assert bool(((got - wanted).abs() <= allowed).all())


def exactly(name: str, x: Tensor) -> Tensor:
    """By the C library: torch's vectors of float64 are infinite from 710 on."""

    def function(number: float) -> float:
        try:
            return float(getattr(math, name)(number))
        except OverflowError:
            return -math.inf if name == "sinh" and number < 0 else math.inf

    return torch.tensor([function(each) for each in x.tolist()], dtype=torch.float64)


def in_a_program(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Between operators of the same program, not alone."""
    return -function(x.neg().neg())


@pytest.mark.parametrize("count", [1, 1000], ids=["few", "many"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", LIMITS)
def test_results_leave_the_range_where_they_do_on_cpu(name, dtype, count):
    function = getattr(torch, name)
    limits = [*LIMITS[name], *(x / 2 for x in LIMITS[name]), 88.5, 88.8, 89, 709.5, 710.2]
    x = ends(dtype, *limits).repeat(count)
    wanted = exactly(name, x).to(dtype)
    assert_as_far(function(x.to("loom")), wanted, 3)
    assert_as_far(-in_a_program(function, x.to("loom")), wanted, 3)


@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_large_results_are_within_two_units(name):
    function = getattr(torch, name)
    for dtype, low, high in ((torch.float32, 87.5, 89.415), (torch.float64, 708.5, 710.475)):
        x = torch.linspace(low, high, 4001, dtype=dtype)
        wanted = exactly(name, x).to(dtype)
        assert_as_far(function(x.to("loom")), wanted, 2)
        assert_as_far(function(-x.to("loom")), wanted if name == "cosh" else -wanted, 2)


@pytest.mark.parametrize("exponents", [torch.int8, torch.int32, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_ldexp_stays_in_range_on_the_way(dtype, exponents):
    x = ends(dtype, 0.001, 0.51, 1e30, 1e-30)
    n = torch.tensor([0, 1, 16, 17, 127, 128, 130, 200, 255, 300, 1030, 2000]).clamp_max(
        torch.iinfo(exponents).max
    )
    if exponents != torch.uint8:
        n = torch.cat([n, -n])
    n = n.to(exponents)
    # Where it broadcasts `x`, cpu warns of a result that it resizes.
    pairs = x[:, None].expand(-1, len(n))
    agrees(torch.ldexp, pairs.contiguous(), n)
    agrees(torch.ldexp, pairs, n, strides=False)
    agrees(torch.ldexp, pairs.t().contiguous().t(), n)
    agrees(lambda x, n: x.clone().ldexp_(n), x[:, None].repeat(1, len(n)), n)
    to = torch.empty(len(x), len(n), dtype=dtype)
    agrees(lambda x, n, to: torch.ldexp(x, n, out=to), pairs.contiguous(), n, to)
    agrees(torch.ldexp, x[::4], n[: len(x[::4])])
    agrees(lambda x, n: torch.ldexp(x.to(torch.complex64), n), torch.ones(3), n[:3])


def test_ldexp_has_gradients():
    x = torch.tensor([0.001, -3.0], requires_grad=True)
    on_loom = x.detach().to("loom").requires_grad_()
    n = torch.tensor([5, -2])
    torch.ldexp(x, n).sum().backward()
    torch.ldexp(on_loom, n.to("loom")).sum().backward()
    assert torch.equal(on_loom.grad.cpu(), x.grad)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64], ids=str)
def test_nan_to_num_of_integers_writes_nothing(dtype):
    x = torch.ones(1, dtype=dtype, device="loom").expand(4)
    assert x.nan_to_num_(nan=3) is x
    assert x.tolist() == [1] * 4
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.ones(1, device="loom").expand(4).nan_to_num_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_remainders_whose_quotient_leaves_the_range(dtype: torch.dtype) -> None:
    """Sleef divides, and makes them NaN."""
    info = torch.finfo(dtype)
    divisors = [0.9, 0.6401, 1e-3, 3e-20, 1e-30, info.smallest_normal, info.smallest_normal / 1024]
    divisors += [-x for x in divisors] + [0.0, math.inf, math.nan, 7.0]
    dividends = [info.max, -info.max, info.max / 3, info.max * 2e-20, 5.5, 0.0, math.inf, math.nan]
    a = torch.tensor(dividends, dtype=dtype)[:, None].expand(-1, len(divisors)).contiguous()
    b = torch.tensor(divisors, dtype=dtype).expand(a.shape).contiguous()

    def exact(x: float, y: float) -> float:
        return math.fmod(x, y) if math.isfinite(x) and y != 0 else math.nan

    pairs = zip(a.flatten().tolist(), b.flatten().tolist(), strict=True)
    wanted = torch.tensor([exact(x, y) for x, y in pairs], dtype=dtype).view(a.shape)
    assert_as_far(torch.fmod(a.to("loom"), b.to("loom")), wanted, 0)
    moved = torch.where((wanted != 0) & ((b < 0) != (wanted < 0)), wanted + b, wanted)
    assert_as_far(torch.remainder(a.to("loom"), b.to("loom")), moved, 0)
