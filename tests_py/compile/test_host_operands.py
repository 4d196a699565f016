# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: tensors of the cpu beside those of loom, whose kernels run later."""

import pytest
import torch
from compile_support import assert_equal

from torch_loom import _C

COUNT = 4000


def hold_stream():
    """Keep what is queued from now on from running, until the result's release()."""
    return _C._Hold(0, 20)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, s: x * s + 1,
        lambda x, s: s * x + 1,
        lambda x, s: torch.where(x > 0, s, x),
        lambda x, s: torch.pow(s, x),
        lambda x, s: x.clone().fill_(s) * x,
    ],
    ids=["second", "first", "where", "base_of_a_power", "fill"],
)
def test_a_number_of_the_host_is_that_of_the_call(function):
    x = torch.randn(COUNT)
    on_loom, number = x.to("loom"), torch.tensor(2.0)
    compiled = torch.compile(function, fullgraph=True)
    compiled(on_loom, number)
    torch.loom.synchronize()
    hold = hold_stream()
    number.fill_(3.0)
    actual = compiled(on_loom, number)
    number.fill_(100.0)  # the kernel has not run yet
    hold.release()
    assert actual.device.type == "loom"
    assert_equal(actual, function(x, torch.tensor(3.0)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bfloat16, torch.bool])
def test_numbers_of_the_host_of_any_dtype(dtype):
    x, number = torch.randn(100), torch.tensor(1, dtype=dtype)

    def function(x, s):
        return torch.where(x > 0, x * s, x)

    assert_equal(torch.compile(function, fullgraph=True)(x.to("loom"), number), function(x, number))


def test_a_number_that_the_graph_computes_on_the_host():
    def function(x, s):
        s = s * 2 + 1
        return x * s, s

    x, number = torch.randn(1000), torch.tensor(0.5)
    actual, on_host = torch.compile(function, fullgraph=True)(x.to("loom"), number)
    assert actual.device.type == "loom"
    assert on_host.device.type == "cpu"
    assert_equal((actual, on_host), function(x, number))


def test_parts_of_a_graph_on_the_host_and_on_loom():
    def function(x, y):
        a = (x + 1).relu()  # loom
        b = (y * 2).sin()  # cpu
        c = a.cpu() + b  # waits for loom
        return a * 2, b, c.to(x.device) * a

    x, y = torch.randn(300), torch.randn(300)
    actual = torch.compile(function, fullgraph=True)(x.to("loom"), y)
    assert [t.device.type for t in actual] == ["loom", "cpu", "loom"]
    assert_equal(actual, function(x, y))


def test_an_index_of_the_host():
    def function(x, i):
        return x[i] * 2

    x, i = torch.randn(50, 3), torch.randint(50, (9,))
    assert_equal(torch.compile(function)(x.to("loom"), i), function(x, i))
