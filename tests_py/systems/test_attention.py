# SPDX-License-Identifier: BSD-3-Clause
"""Attention: scaled dot products by every backend, mask and dtype; multi-head, flex."""

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention as attend

LOOM = "loom"
TOLERANCE = {
    torch.float64: 1e-10,
    torch.float32: 1e-5,
    torch.bfloat16: 4e-2,
    torch.float16: 4e-3,
}


pytestmark = pytest.mark.usefixtures("no_fallback")


def operands(queries=10, keys=10, *, heads=4, key_heads=None, dtype=torch.float32):
    torch.manual_seed(0)
    shapes = [(2, heads, queries, 16), *[(2, key_heads or heads, keys, 16)] * 2]
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def with_gradients(tensors, device, function):
    """The result of function, its gradients with respect to tensors, all on the host."""
    leaves = [t.detach().to(device).requires_grad_() for t in tensors]
    result = function(*leaves)
    assert result.device.type == device
    weights = torch.linspace(-1, 1, result.numel()).reshape(result.shape)
    (result * weights.to(device, result.dtype)).sum().backward()
    return [result.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves)]


def same_on_both(function, tensors, tolerance=1e-5):
    """Function gives the same values and gradients on loom as on cpu."""
    mine = with_gradients(tensors, LOOM, function)
    theirs = with_gradients(tensors, "cpu", function)
    torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


def name_of_gradient(result):
    return type(result.grad_fn).__name__


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_backends_and_data_types_agree_with_cpu(backend, dtype, causal):
    def run(*tensors):
        with sdpa_kernel(backend):
            return attend(*tensors, is_causal=causal)

    same_on_both(run, operands(dtype=dtype), TOLERANCE[dtype])


def test_the_fused_kernel_is_what_a_user_gets_by_default():
    tensors = [t.to(LOOM).requires_grad_() for t in operands()]
    assert "FusedAttention" in name_of_gradient(attend(*tensors))
    with sdpa_kernel(SDPBackend.MATH):
        assert "FusedAttention" not in name_of_gradient(attend(*tensors))


@pytest.mark.parametrize(
    "backends",
    [
        [SDPBackend.OVERRIDEABLE],
        [SDPBackend.OVERRIDEABLE, SDPBackend.MATH],
        [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION],
    ],
    ids=str,
)
def test_the_fused_kernel_answers_to_both_of_its_names(backends):
    tensors = [t.to(LOOM).requires_grad_() for t in operands()]
    with sdpa_kernel(backends, set_priority=True):
        result = attend(*tensors)
    name = name_of_gradient(result)
    assert "FusedAttention" in name
    torch.testing.assert_close(result.detach().cpu(), attend(*operands()))


@pytest.mark.limit("efficient and cuDNN attention are names of kernels that only CUDA has")
@pytest.mark.parametrize(
    "backend", [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.ERROR]
)
def test_backends_of_other_devices_are_refused_as_on_cpu(backend):
    for device in ("cpu", LOOM):
        tensors = [t.to(device) for t in operands()]
        with sdpa_kernel(backend), pytest.raises(RuntimeError, match="No viable backend"):
            attend(*tensors)


MASKS = {
    "bool": lambda: torch.rand(2, 4, 6, 9) > 0.3,
    "float": lambda: torch.randn(2, 4, 6, 9),
    "one for all": lambda: torch.randn(6, 9),
    "one for all heads": lambda: torch.randn(2, 1, 6, 9),
    "one for the batch": lambda: torch.randn(1, 4, 6, 9),
    "padding": lambda: (torch.arange(9) < torch.tensor([[9], [5]]))[:, None, None, :],
    "expanded": lambda: torch.randn(6, 9).expand(2, 4, 6, 9),
    "transposed": lambda: torch.randn(2, 4, 9, 6).mT,
}


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], ids=str)
@pytest.mark.parametrize("form", MASKS)
def test_every_form_of_mask(form, backend):
    tensors = operands(6, 9)
    mask = MASKS[form]()

    def run(q, k, v):
        with sdpa_kernel([backend, SDPBackend.MATH]):
            return attend(q, k, v, attn_mask=mask.to(q.device))

    same_on_both(run, tensors)


def test_a_learned_mask_gets_its_gradient():
    tensors = [*operands(6, 9), torch.randn(4, 6, 9)]
    same_on_both(lambda q, k, v, mask: attend(q, k, v, attn_mask=mask), tensors)


def test_a_mask_and_causal_together_are_refused():
    q, k, v = (t.to(LOOM) for t in operands())
    with sdpa_kernel(SDPBackend.MATH), pytest.raises(RuntimeError, match="is_causal"):
        attend(q, k, v, attn_mask=torch.ones(10, 10, device=LOOM), is_causal=True)


@pytest.mark.parametrize("corner", [causal_upper_left, causal_lower_right])
@pytest.mark.parametrize("sizes", [(8, 8), (4, 9)])
def test_causal_biases_for_both_corners(corner, sizes):
    bias = corner(*sizes)
    same_on_both(lambda q, k, v: attend(q, k, v, attn_mask=bias), operands(*sizes))


@pytest.mark.parametrize("key_heads", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_queries(key_heads, causal):
    def run(*tensors):
        return attend(*tensors, enable_gqa=True, is_causal=causal)

    same_on_both(run, operands(key_heads=key_heads))


def test_other_layouts_and_a_scale_of_ones_own():
    def run(q, k, v):  # [batch, position, head, element], as a projection leaves them
        q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
        return attend(q, k, v, scale=0.3)

    same_on_both(run, operands(5, 7))
    same_on_both(lambda q, k, v: attend(q[0], k[0], v[0]), operands(5, 7))
    same_on_both(lambda q, k, v: attend(q, k, v[..., :8].contiguous()), operands(5, 7))


def test_dropout_follows_the_seed_and_keeps_the_mean():
    q, k, _ = (t.to(LOOM) for t in operands(64, 64))
    ones = torch.ones(2, 4, 64, 16, device=LOOM, requires_grad=True)
    torch.manual_seed(3)
    first = attend(q, k, ones, dropout_p=0.5)
    torch.manual_seed(3)
    assert torch.equal(first, attend(q, k, ones, dropout_p=0.5))
    assert not torch.equal(first, attend(q, k, ones, dropout_p=0.5))
    assert first.mean().item() == pytest.approx(1, abs=0.1)
    first.sum().backward()  # the columns of the weights that were kept sum to the same
    torch.testing.assert_close(ones.grad[..., 0].sum(), first[..., 0].sum().detach())


def test_double_backward_through_the_composition():
    def run(q, k, v):
        with sdpa_kernel(SDPBackend.MATH):
            result = attend(q, k, v)
        return torch.autograd.grad(result.square().sum(), q, create_graph=True)[0]

    same_on_both(run, operands(dtype=torch.float64), 1e-8)


@pytest.mark.parametrize("shape", [(1, 2, 3, 4), (2, 1, 3, 4)])
def test_numerical_derivatives_also_where_no_gradient_arrives(shape):
    tensors = [torch.randn(shape, dtype=torch.float64).to(LOOM).requires_grad_() for _ in range(3)]
    assert torch.autograd.gradcheck(attend, tensors)


def encoder(module, **options):
    torch.manual_seed(0)
    return module(32, 4, batch_first=True, **options)


@pytest.mark.parametrize("average", [True, False])
def test_multi_head_attention_trains(average):
    layer = encoder(nn.MultiheadAttention)
    padding = torch.arange(6) >= torch.tensor([[6], [4], [2]])
    results = {}
    for device in ("cpu", LOOM):
        layer.to(device).zero_grad()
        x = torch.linspace(-1, 1, 3 * 6 * 32).reshape(3, 6, 32).to(device).requires_grad_()
        output, weights = layer(
            x, x, x, key_padding_mask=padding.to(device), average_attn_weights=average
        )
        assert output.device.type == device
        (output.square().sum() + weights.square().sum()).backward()
        gradients = [p.grad.clone().cpu() for p in layer.parameters()]
        results[device] = [output.detach().cpu(), weights.detach().cpu(), x.grad.cpu(), *gradients]
    torch.testing.assert_close(results[LOOM], results["cpu"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padded", [False, True])
def test_the_fast_path_of_multi_head_attention(padded):
    layer = encoder(nn.MultiheadAttention).eval()
    x = torch.randn(3, 6, 32)
    padding = torch.arange(6) >= torch.tensor([[6], [4], [2]]) if padded else None
    with torch.no_grad():
        expected, weights = layer(x, x, x, key_padding_mask=padding)
        layer.to(LOOM)
        x = x.to(LOOM)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            output, mine = layer(x, x, x, key_padding_mask=padding.to(LOOM) if padded else None)
    assert "aten::_native_multi_head_attention" in {e.key for e in profile.key_averages()}
    assert output.is_loom
    torch.testing.assert_close((output.cpu(), mine.cpu()), (expected, weights))


def test_the_fast_path_of_an_encoder_layer():
    layer = encoder(nn.TransformerEncoderLayer, dim_feedforward=64).eval()
    x = torch.randn(3, 6, 32)
    with torch.inference_mode():
        expected = layer(x)
        layer.to(LOOM)
        result = layer(x.to(LOOM))
    assert result.is_loom
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)


def distance(score, batch, head, i, j):
    return score - (i - j).abs() / (1 + head)


def causal(batch, head, i, j):
    return i >= j


QUIET = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")


@QUIET
def test_flex_attention_is_attention_with_a_bias():
    positions = torch.arange(16)
    apart = (positions[:, None] - positions).abs() / (1 + torch.arange(4)[:, None, None])
    bias = (-apart).masked_fill(positions[:, None] < positions, -torch.inf)

    def flexible(q, k, v):
        mask = create_block_mask(causal, None, None, 16, 16, device=LOOM)
        return flex_attention(q, k, v, score_mod=distance, block_mask=mask)

    tensors = operands(16, 16)
    mine = with_gradients(tensors, LOOM, flexible)
    theirs = with_gradients(tensors, "cpu", lambda q, k, v: attend(q, k, v, attn_mask=bias))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@QUIET
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_flex_attention_under_autocast(dtype):
    tensors = operands(16, 16)
    with torch.autocast(LOOM, dtype=dtype):
        result = flex_attention(*(t.to(LOOM) for t in tensors))
    assert result.dtype == dtype
    torch.testing.assert_close(result.float().cpu(), attend(*tensors), rtol=4e-2, atol=4e-2)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # on the cpu
def test_vmap_over_masks():
    q, masks = torch.randn(2, 2, 5, 8), torch.randn(3, 2, 2, 5, 5)
    mine, expected = (
        torch.func.vmap(attend, in_dims=(None, None, None, 0))(
            *[q.to(device)] * 3, masks.to(device)
        )
        for device in (LOOM, "cpu")
    )
    torch.testing.assert_close(mine.cpu(), expected)


def test_elements_of_other_numbers_are_refused_at_the_call():
    q = torch.randn(2, 2, 5, 8, device=LOOM)
    with sdpa_kernel([SDPBackend.OVERRIDEABLE]), pytest.raises(RuntimeError):
        attend(q, q[..., :6], q)
    torch.loom.synchronize()
