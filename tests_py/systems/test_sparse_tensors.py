# SPDX-License-Identifier: BSD-3-Clause
"""Sparse tensors: COO, CSR and blocks in arithmetic, products, graphs, embeddings and files."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state"),
]

DEVICES = ("cpu", "loom")
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coo": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
    "bsc": lambda x: x.to_sparse_bsc((2, 2)),
}


def dense(rows: int = 6, columns: int = 6, seed: int = 0) -> torch.Tensor:
    """About a third of it is not zero."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator)
    return values * (torch.rand(rows, columns, generator=generator) < 0.35)


def sparse(layout: str, device: str, seed: int = 0) -> torch.Tensor:
    return LAYOUTS[layout](dense(seed=seed).to(device))


def on_host(value: torch.Tensor, device: str) -> torch.Tensor:
    assert value.device.type == device
    return value.detach().to_dense().cpu()


def assert_same(got: torch.Tensor, expected: torch.Tensor) -> None:
    """The same layout and the same values."""
    assert got.layout == expected.layout
    if expected.layout != torch.strided:
        assert got._nnz() == expected._nnz()
    torch.testing.assert_close(on_host(got, "loom"), on_host(expected, "cpu"))


def row(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(1.0, 7.0, device=x.device)


OPERATORS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "negative": ("coo csr csc bsr bsc", torch.neg),
    "sine": ("coo csr csc", torch.sin),
    "absolute": ("coo csr csc bsr bsc", torch.abs),
    "relu": ("coo csr csc bsr bsc", torch.relu),
    "scaled": ("coo csr csc bsr bsc", lambda x: x * 3),
    "divided": ("coo csr", lambda x: x / 2),
    "plus_itself": ("coo csr", lambda x: x + x),
    "minus_product": ("coo csr", lambda x: x - x * x),
    "plus_dense": ("coo csr", lambda x: torch.ones(6, 6, device=x.device) + x),
    "times_dense": ("coo", lambda x: x * row(x).expand(6, 6)),
    "power": ("coo", lambda x: x.pow(2)),
    "square_root_of_abs": ("coo csr", lambda x: x.abs().sqrt()),
    "times_vector": ("coo csr csc", lambda x: x @ row(x)),
    "times_matrix": ("coo csr csc bsr", lambda x: x @ row(x).diag()),
    "times_sparse": ("coo csr", lambda x: x @ x),
    "sparse_mm": ("coo csr", lambda x: torch.sparse.mm(x, row(x).diag())),
    "addmm": (
        "coo csr",
        lambda x: torch.addmm(torch.ones(6, 6, device=x.device), x, row(x).diag(), alpha=2),
    ),
    "sum": ("coo csr csc", torch.sum),
    "sum_of_rows": ("coo", lambda x: torch.sparse.sum(x, dim=1)),
    "sum_of_rows_kept": ("csr", lambda x: torch.sum(x, dim=1, keepdim=True)),
    "softmax": ("coo", lambda x: torch.sparse.softmax(x, 1)),
    "log_softmax": ("coo", lambda x: torch.sparse.log_softmax(x, 0)),
    "norm": ("coo", torch.norm),
    "transposed": ("coo csr csc bsr bsc", lambda x: x.t()),
    "row": ("coo csr", lambda x: x[2]),
    "rows": ("coo", lambda x: x.index_select(0, torch.tensor([4, 1], device=x.device))),
    "narrow": ("coo", lambda x: x.narrow(1, 2, 3)),
    "concatenation": ("coo", lambda x: torch.cat([x, x], 1)),
    "stack": ("coo", lambda x: torch.stack([x, x])),
    "unsqueezed": ("coo", lambda x: x.unsqueeze(0)),
    "resized": ("coo", lambda x: x.reshape(4, 9)),
    "double": ("coo csr csc bsr bsc", torch.Tensor.double),
    "in_place": ("coo", lambda x: x.clone().mul_(2).add_(x)),
    "zeros_like": ("coo csr", torch.zeros_like),
    "mask_of_dense": ("coo csr", lambda x: torch.ones(6, 6, device=x.device).sparse_mask(x)),
    "to_csr": ("coo csc bsr", lambda x: x.to_sparse_csr()),
    "to_csc": ("coo csr bsc", lambda x: x.to_sparse_csc()),
    "to_coo": ("csr csc bsr bsc", lambda x: x.to_sparse()),
    "to_blocks": ("csr", lambda x: x.to_sparse_bsr((3, 2))),
    "sampled_addmm": (
        "csr",
        lambda x: torch.sparse.sampled_addmm(
            x, torch.ones(6, 2, device=x.device), row(x).expand(2, 6), beta=0.5
        ),
    ),
    "reduced": ("csr", lambda x: torch.sparse.mm(x, row(x).diag(), "amax")),
}
CASES = [(name, layout) for name, (layouts, _) in OPERATORS.items() for layout in layouts.split()]


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_operators(name: str, layout: str) -> None:
    results = {device: OPERATORS[name][1](sparse(layout, device)) for device in DEVICES}
    assert_same(results["loom"], results["cpu"])
