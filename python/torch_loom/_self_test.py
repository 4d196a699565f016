# SPDX-License-Identifier: BSD-3-Clause
"""A second of loom: a few operators, beside what ``cpu`` computes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from . import loom

__all__ = ["compiles_programs", "run"]

_Case = Callable[[torch.device], Tensor]


def _random(device: torch.device, *sizes: int) -> Tensor:
    generator = torch.Generator().manual_seed(len(sizes))
    return torch.randn(sizes, generator=generator).to(device)


def _product(device: torch.device) -> Tensor:
    return _random(device, 192, 257) @ _random(device, 192, 257).T


def _convolution(device: torch.device) -> Tensor:
    return F.conv2d(_random(device, 4, 16, 24, 24), _random(device, 32, 16, 3, 3), padding=1)


def _chain(device: torch.device) -> Tensor:
    x = _random(device, 1000, 33)
    return torch.softmax(torch.tanh(x * 0.5 + 1).square() * 8, dim=1)


def _attention(device: torch.device) -> Tensor:
    q = _random(device, 2, 4, 48, 32)
    return F.scaled_dot_product_attention(q, q.flip(2), q, is_causal=True)


def _gradient(device: torch.device) -> Tensor:
    x = _random(device, 64, 40).requires_grad_()
    weight = _random(device, 17, 40)
    loss = F.cross_entropy(
        F.linear(F.layer_norm(x, (40,)), weight), (torch.arange(64) % 17).to(device)
    )
    return torch.autograd.grad(loss, x)[0]


def _order(device: torch.device) -> Tensor:
    values, places = _random(device, 50, 77).sort(dim=1)
    return values.gather(1, places).cumsum(1)


def _step(device: torch.device) -> Tensor:
    weight = nn.Parameter(_random(device, 30, 31))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.grad = _random(device, 30, 31).sign()
    optimizer.step()
    return weight.detach()


_CASES: dict[str, _Case] = {
    "product": _product,
    "convolution": _convolution,
    "fused chain": _chain,
    "attention": _attention,
    "gradient": _gradient,
    "sort and gather": _order,
    "optimizer step": _step,
}


def run(device: str = "loom") -> dict[str, str]:
    """Compute each case on the device and on ``cpu``.

    Returns:
        dict: for each case what is wrong with it, ``""`` if nothing is.
    """
    problems = {}
    for name, case in _CASES.items():
        try:
            result = case(torch.device(device)).cpu()
            torch.testing.assert_close(result, case(torch.device("cpu")), rtol=1e-4, atol=1e-4)
            problems[name] = ""
        except (AssertionError, RuntimeError) as error:
            problems[name] = str(error)
    return problems


def compiles_programs() -> bool:
    """Return whether fused programs run as machine code here."""
    loom.reset_fusion_report()
    x = torch.ones(64, device="loom")
    loom.synchronize()
    for _ in range(3):  # a short program is compiled when it runs again
        (x * 2 + 1).sum().item()
    return any(program.compiled for program in loom.fusion_report())
