# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers and cells: what is one command each, and what stays PyTorch's composite."""

import copy

import pytest
import torch
from compare import assert_same, natively, to_loom
from recurrent_support import (
    CELLS,
    OWN,
    agree,
    every_kind,
    nodes,
    numbers,
    state_of,
    tensors,
    twins,
    with_gradients,
)
from torch import nn


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("given", [False, True])
@every_kind
def test_options(kind, bidirectional, batch_first, bias, given):
    layer, twin = twins(
        kind, 12, 20, num_layers=2, bidirectional=bidirectional, batch_first=batch_first, bias=bias
    )
    x = numbers(5, 7, 12) if batch_first else numbers(7, 5, 12)
    state = state_of(kind, 4 if bidirectional else 2, 5, 20) if given else None
    agree(layer, twin, x, state)


@pytest.mark.parametrize("batch", [1, 3])
@every_kind
def test_both_directions_beside_each_other(kind, batch):
    """Neither has memory of the other one, packed weights too; what is replayed is the same."""
    layer, twin = twins(kind, 40, 96, num_layers=2, bidirectional=True)
    x = numbers(40, batch, 40)
    on_loom = x.to("loom")
    with torch.inference_mode():
        expected = layer(x)[0]
        results = [twin(on_loom)[0] for _ in range(3)]
        graph = torch.accelerator.Graph()
        with torch.loom.graph(graph):
            results.append(twin(on_loom)[0])
        graph.replay()
        for result in results:
            torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)


# Sequence, batch, features, units: parts of groups, weights packed or not, and cut by units, by
# samples, or not at all.
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 3, 1),
        (1, 3, 17, 33),
        (3, 2, 8, 16),
        (9, 2, 3, 5),
        (40, 1, 24, 48),
        (6, 33, 64, 64),
        (40, 40, 64, 64),
        (5, 1, 256, 256),
        (36, 1, 256, 256),
        (5, 17, 32, 256),
        (5, 18, 32, 200),
        (9, 70, 17, 300),
    ],
)
@pytest.mark.parametrize("reversed_too", [False, True])
@every_kind
def test_sizes(kind, sizes, reversed_too):
    steps, batch, features, units = sizes
    layer, twin = twins(kind, features, units, bidirectional=reversed_too)
    agree(layer, twin, numbers(steps, batch, features))


@every_kind
def test_one_sequence_without_a_batch(kind):
    layer, twin = twins(kind, 6, 20)
    agree(layer, twin, numbers(9, 6))


@every_kind
def test_strided_operands(kind):
    layer, twin = twins(kind, 6, 20, num_layers=2)
    x = numbers(6, 5, 9).permute(2, 1, 0)
    state = [part.permute(2, 1, 0) for part in tensors(state_of(kind, 20, 5, 2, seed=3))]
    state = tuple(state) if kind == "lstm" else state[0]
    expected, gradients = with_gradients(layer, x, state)
    results, found = with_gradients(twin, to_loom(x), to_loom(state))
    assert_same(results, expected)
    assert_same(found, gradients, strides=False)


@every_kind
def test_negative_views(kind):
    layer, twin = twins(kind, 6, 20)
    x, state = numbers(7, 5, 6), state_of(kind, 1, 5, 20, seed=3)
    mine = [torch._neg_view(-part.to("loom")) for part in tensors(state)]
    mine = tuple(mine) if kind == "lstm" else mine[0]
    output, _ = twin(x.to("loom"), mine)
    expected, _ = layer(x, state)
    assert_same(output.detach(), expected.detach())
    leaves = [list(module.parameters()) for module in (twin, layer)]
    grad = numbers(7, 5, 20, seed=5)
    assert_same(
        torch.autograd.grad(output, leaves[0], torch._neg_view(-grad.to("loom"))),
        torch.autograd.grad(expected, leaves[1], grad),
        strides=False,
    )


@every_kind
def test_each_layer_and_direction_is_one_node(kind):
    _, twin = twins(kind, 12, 20, num_layers=3, bidirectional=True)
    output, _ = twin(numbers(7, 5, 12).to("loom"))
    names = nodes(output)
    assert names.count(OWN) == 6
    assert "thnn" not in names.lower()


@every_kind
def test_dropout_between_layers(kind):
    layer, twin = twins(kind, 6, 20, num_layers=2, dropout=1.0)
    agree(layer, twin, numbers(7, 5, 6))
    agree(layer.eval(), twin.eval(), numbers(7, 5, 6))
    _, twin = twins(kind, 6, 20, num_layers=2, dropout=0.5)
    x = numbers(7, 5, 6).to("loom")
    kept = torch.randn(3, device="loom")  # the generator has a state before the seeds
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(twin(x)[0])
    assert kept.numel() == 3
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@every_kind
def test_without_gradients_results_are_the_same(kind):
    _, twin = twins(kind, 12, 256, num_layers=2)
    x = numbers(7, 5, 12).to("loom")
    expected = twin(x)[0].detach()
    with torch.no_grad():
        assert torch.equal(natively(twin, x)[0], expected)
    with torch.inference_mode():
        assert torch.equal(natively(twin, x)[0].clone(), expected)


@every_kind
def test_only_what_is_wanted(kind):
    layer, twin = twins(kind, 6, 20)
    x, state = numbers(7, 5, 6), state_of(kind, 1, 5, 20)
    for chosen in (["weight_hh_l0"], ["bias_ih_l0"], ["bias_hh_l0"], []):
        found = []
        for module, device in ((layer, "cpu"), (twin, "loom")):
            given = [part.to(device) for part in tensors(state)]
            leaves = [given[-1].requires_grad_()]
            for name, parameter in module.named_parameters():
                parameter.requires_grad_(name in chosen)
                leaves += [parameter] if name in chosen else []
            _, last = module(x.to(device), tuple(given) if kind == "lstm" else given[0])
            found.append(torch.autograd.grad(tensors(last)[0].sum(), leaves))
        assert_same(found[1], found[0], strides=False)


@every_kind
def test_gradients_of_gradients(kind):
    layer, twin = twins(kind, 6, 20, num_layers=2, bidirectional=True)

    def penalty(module, x):
        x = x.detach().requires_grad_()
        output, last = module(x)
        inputs = [x, *module.parameters()]
        loss = output.square().sum() + sum(part.sum() for part in tensors(last))
        first = torch.autograd.grad(loss, inputs, create_graph=True)
        # Sums of large numbers leave rounding errors that are large beside small gradients.
        return torch.autograd.grad(sum(grad.square().sum() for grad in first) / 100, inputs)

    # cpu's own kernel for float32 has no second derivative of every form: double has.
    x = numbers(7, 3, 6)
    expected = [grad.float() for grad in penalty(copy.deepcopy(layer).double(), x.double())]
    assert_same(penalty(twin, x.to("loom")), expected, strides=False)


@every_kind
def test_batched_gradients(kind):
    _, twin = twins(kind, 6, 20)
    x = numbers(7, 5, 6).to("loom").requires_grad_()
    output, _ = twin(x)
    grads = numbers(3, *output.shape, seed=5).to("loom")
    (together,) = torch.autograd.grad(output, x, grads, is_grads_batched=True, retain_graph=True)
    for grad, expected in zip(grads, together, strict=True):
        (own,) = torch.autograd.grad(output, x, grad, retain_graph=True)
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)


def test_backward_uses_what_it_saved_once():
    _, twin = twins("lstm", 6, 20)
    output, _ = twin(numbers(7, 5, 6).to("loom"))
    output.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        output.sum().backward()


def test_backward_finds_a_changed_operand():
    _, twin = twins("lstm", 6, 20)
    output, _ = twin(numbers(7, 5, 6).to("loom"))
    with torch.no_grad():
        twin.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


@every_kind
def test_numbers_that_are_none(kind):
    layer, twin = twins(kind, 4, 20)
    x = numbers(5, 3, 4)
    x[1, 0, 0], x[2, 1, 1], x[2, 2, 1] = torch.nan, torch.inf, -torch.inf
    assert_same(twin(to_loom(x))[0].detach(), layer(x)[0].detach())
    large = 1e4 * numbers(5, 3, 4)
    assert_same(twin(to_loom(large))[0].detach(), layer(large)[0].detach())


def packed(module, x, lengths, enforce_sorted=True, state=None):
    """What with_gradients() calls: a layer of a packed sequence, its output padded."""
    sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
    output, last = module(sequence, state)
    return nn.utils.rnn.pad_packed_sequence(output)[0], last


class Packed(nn.Module):
    def __init__(self, layer, *options):
        super().__init__()
        self.layer, self.options = layer, options

    def forward(self, x, state=None):
        return packed(self.layer, x, *self.options, state=state)


# Lengths: some end together, all do, and steps enough that samples are cut into blocks.
@pytest.mark.parametrize("lengths", [[7, 5, 5, 2], [4, 4, 4], [5], [40] * 9 + [31] * 16 + [7] * 15])
@pytest.mark.parametrize("given", [False, True])
@every_kind
def test_packed_sequences(kind, lengths, given):
    units = 64 if len(lengths) > 9 else 20
    layer, twin = twins(kind, 6, units, num_layers=2, bidirectional=True)
    state = state_of(kind, 4, len(lengths), units) if given else None
    x = numbers(max(lengths), len(lengths), 6)
    expected, gradients = with_gradients(Packed(layer, lengths), x, state)
    results, found = with_gradients(Packed(twin, lengths), to_loom(x), to_loom(state))
    assert_same(results, expected, strides=False)
    assert_same(found, gradients, strides=False)
    output, _ = Packed(twin, lengths)(to_loom(x))
    assert nodes(output).count(OWN) == 4


@every_kind
def test_packed_sequences_that_are_not_sorted(kind):
    layer, twin = twins(kind, 6, 20)
    x, lengths = numbers(7, 3, 6), torch.tensor([5, 2, 7])
    expected, gradients = with_gradients(Packed(layer, lengths, False), x)
    results, found = with_gradients(Packed(twin, lengths, False), to_loom(x))
    assert_same(results, expected, strides=False)
    assert_same(found, gradients, strides=False)


@every_kind
def test_gradients_of_gradients_of_packed_sequences(kind):
    layer, twin = twins(kind, 3, 5, bidirectional=True)
    state = [part.double() for part in tensors(state_of(kind, 2, 3, 5))]
    x, lengths = numbers(4, 3, 3).double(), [4, 2, 1]

    def penalty(module, x, *state):
        leaves = [x, *state]
        given = None if not state else state if kind == "lstm" else state[0]
        output, last = packed(module, x, lengths, state=given)
        loss = output.square().sum() + sum(part.sin().sum() for part in tensors(last))
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        return torch.autograd.grad(sum(grad.square().sum() for grad in first), leaves)

    leaves = [leaf.requires_grad_() for leaf in (x, *state)]
    expected = [grad.float() for grad in penalty(copy.deepcopy(layer).double(), *leaves)]
    mine = [leaf.detach().float().to("loom").requires_grad_() for leaf in leaves]
    assert_same(penalty(twin, *mine), expected, strides=False)


@pytest.mark.parametrize("sizes", [(1, 3, 1), (5, 12, 20), (64, 32, 100), (1, 256, 256)])
@pytest.mark.parametrize("bias", [False, True])
@every_kind
def test_cells(kind, sizes, bias):
    batch, features, units = sizes
    cell, twin = twins(kind, features, units, bias=bias, made_of=CELLS)

    def run(module, x, *state):
        leaves = [x, *state]
        for leaf in leaves:
            leaf.requires_grad_()
        given = None if not state else state if kind == "lstm" else state[0]
        results = tensors(module(x, given))
        sum(result.square().sum() for result in results).backward()
        return [result.detach() for result in results], [
            leaf.grad for leaf in (*leaves, *module.parameters())
        ]

    x, state = numbers(batch, features), tensors(state_of(kind, batch, units))
    for given in ((), state):
        expected, gradients = run(cell, x.clone(), *[part.clone() for part in given])
        results, found = natively(run, twin, x.to("loom"), *[part.to("loom") for part in given])
        assert_same(results, expected)
        assert_same(found, gradients, strides=False)
        cell.zero_grad()
        twin.zero_grad()
    one = to_loom(x[0]), to_loom(tuple(part[0] for part in state))
    expected = cell(x[0], tuple(part[0] for part in state) if kind == "lstm" else state[0][0])
    got = twin(one[0], one[1] if kind == "lstm" else one[1][0])
    assert_same([part.detach() for part in tensors(got)], [p.detach() for p in tensors(expected)])
    assert (OWN in nodes(tensors(got)[0])) == (kind in ("lstm", "gru"))
