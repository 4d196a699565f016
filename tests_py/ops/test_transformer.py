# SPDX-License-Identifier: BSD-3-Clause
"""The fast paths of nn.MultiheadAttention and nn.TransformerEncoder: one operator a layer."""

import pytest
import torch
from compare import natively
from torch import nn

BATCH, ITEMS, WIDTH, HEADS = 3, 5, 16, 4


def attention(**options):
    torch.manual_seed(0)
    return nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options).eval()


def layer(**options):
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True, **options).eval()


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def both(module, *arguments, **keywords):
    """The module's results on cpu and on loom, where nothing waited."""

    def run(device):
        return module.to(device)(
            *(a.to(device) for a in arguments),
            **{k: v.to(device) if torch.is_tensor(v) else v for k, v in keywords.items()},
        )

    with torch.no_grad():
        expected = run("cpu")
        return natively(run, "loom"), expected


def assert_close(got, expected):
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5, equal_nan=True)


CAUSAL = torch.ones(ITEMS, ITEMS, dtype=torch.bool).triu(1)
PADDING = torch.arange(ITEMS) >= torch.tensor([5, 3, 4])[:, None]


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("mask", [{}, {"attn_mask": CAUSAL}, {"key_padding_mask": PADDING}])
def test_multihead_attention(mask, weights, average):
    x = numbers(BATCH, ITEMS, WIDTH)
    got, expected = both(
        attention(), x, x, x, need_weights=weights, average_attn_weights=average, **mask
    )
    assert_close(got[0], expected[0])
    assert (got[1] is None) == (expected[1] is None) == (not weights)
    if weights:
        assert_close(got[1], expected[1])


def test_both_masks_at_once():
    x = numbers(BATCH, ITEMS, WIDTH)
    got, expected = both(attention(), x, x, x, attn_mask=CAUSAL, key_padding_mask=PADDING)
    assert_close(got[0], expected[0])


def test_queries_that_are_not_the_keys():
    q, k, v = (numbers(BATCH, ITEMS, WIDTH) + i for i in range(3))
    for arguments in ((q, k, k), (q, k, v)):
        got, expected = both(attention(), *arguments, need_weights=False)
        assert_close(got[0], expected[0])
        assert got[1] is expected[1] is None


def test_of_nothing():
    x = numbers(0, ITEMS, WIDTH)
    got, expected = both(attention(), x, x, x, need_weights=False)
    assert got[0].shape == expected[0].shape
    assert got[1] is expected[1] is None


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=str)
@pytest.mark.parametrize("mask", [{}, {"src_mask": CAUSAL}, {"src_key_padding_mask": PADDING}])
def test_encoder_layer(mask, options):
    got, expected = both(layer(**options), numbers(BATCH, ITEMS, WIDTH), **mask)
    assert_close(got, expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("nested", [True, False])
def test_encoder_with_padding(nested):
    module = nn.TransformerEncoder(layer(), 2, enable_nested_tensor=nested).eval()
    x = numbers(BATCH, ITEMS, WIDTH)
    with torch.no_grad():
        expected = module(x, src_key_padding_mask=PADDING)
        got = module.to("loom")(x.to("loom"), src_key_padding_mask=PADDING.to("loom"))
    assert_close(got, expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_nested_inputs():
    parts = [numbers(n, WIDTH) for n in (5, 2, 4)]

    def run(device):
        x = torch.nested.nested_tensor([p.to(device) for p in parts])
        result, weights = attention().to(device)(x, x, x, need_weights=False)
        assert weights is None
        return result.unbind()

    with torch.no_grad():
        for got, expected in zip(run("loom"), run("cpu"), strict=True):
            assert_close(got, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes(dtype):
    x = numbers(BATCH, ITEMS, WIDTH).to(dtype)
    got, expected = both(attention(dtype=dtype), x, x, x, need_weights=False)
    torch.testing.assert_close(got[0].cpu(), expected[0], rtol=4e-2, atol=2e-2)


def test_masked_softmax_by_every_type_of_mask():
    x = numbers(BATCH, HEADS, ITEMS, ITEMS)
    softmax = torch._masked_softmax
    whole = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) > 0.5
    whole[0, 0, 0] = True
    for mask, kind in ((CAUSAL, 0), (PADDING, 1), (whole, 2), (whole, None)):
        for dim in (-1, 3) if kind != 2 else (-1, 1, 0):
            expected = softmax(x, mask, dim, kind)
            assert_close(natively(softmax, x.to("loom"), mask.to("loom"), dim, kind), expected)


def test_masks_of_wrong_shapes_are_refused_at_the_call():
    x = numbers(BATCH, HEADS, ITEMS, ITEMS)
    for mask, kind in ((CAUSAL, 1), (PADDING, 0), (CAUSAL[0], 2), (PADDING, 2), (CAUSAL, 7)):
        with pytest.raises(RuntimeError) as expected:
            torch._masked_softmax(x, mask, -1, kind)
        with pytest.raises(RuntimeError) as got:
            torch._masked_softmax(x.to("loom"), mask.to("loom"), -1, kind)
        assert str(got.value).splitlines()[0] == str(expected.value).splitlines()[0]
    torch.loom.synchronize()
