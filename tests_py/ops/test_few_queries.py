# SPDX-License-Identifier: BSD-3-Clause
"""Attention of a few queries over a cache, as decoding has it: grouped heads, masks, layouts."""

import pytest
import torch
from compare import natively
from torch.nn.functional import scaled_dot_product_attention as attend

LOOM = "loom"
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TOLERANCES = {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}

# batch, heads of queries, heads of keys, queries, keys, elements
SIZES = [
    (1, 12, 12, 1, 1024, 64),
    (2, 12, 4, 1, 777, 64),
    (1, 32, 8, 1, 300, 128),
    (1, 6, 2, 3, 100, 80),  # rows that fill no group, elements that fill no vector
    (3, 4, 4, 5, 33, 33),
    (1, 4, 1, 8, 129, 256),
    (1, 2, 1, 1, 1, 1),
    (2, 8, 2, 1, 5000, 64),  # several parts
    (40, 2, 1, 2, 17, 20),  # several heads make a block
]


def tensors_of(batch, heads, key_heads, queries, keys, elements, dtype):
    generator = torch.Generator().manual_seed(keys + elements)

    def made(count, positions):
        shape = (batch, count, positions, elements)
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    return made(heads, queries), made(key_heads, keys), made(key_heads, keys)


def exact(query, key, value, mask=None, causal=False):
    """In float64, on cpu; 0 where nothing is visible."""
    group = query.shape[1] // key.shape[1]
    key, value = (t.double().repeat_interleave(group, 1) for t in (key, value))
    scores = query.double() @ key.mT * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask.double()
    if causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(1)
    hidden = (scores == -torch.inf).all(-1, keepdim=True)
    return scores.masked_fill(hidden, 0).softmax(-1).masked_fill(hidden, 0) @ value


def as_it_lies(tensor):
    """On loom with the strides that it has, gaps and all."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    whole = tensor.as_strided((elements,), (1,), 0).to(LOOM)
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def check(query, key, value, mask=None, causal=False, grouped=None):
    grouped = query.shape[1] != key.shape[1] if grouped is None else grouped
    on_loom = [as_it_lies(t) for t in (query, key, value)]
    on_loom.append(None if mask is None else mask.to(LOOM))
    mine = natively(
        attend, *on_loom[:3], attn_mask=on_loom[3], is_causal=causal, enable_gqa=grouped
    )
    theirs = attend(query, key, value, attn_mask=mask, is_causal=causal, enable_gqa=grouped)
    assert mine.dtype == theirs.dtype
    assert mine.stride() == theirs.stride()
    bound = TOLERANCES[query.dtype]
    torch.testing.assert_close(
        mine.cpu().double(), exact(query, key, value, mask, causal), rtol=bound, atol=bound
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes(sizes, dtype):
    check(*tensors_of(*sizes, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("queries", [5, 70])
def test_causal_queries(queries, dtype):
    tensors = tensors_of(2, 8, 2, queries, 90, 32, dtype)
    check(*tensors, causal=True)
    check(tensors[0], *(t[:, :, :queries] for t in tensors[1:]), causal=True)


MASKS = {
    "full": lambda b, h, q, k: torch.randn(b, h, q, k),
    "one for all": lambda b, h, q, k: torch.randn(q, k),
    "padding": lambda b, h, q, k: torch.where(torch.rand(b, 1, 1, k) > 0.3, 0.0, -torch.inf),
    "a cache that is not full": lambda b, h, q, k: torch.zeros(b, 1, q, k).index_fill(
        3, torch.arange(k // 3, k), -torch.inf
    ),
    "a window": lambda b, h, q, k: torch.full((1, 1, q, k), -torch.inf).index_fill(
        3, torch.arange(k // 2, k // 2 + 40), 0.0
    ),
    "a row hidden": lambda b, h, q, k: torch.zeros(b, h, q, k).index_fill(
        2, torch.tensor([0, q - 1]), -torch.inf
    ),
    "a head hidden": lambda b, h, q, k: torch.zeros(b, h, q, k).index_fill(
        1, torch.tensor([1]), -torch.inf
    ),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", MASKS)
@pytest.mark.parametrize("sizes", [(2, 8, 2, 1, 700, 64), (1, 3, 3, 4, 90, 40)], ids=str)
def test_masks(sizes, form, dtype):
    torch.manual_seed(0)
    batch, heads, _, queries, keys, _ = sizes
    check(*tensors_of(*sizes, dtype), mask=MASKS[form](batch, heads, queries, keys).to(dtype))


def test_masks_of_bool():
    query, key, value = tensors_of(2, 4, 2, 1, 200, 64, torch.float32)
    visible = torch.rand(2, 1, 1, 200) > 0.5
    mine = attend(
        query.to(LOOM),
        key.to(LOOM),
        value.to(LOOM),
        attn_mask=visible.to(LOOM),
        enable_gqa=True,
    )
    mask = torch.zeros(visible.shape).masked_fill(~visible, -torch.inf)
    expected = exact(query, key, value, mask)
    torch.testing.assert_close(mine.cpu().double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts(dtype):
    query, key, value = tensors_of(2, 8, 2, 3, 100, 64, dtype)
    for tensors in (
        (query, key[:, :, 10:60], value[:, :, 20:70]),  # a part of a cache
        (query, *(t.transpose(1, 2).contiguous().transpose(1, 2) for t in (key, value))),
        (query[..., :40], key[..., 3:43], value[..., 1:41]),
        (query[:1].expand(2, -1, -1, -1), key, value[:1].expand(2, -1, -1, -1)),
        (query, key[:, :1].expand(2, 2, 100, 64), value),
        (query, key.mT.contiguous().mT, value),  # elements apart
    ):
        check(*tensors)


@pytest.mark.parametrize("queries", [1, 64])
def test_grouped_heads_have_gradients(queries):
    tensors = tensors_of(2, 4, 2, queries, 70, 16, torch.float32)

    def gradients(device):
        leaves = [t.to(device).requires_grad_() for t in tensors]
        attend(*leaves, enable_gqa=True).square().sum().backward()
        return [leaf.grad.cpu() for leaf in leaves]

    for mine, theirs in zip(gradients(LOOM), gradients("cpu"), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_score_that_is_not_a_number_reaches_its_row_only(dtype):
    query, key, value = tensors_of(1, 4, 2, 2, 700, 16, dtype)
    query[0, 1, 1, 2] = torch.nan
    query[0, 3, 0, 2] = torch.inf
    mine = attend(*(t.to(LOOM) for t in (query, key, value)), enable_gqa=True).cpu()
    spoilt = mine.isnan().all(-1)
    assert spoilt.nonzero().tolist() == [[0, 1, 1], [0, 3, 0]]
    assert not mine[~spoilt].isnan().any()


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("magnitude", [1e3, 1e6])
def test_the_largest_of_huge_scores_has_all_the_weight(magnitude, dtype):
    query, key, value = tensors_of(2, 2, 2, 2, 600, 24, dtype)
    mine = attend(*(t.to(LOOM) for t in (query * magnitude, key * magnitude, value))).cpu()
    theirs = attend(query * magnitude, key * magnitude, value)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_results_do_not_depend_on_what_else_is_in_the_batch():
    query, key, value = (t.to(LOOM) for t in tensors_of(3, 6, 2, 2, 900, 64, torch.float32))
    whole = attend(query, key, value, enable_gqa=True)
    one = attend(query[1:2, 3:6], key[1:2, 1:], value[1:2, 1:], enable_gqa=True)
    assert torch.equal(whole[1:2, 3:6], one)


@pytest.mark.thorough
def test_results_do_not_depend_on_the_number_of_threads(check):
    program = """
import hashlib, torch, torch_loom
torch.manual_seed(0)
for shape in ((1, 12, 4, 1, 3000, 64), (4, 8, 8, 3, 200, 80)):
    batch, heads, key_heads, queries, keys, elements = shape
    query = torch.randn(batch, heads, queries, elements)
    key, value = torch.randn(2, batch, key_heads, keys, elements)
    made = torch.nn.functional.scaled_dot_product_attention(
        query.to("loom"), key.to("loom"), value.to("loom"), enable_gqa=True)
    print(hashlib.sha256(made.cpu().numpy().tobytes()).hexdigest())
"""
    one, two, eight = (check(program, LOOM_THREADS=threads).out for threads in ("1", "2", "8"))
    assert one == two == eight
