# SPDX-License-Identifier: BSD-3-Clause
"""Linear layers of a few rows, which read their weights once: floats, bytes or half bytes."""

import pytest
import torch
from compare import natively, same_error
from ops_support import numbers
from torch.nn import functional

LOOM = "loom"
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}

# rows, inner elements, columns
SIZES = [
    (1, 768, 3072),
    (2, 2048, 2048),
    (3, 33, 17),
    (4, 100, 1000),
    (8, 3072, 768),
    (9, 777, 301),
    (16, 64, 5000),
    (17, 129, 65),
    (5, 1, 7),
]


def near(mine, exact, dtype):
    assert mine.dtype == dtype
    error = (mine.cpu().double() - exact).abs().max()
    assert error <= TOLERANCES[dtype] * exact.abs().max()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_linear_layers(sizes, dtype):
    rows, inner, columns = sizes
    x = numbers(rows, inner, dtype=dtype)
    weight, bias = (
        numbers(*shape, seed=1, dtype=dtype) for shape in ((columns, inner), (columns,))
    )
    product = x.double() @ weight.double().T
    on_loom = [t.to(LOOM) for t in (x, weight, bias)]
    near(functional.linear(*on_loom[:2]), product, dtype)
    near(functional.linear(*on_loom), product + bias.double(), dtype)
    near(functional.linear(*on_loom).relu(), (product + bias.double()).relu(), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layouts_and_addends(dtype):
    x, weight = numbers(5, 96, dtype=dtype), numbers(200, 96, seed=1, dtype=dtype)
    y, w = x.to(LOOM), weight.to(LOOM)
    product = x.double() @ weight.double().T
    turned = torch.empty(200, 5, dtype=dtype, device=LOOM).T
    near(torch.mm(y, w.T, out=turned), product, dtype)
    part = torch.empty(5, 300, dtype=dtype, device=LOOM)[:, 50:250]
    near(torch.mm(y, w.T, out=part), product, dtype)
    near(y[:, 3:90] @ w[:, 4:91].T, x[:, 3:90].double() @ weight[:, 4:91].double().T, dtype)
    near(y[::2] @ w[::3].T, product[::2, ::3], dtype)
    near(w[:7].T.contiguous().T @ w.T, weight[:7].double() @ weight.double().T, dtype)
    addend = numbers(5, 200, seed=2, dtype=dtype)
    near(torch.addmm(addend.to(LOOM), y, w.T, beta=0.5), addend.double() * 0.5 + product, dtype)
    batch = numbers(6, 3, 96, seed=3, dtype=dtype)
    many = numbers(6, 200, 96, seed=4, dtype=dtype)
    near(batch.to(LOOM) @ many.to(LOOM).mT, batch.double() @ many.double().mT, dtype)


@pytest.mark.parametrize("dtype", FLOATS[:2], ids=str)
def test_what_is_not_a_number_reaches_its_row_and_column_only(dtype):
    x, weight = numbers(3, 70, dtype=dtype), numbers(40, 70, seed=1, dtype=dtype)
    x[1, 69] = torch.inf
    weight[7, 0] = torch.nan
    made = functional.linear(x.to(LOOM), weight.to(LOOM)).cpu()
    finite = made.isfinite()
    assert not finite[1].any()
    assert not finite[:, 7].any()
    assert finite[0].sum() == finite[2].sum() == 39


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("sizes", [*SIZES, (130, 96, 144)], ids=str)
def test_weights_of_bytes(sizes, dtype):
    rows, inner, columns = sizes
    generator = torch.Generator().manual_seed(0)
    x, scales = numbers(rows, inner, dtype=dtype), numbers(columns, seed=1, dtype=dtype)
    weight = torch.randint(-128, 128, (columns, inner), generator=generator, dtype=torch.int8)
    made = natively(torch._weight_int8pack_mm, *(t.to(LOOM) for t in (x, weight, scales)))
    near(made, (x.double() @ weight.double().T) * scales.double(), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("sizes", [(1, 768, 3072), (3, 128, 16), (6, 256, 112), (70, 128, 48)])
def test_weights_of_half_bytes(sizes, group, dtype):
    rows, inner, columns = sizes
    generator = torch.Generator().manual_seed(0)
    x = numbers(rows, inner, dtype=dtype)
    scales = numbers(inner // group, columns, 2, seed=1, dtype=dtype)
    weight = torch.randint(0, 16, (columns, inner), generator=generator, dtype=torch.int32)
    packed = torch._convert_weight_to_int4pack_for_cpu(weight, 1)
    on_loom = [t.to(LOOM) for t in (x, packed, scales)]
    made = natively(torch._weight_int4pack_mm_for_cpu, *on_loom[:2], group, on_loom[2])
    theirs = torch._weight_int4pack_mm_for_cpu(x, packed, group, scales)
    near(made, theirs.double(), dtype)


def test_what_is_refused():
    x, scales = torch.randn(2, 64), torch.randn(32)
    weight = torch.ones(32, 64, dtype=torch.int8)
    packed = torch.ones(32, 32, dtype=torch.uint8)
    groups = torch.randn(2, 32, 2)

    same_error(torch._weight_int8pack_mm, x.double(), weight, scales.double())
    same_error(torch._weight_int8pack_mm, x, weight.int(), scales)
    same_error(torch._weight_int8pack_mm, x, weight[:, :60].contiguous(), scales)
    same_error(torch._weight_int8pack_mm, x, weight, scales[:30])
    same_error(torch._weight_int4pack_mm_for_cpu, x, packed, 60, groups)
    same_error(torch._weight_int4pack_mm_for_cpu, x, packed.int(), 32, groups)
    same_error(torch._weight_int4pack_mm_for_cpu, x, packed, 32, groups[:, :30])
