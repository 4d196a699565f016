# SPDX-License-Identifier: BSD-3-Clause
"""float32 in fewer bits (fp32_precision of torch.backends): a setting does what it does on cpu."""

from collections.abc import Callable, Iterator

import pytest
import torch

BACKENDS = torch.backends
# Errors, relative to the largest value: of sums in float32, and of factors in bfloat16.
EXACT, ROUNDED = 2e-6, 2e-2


@pytest.fixture(autouse=True)
def _as_before(settable_backends: None) -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")
    BACKENDS.fp32_precision = "none"
    for operators in (BACKENDS.mkldnn.matmul, BACKENDS.mkldnn.conv, BACKENDS.mkldnn.rnn):
        operators.fp32_precision = "none"
    BACKENDS.cuda.matmul.fp32_precision = "none"


def _all(precision: str) -> None:
    BACKENDS.fp32_precision = precision


def _one(name: str) -> Callable[[str], None]:
    return lambda precision: setattr(getattr(BACKENDS.mkldnn, name), "fp32_precision", precision)


SETTINGS: dict[str, Callable[[], None]] = {
    "all=tf32": lambda: _all("tf32"),
    "all=bf16": lambda: _all("bf16"),
    "all=ieee": lambda: _all("ieee"),
    "matmul=bf16": lambda: _one("matmul")("bf16"),
    "matmul=tf32": lambda: _one("matmul")("tf32"),
    "conv=bf16": lambda: _one("conv")("bf16"),
    "rnn=bf16": lambda: _one("rnn")("bf16"),
    "cuda=tf32": lambda: setattr(BACKENDS.cuda.matmul, "fp32_precision", "tf32"),
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "all=bf16, matmul=ieee": lambda: (_all("bf16"), _one("matmul")("ieee")),
    "all=ieee, conv=bf16": lambda: (_all("ieee"), _one("conv")("bf16")),
}


def _data(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _module(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 8)
    return module


def _trained(module: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    module = module.to(x.device, x.dtype)
    x = x.requires_grad_()
    y = module(x)
    y = y[0] if isinstance(y, tuple) else y
    gradients = torch.autograd.grad(y.square().mean(), [x, *module.parameters()])
    return [y.detach(), *gradients]


def _attention(x: torch.Tensor) -> list[torch.Tensor]:
    q, k, v = x.unbind(0)
    return [torch.nn.functional.scaled_dot_product_attention(q, k, v)]


OPERATORS: dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], list[torch.Tensor]]]] = {
    "mm": (_data(256, 256), lambda x: [x @ x.t()]),
    "addmm": (_data(192, 192), lambda x: [torch.addmm(x[0], x, x)]),
    "bmm": (_data(4, 96, 96), lambda x: [torch.bmm(x, x)]),
    "mv": (_data(256, 256), lambda x: [x @ x[0]]),
    "linear": (_data(128, 256), lambda x: _trained(_module(torch.nn.Linear(256, 128)), x)),
    "conv2d": (_data(4, 32, 28, 28), lambda x: _trained(_module(torch.nn.Conv2d(32, 32, 3)), x)),
    "conv2d by 1": (
        _data(4, 64, 28, 28),
        lambda x: _trained(_module(torch.nn.Conv2d(64, 64, 1)), x),
    ),
    "conv1d": (_data(4, 32, 200), lambda x: _trained(_module(torch.nn.Conv1d(32, 32, 5)), x)),
    "attention": (_data(3, 2, 4, 256, 64), _attention),
    "lstm": (
        _data(16, 32, 64),
        lambda x: _trained(_module(torch.nn.LSTM(64, 64, batch_first=True)), x),
    ),
}


def _errors(actual: list[torch.Tensor], exact: list[torch.Tensor]) -> list[float]:
    return [
        ((a.cpu().double() - e).abs().max() / e.abs().max()).item()
        for a, e in zip(actual, exact, strict=True)
    ]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_float32_has_the_precision_that_it_has_on_cpu(setting: str, operator: str) -> None:
    x, compute = OPERATORS[operator]
    exact = compute(x.clone().double())
    SETTINGS[setting]()
    on_cpu = _errors(compute(x.clone()), exact)
    on_loom = _errors(compute(x.to("loom")), exact)
    for ours, theirs in zip(on_loom, on_cpu, strict=True):
        assert ours < (EXACT * 8 if theirs < EXACT * 8 else ROUNDED)


@pytest.mark.parametrize("operator", ["mm", "conv2d"])
def test_fewer_bits_are_used_where_cpu_uses_them(operator: str) -> None:
    x, compute = OPERATORS[operator]
    exact = compute(x.clone().double())
    _all("bf16")
    on_cpu = _errors(compute(x.clone()), exact)[0]
    if on_cpu < EXACT * 8:
        pytest.skip("this processor has no faster float32 than float32")
    assert _errors(compute(x.to("loom")), exact)[0] > EXACT * 8
