# SPDX-License-Identifier: BSD-3-Clause
"""Sparse tensors on loom are made of loom tensors and do what they do on cpu."""

import gc

import pytest
import torch
from ops_support import same_error

pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")

LAYOUTS = {
    "coo": lambda t: t.to_sparse(),
    "csr": lambda t: t.to_sparse_csr(),
    "csc": lambda t: t.to_sparse_csc(),
    "bsr": lambda t: t.to_sparse_bsr((2, 2)),
    "bsc": lambda t: t.to_sparse_bsc((2, 2)),
}


def matrix() -> torch.Tensor:
    dense = torch.arange(24.0).view(4, 6)
    return dense * (dense % 3 == 0)


def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_conversion_and_way_back(layout: str) -> None:
    sparse = LAYOUTS[layout](matrix().to("loom"))
    assert sparse.device.type == "loom"
    assert sparse.layout == LAYOUTS[layout](matrix()).layout
    assert {part.device.type for part in parts(sparse)} == {"loom"}
    assert torch.equal(sparse.to_dense().cpu(), matrix())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_between_host_and_device(layout: str) -> None:
    host = LAYOUTS[layout](matrix())
    device = host.to("loom")
    assert device.device.type == "loom"
    assert device.cpu().device.type == "cpu"
    assert torch.equal(device.cpu().to_dense(), matrix())
    assert torch.equal(device.clone().to_dense().cpu(), matrix())


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_product_with_a_dense_matrix(layout: str) -> None:
    other = torch.rand(6, 3)
    got = LAYOUTS[layout](matrix().to("loom")) @ other.to("loom")
    assert got.device.type == "loom"
    torch.testing.assert_close(got.cpu(), matrix() @ other)


def test_construction_from_device_tensors_shares_them() -> None:
    indices = torch.tensor([[0, 1, 1], [2, 0, 2]], device="loom")
    values = torch.tensor([3.0, 4.0, 5.0], device="loom")
    sparse = torch.sparse_coo_tensor(indices, values, (2, 4), check_invariants=False)
    assert sparse._values().data_ptr() == values.data_ptr()
    values.mul_(2)
    assert sparse.to_dense().tolist() == [[0, 0, 6, 0], [8, 0, 10, 0]]


def test_operators_in_place_change_the_tensor_itself() -> None:
    x = matrix().to("loom").to_sparse()
    y = x.add_(torch.eye(4, 6, device="loom").to_sparse())
    assert y is x
    x.mul_(2)
    assert torch.equal(x.to_dense().cpu(), (matrix() + torch.eye(4, 6)) * 2)
    x.zero_()
    assert x._nnz() == 0
    assert x.to_dense().count_nonzero().item() == 0


def test_coalescing_adds_what_has_the_same_index() -> None:
    indices = torch.tensor([[0, 0, 1]], device="loom")
    ones = torch.ones(3, device="loom")
    x = torch.sparse_coo_tensor(indices, ones, (2,), check_invariants=True)
    assert not x.is_coalesced()
    y = x.coalesce()
    assert y.is_coalesced()
    assert y.indices().tolist() == [[0, 1]]
    assert y.values().tolist() == [2, 1]


def test_reductions_and_gradients() -> None:
    grads = {}
    for device in ("cpu", "loom"):
        dense = matrix().to(device, copy=True).requires_grad_()
        sparse = dense.to_sparse()
        torch.sparse.mm(sparse, torch.ones(6, 2, device=device)).sum().backward()
        grads[device] = dense.grad
    assert torch.equal(grads["loom"].cpu(), grads["cpu"])


def test_embedding_with_sparse_gradient_trains() -> None:
    weights = {}
    start = torch.rand(10, 4)
    for device in ("cpu", "loom"):
        layer = torch.nn.Embedding.from_pretrained(start.clone(), freeze=False, sparse=True)
        layer.to(device)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for ids in ([1, 3, 3], [0, 9, 1]):
            optimizer.zero_grad()
            layer(torch.tensor(ids, device=device)).pow(2).sum().backward()
            assert layer.weight.grad.layout == torch.sparse_coo
            assert layer.weight.grad.device.type == device
            optimizer.step()
        weights[device] = layer.weight.detach().cpu()
    torch.testing.assert_close(weights["loom"], weights["cpu"])


def test_printing() -> None:
    assert "device='loom:0'" in repr(matrix().to("loom").to_sparse())


def test_errors_are_those_of_cpu() -> None:
    def out_of_range(device: str) -> None:
        indices = torch.tensor([[7]], device=device)
        torch.sparse_coo_tensor(indices, torch.ones(1, device=device), (2,), check_invariants=True)

    same_error(out_of_range)
    same_error(lambda device: matrix().to(device).to_sparse() @ torch.ones(5, 2, device=device))


def test_memory_is_returned() -> None:
    x = matrix().to("loom")
    x.to_sparse().to_dense()
    gc.collect()  # what errors of earlier tests keep
    before = torch.loom.memory_allocated()
    for _ in range(3):
        x.to_sparse().coalesce().to_dense()
    assert torch.loom.memory_allocated() == before


def test_what_a_sparse_tensor_is_made_of_is_read_without_the_fallback() -> None:
    indices = torch.tensor([[0, 2, 2], [1, 0, 3]], device="loom")
    values = torch.rand(3, 5, device="loom")
    torch.loom.reset_fallbacks()
    sparse = torch.sparse_coo_tensor(
        indices, values, (4, 6, 5), is_coalesced=True, check_invariants=False
    )
    assert (sparse._nnz(), sparse.sparse_dim(), sparse.dense_dim()) == (3, 2, 1)
    assert sparse.is_coalesced()
    assert sparse.device == values.device
    assert sparse.values().data_ptr() == values.data_ptr()
    assert sparse.indices().data_ptr() == indices.data_ptr()
    empty = torch.sparse_coo_tensor(size=(2, 3), device="loom", check_invariants=False)
    assert empty.device == values.device
    assert empty._nnz() == 0
    assert torch.loom.fallbacks() == {}

    csr = matrix().to("loom").to_sparse_csr()
    torch.loom.reset_fallbacks()
    assert csr._nnz() == csr.values().numel() == csr.col_indices().numel()
    assert csr.crow_indices().numel() == 5
    assert torch.loom.fallbacks() == {}


def test_a_sparse_gradient_is_made_without_the_fallback() -> None:
    layer = torch.nn.Embedding(10, 4, sparse=True, device="loom")
    output = layer(torch.tensor([1, 3, 3], device="loom")).sum()
    torch.loom.reset_fallbacks()
    output.backward()
    assert torch.loom.fallbacks() == {}
    assert layer.weight.grad._nnz() == 3
    assert torch.equal(layer.weight.grad.to_dense().cpu()[3], torch.full((4,), 2.0))


def test_a_sparse_tensor_is_on_the_device_of_its_parts() -> None:
    indices = torch.tensor([[0, 2]], device="loom:1")
    values = torch.rand(2, device="loom:1")
    sparse = torch.sparse_coo_tensor(indices, values, (4,), check_invariants=False)
    assert {t.device.index for t in (sparse, sparse.clone(), sparse.to("loom:1"))} == {1}
    assert torch.sparse_coo_tensor(size=(2,), device="loom:1", check_invariants=False).device == (
        values.device
    )
