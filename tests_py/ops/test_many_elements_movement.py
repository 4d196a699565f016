# SPDX-License-Identifier: BSD-3-Clause
"""Copies, casts, factories, scans, reductions, dropout and optimizers on over 2^31 elements."""

import pytest
import torch
from many_elements import MANY, assert_ends_with, ending_with, integers, normals
from torch.nn import functional

BFLOAT16, INT8 = torch.bfloat16, torch.int8

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("memory_for_many_elements"),
]


def test_permuted_copies() -> None:
    last = integers(3, 2**15, dtype=INT8)
    x = ending_with(last, 2**16 + 3)
    turned = x.t().contiguous()
    assert_ends_with(turned, last.t(), dim=1)
    assert_ends_with(turned.t().clone(), last)
    del turned
    assert_ends_with(
        x.view(-1, 2**8, 2**7).permute(0, 2, 1).contiguous(),
        last.view(3, 2**8, 2**7).permute(0, 2, 1),
    )
    x.t().copy_(x.t() + 1)
    assert_ends_with(x, last + 1)


def test_strided_copies() -> None:
    last = integers(64, dtype=INT8)
    x = ending_with(last, MANY + 64)
    assert_ends_with(x[::2].contiguous(), last[::2])
    assert_ends_with(x[1::2] + 1, last[1::2] + 1)
    x[1::2] = x[::2]
    last[1::2] = last[::2]
    assert_ends_with(x, last)
    assert torch.equal(x.flip(0)[:64].cpu(), last.flip(0))


@pytest.mark.parametrize("to", [torch.channels_last, torch.contiguous_format])
def test_memory_formats(to: torch.memory_format) -> None:
    last = integers(3, 64, 64, 64, dtype=INT8)
    x = ending_with(last, 2**13 + 1)
    if to == torch.contiguous_format:
        x, last = x.permute(0, 3, 1, 2), last.permute(0, 3, 1, 2)
    assert_ends_with(x.contiguous(memory_format=to), last)


def test_rows_far_from_each_other() -> None:
    """Pieces of a few elements, whose rows are 2^26 elements apart."""
    last = integers(33, 64, dtype=BFLOAT16)
    part = ending_with(last, 2**26 + 2, dim=1)[:, -64:]
    assert_ends_with(part.contiguous(), last)
    assert_ends_with((part.t() + 1) * 2, (last.t() + 1) * 2)
    assert_ends_with((part * part).sum(0), (last * last).sum(0))
    assert_ends_with(part.softmax(1), last.softmax(1), 2e-2)
    part.copy_(last.to("loom") + 1)
    assert_ends_with(part, last + 1)


def test_copies_from_and_to_the_host() -> None:
    last = integers(64, dtype=INT8)
    on_host = ending_with(last, MANY + 64).cpu()
    assert_ends_with(on_host, last)
    assert_ends_with(on_host.to("loom"), last)


def test_concatenations() -> None:
    last = integers(3, dtype=INT8)
    x = ending_with(last, 2**30 + 8)
    joined = torch.cat([x, x[:7], x])
    assert_ends_with(joined, last)
    assert_ends_with(joined[: 2**30 + 8], last)
    del joined
    assert_ends_with(torch.stack([x, x], 1), torch.stack([last, last], 1))
    rows, last_rows = x.view(-1, 8), x[-8:].view(1, 8).cpu()
    assert_ends_with(torch.cat([rows, rows], 1), torch.cat([last_rows, last_rows], 1))
    assert_ends_with(rows.repeat(1, 3), last_rows.repeat(1, 3))


def test_casts_and_comparisons() -> None:
    last = integers(64, dtype=INT8)
    x = ending_with(last, MANY + 64)
    for dtype in (torch.bfloat16, torch.float16, torch.bool, torch.uint8):
        assert_ends_with(x.to(dtype), last.to(dtype))
    assert_ends_with(x.to(BFLOAT16).to(INT8), last)
    assert_ends_with(x > 0, last > 0)
    assert_ends_with(torch.where(x == x, x, 7), last)


def test_fills_and_ranges() -> None:
    x = torch.full((MANY + 64,), 3, dtype=INT8, device="loom")
    assert x[-64:].tolist() == [3] * 64
    x[MANY:] = 2
    x[:MANY].zero_()
    assert [x[MANY - 1].item(), x[MANY].item(), x[-1].item()] == [0, 2, 2]
    mask = x == 2
    assert_ends_with(x.masked_fill_(mask, 5), torch.full((64,), 5, dtype=INT8))
    assert x[mask].tolist() == [5] * 64
    del x, mask
    counted = torch.arange(MANY + 64, dtype=INT8, device="loom")
    assert_ends_with(counted, torch.arange(64).to(INT8))


def test_scans() -> None:
    last = integers(64, dtype=INT8)
    sums = torch.cumsum(ending_with(last, MANY + 64), 0, dtype=INT8)
    assert torch.equal((sums[-63:] - sums[-64:-1]).cpu(), last[1:])
    del sums
    rows = last.view(4, 16)
    x = ending_with(rows, 2**27 + 4)
    assert_ends_with(x.cumsum(1, dtype=INT8), rows.cumsum(1, dtype=INT8))


def test_sorted_rows() -> None:
    last = integers(3, 2**12, dtype=INT8)
    x = ending_with(last, 2**19 + 1)
    assert_ends_with(torch.topk(x, 3, 1)[0], torch.topk(last, 3, 1)[0])
    assert_ends_with(torch.sort(x[-64:], 1)[0], torch.sort(last, 1)[0])


def test_reductions() -> None:
    x = torch.zeros(2**16 + 3, 2**15, dtype=INT8, device="loom")
    x[-1] = 1
    x[-1, -1] = 3
    assert x.sum(0)[[0, -1]].tolist() == [1, 3]
    assert x.sum(1)[[-2, -1]].tolist() == [0, 2**15 + 2]
    assert x.amax(0)[[0, -1]].tolist() == [1, 3]
    assert x.argmax(1)[-1].item() == 2**15 - 1
    assert x.view(-1).argmax().item() == x.numel() - 1
    assert x.max().item() == 3
    assert x.view(-1).nonzero()[-1].item() == x.numel() - 1


def test_reductions_of_long_rows() -> None:
    x = torch.zeros(2, 2**29 + 64, dtype=BFLOAT16, device="loom")
    x[:, -4:] = 3
    assert (x * 2).sum(1).tolist() == [24, 24]
    assert (x * x).sum().item() == 72


def test_pointwise_operators_and_broadcasts() -> None:
    last, row, column = normals(3, 1024), normals(1024, seed=1), normals(3, 1, seed=2)
    x = ending_with(last, 2**21 + 2)
    made = x * row.to("loom")
    made.add_(ending_with(column, 2**21 + 2)).relu_().sigmoid_()
    assert_ends_with(made, torch.relu(last * row + column).sigmoid_(), 2e-2)
    product = made[-3:].cpu() * last
    assert_ends_with(made.mul_(x).clamp_(-1, 1), product.clamp_(-1, 1), 2e-2)


def test_dropout() -> None:
    x = torch.ones(2**31 + 64, dtype=torch.float16, device="loom")
    kept, mask = torch.native_dropout(x[: 2**30 + 64], 0.5, True)
    assert torch.equal(kept[-4096:].cpu(), 2 * mask[-4096:].cpu().half())
    assert 0.4 < mask[-4096:].float().mean().item() < 0.6
    assert not torch.equal(mask[-4096:], mask[:4096])
    del kept, mask
    x.bernoulli_(0.25)
    assert 0.2 < x[-4096:].float().mean().item() < 0.3
    assert not torch.equal(x[-64:], x[:64])


def test_lists_of_tensors_and_optimizers() -> None:
    last, gradient = normals(64), normals(64, seed=1)
    x = ending_with(last, MANY + 64)
    torch._foreach_mul_([x], 2.0)
    torch._foreach_add_([x], [x], alpha=0.5)
    assert_ends_with(x, last * 3, 2e-2)
    del x
    # Adam has two more tensors for each.
    for optimizer, count in ((torch.optim.SGD, MANY + 64), (torch.optim.Adam, 2**30 + 64)):
        ours = torch.nn.Parameter(ending_with(last, count))
        ours.grad = ending_with(gradient, count)
        theirs = torch.nn.Parameter(last.clone())
        theirs.grad = gradient.clone()
        for parameter in (ours, theirs):
            optimizer([parameter], lr=0.5, fused=optimizer is torch.optim.Adam).step()
        assert_ends_with(ours, theirs, 2e-2)
        del ours, theirs, parameter


def test_pixel_shuffle() -> None:
    last = integers(3, 64, 64, 64, dtype=INT8)
    shuffled = functional.pixel_shuffle(ending_with(last, 2**13 + 2), 2)
    assert_ends_with(shuffled, functional.pixel_shuffle(last, 2))
