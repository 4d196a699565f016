# SPDX-License-Identifier: BSD-3-Clause
"""Selection by index, embeddings, concatenation, gathers, scatters, sorts."""

import pytest
import torch
from compare import agrees, gradients_agree, same_error

F = torch.nn.functional


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(17))


def indices(count, *shape):
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(19))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_index_select(dim):
    x = numbers(40, 50, 60)
    for index in (indices(40, 3000), indices(40, 0), indices(40, 1), indices(40, 7).int()):
        agrees(lambda x, i: x.index_select(dim, i), x, index)
    agrees(lambda x, i: x.t().index_select(0, i), numbers(30, 40), indices(40, 5))
    agrees(
        lambda x, i, o: torch.index_select(x, 0, i, out=o),
        numbers(30, 4),
        indices(30, 5),
        torch.zeros(5, 4),
    )
    agrees(lambda x, i: x.index_select(0, i), numbers(), indices(1, 1))


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float64, torch.complex128])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_index_select_of_all_widths(dim, dtype):
    x = (numbers(9, 50, 7) * 3).to(dtype)
    agrees(lambda x, i: x.index_select(dim, i), x, indices(7, 3000))


def test_embedding_gradients_leave_padding_and_what_is_no_row_out():
    index = torch.tensor([[1, 2, 1], [7, 3, -1]])
    for padding in (-1, 1):
        agrees(
            lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 5, padding, False),  # noqa: B023
            numbers(2, 3, 70),
            index,
        )


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("columns", [1, 70, 200])
def test_embedding_gradients_of_rows_that_are_met_often(columns, dtype):
    for often in (0, 100, 999):
        index = indices(400, 1000).to(dtype)
        index[:often] = 17
        agrees(
            lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 400, -1, False),
            numbers(1000, columns),
            index,
        )


def test_embedding_gradients_of_few_rows():
    agrees(
        lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 3, -1, False),
        numbers(2000, 64) / 8,
        indices(3, 2000),
    )


def test_an_embedding_gradient_of_another_size_than_the_indices():
    same_error(
        lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 3, -1, False),
        numbers(5, 8),
        indices(3, 10),
    )


def test_embedding_gradients_of_transposed_operands():
    agrees(
        lambda g, i: torch.ops.aten.embedding_dense_backward(g.transpose(0, 1), i.mT, 50, 3, False),
        numbers(20, 30, 40),
        indices(50, 20, 30),
    )


def test_an_embedding_gradient_of_negative_zeros_is_zero():
    grad, index = torch.full((3, 40), -0.0), torch.tensor([1, 1, 2])
    expected = torch.ops.aten.embedding_dense_backward(grad, index, 4, -1, False)
    actual = torch.ops.aten.embedding_dense_backward(
        grad.to("loom"), index.to("loom"), 4, -1, False
    )
    assert torch.equal(actual.cpu().signbit(), expected.signbit())


def test_embedding():
    for shape in ((7,), (4, 100), (64, 256)):
        agrees(F.embedding, indices(300, *shape), numbers(300, 80))
        gradients_agree(lambda w, i: F.embedding(i, w), numbers(300, 80), indices(300, *shape))
    gradients_agree(
        lambda w, i: F.embedding(i, w, padding_idx=3, scale_grad_by_freq=True),
        numbers(300, 300),
        indices(300, 64, 64),
    )


def test_an_index_out_of_range_is_reported_at_the_next_synchronisation():
    x, index = numbers(10, 4).to("loom"), torch.tensor([3, 11]).to("loom")
    x.index_select(0, index)
    with pytest.raises((IndexError, RuntimeError), match="index out of range"):
        torch.loom.synchronize()
    assert x.sum().isfinite().item()


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_cat(dim):
    parts = [numbers(*(n if d == dim % 3 else 40 for d in range(3))) for n in (3, 50, 1, 70)]
    agrees(lambda *x: torch.cat(x, dim), *parts)
    agrees(lambda *x: torch.cat(x, dim), *(x.transpose(0, 1) if dim == 2 else x for x in parts))
    agrees(lambda *x: torch.cat(x, dim), parts[0].double(), parts[1].int(), parts[2])
    gradients_agree(lambda *x: torch.cat(x, dim), *parts)


def test_cat_of_empty_vectors_channels_last_and_into_a_tensor():
    agrees(lambda *x: torch.cat(x), torch.zeros(0), numbers(3, 4), numbers(2, 4))
    x = numbers(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    agrees(lambda *x: torch.cat(x, 1), x, x)
    agrees(lambda x, o: torch.cat([x, x], out=o), numbers(3, 4), torch.zeros(6, 4))
    agrees(lambda *x: torch.stack(x, 1), numbers(3, 4), numbers(3, 4))


def test_gather_and_scatter():
    x, index = numbers(50, 60), indices(50, 20, 60)
    agrees(lambda x, i: x.gather(0, i), x, index)
    agrees(lambda x, i: x.scatter(0, i, 7.0), x, indices(50, 1, 60))
    agrees(lambda x, i: x.scatter_add(0, i, x[:20] * 1), x, index)
    agrees(lambda x, i: x.index_add(0, i, x[:20] * 1), x, indices(50, 20))
    gradients_agree(lambda x, i: x.gather(0, i), x, index)


def test_sort_topk_and_triangles():
    x = numbers(30, 400)
    agrees(lambda x: x.sort(dim=1, stable=True), x)
    agrees(lambda x: x.topk(5, 1), x)
    agrees(torch.tril, x)
    agrees(lambda x: x.triu_(2), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.index_select(2, torch.zeros(1, dtype=torch.int64, device=x.device)),
        lambda x: x.index_select(0, x[0]),
        lambda x: x.index_select(0, torch.zeros(1, 1, dtype=torch.int64, device=x.device)),
        lambda x: torch.cat([x, x[:, :2]]),
        lambda x: torch.cat([x, x], 3),
        lambda x: torch.cat([x, x[0]]),
        lambda x: torch.cat([x, x], out=x),
    ],
)
def test_errors(function):
    same_error(function, numbers(4, 5))


def test_index_select_of_nothing_raises_what_cpu_raises():
    def select(device):
        index = torch.zeros(3, dtype=torch.long, device=device)
        return torch.zeros(0, 5, device=device).index_select(0, index).cpu()

    errors = []
    for device in ("cpu", "loom"):
        with pytest.raises(RuntimeError) as raised:
            select(device)
        errors.append(type(raised.value))
    assert errors[0] is errors[1]


@pytest.mark.parametrize("invert", [False, True])
def test_whether_a_number_is_among_others(invert):
    for number, others in ((5, indices(9, 6)), (5.0, numbers(30)), (2, indices(9, 3, 40))):
        agrees(lambda x, n=number: torch.isin(n, x, invert=invert), others)
        agrees(lambda x, n=number: torch.isin(x, n, invert=invert), others)
    agrees(lambda x, o: torch.isin(5, x, out=o), indices(9, 6), torch.zeros(0, dtype=torch.bool))
    agrees(lambda x: torch.isin(5, x, invert=invert), indices(9, 0))
    same_error(lambda x: torch.isin(5j, x), indices(9, 6))


OTHER_DEVICES = {
    "index": lambda x, i: x[i],
    "index of several dimensions": lambda x, i: x[:, i],
    "_unsafe_index": lambda x, i: torch.ops.aten._unsafe_index(x, [i]),
    "index out": lambda x, i: torch.ops.aten.index.Tensor_out(
        x, [i], out=torch.empty(2, 3, device=x.device)
    ),
    "assignment of a number": lambda x, i: x.__setitem__(i, 0),
    "assignment of a tensor": lambda x, i: x.__setitem__(i, torch.ones(2, 3, device=x.device)),
    "addition": lambda x, i: x.index_put_((i,), torch.ones((), device=x.device), accumulate=True),
    "index_put": lambda x, i: x.index_put((i,), torch.ones((), device=x.device)),
}


@pytest.mark.parametrize("name", OTHER_DEVICES)
@pytest.mark.parametrize("index", [[1, 2], [True, False, True]], ids=["numbers", "mask"])
def test_indices_on_the_device_of_a_tensor_on_the_host_are_refused(name, index):
    if name == "_unsafe_index" and index[0] is True:
        pytest.skip("masks are refused before")
    x = torch.arange(9.0).view(3, 3)
    text = r"^indices should be either on cpu or on the same device as the indexed tensor \(cpu\)"
    with pytest.raises(RuntimeError, match=text):
        OTHER_DEVICES[name](x, torch.tensor(index, device="loom"))
    assert torch.equal(x, torch.arange(9.0).view(3, 3))


@pytest.mark.parametrize("name", OTHER_DEVICES)
@pytest.mark.parametrize("where", ["cpu", "loom"])
def test_indices_on_the_host_or_beside_the_tensor_are_taken(name, where):
    expected, actual = torch.arange(9.0).view(3, 3), torch.arange(9.0).view(3, 3).to("loom")
    index = torch.tensor([1, 2])
    theirs = OTHER_DEVICES[name](expected, index)
    ours = OTHER_DEVICES[name](actual, index.to(where))
    assert torch.equal(actual.cpu(), expected)
    if theirs is not None:
        assert ours.device.type == "loom"
        assert torch.equal(ours.cpu(), theirs)
