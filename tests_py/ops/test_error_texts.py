# SPDX-License-Identifier: BSD-3-Clause
"""Errors say what the same mistake gives on cuda or cpu, with the operator's own name."""

import pytest
import torch
from torch.nn import functional

LOOM = torch.device("loom")


def text_of(call, kind=RuntimeError):
    with pytest.raises(kind) as raised:
        call()
    return str(raised.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_device_memory_is_not_pinned(dtype):
    x = torch.ones(2, dtype=dtype, device="loom")
    expected = f"cannot pin '{x.type()}' only dense CPU tensors can be pinned"
    assert x.type().startswith("torch.loom.")
    assert text_of(x.pin_memory) == expected
    assert not x.is_pinned()
    assert text_of(lambda: torch.empty(2, device="loom", pin_memory=True)) == (
        "Only dense CPU tensors can be pinned"
    )


def test_a_loader_that_pins_device_tensors_says_so():
    data = torch.utils.data.TensorDataset(torch.ones(4, 2, device="loom"))
    loader = torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True)
    assert "cannot pin 'torch.loom.FloatTensor'" in text_of(lambda: list(loader))


MAKE = {
    "empty": lambda device: torch.empty(2, device=device),
    "rand": lambda device: torch.rand(2, device=device),
    "tensor": lambda device: torch.tensor([1], device=device),
    "to": lambda device: torch.ones(2).to(device),
    "module": lambda device: torch.nn.Linear(2, 2).to(device),
    "empty_strided": lambda device: torch.empty_strided((2,), (1,), device=device),
}


@pytest.mark.parametrize("name", MAKE)
def test_a_device_that_does_not_exist_is_an_invalid_ordinal(name):
    assert text_of(lambda: MAKE[name]("loom:7")) == (
        "loom error: invalid device ordinal. torch.device: expected a device index in [0, 2), got 7"
    )


def test_other_functions_refuse_such_a_device_under_their_own_names():
    expected = "loom error: invalid device ordinal. {}: expected a device index in [0, 2), got 7"
    assert text_of(lambda: torch.loom.set_device(7)) == expected.format("set_device")
    assert text_of(lambda: torch.loom.synchronize(7)) == expected.format("synchronize")
    assert text_of(lambda: torch.Generator("loom:7")) == expected.format("Generator")


BAD_EMBEDDINGS = {
    "indices of floats": lambda table: functional.embedding(
        torch.ones(2, device=table.device), table
    ),
    "indices of short integers": lambda table: functional.embedding(
        torch.ones(2, dtype=torch.int16, device=table.device), table
    ),
    "a table of one dimension": lambda table: functional.embedding(
        torch.ones(2, dtype=torch.int64, device=table.device), table[0]
    ),
    "gradients by floats": lambda table: torch.ops.aten.embedding_dense_backward(
        table, torch.ones(10, device=table.device), 10, -1, False
    ),
}


@pytest.mark.parametrize("name", BAD_EMBEDDINGS)
def test_embeddings_refuse_what_the_cpu_refuses(name):
    expected = text_of(lambda: BAD_EMBEDDINGS[name](torch.ones(10, 4)))
    found = text_of(lambda: BAD_EMBEDDINGS[name](torch.ones(10, 4, device="loom")))
    assert found.replace("torch.loom.", "torch.") == expected


@pytest.mark.parametrize("index", [10, -1])
def test_an_embedding_that_is_not_there_is_reported_as_embedding(index):
    table = torch.ones(10, 4, device="loom")
    found = functional.embedding(torch.tensor([[3, index]], device="loom"), table)
    text = text_of(found.cpu, IndexError)
    assert "index out of range in self" in text
    assert "embedding" in text
    assert "index_select" not in text


def test_indices_on_another_device_are_refused_as_those_of_embedding():
    table = torch.ones(10, 4, device="loom")
    text = text_of(lambda: functional.embedding(torch.tensor([1]), table))
    assert text == (
        "Expected all tensors to be on the same device, but got indices is on cpu, different from "
        "other tensors on loom:0 (when checking argument in method aten::embedding)"
    )
    text = text_of(lambda: functional.embedding(torch.tensor([1], device="loom"), table.cpu()))
    assert "aten::embedding" in text


@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 3), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_embeddings_are_those_of_the_cpu(shape, dtype):
    indices = torch.randint(10, shape, dtype=dtype)
    found, expected = [], []
    for device, to in ((LOOM, found), (torch.device("cpu"), expected)):
        table = torch.arange(40.0, device=device).view(10, 4).t().contiguous().t()
        table.requires_grad_()
        rows = functional.embedding(indices.to(device), table, padding_idx=2)
        rows.square().sum().backward()
        to += [rows.detach().cpu(), rows.stride(), table.grad.cpu()]
    assert torch.equal(found[0], expected[0])
    assert found[1] == expected[1]
    assert torch.equal(found[2], expected[2])


def test_types_that_do_not_fit_are_named_as_python_names_them():
    x, weight = torch.ones(1, 1, 4, device="loom"), torch.ones(1, 1, 2, device="loom")
    text = text_of(lambda: functional.conv1d(x.half(), weight))
    assert "Input type (torch.loom.HalfTensor) and weight type (torch.loom.FloatTensor)" in text
