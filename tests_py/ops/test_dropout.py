# SPDX-License-Identifier: BSD-3-Clause
"""Dropout: what it keeps, what it passes back, and which numbers it takes."""

import math

import pytest
import torch
from random_helpers import FLOATS, HALVES

import torch_loom  # noqa: F401  (registers the device)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20240229)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_keeps_scaled_values(dtype: torch.dtype) -> None:
    x = torch.randn(300, 400, dtype=dtype, device="loom", requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    values, source = y.detach().cpu(), x.detach().cpu()
    kept = values != 0
    assert abs(kept.double().mean() - 0.75) < 0.01
    scale = 1 / 0.75
    expected = (source.float() * scale).to(dtype) if dtype in HALVES else source * scale
    assert torch.equal(values[kept], expected[kept])
    y.sum().backward()
    assert x.grad is not None
    gradient = x.grad.cpu()
    assert torch.equal(gradient != 0, kept)
    assert torch.allclose(gradient[kept].double(), torch.tensor(scale).double(), rtol=1e-2)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_dropout_at_the_ends(p: float) -> None:
    x = torch.randn(50, device="loom", requires_grad=True)
    y = torch.nn.functional.dropout(x, p)
    assert torch.equal(y.detach().cpu(), x.detach().cpu() * (1 - p))
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.cpu(), torch.full((50,), 1 - p))


def test_native_dropout_matches_cpu_outside_training() -> None:
    x = torch.randn(5, 6)
    for train in (False, None, True):
        output, mask = torch.native_dropout(x.to("loom"), 0.5, train)
        assert mask.dtype == torch.bool
        expected = x * mask.cpu() * (1 if train is False else 2)
        assert torch.equal(output.cpu(), expected)
    assert torch.native_dropout(x.to("loom"), 0.5, False)[1].cpu().all()


def test_dropout_keeps_layouts_and_the_numbers_of_logical_indices() -> None:
    x = torch.randn(4, 5, 6, 7, device="loom")
    results = []
    for tensor in (x, x.to(memory_format=torch.channels_last), x.expand(4, 5, 6, 7)):
        torch.manual_seed(2)
        output, mask = torch.native_dropout(tensor, 0.5, True)
        assert output.stride() == mask.stride() == torch.empty_like(tensor).stride()
        results.append(output.cpu().contiguous())
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_dropout_multiplies_what_it_drops() -> None:
    x = torch.tensor([math.inf, math.nan] * 500, device="loom")
    values = torch.native_dropout(x, 0.5, True)[0].cpu()
    assert values.isnan().sum() > 600  # dropped infinities are NaN, as on cpu
    assert values.isinf().any()


def test_other_dropouts_work() -> None:
    x = torch.ones(200, 50, 4, device="loom")
    features = torch.nn.functional.dropout2d(x.unsqueeze(-1), 0.5).cpu()
    assert ((features == 0).flatten(2).all(-1) | (features == 2).flatten(2).all(-1)).all()
    assert abs(torch.nn.functional.alpha_dropout(x, 0.3, training=True).cpu().var()) > 0
    assert (torch.nn.functional.dropout(x, 0.5, inplace=True).cpu().unique()
            == torch.tensor([0.0, 2.0])).all()  # fmt: skip
