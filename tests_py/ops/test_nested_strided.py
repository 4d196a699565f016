# SPDX-License-Identifier: BSD-3-Clause
"""Strided nested tensors on loom do what they do on cpu."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning"
)

LENGTHS = (3, 5, 2)
WIDTH = 8


def nested(device: str, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(n, WIDTH, generator=generator).to(device) for n in LENGTHS]
    return torch.nested.nested_tensor(parts, requires_grad=True)


def on_host(tensor: torch.Tensor, device: str) -> list[torch.Tensor]:
    assert tensor.device.type == device
    parts = tensor.unbind() if tensor.is_nested else [tensor]
    assert {part.device.type for part in parts} == {device}
    return [part.detach().cpu() for part in parts]


def assert_same(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(on_host(got, "loom"), on_host(expected, "cpu"))


WEIGHT = torch.linspace(-1, 1, 4 * WIDTH).view(4, WIDTH)
WITH_GRADIENT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "relu": torch.relu,
    "silu": functional.silu,
    "sum_of_two": lambda x: x + x * 2,
    "product_of_two": lambda x: x * x,
    "difference_of_two": lambda x: x - x.detach(),
    "negative": torch.neg,
    "linear": lambda x: functional.linear(x, WEIGHT.to(x.device)),
    "layer_norm": lambda x: functional.layer_norm(
        x, (WIDTH,), WEIGHT[0].to(x.device), WEIGHT[1].to(x.device)
    ),
    "softmax": lambda x: functional.softmax(x, -1),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "product_of_matrices": lambda x: x @ x.transpose(1, 2),
    "first": lambda x: x[0],
    "padded": lambda x: x.to_padded_tensor(0.5),
    "clone": torch.clone,
    "attention": lambda x: functional.scaled_dot_product_attention(
        *[x.unsqueeze(1).clone() for _ in range(3)]
    ).transpose(1, 2),
}
WITHOUT_GRADIENT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "abs": torch.abs,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "sqrt_of_abs": lambda x: x.abs().sqrt(),
    "quotient": lambda x: x / 4,
    "at_least": lambda x: x >= 0.5,
    "where": lambda x: torch.where(x > 0, torch.tensor(7.0, device=x.device), x),
    "masked_fill": lambda x: x.masked_fill(x > 0, 7.0),
    "concatenation": lambda x: torch.cat([x, x]),
    "chunk": lambda x: x.chunk(2, -1)[1],
    "split": lambda x: x.split_with_sizes([2, 6], -1)[1].contiguous(),
    "narrow": lambda x: x.narrow(0, 1, 2),
    "unsqueeze": lambda x: x.unsqueeze(1).squeeze(1),
    "view": lambda x: x.reshape(3, -1, 2, 4),
    "ones_like": torch.ones_like,
    "zeros_in_place": lambda x: x.clone().zero_(),
    "filled_in_place": lambda x: x.clone().fill_(3.0),
    "scaled_in_place": lambda x: x.clone().mul_(3.0),
    "copied_in_place": lambda x: torch.empty_like(x).copy_(x),
    "half": lambda x: x.half(),
}


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_operators_and_their_gradients(name: str) -> None:
    results, grads = {}, {}
    for device in ("cpu", "loom"):
        x = nested(device)
        results[device] = WITH_GRADIENT[name](x)
        flat = torch.cat([part.flatten() for part in results[device].unbind()])
        (flat * torch.arange(flat.numel(), device=device)).sum().backward()
        grads[device] = x.grad
    assert_same(results["loom"], results["cpu"])
    assert_same(grads["loom"], grads["cpu"])


@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_operators(name: str) -> None:
    with torch.no_grad():
        results = {d: WITHOUT_GRADIENT[name](nested(d)) for d in ("cpu", "loom")}
    assert_same(results["loom"], results["cpu"])


def test_layers_are_queued() -> None:
    x, weight = nested("loom"), WEIGHT.to("loom")
    torch.loom.reset_fallbacks()
    torch.relu(functional.linear(x, weight)).values().sum().backward()
    assert torch.loom.fallbacks() == {}


def test_dropout_keeps_a_share() -> None:
    torch.manual_seed(0)
    kept = functional.dropout(torch.ones_like(nested("loom").detach()), 0.5).to_padded_tensor(-1.0)
    assert set(kept.unique().tolist()) == {-1.0, 0.0, 2.0}


def test_an_operator_that_cpu_has_not_is_refused_by_name() -> None:
    for device in ("cpu", "loom"):
        with pytest.raises(NotImplementedError, match="aten::cumsum"):
            nested(device).cumsum(-1)


def test_operands_on_two_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="same device"):
        nested("loom") + nested("cpu")


def test_multihead_attention_for_inference() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(WIDTH, 2, batch_first=True).eval()
    results = {}
    for device in ("cpu", "loom"):
        with torch.no_grad():
            x = nested(device).detach()
            results[device] = layer.to(device)(x, x, x, need_weights=False)[0]
    assert_same(results["loom"], results["cpu"])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_transformer_encoder_skips_padding_for_inference() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    padded = nested("cpu").detach().to_padded_tensor(0.0)
    padding = torch.arange(5) >= torch.tensor(LENGTHS)[:, None]
    with torch.no_grad():
        expected = encoder(padded, src_key_padding_mask=padding)
        got = encoder.to("loom")(padded.to("loom"), src_key_padding_mask=padding.to("loom"))
    assert expected[padding].count_nonzero() == 0
    assert got.device.type == "loom"
    torch.testing.assert_close(got.cpu(), expected)
