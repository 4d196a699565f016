# SPDX-License-Identifier: BSD-3-Clause
"""Pooling, recurrent cells, attention and fused optimisers: what layers are made of."""

import copy

import pytest
import torch
from compare import agrees, assert_same, gradients_agree, natively, to_loom

F = torch.nn.functional


def numbers(*shape, seed=31):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(8, 4, 33, 20), (4, 33, 20), (1, 2, 8, 8)])
@pytest.mark.parametrize("format_", [torch.contiguous_format, torch.channels_last])
def test_pooling(shape, format_):
    x = numbers(*shape)
    if len(shape) == 4:
        x = x.contiguous(memory_format=format_)
    for function in (
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(x, 3, stride=2, padding=1),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, 3, padding=1, count_include_pad=False),
    ):
        agrees(function, x)
        gradients_agree(function, x)
    agrees(lambda x: F.max_pool2d(x, 2, return_indices=True), x)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_layers(kind, bias):
    torch.manual_seed(0)
    layer = kind(12, 20, num_layers=2, bidirectional=True, bias=bias)
    twin = copy.deepcopy(layer).to("loom")
    x = numbers(7, 5, 12)
    expected, state = layer(x)
    result, my_state = natively(twin, x.to("loom"))
    assert_same((result, my_state), (expected, state), strides=False)
    expected.square().sum().backward()
    natively(lambda: result.square().sum().backward())
    for mine, theirs in zip(twin.parameters(), layer.parameters(), strict=True):
        assert_same(mine.grad, theirs.grad, strides=False)


@pytest.mark.parametrize("kind", [torch.nn.LSTMCell, torch.nn.GRUCell])
def test_recurrent_cells(kind):
    torch.manual_seed(0)
    cell = kind(12, 20)
    twin = copy.deepcopy(cell).to("loom")
    x = numbers(5, 12)
    assert_same(natively(twin, x.to("loom")), cell(x), strides=False)


@pytest.mark.parametrize("shape", [(8, 2, 33, 16), (1, 6, 70, 32), (2, 3, 1, 8)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(shape, causal):
    query, key, value = (numbers(*shape, seed=seed) for seed in (1, 2, 3))

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    agrees(attend, query, key, value, strides=False)
    gradients_agree(attend, query, key, value)
    gradients_agree(
        lambda q, k, v: attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)),
        *(x.transpose(1, 2).contiguous() for x in (query, key, value)),
    )


def test_attention_with_masks_and_grouped_queries():
    query, key, value = (numbers(4, 6, 20, 16, seed=seed) for seed in (1, 2, 3))
    for mask in (numbers(20, 20), numbers(4, 1, 20, 20), numbers(1, 6, 20, 20) > -1):
        agrees(
            lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
            query,
            key,
            value,
            mask,
            strides=False,
        )
    agrees(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3, enable_gqa=True),
        query,
        key[:, :2],
        value[:, :2],
        strides=False,
    )
    agrees(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        query,
        key[:, :, :5],
        value[:, :, :5],
        strides=False,
    )


def test_multi_head_attention():
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    twin = copy.deepcopy(layer).to("loom")
    x = numbers(3, 10, 32)
    expected = layer(x, x, x)
    mine = x.to("loom")
    assert_same(twin(mine, mine, mine), expected, strides=False)


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, 0.01, fused=True, weight_decay=0.1, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "adamw, learning rate on the device": lambda p: torch.optim.AdamW(
        p, torch.tensor(0.01, device=p[0].device), fused=True
    ),
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, fused=True),
    "plain sgd": lambda p: torch.optim.SGD(p, 0.1, fused=True),
    "adam, not fused": lambda p: torch.optim.Adam(p, 0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    parameters = [numbers(300, 700), numbers(5), numbers(40, 30).t(), numbers()]
    mine, theirs = to_loom(parameters), [x.clone() for x in parameters]
    steps = OPTIMIZERS[name](theirs), OPTIMIZERS[name](mine)
    for step in range(3):
        for a, b in zip(mine, theirs, strict=True):
            b.grad = torch.sin(b + step)
            a.grad = torch.sin(a + step)
        steps[0].step()
        natively(steps[1].step)
    assert_same(mine, theirs)


def test_optimizer_steps_are_skipped_when_gradients_overflow():
    parameter = numbers(10).to("loom")
    before = parameter.clone()
    parameter.grad = torch.full_like(parameter, float("inf"))
    scaler = torch.amp.GradScaler("loom")
    optimizer = torch.optim.Adam([parameter], 0.1, fused=True)
    scaler.scale(torch.ones((), device="loom"))
    scaler.step(optimizer)
    assert torch.equal(parameter, before)
