# SPDX-License-Identifier: BSD-3-Clause
"""How recurrent layers and cells are made and compared."""

import copy
import functools

import pytest
import torch
from compare import assert_same, natively, to_loom
from torch import nn

OWN = "RecurrentLayerFunction"
LAYERS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": functools.partial(nn.RNN, nonlinearity="relu"),
}
CELLS = {
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
    "tanh": nn.RNNCell,
    "relu": functools.partial(nn.RNNCell, nonlinearity="relu"),
}
every_kind = pytest.mark.parametrize("kind", LAYERS)


def numbers(*shape, seed=31):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def twins(kind, *sizes, made_of=LAYERS, **options):
    torch.manual_seed(0)
    layer = made_of[kind](*sizes, **options)
    return layer, copy.deepcopy(layer).to("loom")


def state_of(kind, *shape, seed=1):
    """An initial state, as layers of a kind take it."""
    hidden = numbers(*shape, seed=seed)
    return (hidden, numbers(*shape, seed=seed + 1)) if kind == "lstm" else hidden


def tensors(state):
    return list(state) if isinstance(state, tuple) else [] if state is None else [state]


def with_gradients(layer, x, state=None):
    """Results, and gradients of everything that has one, through all results."""
    x = x.detach().requires_grad_()
    leaves = [part.detach().requires_grad_() for part in tensors(state)]
    given = tuple(leaves) if isinstance(state, tuple) else leaves[0] if leaves else None
    output, last = layer(x, given)
    weights = torch.linspace(0.5, 1.5, output.numel()).view(output.shape).to(output.device)
    loss = (output * weights).sum()
    for i, part in enumerate(tensors(last)):
        loss = loss + (part.sin().sum() if i else part.square().sum())
    loss.backward()
    inputs = [x, *leaves, *layer.parameters()]
    results = [output, *tensors(last)]
    return [result.detach() for result in results], [leaf.grad for leaf in inputs]


def agree(layer, twin, x, state=None):
    expected, gradients = with_gradients(layer, x, state)
    results, found = natively(with_gradients, twin, to_loom(x), to_loom(state))
    assert_same(results, expected)
    assert_same(found, gradients, strides=False)


def nodes(tensor):
    """The names of all nodes behind a tensor, in one text."""
    seen, waiting = set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting.extend(following for following, _ in node.next_functions)
    return " ".join(node.name() for node in seen)
