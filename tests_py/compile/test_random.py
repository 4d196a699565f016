# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: random numbers come from loom's generator, and depend on its seed only."""

import torch
from compile_support import assert_equal
from torch.nn import functional as F  # noqa: N812


def drop(x):
    return F.dropout(x, 0.4) + torch.rand_like(x)


def test_a_seed_gives_the_same_numbers_again():
    compiled = torch.compile(drop, fullgraph=True)
    x = torch.ones(100, 1000, device="loom")
    torch.manual_seed(3)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(3)
    assert_equal(compiled(x), first, rtol=0, atol=0)
    assert not torch.equal(second.cpu(), first.cpu())


def test_numbers_are_distributed_as_they_should_be():
    compiled = torch.compile(lambda x: F.dropout(x, 0.25), fullgraph=True)
    result = compiled(torch.ones(200000, device="loom")).cpu()
    kept = result != 0
    assert abs(kept.float().mean().item() - 0.75) < 0.01
    assert torch.allclose(result[kept], torch.tensor(1 / 0.75))


def test_dropout_drops_the_same_elements_backward():
    x = torch.ones(5000, device="loom", requires_grad=True)
    y = torch.compile(lambda x: F.dropout(x * 2, 0.5), fullgraph=True)(x)
    y.sum().backward()
    assert_equal(x.grad, y.detach())


def test_seeds_and_states_in_compiled_functions():
    def function(x):
        state = torch.loom.get_rng_state()
        torch.manual_seed(11)
        first = x + torch.rand_like(x)
        torch.loom.set_rng_state(state)
        return first, torch.rand_like(x)

    compiled = torch.compile(function)
    x = torch.ones(50, device="loom")
    (a, b), (c, d) = compiled(x), compiled(x)
    assert_equal(a, c, rtol=0, atol=0)
    assert not torch.equal(b.cpu(), d.cpu())


def test_fallback_random_has_the_numbers_of_eager():
    x = torch.ones(300, device="loom")
    with torch._inductor.config.patch(fallback_random=True):
        compiled = torch.compile(drop, fullgraph=True)
        torch.manual_seed(5)
        actual = [compiled(x), compiled(x)]
    torch.manual_seed(5)
    assert_equal(actual, [drop(x), drop(x)])
