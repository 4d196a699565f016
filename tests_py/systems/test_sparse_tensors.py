# SPDX-License-Identifier: BSD-3-Clause
"""Sparse tensors: COO, CSR and blocks in arithmetic, products, graphs, embeddings and files."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")

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
    "divided": ("coo", lambda x: x / 2),
    "plus_itself": ("coo csr", lambda x: x + x),
    "minus_product": ("coo", lambda x: x - x * x),
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
    "concatenation": ("coo", lambda x: torch.cat([x, x], 1)),
    "stack": ("coo", lambda x: torch.stack([x, x])),
    "unsqueezed": ("coo", lambda x: x.unsqueeze(0)),
    "double": ("coo csr csc bsr bsc", torch.Tensor.double),
    "in_place": ("coo", lambda x: x.clone().mul_(2).add_(x)),
    "zeros_like": ("coo csr", torch.zeros_like),
    "mask_of_dense": ("coo csr", lambda x: torch.ones(6, 6, device=x.device).sparse_mask(x)),
    "to_csr": ("coo csc", lambda x: x.to_sparse_csr()),
    "to_csc": ("coo csr", lambda x: x.to_sparse_csc()),
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


@pytest.mark.parametrize("device", DEVICES)
def test_what_cpu_refuses_is_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="reshape is not implemented for sparse tensors"):
        sparse("coo", device).reshape(4, 9)
    with pytest.raises(RuntimeError, match="unsupported tensor layout: SparseCsr"):
        sparse("csr", device) / 2


CONSTRUCTORS: dict[str, Callable[..., torch.Tensor]] = {
    "coo": lambda **kwargs: torch.sparse_coo_tensor(
        [[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 4), **kwargs
    ),
    "hybrid": lambda **kwargs: torch.sparse_coo_tensor(
        [[0, 1, 1]], [[3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], (2, 2), **kwargs
    ),
    "csr": lambda **kwargs: torch.sparse_csr_tensor(
        [0, 1, 3], [2, 0, 2], [3.0, 4.0, 5.0], (2, 4), **kwargs
    ),
    "csc": lambda **kwargs: torch.sparse_csc_tensor(
        [0, 1, 3], [1, 0, 1], [3.0, 4.0, 5.0], (4, 2), **kwargs
    ),
    "bsr": lambda **kwargs: torch.sparse_bsr_tensor(
        [0, 1, 1], [1], [[[1.0, 2.0], [3.0, 4.0]]], (4, 4), **kwargs
    ),
    "compressed": lambda **kwargs: torch.sparse_compressed_tensor(
        [0, 1, 3], [2, 0, 2], [3.0, 4.0, 5.0], (2, 4), layout=torch.sparse_csr, **kwargs
    ),
    "diagonals": lambda device, **_: torch.sparse.spdiags(
        torch.arange(9.0, device=device).view(3, 3), torch.tensor([0, -1, 2], device=device), (3, 3)
    ),
}


@pytest.mark.parametrize("how", CONSTRUCTORS)
def test_construction_from_numbers(how: str) -> None:
    made = {d: CONSTRUCTORS[how](device=d, check_invariants=True) for d in DEVICES}
    assert_same(made["loom"], made["cpu"])


GRADIENTS: dict[str, tuple[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "mm": ("coo csr", torch.sparse.mm),
    "matmul": ("coo csr", torch.matmul),
    "addmm": ("coo", lambda a, b: torch.sparse.addmm(torch.ones_like(b), a, b, beta=2)),
    "sum": ("coo", lambda a, b: torch.sparse.sum(a * 2, 0).to_dense() @ b),
    "softmax": ("coo", lambda a, b: torch.sparse.softmax(a, 1).to_dense() @ b),
    "mask": ("coo", lambda a, b: b.sparse_mask(a).to_dense()),
}


@pytest.mark.parametrize(
    ("name", "layout"), [(n, lay) for n, (ls, _) in GRADIENTS.items() for lay in ls.split()]
)
def test_gradients(name: str, layout: str) -> None:
    values, grads = {}, {}
    for device in DEVICES:
        a = sparse(layout, device).requires_grad_()
        b = dense(seed=1).to(device, copy=True).requires_grad_()
        values[device] = GRADIENTS[name][1](a, b)
        values[device].sin().sum().backward()
        grads[device] = [x.grad for x in (a, b) if x.grad is not None]
    assert_same(values["loom"], values["cpu"])
    for mine, theirs in zip(grads["loom"], grads["cpu"], strict=True):
        assert_same(mine, theirs)


@pytest.mark.parametrize("bag", [False, True])
def test_sparse_embedding_gradients_with_sparse_adam(bag: bool) -> None:
    weights, losses = {}, {}
    for device in DEVICES:
        torch.manual_seed(0)
        kind = nn.EmbeddingBag if bag else nn.Embedding
        model = nn.Sequential(kind(30, 4, sparse=True), nn.Linear(4, 3)).to(device)
        sparse_adam = torch.optim.SparseAdam(model[0].parameters(), lr=0.1)
        adam = torch.optim.Adam(model[1].parameters(), lr=0.1)
        untouched = model[0].weight.detach()[29].clone()
        losses[device] = []
        for step in range(5):
            ids = ((torch.arange(8) * (step + 1)) % 7).view(4, 2).to(device)
            out = model(ids) if bag else model(ids).mean(1)
            loss = functional.cross_entropy(out, torch.tensor([0, 1, 2, 1], device=device))
            for optimizer in (sparse_adam, adam):
                optimizer.zero_grad()
            loss.backward()
            assert model[0].weight.grad.layout == torch.sparse_coo
            assert model[0].weight.grad.device.type == device
            for optimizer in (sparse_adam, adam):
                optimizer.step()
            losses[device].append(loss.item())
        assert torch.equal(model[0].weight.detach()[29], untouched)
        weights[device] = [p.detach().cpu() for p in model.parameters()]
    torch.testing.assert_close(losses["loom"], losses["cpu"])
    torch.testing.assert_close(weights["loom"], weights["cpu"])
    assert losses["loom"][-1] < losses["loom"][0]


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_graph_convolution_trains(layout: str) -> None:
    """Features pass along the edges of a graph, a sparse adjacency matrix."""
    losses = {}
    for device in DEVICES:
        torch.manual_seed(0)
        adjacency = dense().abs() + torch.eye(6)
        adjacency = LAYOUTS[layout]((adjacency / adjacency.sum(1, keepdim=True)).to(device))
        first, second = nn.Linear(5, 8).to(device), nn.Linear(8, 2).to(device)
        features = torch.randn(6, 5).to(device)
        labels = torch.tensor([0, 1, 0, 1, 1, 0], device=device)
        parameters = [*first.parameters(), *second.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.5)
        losses[device] = []
        for _ in range(5):
            hidden = torch.relu(torch.sparse.mm(adjacency, first(features)))
            loss = functional.cross_entropy(torch.sparse.mm(adjacency, second(hidden)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    torch.testing.assert_close(losses["loom"], losses["cpu"])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("target", DEVICES)
def test_save_and_load(layout: str, target: str) -> None:
    file = io.BytesIO()
    torch.save(sparse(layout, "loom"), file)
    file.seek(0)
    loaded = torch.load(file, map_location=target)
    assert loaded.layout == sparse(layout, "cpu").layout
    torch.testing.assert_close(on_host(loaded, target), dense())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies(layout: str) -> None:
    there = sparse(layout, "cpu").to("loom:1")
    assert there.device == torch.device("loom:1")
    assert_same(there.to("loom:0"), sparse(layout, "cpu"))
    assert_same(LAYOUTS[layout](dense().to("loom:1")), sparse(layout, "cpu"))
    assert_same(copy.deepcopy(there), sparse(layout, "cpu"))
    assert "device='loom:1'" in repr(there)
    torch.testing.assert_close(on_host(there.cpu(), "cpu"), dense())


@pytest.mark.limit(
    "semi-structured (2:4) sparsity: PyTorch has its kernels and its memory format for CUDA only"
)
@pytest.mark.parametrize("device", DEVICES)
def test_semi_structured_sparsity_is_refused_as_on_cpu(device: str) -> None:
    pruned = torch.tensor([0, 0, 1, 1], dtype=torch.half, device=device).tile(128, 32)
    with pytest.raises(RuntimeError, match="Only CUDA tensors are currently supported"):
        torch.sparse.to_sparse_semi_structured(pruned)
