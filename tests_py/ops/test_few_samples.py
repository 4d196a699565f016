# SPDX-License-Identifier: BSD-3-Clause
"""Layers of one sample or few, which are cut along something else: values, strides and gradients of
cpu, the same on any number of cores."""

import pytest
import torch
from split_checks import Case, all_cores, check_cores, check_gradients, check_values, random
from torch.nn import functional as F  # noqa: N812

__all__ = ["all_cores"]  # a fixture


def last(*shape: int) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return random(*shape).contiguous(memory_format=formats[len(shape)])


def group_norm(groups: int):
    return lambda x, weight, bias: F.group_norm(x, groups, weight, bias)


def unfold(kernel, **options):
    return lambda x: F.unfold(x, kernel, **options)


CASES: dict[str, Case] = {
    "group_norm of one": (group_norm(16), (random(1, 64, 60, 60), random(64), random(64))),
    "group_norm of two": (group_norm(7), (random(2, 63, 41, 40), random(63), random(63))),
    "group_norm of one signal": (group_norm(5), (random(1, 40, 9001), random(40), random(40))),
    "group_norm of one group": (group_norm(1), (random(1, 6, 100, 300), random(6), random(6))),
    "group_norm of rows": (group_norm(40), (random(1, 80, 4000), random(80), random(80))),
    "group_norm without a scale": (lambda x: F.group_norm(x, 12), (random(3, 24, 50, 60),)),
    "group_norm of a slice": (
        lambda x: F.group_norm(x[:, ::2, 1:], 4),
        (random(1, 32, 60, 70),),
    ),
    "group_norm, channels last": (group_norm(8), (last(1, 64, 50, 50), random(64), random(64))),
    "instance_norm of one": (lambda x: F.instance_norm(x), (random(1, 64, 60, 60),)),
    "unfold of one": (unfold(3, padding=1), (random(1, 24, 40, 41),)),
    "unfold with strides": (
        unfold((2, 5), padding=(1, 4), stride=(3, 2), dilation=(2, 3)),
        (random(2, 16, 50, 33),),
    ),
    "unfold of patches": (unfold(16, stride=16), (random(1, 3, 160, 176),)),
    "unfold beside the image": (unfold(3, padding=7, dilation=5), (random(2, 3, 4, 5),)),
    "unfold of a plane": (unfold((1, 4)), (random(6, 30, 90),)),
    "unfold of columns": (lambda x: F.unfold(x.mT, 3, stride=2), (random(2, 3, 40, 50),)),
    "unfold of double": (lambda x: F.unfold(x.double(), 2), (random(1, 3, 40, 50),)),
    "unfold of bfloat16": (lambda x: F.unfold(x.bfloat16(), 2).float(), (random(1, 3, 40, 50),)),
    "mean of one image, channels last": (
        lambda x: F.adaptive_avg_pool2d(x, 1),
        (last(1, 330, 60, 61),),
    ),
    "mean of images, channels last": (
        lambda x: F.adaptive_avg_pool2d(x, 1),
        (last(3, 96, 50, 50),),
    ),
    "means of parts, channels last": (
        lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
        (last(2, 75, 30, 31),),
    ),
    "mean of a volume, channels last": (
        lambda x: F.adaptive_avg_pool3d(x, 1),
        (last(1, 70, 9, 20, 20),),
    ),
    "avg_pool2d, channels last": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        (last(1, 40, 30, 31),),
    ),
    "avg_pool3d, channels last": (lambda x: F.avg_pool3d(x, 3, 2, 1), (last(2, 17, 9, 20, 21),)),
    "avg_pool3d of patches, channels last": (
        lambda x: F.avg_pool3d(x, 2),
        (last(2, 48, 8, 20, 20),),
    ),
    "avg_pool2d of bfloat16, channels last": (
        lambda x: F.avg_pool2d(x.bfloat16(), 2, divisor_override=3).float(),
        (last(1, 81, 30, 30),),
    ),
    "avg_pool2d of double, channels last": (
        lambda x: F.avg_pool2d(x.double(), 2),
        (last(1, 81, 30, 30),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_cpu(name: str) -> None:
    check_values(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_cores_do_not_matter(name: str) -> None:
    check_cores(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_cpu(name: str) -> None:
    check_gradients(CASES[name])


@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (1, 65, 70), (5, 9, 700), (33, 512, 500), (64, 300, 33), (300, 70, 33)],
    ids=str,
)
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_integers(shape: tuple[int, int, int], turned: bool) -> None:
    """Exact, also where cpu's are not: on processors whose sums of two products saturate."""
    rows, inner, columns = shape
    torch.manual_seed(0)
    a = torch.randint(-200, 200, (rows, inner)).clamp(-128, 127).to(torch.int8)
    b = torch.randint(-200, 200, (inner, columns)).clamp(-128, 127).to(torch.int8)
    b = b.mT.contiguous().mT if turned else b
    expected = a.int() @ b.int()
    found = torch._int_mm(a.to("loom"), b.to("loom"))
    assert found.dtype == torch.int32
    assert torch.equal(found.cpu(), expected)
    given = torch.empty(rows, columns, dtype=torch.int32, device="loom")
    torch._int_mm(a.to("loom"), b.to("loom"), out=given)
    assert torch.equal(given.cpu(), expected)


@pytest.mark.parametrize("rows", [1, 7, 70])
def test_products_of_integers_between_gaps(rows: int) -> None:
    """Rows and columns of larger matrices, and every other element."""
    torch.manual_seed(0)
    a = torch.randint(-128, 128, (2 * rows, 150), dtype=torch.int8)
    b = torch.randint(-128, 128, (90, 150), dtype=torch.int8)
    on_loom = a.to("loom"), b.to("loom")
    for of in (
        lambda a, b: (a[::2, 3:], b[5:, 3:].t()),
        lambda a, b: (a[:rows, ::2], b[:, ::2].t()),
        lambda a, b: (a[:1].expand(rows, -1), b[:1].expand(40, -1).t()),
    ):
        left, right = of(a, b)
        found = torch._int_mm(*of(*on_loom))
        assert torch.equal(found.cpu(), left.int() @ right.int())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 7, 8, 33, 150])
def test_products_with_weights_of_bytes(rows: int, dtype: torch.dtype) -> None:
    """In many rows, whose weights are widened once. cpu's kernel takes other numbers of columns."""
    torch.manual_seed(0)
    x = torch.randn(rows, 203).to(dtype)
    weight = torch.randint(-128, 128, (75, 203), dtype=torch.int8)
    scales = (torch.rand(75) / 64).to(dtype)
    found = torch._weight_int8pack_mm(x.to("loom"), weight.to("loom"), scales.to("loom"))
    exact = (x.double() @ weight.double().t()) * scales.double()
    assert found.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.cpu().double(), exact, rtol=tolerance, atol=1e-5)
    # Rows with gaps between them are read past their ends by cpu's kernel.
    gaps = torch.cat([x, x], 1).to("loom")[:, :203]
    again = torch._weight_int8pack_mm(gaps, weight.to("loom"), scales.to("loom"))
    assert torch.equal(again, found)


@pytest.mark.parametrize(
    "operands",
    [
        (torch.ones(3, 4), torch.ones(4, 5)),
        (torch.ones(3, 4).char(), torch.ones(3, 5).char()),
        (torch.ones(3, 4).char(), torch.ones(4).char()),
        (torch.ones(3).char(), torch.ones(3, 4).char()),
    ],
    ids=["floats", "sizes", "a vector", "a vector first"],
)
def test_refused_products_of_integers(operands: tuple[torch.Tensor, torch.Tensor]) -> None:
    errors = []
    for device in ("cpu", "loom"):
        with pytest.raises((RuntimeError, IndexError)) as error:
            torch._int_mm(*(each.to(device) for each in operands))
        errors.append(str(error.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("beta", [0.5, 1, 0])
@pytest.mark.parametrize("sizes", [(100, 9, 33, 17), (7, 50, 50, 50), (2, 130, 40, 70)], ids=str)
def test_batches_of_sums(sizes: tuple[int, ...], beta: float, dtype: torch.dtype) -> None:
    batch, rows, inner, columns = sizes
    a, b = random(batch, rows, inner).to(dtype), random(batch, inner, columns).to(dtype)
    addends = [random(batch, rows, columns), random(batch, columns, rows).mT, random(rows, 1)]
    addends += [random(batch, 1, columns), random(batch, rows, 2 * columns)[..., :columns]]
    for addend in addends:
        x = addend.to(dtype)
        expected = torch.baddbmm(x.float(), a.float(), b.float(), beta=beta).to(dtype)
        found = torch.baddbmm(x.to("loom"), a.to("loom"), b.to("loom"), beta=beta)
        unit = 1e-5 if dtype == torch.float32 else 2**-7
        torch.testing.assert_close(found.cpu(), expected, rtol=unit, atol=8 * unit)
    own = addends[0].to(dtype).to("loom")
    expected = torch.baddbmm(addends[0].to(dtype).float(), a.float(), b.float(), beta=beta).to(
        dtype
    )
    own.baddbmm_(a.to("loom"), b.to("loom"), beta=beta)
    torch.testing.assert_close(own.cpu(), expected, rtol=unit, atol=8 * unit)


SUMS: dict[str, Case] = {
    "pixels": (lambda x: (x.mean((2, 3)), x.sum((2, 3), keepdim=True)), (last(8, 96, 30, 31),)),
    "pixels of one": (lambda x: (x.mean((2, 3)), x.sum((-1, -2), True)), (last(1, 300, 30, 31),)),
    "voxels": (lambda x: (x.mean((2, 3, 4)), x.sum((2, 3, 4))), (last(3, 70, 5, 20, 21),)),
    "a middle": (lambda x: (x.mean(1), x.sum(1, keepdim=True)), (random(50, 70, 130),)),
    "two in the middle": (lambda x: (x.mean((1, 2)), x.sum((2, 1))), (random(9, 20, 30, 99),)),
    "apart": (lambda x: (x.mean((0, 2)), x.sum((1, 3))), (random(9, 20, 30, 99),)),
    "few beside each other": (lambda x: (x.mean(1), x.sum(1)), (random(90, 200, 7),)),
    "rows turned": (lambda x: (x.mT.mean(1), x.transpose(0, 1).sum(0)), (random(40, 90, 60),)),
    "a long one": (lambda x: (x.mean(1), x.sum(1)), (random(3, 9000, 40),)),
    "with gaps": (lambda x: (x[:, ::2].mean(1), x[..., 1:].sum(1)), (random(30, 90, 60),)),
    "bfloat16": (lambda x: (x.bfloat16().mean(1), x.bfloat16().sum(1)), (random(30, 90, 70),)),
    "float16": (lambda x: (x.half().mean((2, 3)), x.half().sum(1)), (last(4, 70, 20, 20),)),
    "another dtype": (lambda x: x.bfloat16().sum(1, dtype=torch.float32), (random(30, 90, 70),)),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_in_the_middle(name: str) -> None:
    check_cores(SUMS[name])
    function, inputs = SUMS[name]
    expected, found = function(*inputs), function(*(each.to("loom") for each in inputs))
    for one, other in zip(expected, found, strict=True) if isinstance(expected, tuple) else ():
        assert one.stride() == other.stride()
        bound = {torch.float32: 1e-5}.get(one.dtype, 1e-2)
        torch.testing.assert_close(other.cpu(), one, rtol=bound, atol=10 * bound)


def test_given_sums_in_the_middle() -> None:
    x = random(20, 90, 64)
    expected = x.sum(1)
    for given in (torch.empty(20, 64), torch.empty(64, 20).mT, torch.empty(20, 128)[:, ::2]):
        result = (
            given.to("loom")
            if given.is_contiguous()
            else torch.empty_strided((20, 64), given.stride(), device="loom")
        )
        torch.sum(x.to("loom"), 1, out=result)
        torch.testing.assert_close(result.cpu(), expected, rtol=1e-5, atol=1e-4)
