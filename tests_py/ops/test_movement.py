# SPDX-License-Identifier: BSD-3-Clause
"""Copies into another order of elements: permutations, memory formats, concatenations."""

import pytest
import torch

WIDTHS = {
    1: torch.int8,
    2: torch.bfloat16,
    4: torch.float32,
    8: torch.float64,
    16: torch.complex128,
}
# Whole tiles, parts of them, narrow matrices, runs, and what is neither.
PERMUTATIONS = [
    ((64, 64), (1, 0)),
    ((37, 53), (1, 0)),
    ((1000, 70), (1, 0)),
    ((130, 1, 129), (2, 1, 0)),
    ((3, 64, 56), (0, 2, 1)),
    ((2, 3, 17, 19), (0, 2, 3, 1)),
    ((2, 17, 19, 3), (0, 3, 1, 2)),
    ((2, 64, 14, 14), (0, 2, 3, 1)),
    ((4, 33, 6, 64), (0, 2, 1, 3)),
    ((4, 5, 6, 7), (3, 2, 1, 0)),
    ((9, 8, 7, 2), (1, 0, 2, 3)),
    ((5, 6, 7, 8, 3), (4, 2, 0, 1, 3)),
    ((2, 2, 2, 2, 2, 2, 2, 2, 3), (8, 7, 5, 3, 1, 0, 2, 4, 6)),
]


def numbers(shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    return (torch.randn(shape, generator=generator) * 50).to(dtype)


def same(got, wanted):
    assert got.stride() == wanted.stride()
    assert torch.equal(got.cpu(), wanted)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("shape", "order"), PERMUTATIONS)
def test_a_permuted_tensor_is_made_contiguous(shape, order, width):
    x = numbers(shape, WIDTHS[width])
    same(x.to("loom").permute(order).contiguous(), x.permute(order).contiguous())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("shape", "order"), PERMUTATIONS)
def test_a_permuted_copy_leaves_the_elements_around_it_alone(shape, order, width):
    x = numbers(shape, WIDTHS[width])
    inside = tuple(slice(1, x.shape[d] + 1) for d in order)
    wanted = torch.zeros([x.shape[d] + 3 for d in order], dtype=x.dtype)
    got = wanted.to("loom")
    wanted[inside] = x.permute(order)
    got[inside] = x.to("loom").permute(order)
    same(got, wanted)


@pytest.mark.parametrize("bytes_", [16, 63, 64, 65, 127, 128, 200, 256, 1000, 1024, 1025, 5000])
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 4, 1), (40, 6, 13)])
def test_runs_of_any_length(shape, bytes_):
    """Some or all of a dimension in a block, from any address on; what is around is left alone."""
    around = torch.arange(torch.Size(shape).numel() * (bytes_ + 3)).to(torch.uint8)
    source = around.view(*shape, bytes_ + 3)[..., 2:-1]
    to = torch.full((shape[1], shape[0], shape[2], bytes_ + 3), 77, dtype=torch.uint8)
    wanted = to.clone()
    wanted[..., 1:-2] = source.transpose(0, 1)
    got = to.to("loom")
    got[..., 1:-2].copy_(around.to("loom").view(*shape, bytes_ + 3)[..., 2:-1].transpose(0, 1))
    assert torch.equal(got.cpu(), wanted)
    dense = around.to("loom")[: source.numel()].view(source.shape).transpose(0, 1)
    assert torch.equal(dense.contiguous().cpu(), dense.cpu().contiguous())


def test_results_larger_than_the_caches():
    x = numbers((8192, 2100))
    y = x.to("loom")
    same(y[:2048].t().contiguous(), x[:2048].t().contiguous())
    same(torch.cat([y, y[:, :1001]], 1), torch.cat([x, x[:, :1001]], 1))
    heads = x[:, :2048].reshape(64, 128, 32, 64)
    same(heads.to("loom").transpose(1, 2).contiguous(), heads.transpose(1, 2).contiguous())


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [1, 2, 3, 16, 65])
def test_memory_formats(channels, memory_format):
    x = numbers((3, channels, 13, 9)).contiguous(memory_format=memory_format)
    other = {torch.contiguous_format: torch.channels_last}.get(
        memory_format, torch.contiguous_format
    )
    y = x.to("loom")
    same(y.contiguous(memory_format=other), x.contiguous(memory_format=other))
    same(y.clone(memory_format=other), x.clone(memory_format=other))
    same(
        y.to(torch.bfloat16, memory_format=other),
        x.to(torch.bfloat16, memory_format=other),
    )


def test_broadcast_rows_are_copied():
    x = numbers((1, 50, 1, 40))
    same(x.to("loom").expand(4, 50, 3, 40).contiguous(), x.expand(4, 50, 3, 40).contiguous())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_concatenation(dim, width):
    def parts(lengths):
        shapes = [[4, 6, 7] for _ in lengths]
        for shape, length in zip(shapes, lengths, strict=True):
            shape[dim] = length
        return [numbers(shape, WIDTHS[width]) for shape in shapes]

    for tensors in (parts([1, 3, 0, 900]), parts([2] * 300)):
        on_loom = [tensor.to("loom") for tensor in tensors]
        same(torch.cat(on_loom, dim), torch.cat(tensors, dim))
    x = parts([5])[0]
    same(torch.stack([x.to("loom")] * 3, dim), torch.stack([x] * 3, dim))


def test_concatenation_of_other_layouts_and_dtypes():
    x = numbers((6, 40, 80))
    layouts = [
        lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
        lambda t: t[:, :, ::2],
        lambda t: t.half(),
        lambda t: t[:, :1].expand(-1, 40, -1),
    ]
    for layout in layouts:
        for dim in (0, 1):
            wanted = torch.cat([layout(x), layout(x)[:, :40]], dim)
            same(torch.cat([layout(x.to("loom")), layout(x.to("loom"))[:, :40]], dim), wanted)
    mixed = [x, x.half(), x.int()]
    same(torch.cat([t.to("loom") for t in mixed], 1), torch.cat(mixed, 1))
    images = numbers((2, 5, 6, 7)).contiguous(memory_format=torch.channels_last)
    same(torch.cat([images.to("loom")] * 2, 1), torch.cat([images] * 2, 1))


def test_a_captured_concatenation_is_replayed():
    x, y = numbers((30, 40)).to("loom"), numbers((30, 50)).to("loom")
    graph = torch.accelerator.Graph()
    with graph:
        joined = torch.cat([x, y], 1)
    for factor in (1, 2):
        x.fill_(factor)
        graph.replay()
        assert torch.equal(joined, torch.cat([x, y], 1))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(), (3,), (37, 53), (300, 1000)])
def test_stacked_along_the_last_dimension(shape, count, width):
    parts = [numbers(shape, WIDTHS[width]) + i for i in range(count)]
    on_loom = [part.to("loom") for part in parts]
    same(torch.stack(on_loom, -1), torch.stack(parts, -1))
    if len(shape) == 2:
        same(torch.stack([p.mT for p in on_loom], -1), torch.stack([p.mT for p in parts], -1))


def test_stacked_parts_of_which_one_is_conjugated_or_of_another_dtype():
    x = numbers((50, 60), torch.complex64)
    y = x.to("loom")
    same(torch.stack([y, y.conj()], -1), torch.stack([x, x.conj()], -1))
    same(torch.stack([y, y.real], -1), torch.stack([x, x.real], -1))
    same(torch.stack([y, y.expand(50, 60)[::1]], -1), torch.stack([x, x], -1))


FLIPS = [
    ((80, 160, 80), (0, 1, 2)),
    ((80, 160, 80), (1,)),
    ((80, 160, 80), (0,)),
    ((300, 700), (-1,)),
    ((90000, 3), (1,)),
    ((90000, 3), (0, 1)),
    ((50, 60, 7, 5), (0, 3)),
    ((50, 60, 7, 5), (1, 2)),
    ((300000,), (0,)),
    ((1, 5, 1), (0, 1)),
    ((2, 2, 2, 2, 2, 2, 2, 2, 3), (0, 2, 4, 6, 8)),
    ((), (0,)),
    ((0, 4), (1,)),
]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("shape", "dims"), FLIPS)
def test_a_flipped_tensor(shape, dims, width):
    x = numbers(shape, WIDTHS[width])
    y = x.to("loom")
    same(y.flip(dims), x.flip(dims))
    if x.dim() > 1:
        same(y.mT.flip(dims), x.mT.flip(dims))
        same(y[..., ::2].flip(dims), x[..., ::2].flip(dims))


def test_a_flip_along_what_is_not_there_is_refused_as_on_cpu():
    for dims in ((0, 0), (0, -2), (2,), (5,)):
        messages = []
        for device in ("cpu", "loom"):
            with pytest.raises((RuntimeError, IndexError)) as raised:
                torch.ones(3, 4, device=device).flip(dims)
            messages.append(str(raised.value))
        assert messages[0] == messages[1]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("columns", [1, 2, 3, 5, 7, 15, 31, 63])
def test_columns_are_put_beside_each_other(columns, width):
    x, y = numbers((9001, columns), WIDTHS[width]), numbers((9001, 4), WIDTHS[width])
    same(torch.cat([x.to("loom"), y.to("loom")], 1), torch.cat([x, y], 1))


SMALL = [
    ((3001, 2, 3, 4), (0, 2, 3, 1)),
    ((3001, 3, 2, 3), (0, 3, 1, 2)),
    ((700, 9, 2), (1, 0, 2)),
    ((5, 2, 3, 3000), (3, 2, 1, 0)),
    ((6, 3000), (1, 0)),
    ((3000, 6), (1, 0)),
    ((2, 5, 3000), (0, 2, 1)),
]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("shape", "order"), SMALL)
def test_small_matrices_and_narrow_ones(shape, order, width):
    x = numbers(shape, WIDTHS[width])
    same(x.to("loom").permute(order).contiguous(), x.permute(order).contiguous())
    wanted = torch.zeros([size + 1 for size in x.permute(order).shape], dtype=x.dtype)
    got = wanted.to("loom")
    inside = tuple(slice(1, None) for _ in order)
    wanted[inside] = x.permute(order)
    got[inside] = x.to("loom").permute(order)
    same(got, wanted)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shape", [(4000, 1, 5), (1, 3000, 4), (60, 70, 1), (300, 1, 300)])
def test_what_is_broadcast_or_overlaps(shape, width):
    x = numbers(shape, WIDTHS[width])
    wide = [size if size > 1 else 6 for size in shape]
    same(x.to("loom").expand(wide).contiguous(), x.expand(wide).contiguous())
    if shape[0] > 10:
        same(x.to("loom").unfold(0, 4, 1).contiguous(), x.unfold(0, 4, 1).contiguous())
