# SPDX-License-Identifier: BSD-3-Clause
"""Operators whose result is as large as the data say: the host waits for a number, no more."""

import pytest
import torch
from compare import agrees, assert_same, natively, same_error, to_loom
from ops_support import DTYPES, keep_busy

COMPARED = [dtype for dtype in DTYPES if not dtype.is_complex]
BLOCK = 1 << 15  # elements that one block counts


def some(*shape, dtype=torch.float32, seed=5, share=0.3):
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(shape, generator=generator) < share
    return (torch.randn(shape, generator=generator) * 9 * chosen).to(dtype)


SHAPES = [
    (),
    (0,),
    (1,),
    (7,),
    (0, 3),
    (3, 0),
    (5, 1),
    (3, 4, 5),
    (2, 1, 3, 2, 2),
    (3 * BLOCK + 5,),
]


@pytest.mark.parametrize("shape", [*SHAPES, (70, 1001), (BLOCK, 2)], ids=str)
def test_nonzero(shape):
    for share in (0, 0.3, 1):
        x = some(*shape, share=share)
        expected = x.nonzero()
        actual = natively(torch.nonzero, to_loom(x))
        assert_same(actual, expected)
        assert actual.stride() == expected.stride()
        agrees(torch.argwhere, x)
        agrees(lambda x: torch.nonzero(x, as_tuple=True), x)


@pytest.mark.parametrize("dtype", [*COMPARED, torch.complex64, torch.complex128], ids=str)
def test_nonzero_of_every_dtype(dtype):
    agrees(torch.nonzero, some(9, 300, dtype=dtype))


def test_nonzero_looks_at_values_not_at_bits():
    x = torch.tensor([0.0, -0.0, float("nan"), -1e-45, float("inf")])
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        agrees(torch.nonzero, x.to(dtype))
    agrees(torch.nonzero, torch.complex(x, -torch.zeros(5)))
    agrees(torch.nonzero, torch.complex(torch.zeros(5), x).conj())


def test_nonzero_of_views():
    x = some(40, 50)
    for view in (x.t(), x[::3, 1::2], x[:, :1].expand(40, 6), x[3], x[:, 2]):
        agrees(torch.nonzero, view)
        agrees(torch.nonzero, view > 0)


def test_nonzero_into_given_tensors():
    x = some(40, 50)
    rows = int((x != 0).sum())
    for out in (torch.empty(0, dtype=torch.long), torch.empty(rows, 2, dtype=torch.long)):
        agrees(lambda x, out: torch.nonzero(x, out=out), x, out)
    agrees(lambda x, out: torch.nonzero(x, out=out), x, torch.zeros(rows, 4).long()[:, ::2])
    same_error(lambda x, out: torch.nonzero(x, out=out), x, torch.empty(0))
    same_error(lambda x: torch.nonzero(x, out=x.long().view(40, 50)[:1].expand(7, 50)), x)
    same_error(torch.nonzero, torch.ones(3).to(torch.float8_e4m3fn))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex128, torch.bfloat16])
def test_masked_select(shape, dtype):
    x = some(*shape, dtype=dtype)
    for share in (0, 0.4, 1):
        agrees(torch.masked_select, x, some(*shape, share=share, seed=8) != 0)


def test_masked_select_broadcasts_and_checks():
    x, mask = some(40, 50), some(40, 1) != 0
    agrees(torch.masked_select, x, mask)
    agrees(torch.masked_select, x[0], mask)
    agrees(torch.masked_select, x.t(), mask.t())
    agrees(torch.masked_select, x[::2], mask[::2])
    agrees(torch.masked_select, x.to(torch.float8_e4m3fn).view(torch.uint8), mask)
    agrees(torch.masked_select, torch.complex(x, x).conj(), mask)
    agrees(lambda x, m: torch.masked_select(x, m, out=x.new_empty(0)), x, mask)
    count = int(mask.sum()) * 50
    agrees(
        lambda x, m, out: torch.masked_select(x, m, out=out), x, mask, torch.zeros(count * 2)[::2]
    )
    same_error(torch.masked_select, x, mask.float())
    same_error(torch.masked_select, x, mask[:3])
    same_error(lambda x, m: torch.masked_select(x, m, out=x.int()), x, mask)
    same_error(lambda x, m: torch.masked_select(x, m, out=x), x, mask.expand(40, 50))


def test_masks_as_indices_and_printing():
    x = some(40, 50)
    agrees(lambda x: x[x > 0], x)
    agrees(lambda x: x[x[:, 0] > 0], x)
    agrees(lambda x: x.clone().index_put_((x > 0,), x[x > 0] * 2), x)
    assert natively(repr, to_loom(x)) == repr(to_loom(x))
    assert natively(repr, to_loom(some(5, dtype=torch.int64)))
    assert natively(repr, to_loom(torch.tensor([1e-9, float("nan")])))


@pytest.mark.parametrize("value", [2, 2.5, True], ids=str)
def test_one_value_of_another_dtype_is_put_at_a_mask(value):
    for dtype in COMPARED:
        for number in (torch.tensor(value), torch.tensor([value])):
            agrees(
                lambda x, v: x.clone().index_put_((x > 0,), v), some(40, 50, dtype=dtype), number
            )


def test_gradients_of_selections():
    def loss(x):
        return (torch.masked_select(x, x.detach() > 0) ** 2).sum() + x[x.detach() < 0].sum()

    x = some(40, 50)
    ours = to_loom(x).requires_grad_()
    natively(lambda: loss(ours).backward())
    theirs = x.clone().requires_grad_()
    loss(theirs).backward()
    torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


@pytest.mark.parametrize("dtype", COMPARED, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (30,), (20, 30), (BLOCK + 3,)], ids=str)
def test_unique(shape, dtype):
    x = some(*shape, dtype=torch.float32).round().to(dtype)
    for inverse, counts in ((False, False), (True, False), (False, True), (True, True)):
        agrees(lambda x: torch.unique(x, return_inverse=inverse, return_counts=counts), x)  # noqa: B023
        agrees(torch._unique2, x, True, inverse, counts)
        agrees(torch._unique, x, True, inverse)
        agrees(torch.ops.aten.unique_consecutive, x, inverse, counts)


@pytest.mark.parametrize("dtype", COMPARED, ids=str)
def test_unique_slices(dtype):
    x = some(6, 2, 3, dtype=torch.float32).sign().to(dtype)
    for dim in (0, 1, -1):
        for function in (torch.ops.aten.unique_dim, torch.ops.aten.unique_dim_consecutive):
            agrees(function, x, dim)
            agrees(function, x.permute(2, 0, 1), dim)
            agrees(function, x.repeat_interleave(3, dim), dim)
        agrees(lambda x: torch.unique(x, dim=dim, return_inverse=True, return_counts=True), x)  # noqa: B023
        agrees(lambda x: torch.unique_consecutive(x, dim=dim, return_counts=True), x)  # noqa: B023


def test_unique_of_nan_and_refusals():
    x = torch.tensor([float("nan"), 1, float("nan"), 1])
    agrees(torch._unique2, x, True, True, True)
    agrees(torch._unique, x, True, True)
    agrees(torch.unique_consecutive, x)
    agrees(torch.ops.aten.unique_dim, torch.ones(3, 0), 1)
    for function in (torch.unique, torch.unique_consecutive):
        same_error(function, torch.ones(3, dtype=torch.complex64))
    for dim in (0, 1, 5):
        same_error(torch.ops.aten.unique_dim, torch.ones(0, 0), dim)
    same_error(torch.ops.aten.unique_dim, torch.ones(3, 0), 0)
    same_error(torch.ops.aten.unique_dim, torch.ones(()), 0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8], ids=str)
def test_bincount(dtype):
    x = torch.arange(300, dtype=dtype) % 17
    agrees(torch.bincount, x)
    agrees(lambda x: torch.bincount(x, minlength=50), x)
    agrees(lambda x: torch.bincount(x[:0], minlength=5), x)
    agrees(torch.bincount, x[::2])
    for weights in (some(300), some(300).double(), some(300).half(), some(300).int()):
        agrees(torch.bincount, x, weights)


def test_bincount_refuses_what_cpu_refuses():
    x = torch.arange(3)
    for bad in (x.float(), x > 1, -x, x[None], torch.tensor([2**63 - 1])):
        same_error(torch.bincount, bad)
    same_error(torch.bincount, x, torch.ones(2))
    same_error(lambda x: torch.bincount(x, minlength=-1), x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_repeat_interleave(dtype):
    times = (torch.arange(40) % 7).to(dtype)
    agrees(torch.repeat_interleave, times)
    agrees(torch.repeat_interleave, times[::3])
    agrees(torch.repeat_interleave, times[:0])
    agrees(lambda t: torch.repeat_interleave(t, output_size=int(t.sum().cpu())), times)
    agrees(torch.repeat_interleave, some(40, 3), times, 0)
    for bad in (-times, times[None], times.float(), times.short()):
        same_error(torch.repeat_interleave, bad)


def test_repeat_interleave_of_known_size_does_not_wait():
    times = torch.tensor([1, 2], device="loom")
    keep_busy()
    result = torch.repeat_interleave(times, output_size=3)
    assert not torch.loom.current_stream().query()
    assert result.tolist() == [0, 1, 1]
    torch.repeat_interleave(times, output_size=5)
    with pytest.raises(RuntimeError, match="allocated size does not match required size"):
        torch.loom.synchronize()


@pytest.mark.parametrize(
    "call",
    [torch.nonzero, lambda x: x[x > 0], torch.unique, lambda x: torch.bincount(x.long())],
)
def test_captures_refuse_what_depends_on_data(call):
    x = torch.ones(5, device="loom")
    torch.loom.synchronize()
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="cannot be captured"), graph:
        call(x)
