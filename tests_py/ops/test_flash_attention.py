# SPDX-License-Identifier: BSD-3-Clause
"""Attention's own kernels: sizes that fill no tile, masks, layouts, what is not a number."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attend

LOOM = "loom"
DTYPES = [torch.float32, torch.bfloat16]

# batch, heads, queries, keys, elements
SIZES = [
    (2, 3, 64, 64, 64),
    (2, 3, 197, 197, 64),
    (1, 2, 130, 600, 80),  # more keys than are summed at once, two panels of elements
    (1, 2, 600, 130, 32),
    (1, 1, 49, 33, 256),
    (1, 1, 17, 33, 256),  # few queries: ATen's kernel in float32
    (3, 17, 48, 48, 8),  # many items, several of them a block
    (1, 3, 1100, 1100, 16),  # several blocks of queries an item
    (1, 2, 300, 1, 16),
]


def reference(query, key, value, *, mask=None, causal=False, scale=None):
    """Attention in float64, written out."""
    scores = query @ key.mT * (scale or 1 / math.sqrt(query.shape[-1]))
    if causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~visible, -torch.inf)
    if mask is not None:
        scores = scores + mask
    hidden = (scores == -torch.inf).all(-1, keepdim=True)
    return scores.masked_fill(hidden, 0).softmax(-1).masked_fill(hidden, 0) @ value


def with_gradients(function, tensors, grad):
    leaves = [t.detach().requires_grad_() for t in tensors]
    result = function(*leaves)
    result.backward(grad)
    return [result.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)]


def check(tensors, grad, *, mask=None, causal=False, scale=None, tolerance=1e-6):
    """As near to float64 as cpu is, give or take the order of sums."""
    exact = with_gradients(
        lambda *x: reference(*x, mask=mask, causal=causal, scale=scale),
        [t.double() for t in tensors],
        grad.double(),
    )

    def on(device):
        return with_gradients(
            lambda *x: attend(
                *x,
                attn_mask=None if mask is None else mask.to(device),
                is_causal=causal,
                scale=scale,
            ),
            [t.to(device) for t in tensors],
            grad.to(device),
        )

    for mine, theirs, true in zip(on(LOOM), on("cpu"), exact, strict=True):
        assert mine.dtype == theirs.dtype
        bound = 3 * (theirs.double() - true).abs().max() + tolerance
        assert (mine.double() - true).abs().max() <= bound


def tensors_of(batch, heads, queries, keys, elements, dtype):
    torch.manual_seed(queries + keys)
    made = [
        torch.randn(batch, n, heads, elements, dtype=dtype).transpose(1, 2)
        for n in (queries, keys, keys, queries)
    ]
    return made[:3], made[3]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes(sizes, causal, dtype):
    check(*tensors_of(*sizes, dtype), causal=causal)


MASKS = {
    "full": lambda b, h, q, k: torch.randn(b, h, q, k),
    "one for all": lambda b, h, q, k: torch.randn(q, k),
    "padding": lambda b, h, q, k: torch.where(torch.rand(b, 1, 1, k) > 0.3, 0.0, -torch.inf),
    "a row hidden": lambda b, h, q, k: torch.zeros(b, h, q, k).index_fill(
        2, torch.tensor([0, q - 1]), -torch.inf
    ),
    "one column": lambda b, h, q, k: torch.randn(q, 1).expand(q, k),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", MASKS)
@pytest.mark.parametrize("sizes", [(2, 3, 70, 90, 16), (1, 2, 53, 530, 24)], ids=str)
def test_masks(sizes, form, dtype):
    tensors, grad = tensors_of(*sizes, dtype)
    check(tensors, grad, mask=MASKS[form](*sizes[:4]).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [0.5, -0.25, 1e-9])
def test_scales(scale, dtype):
    check(*tensors_of(1, 2, 60, 40, 16, dtype), scale=scale)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts(dtype):
    torch.manual_seed(0)
    packed = torch.randn(2, 50, 3, 4, 32, dtype=dtype)
    grad = torch.randn(2, 4, 50, 32, dtype=dtype)
    parts = [packed[:, :, i].transpose(1, 2) for i in range(3)]
    check(parts, grad.mT.contiguous().mT)  # elements apart: ATen's kernel
    check(parts, torch.ones(1, dtype=dtype).expand(grad.shape))
    check([p.contiguous() for p in parts], grad)
    check([p[:, :1].expand(2, 4, 50, 32) for p in parts], grad)
    check([p[..., 1:20] for p in parts], grad[..., 1:20])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_score_that_is_not_a_number_reaches_its_row_only(dtype):
    (query, key, value), _ = tensors_of(1, 2, 50, 70, 16, dtype)
    query[0, 1, 3, 2] = torch.nan
    query[0, 0, 5, 2] = torch.inf
    hidden = torch.full((50, 70), -torch.inf, dtype=dtype)
    for mask in (None, hidden):
        expected = attend(query, key, value, attn_mask=mask)
        mask = None if mask is None else mask.to(LOOM)
        mine = attend(query.to(LOOM), key.to(LOOM), value.to(LOOM), attn_mask=mask).cpu()
        tolerance = 1e-5 if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(mine, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert expected.isnan().any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_large_scores_do_not_overflow(dtype):
    tensors, grad = tensors_of(1, 2, 50, 70, 16, dtype)
    # One weight is 1, and gradients of scores are 0: what remains is the rounding of two sums.
    check([tensors[0] * 100, tensors[1] * 100, tensors[2]], grad, tolerance=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("elements", [24, 80])  # with scales that are no powers of two
@pytest.mark.parametrize("magnitude", [1e3, 1e5, 1e6])
def test_the_largest_of_huge_scores_has_all_the_weight(magnitude, elements, dtype):
    (query, key, value), _ = tensors_of(2, 2, 70, 60, elements, dtype)
    query, key = query * magnitude, key * magnitude
    mine = attend(*(t.to(LOOM) for t in (query, key, value))).cpu()
    torch.testing.assert_close(mine, attend(query, key, value), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("keys", "values"), [(40, 60), (300, 260)])
def test_fewer_or_more_values_than_keys_are_refused(keys, values):
    query, key, value = (torch.randn(1, 2, n, 16, device=LOOM) for n in (50, keys, values))
    with pytest.raises(RuntimeError, match=f"as many values as keys, got {values} and {keys}"):
        attend(query, key, value)


def test_results_do_not_depend_on_what_else_is_in_the_batch():
    tensors, _ = tensors_of(3, 17, 50, 70, 16, torch.float32)
    whole = attend(*(t.to(LOOM) for t in tensors), is_causal=True)
    one = attend(*(t[1:2, 3:4].to(LOOM) for t in tensors), is_causal=True)
    assert torch.equal(whole[1:2, 3:4], one)
