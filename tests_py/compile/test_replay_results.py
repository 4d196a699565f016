# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile(mode="reduce-overhead"): results and inputs that share memory, and their layout."""

import pytest
import torch
from compile_support import assert_equal

pytestmark = pytest.mark.thorough

CALLS = 7


def compiled(function):
    return torch.compile(function, mode="reduce-overhead", fullgraph=True)


def layout(tensor):
    return tensor.size(), tensor.stride(), tensor.storage_offset()


@pytest.mark.parametrize("count", [6, 40_000], ids=["copied", "lent"])
def test_results_share_memory_with_each_other(count, replays):
    def function(x):
        y = x + 1
        return y, y[2:], y.view(torch.int32)

    on_loom = compiled(function)
    for i in range(CALLS):
        y, rest, bits = on_loom(torch.full((count,), float(i), device="loom"))
        y.fill_(2.0)
        expected = torch.full((count,), 2.0)
        assert_equal((y, rest, bits), (expected, expected[2:], expected.view(torch.int32)))
    assert replays


def test_results_have_the_layout_of_eager_ones(replays):
    def function(x):
        y = x + 1
        return y[:, ::2], (x * 2).t(), y.sum().expand(5), y[1:].exp()[2:, 3:], y[0:0]

    on_loom = compiled(function)
    for i in range(CALLS):
        x = torch.randn(6, 10) + i
        actual, expected = on_loom(x.to("loom")), function(x)
        assert_equal(actual, expected)
        assert [layout(t) for t in actual] == [layout(t) for t in expected]
    assert replays


@pytest.mark.parametrize("moves", [True, False])
def test_views_of_inputs_are_views_of_the_callers(moves, replays):
    def function(x):
        return x[1:, ::2], x.t(), x.view(torch.int32), x.sum()

    on_loom = compiled(function)
    memory = torch.randn(400)
    on_loom_memory = memory.to("loom")
    for i in range(CALLS):
        at = 7 * i if moves else 5
        x, x_on_loom = (m[at : at + 60].view(6, 10) for m in (memory, on_loom_memory))
        actual, expected = on_loom(x_on_loom), function(x)
        assert [layout(t) for t in actual] == [layout(t) for t in expected]
        x.fill_(float(i))
        x_on_loom.fill_(float(i))
        assert_equal(actual[:3], expected[:3])
    assert replays


def test_a_view_of_a_parameter_that_is_kept_needs_no_other_capture(replays):
    weight = torch.randn(200, 300, device="loom")
    on_loom = compiled(lambda w, x: (w.t()[5:], w.sum() + x))
    kept = [on_loom(weight, torch.ones(3, device="loom")) for _ in range(CALLS)]
    assert len(replays) == CALLS - 2
    assert len({id(capture) for capture in replays}) == 1
    assert len(kept) == CALLS


def test_an_input_that_moves_into_one_that_is_written(replays):
    def function(a, b):
        a.add_(1)
        return b * 2

    on_loom = compiled(function)
    a, a_on_loom = torch.zeros(10), torch.zeros(10, device="loom")
    for i in range(CALLS):
        b = torch.full((10,), float(i))
        assert_equal(on_loom(a_on_loom, b.to("loom")), function(a, b))
    assert replays
    for _ in range(3):  # eager code reads what it has just written
        assert_equal(on_loom(a_on_loom, a_on_loom[:]), function(a, a[:]))
        assert_equal(a_on_loom, a)


@pytest.mark.parametrize("offset", [7, 125], ids=["beyond", "within"])
def test_a_view_may_reach_beyond_an_input(offset, replays):
    def function(x):
        return x.as_strided((3, 4), (2, 1), offset) * 2

    on_loom = compiled(function)
    kept = []  # so that inputs move
    for _ in range(CALLS):
        memory = torch.randn(400)
        kept.append(memory.to("loom"))
        assert_equal(on_loom(kept[-1][123:323]), function(memory[123:323]))
    assert bool(replays) == (offset == 125)


@pytest.mark.parametrize("change", ["grow", "free"])
def test_a_result_whose_memory_is_changed_is_not_written(change, replays):
    on_loom = compiled(lambda x: x + 1)
    x = torch.zeros(40_000, device="loom")
    for i in range(CALLS):
        x.fill_(float(i))
        result = on_loom(x)
        assert_equal(result, torch.full((40_000,), i + 1.0))
        if change == "grow":
            result.resize_(50_000)
        else:
            result.untyped_storage().resize_(0)
        del result
    assert replays


def test_a_storage_keeps_a_result_as_it_is(replays):
    on_loom = compiled(lambda x: x + 1)
    x = torch.zeros(40_000, device="loom")
    kept = []
    for i in range(CALLS):
        x.fill_(float(i))
        kept.append(on_loom(x).untyped_storage())
    for i, storage in enumerate(kept):
        result = torch.empty(0, device="loom").set_(storage)
        assert_equal(result, torch.full((40_000,), i + 1.0))
    assert replays
