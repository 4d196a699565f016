# SPDX-License-Identifier: BSD-3-Clause
"""Operands that share memory with what is written: the call raises what cpu raises."""

import warnings

import pytest
import torch
from compare import agrees, error_of, to_loom

N = 6


def numbers():
    return torch.arange(float(N))


def expanded():
    return torch.zeros(1).expand(N)


def ones(y, dtype):
    return torch.ones(y.numel(), dtype=dtype, device=y.device)


# Functions of a vector, all of which refuse what they are asked to do.
SHARED = {
    "cumsum": lambda y: torch.cumsum(y[:-1], 0, out=y[1:]),
    "cumprod": lambda y: torch.cumprod(y[:-1], 0, out=y[1:]),
    "cross": lambda y: torch.linalg.cross(y[:3], y[3:], out=y[:3]),
    "addmv": lambda y: torch.addmv(y[:3], y.view(2, 3).T[:, :1].expand(3, 2), y[3:5], out=y[1:4]),
    "logcumsumexp": lambda y: torch.logcumsumexp(y[:-1], 0, out=y[1:]),
    "put_": lambda y: y.put_(y.long(), y),
    "take": lambda y: torch.take(y, y.long(), out=y),
    "index_put_": lambda y: y.index_put_((ones(y, torch.int64)[1:],), y[:-1]),
    "masked_select": lambda y: torch.masked_select(y, y > -1, out=y),
    "masked_fill_": lambda y: y.view(torch.bool)[1:5].masked_fill_(y.view(torch.bool)[:4], 1),
    "gather": lambda y: torch.gather(y, 0, ones(y, torch.int64), out=y),
    "scatter_": lambda y: y.scatter_(0, ones(y, torch.int64), y),
    "scatter_add_": lambda y: y.scatter_add_(0, ones(y, torch.int64), y),
    "index_add_": lambda y: y.index_add_(0, ones(y, torch.int64), y),
    "index_copy_": lambda y: y.index_copy_(0, ones(y, torch.int64), y),
    "index_select": lambda y: torch.index_select(y, 0, ones(y, torch.int64), out=y),
    "kthvalue": lambda y: torch.kthvalue(y, 1, out=(y[:1].view(()), ones(y, torch.int64)[0])),
    "cat": lambda y: torch.cat([y[:2], y[2:4]], out=y[1:5]),
    "add_": lambda y: y[1:].add_(y[:-1]),
    "lerp_": lambda y: y[1:].lerp_(y[:-1], 0.5),
    "copy_": lambda y: y[1:].copy_(y[:-1]),
}


@pytest.mark.parametrize("name", SHARED)
def test_memory_that_is_read_and_written_is_refused_at_the_call(name):
    function = SHARED[name]
    on_loom = to_loom(numbers())
    expected = error_of(function, numbers())
    assert "single memory location" in expected[1]
    assert error_of(function, on_loom) == expected
    torch.loom.synchronize()


EXPANDED = {
    "linspace": lambda y: torch.linspace(0, 1, N, out=y),
    "logspace": lambda y: torch.logspace(0, 1, N, out=y),
    "arange": lambda y: torch.arange(0, N, out=y),
    "take": lambda y: torch.take(y, ones(y, torch.int64), out=y),
    "put_": lambda y: y.put_(ones(y, torch.int64), ones(y, torch.float32)),
    "cumsum_": lambda y: y.cumsum_(0),
    "cumsum": lambda y: torch.cumsum(ones(y, torch.float32), 0, out=y),
    "masked_scatter_": lambda y: y.masked_scatter_(y > 2, ones(y, torch.float32)),
    "masked_select": lambda y: torch.masked_select(ones(y, torch.float32), y < 1, out=y),
    "kthvalue": lambda y: torch.kthvalue(
        torch.ones(N, 2, device=y.device), 1, out=(y, ones(y, torch.int64))
    ),
    "addmv": lambda y: torch.addmv(y, y.new_ones(N, N), ones(y, torch.float32), out=y),
    "addmv_": lambda y: y.addmv_(y.new_ones(N, N), ones(y, torch.float32)),
    "min": lambda y: torch.min(y.new_ones(N, 2), 1, out=(y, ones(y, torch.int64))),
    "aminmax": lambda y: torch.aminmax(y.new_ones(N, 2), dim=1, out=(y, ones(y, torch.float32))),
    "sum": lambda y: torch.sum(y.new_ones(N, 2), 1, out=y),
    "sort": lambda y: torch.sort(ones(y, torch.float32), out=(y, ones(y, torch.int64))),
    "scatter_": lambda y: y.scatter_(0, ones(y, torch.int64), 2),
    "index_fill_": lambda y: y.index_fill_(0, ones(y, torch.int64), 2),
    "index_add_": lambda y: y.index_add_(0, ones(y, torch.int64), ones(y, torch.float32)),
    "fill_": lambda y: y.fill_(2),
    "add_": lambda y: y.add_(1),
    "copy_": lambda y: y.copy_(ones(y, torch.float32)),
    "uniform_": lambda y: y.uniform_(),
    "normal_": lambda y: y.normal_(),
    "random_": lambda y: y.random_(),
    "bernoulli_": lambda y: y.bernoulli_(),
}


def outcome(function, y):
    """The error, or that there was none."""
    try:
        function(y)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None


@pytest.mark.filterwarnings("ignore:Use of index_fill_ on expanded tensors is deprecated")
@pytest.mark.parametrize("name", EXPANDED)
def test_elements_that_have_one_place_are_not_written(name):
    y = torch.zeros(1, device="loom").expand(N)
    assert outcome(EXPANDED[name], y) == outcome(EXPANDED[name], expanded())
    torch.loom.synchronize()


def test_range_refuses_an_expanded_result():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="single memory location"):
            torch.range(0, N - 1, out=torch.zeros(1, device="loom").expand(N))
    torch.loom.synchronize()


@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded tensors is deprecated")
def test_masked_fill_of_an_expanded_tensor_is_done():
    def fill(x, mask, value):
        x = x.clone().expand(3, 4)
        with pytest.warns(UserWarning, match="expanded tensors is deprecated"):
            x.masked_fill_(mask, value)
        return x

    mask = torch.tensor([[False, True, False, False], [False] * 4, [True, False, False, False]])
    x = torch.zeros(3, 1)
    for value in (2.0, torch.tensor(3.0)):
        expected = fill(x, mask, value)
        got = fill(x.to("loom"), mask.to("loom"), value)
        assert got.tolist() == expected.tolist()


def test_parts_of_one_tensor_may_be_written_from_others():
    def apart(y):
        torch.cumsum(y[:3], 0, out=y[3:])
        y[:2].put_(torch.tensor([1, 0], device=y.device), y[4:])
        torch.take(y[3:], torch.tensor([2, 0], device=y.device), out=y[:2])
        y[:3].index_put_((torch.tensor([0, 2], device=y.device),), y[3:5])
        return y

    agrees(apart, numbers())


def test_a_result_may_take_the_place_of_its_operand():
    def in_place(y):
        torch.cumsum(y, 0, out=y)
        torch._softmax(y, 0, False, out=y)
        return y

    agrees(in_place, numbers())


def test_a_product_may_be_added_to_its_result() -> None:
    left, right, x = torch.randn(3, 5, 7), torch.randn(3, 7, 6), torch.randn(3, 5, 6)
    torch.loom.reset_fallbacks()
    for add, parts in ((torch.baddbmm, (x, left, right)), (torch.addmm, (x[0], left[0], right[0]))):
        for numbers in ({}, {"beta": 0.5, "alpha": -2}, {"beta": 0}):
            expected = add(*parts, **numbers)
            to, a, b = (each.to("loom", copy=True) for each in parts)
            place, version = to.data_ptr(), to._version
            assert add(to, a, b, **numbers, out=to) is to
            assert (to.data_ptr(), to._version) == (place, version + 1)
            torch.testing.assert_close(to.cpu(), expected)
    assert torch.loom.fallbacks() == {}


def test_a_product_with_its_result_among_its_factors_is_that_of_cpu() -> None:
    square = torch.randn(6, 6)
    found = []
    for device in ("cpu", "loom"):
        x = square.to(device, copy=True)
        try:
            found.append(torch.addmm(x, x, x.new_ones(6, 6), out=x).cpu())
        except RuntimeError as error:
            found.append(torch.tensor(float(len(str(error)))))
    torch.testing.assert_close(found[1], found[0])
