# SPDX-License-Identifier: BSD-3-Clause
"""Activation checkpointing: less memory, the same gradients and the same dropout."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

LOOM = "loom"
BOTH = pytest.mark.parametrize("reentrant", [False, True], ids=["by hooks", "reentrant"])


pytestmark = pytest.mark.usefixtures("no_fallback")


class Block(nn.Module):
    def __init__(self, width, dropout=0.0):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        return x + self.down(self.dropout(torch.relu(self.up(x))))


def blocks(count=4, width=16, dropout=0.0):
    return nn.Sequential(*[Block(width, dropout) for _ in range(count)]).to(LOOM)


def plain(network, x):
    return network(x)


def by_block(network, x, **options):
    for block in network:
        x = checkpoint(block, x, **options)
    return x


def step(run, network, x, seed=7):
    """Result and gradients of one step, from the same random numbers each time."""
    network.zero_grad()
    x = x.detach().requires_grad_()
    torch.manual_seed(seed)
    result = run(network, x)
    assert result.is_loom
    result.square().sum().backward()
    return [result.detach(), x.grad, *(p.grad.clone() for p in network.parameters())]


@BOTH
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_are_those_without_checkpoints(reentrant, dropout):
    network = blocks(dropout=dropout)
    x = torch.randn(8, 16, device=LOOM)
    expected = step(plain, network, x)
    assert all(block.runs == 1 for block in network)
    result = step(partial(by_block, use_reentrant=reentrant), network, x)
    assert all(block.runs == 3 for block in network)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


def test_gradients_agree_with_cpu():
    network = blocks()
    x = torch.randn(8, 16)
    run = partial(by_block, use_reentrant=False)
    mine = [t.cpu() for t in step(run, network, x.to(LOOM))]
    network.cpu()
    x = x.requires_grad_()
    network.zero_grad()
    result = run(network, x)
    result.square().sum().backward()
    theirs = [result.detach(), x.grad, *(p.grad for p in network.parameters())]
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@BOTH
def test_random_numbers_after_the_backward_go_on_as_before(reentrant):
    network = blocks(dropout=0.5)
    x = torch.randn(8, 16, device=LOOM)
    step(plain, network, x)
    expected = torch.rand(5, device=LOOM)
    step(partial(by_block, use_reentrant=reentrant), network, x)
    assert torch.equal(torch.rand(5, device=LOOM), expected)


def test_without_kept_random_numbers_dropout_differs():
    network = blocks(count=1, dropout=0.5)
    x = torch.randn(64, 16, device=LOOM)
    expected = step(plain, network, x)
    run = partial(by_block, use_reentrant=False, preserve_rng_state=False)
    result = step(run, network, x)
    assert torch.equal(result[0], expected[0])
    assert not torch.equal(result[1], expected[1])


@BOTH
def test_dropout_on_the_second_device(reentrant):
    network = blocks(count=2, dropout=0.5).to("loom:1")
    x = torch.randn(8, 16, device="loom:1")
    expected = step(plain, network, x)
    result = step(partial(by_block, use_reentrant=reentrant), network, x)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


@BOTH
def test_a_checkpoint_across_both_devices(reentrant):
    first, second = Block(8, 0.5).to("loom:0"), Block(8, 0.5).to("loom:1")

    def both(x):
        return second(first(x).to("loom:1"))

    def run(wrap):
        x = torch.ones(4, 8, device="loom:0", requires_grad=True)
        torch.manual_seed(1)
        wrap(both, x).sum().backward()
        return x.grad

    expected = run(lambda function, x: function(x))
    # Devices are found by the tensor arguments; the second one has to be named.
    result = run(
        lambda function, x: checkpoint(
            lambda x, _: function(x),
            x,
            torch.ones(1, device="loom:1"),
            use_reentrant=reentrant,
        )
    )
    assert torch.equal(result, expected)


def peak(run, network, x):
    """Bytes that one step needs at most beyond what was there."""
    step(run, network, x)  # the gradients exist from here on
    torch.loom.synchronize()
    torch.loom.reset_peak_memory_stats()
    before = torch.loom.memory_allocated()
    step(run, network, x)
    return torch.loom.max_memory_allocated() - before


@BOTH
def test_memory_is_really_saved(reentrant):
    network = blocks(count=8, width=32)
    x = torch.randn(512, 32, device=LOOM)
    everything = peak(plain, network, x)
    saved = peak(partial(by_block, use_reentrant=reentrant), network, x)
    one_block = 4 * x.numel() * x.element_size()
    assert everything > 8 * one_block
    assert saved < everything / 2


@BOTH
@pytest.mark.parametrize("segments", [1, 2, 4])
def test_sequences_in_segments(segments, reentrant):
    network = blocks(dropout=0.2)
    x = torch.randn(8, 16, device=LOOM)
    expected = step(plain, network, x)

    def run(network, x):
        return checkpoint_sequential(network, segments, x, use_reentrant=reentrant)

    torch.testing.assert_close(step(run, network, x), expected, rtol=0, atol=0)
    assert network[0].runs == (2 if segments == 1 else 3)  # the last segment is kept


class Count(torch.utils._python_dispatch.TorchDispatchMode):
    """How often an operator runs."""

    def __init__(self, operator):
        super().__init__()
        self.operator = operator
        self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += func is self.operator
        return func(*args, **(kwargs or {}))


def keep_products(context, operator, *arguments, **options):
    if operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def test_selective_checkpoints_compute_products_once():
    network = blocks(dropout=0.3)
    x = torch.randn(8, 16, device=LOOM)
    selective = partial(
        by_block,
        use_reentrant=False,
        context_fn=partial(create_selective_checkpoint_contexts, keep_products),
    )
    full = partial(by_block, use_reentrant=False)
    expected = step(plain, network, x)
    calls = {}
    for name, run in {"plain": plain, "full": full, "selective": selective}.items():
        with Count(torch.ops.aten.addmm.default) as count:
            result = step(run, network, x)
        calls[name] = count.calls
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
    # The last product of a block is needed by nobody's backward: the second run stops before it.
    assert calls == {"plain": 8, "full": 12, "selective": 8}


def test_a_list_of_operators_to_save():
    network = blocks()
    x = torch.randn(8, 16, device=LOOM)
    products = [torch.ops.aten.addmm.default, torch.ops.aten.mm.default]
    run = partial(
        by_block,
        use_reentrant=False,
        context_fn=partial(create_selective_checkpoint_contexts, products),
    )
    torch.testing.assert_close(step(run, network, x), step(plain, network, x), rtol=0, atol=0)


def test_stopping_early_can_be_turned_off():
    network = blocks(count=1)
    x = torch.randn(8, 16, device=LOOM)
    calls = []
    for early in (True, False):
        with set_checkpoint_early_stop(early), Count(torch.ops.aten.addmm.default) as count:
            step(partial(by_block, use_reentrant=False), network, x)
        calls.append(count.calls)
    assert calls == [3, 4]


@BOTH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_on_in_the_second_run_too(reentrant, dtype):
    network = blocks(count=2, dropout=0.5)
    x = torch.randn(8, 16, device=LOOM)
    seen = []
    network[0].up.register_forward_hook(lambda module, _, result: seen.append(result.dtype))

    def under_autocast(run):
        def inner(network, x):
            with torch.autocast(LOOM, dtype=dtype):
                return run(network, x).float()

        return inner

    expected = step(under_autocast(plain), network, x)
    run = partial(by_block, use_reentrant=reentrant)
    result = step(under_autocast(run), network, x)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
    assert seen == [dtype] * 3


def test_a_different_second_run_is_an_error():
    sizes = iter([8, 4])

    def changing(x):
        return (x[: next(sizes)].exp() * 2).sin()

    x = torch.ones(8, device=LOOM, requires_grad=True)
    result = checkpoint(changing, x, use_reentrant=False)
    with pytest.raises(torch.utils.checkpoint.CheckpointError, match="different metadata"):
        result.sum().backward()


def test_checkpoints_inside_checkpoints():
    network = blocks(dropout=0.5)
    x = torch.randn(8, 16, device=LOOM)
    expected = step(plain, network, x)
    inner = partial(by_block, use_reentrant=False)

    def run(network, x):
        return checkpoint(inner, network, x, use_reentrant=False)

    torch.testing.assert_close(step(run, network, x), expected, rtol=0, atol=0)
