# SPDX-License-Identifier: BSD-3-Clause
"""Matrix products and softmax: every way of cutting, layouts, out=, errors, gradients."""

import pytest
import torch
from compare import agrees, gradients_agree, same_error

F = torch.nn.functional


def numbers(*shape, dtype=torch.float32, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) / 4).to(dtype)


SIZES = [
    (1, 1, 1),
    (3, 5, 7),
    (64, 64, 64),
    (300, 200, 100),
    (1000, 64, 33),
    (17, 64, 2000),
    (1, 512, 3000),
    (0, 3, 4),
    (3, 0, 4),
]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_mm_and_addmm(size):
    rows, inner, columns = size
    a, b = numbers(rows, inner), numbers(inner, columns)
    agrees(torch.mm, a, b)
    for shape in [(columns,), (rows, columns), (rows, 1), (1, columns), (1,), ()]:
        agrees(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), numbers(*shape), a, b)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("batch", [1, 3, 40])
def test_bmm_and_baddbmm(size, batch):
    rows, inner, columns = size
    a, b = numbers(batch, rows, inner), numbers(batch, inner, columns)
    agrees(torch.bmm, a, b)
    for shape in [(columns,), (batch, rows, columns), (rows, 1), (batch, 1, columns)]:
        agrees(torch.baddbmm, numbers(*shape), a, b)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.complex64])
def test_dtypes(dtype):
    a, b = (numbers(200, 200) * 9).to(dtype), (numbers(200, 200) * 9).to(dtype)
    agrees(torch.mm, a / 9 if dtype.is_floating_point else a, b)
    agrees(torch.mv, a, b[0])
    agrees(torch.dot, a[0], b[1])


def laid_out(matrix, transposed):
    return matrix.mT.contiguous().mT if transposed else matrix


# Rows, inner, columns: one block and several, tails, more inner elements than are packed at once,
# panels that blocks share, few rows, left operands that are transposed as a whole and in pieces,
# and vectors.
BLOCKS = [
    (33, 70, 46),
    (130, 2300, 200),
    (700, 96, 130),
    (2100, 64, 66),
    (20, 64, 300),
    (48, 600, 900),
    (400, 520, 640),
    (1100, 600, 702),
    (300, 1008, 130),
    (1030, 4300, 140),
    (1, 300, 2200),
    (200, 300, 1),
    (200, 1, 300),
    (1, 50, 1),
]


@pytest.mark.parametrize("size", BLOCKS, ids=str)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_and_packing(size, left, right, dtype):
    rows, inner, columns = size
    a = laid_out(numbers(rows, inner, dtype=dtype, seed=4), left)
    b = laid_out(numbers(inner, columns, dtype=dtype, seed=5), right)
    c = numbers(rows, columns, dtype=dtype)
    agrees(torch.mm, a, b)
    agrees(torch.addmm, c[0].clone(), a, b)
    agrees(lambda c, a, b: c.addmm_(a, b), c.clone(), a, b)
    agrees(lambda c, a, b: c.addmm_(a, b, beta=0.5), laid_out(c, True), a, b)
    agrees(lambda c, a, b: torch._addmm_activation(c, a, b), c[0].clone(), a, b)
    agrees(lambda c, a, b: torch._addmm_activation(c, a, b, use_gelu=True), c[0].clone(), a, b)
    agrees(lambda a, b, o: torch.mm(a, b, out=o), a, b, laid_out(c, True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [2, 9])
def test_batches_in_blocks(batch, dtype):
    a, b = numbers(batch, 130, 100, dtype=dtype), numbers(batch, 100, 150, dtype=dtype)
    for left in (False, True):
        for right in (False, True):
            agrees(torch.bmm, laid_out(a, left), laid_out(b, right))
    agrees(torch.bmm, a[:1].expand(batch, -1, -1), b)
    agrees(torch.baddbmm, numbers(batch, 1, 150, dtype=dtype), a, b)
    agrees(torch.baddbmm, numbers(130, 1, dtype=dtype), a, b)


@pytest.mark.parametrize("rows", [90, 1090])
def test_bfloat16_is_rounded_once(rows):
    generator = torch.Generator().manual_seed(6)
    a, b = (torch.randint(-9, 9, (n, 90), generator=generator).bfloat16() for n in (rows, 90))
    c = torch.randint(-999, 999, (90,), generator=generator) / 4
    product, c = a.double() @ b.double(), c.bfloat16()
    for right in (b, laid_out(b, True)):
        on_loom = a.to("loom"), right.to("loom")
        assert torch.equal(torch.mm(*on_loom).cpu(), product.bfloat16())
        assert torch.equal(torch.addmm(c.to("loom"), *on_loom).cpu(), (product + c).bfloat16())


def among_nans(matrices, distance, offset):
    """The same values with rows `distance` apart, `offset` elements into memory full of NaN."""
    batch, rows, _ = matrices.shape
    memory = torch.full((offset + batch * rows * distance,), torch.nan, dtype=matrices.dtype)
    strides = (rows * distance, distance, 1)
    memory.as_strided(matrices.shape, strides, offset).copy_(matrices)
    return memory.to("loom").as_strided(matrices.shape, strides, offset)


# Tails of rows and of what is summed up, more of it than is packed at once, operands that are
# copied for all blocks, few rows.
@pytest.mark.parametrize(
    "size", [(33, 65, 47), (300, 257, 321), (65, 4099, 129), (17, 129, 511)], ids=str
)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_bfloat16_pairs_that_are_not_in_pairs(size, batch, left, right):
    rows, inner, columns = size
    generator = torch.Generator().manual_seed(8)

    def integers(*shape):
        return torch.randint(-4, 5, shape, generator=generator).bfloat16()

    def placed(matrices, transposed, more, offset):
        if transposed:
            return placed(matrices.mT, False, more, offset).mT
        return among_nans(matrices, matrices.size(-1) + more, offset)

    a, b = integers(batch, rows, inner), integers(batch, inner, columns)
    bias = integers(columns)
    product = (a.double() @ b.double()).bfloat16()
    biased = (a[0].double() @ b[0].double() + bias.double()).bfloat16()
    for more, offset in ((0, 0), (0, 1), (1, 0), (1, 1)):
        x, y = placed(a, left, more, offset), placed(b, right, more, offset)
        assert torch.equal(torch.bmm(x, y).cpu(), product)
        assert torch.equal(torch.addmm(bias.to("loom"), x[0], y[0]).cpu(), biased)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_infinities_and_nans(dtype):
    a, b = numbers(70, 80, dtype=dtype), numbers(80, 90, dtype=dtype)
    a[3, 5], a[4, 6], a[5, 7], a[5, 8] = torch.nan, torch.inf, torch.inf, -torch.inf
    b[5:9] = 1
    agrees(torch.mm, a, b)
    agrees(
        lambda c, a, b: torch.addmm(c, a, b, beta=0), torch.full((90,), torch.nan).to(dtype), a, b
    )


def test_products_do_not_depend_on_the_number_of_cores(check):
    program = """
        import torch, torch_loom
        torch.manual_seed(0)
        for dtype in (torch.float32, torch.bfloat16):
            for m, k, n in ((300, 500, 400), (16, 512, 900), (1, 1000, 3000), (1500, 64, 64)):
                a = torch.randn(m, k).to(dtype).to("loom")
                w = torch.randn(n, k).to(dtype).to("loom")
                print(torch.mm(a, w.t()).double().sum().item().hex(),
                      (a.t() @ a).double().sum().item().hex())
        x, w = torch.randn(8, 64, 20, 20).to("loom"), torch.randn(96, 64, 1, 1).to("loom")
        print(torch.nn.functional.conv2d(x, w).double().sum().item().hex())
    """
    assert check(program, LOOM_THREADS="1").out == check(program, LOOM_THREADS="2").out


def test_layouts_and_views():
    a, b = numbers(300, 400), numbers(400, 350)
    agrees(lambda a, b: a.t() @ b, a.t().contiguous(), b)
    agrees(torch.mm, a.t().contiguous().t(), b.t().contiguous().t())
    agrees(torch.mm, numbers(600, 800)[::2, ::2], b)
    agrees(torch.mm, a[:, :1].expand(300, 400), b)
    agrees(lambda x, w, c: F.linear(x, w, c), numbers(4, 50, 64), numbers(128, 64), numbers(128))
    agrees(lambda x, y: x @ y, numbers(2, 3, 70, 80), numbers(3, 80, 90))
    agrees(lambda x, y: x @ y, numbers(300, 80), numbers(80))
    agrees(lambda x, y: torch.einsum("bij,bkj->bik", x, y), numbers(4, 70, 80), numbers(4, 90, 80))


def test_out_and_in_place():
    a, b = numbers(300, 400), numbers(400, 350)
    agrees(lambda a, b, o: torch.mm(a, b, out=o), a, b, torch.zeros(300, 350))
    agrees(lambda a, b, o: torch.mm(a, b, out=o), a, b, torch.zeros(350, 300).t())
    agrees(lambda a, b, o: torch.mm(a, b, out=o), a, b, torch.zeros(600, 700)[::2, ::2])
    agrees(lambda c, a, b: c.addmm_(a, b, beta=2), numbers(300, 350), a, b)
    agrees(
        lambda c, a, b: c.baddbmm_(a, b), numbers(2, 30, 35), numbers(2, 30, 4), numbers(2, 4, 35)
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x @ x[:-1],
        lambda x: torch.mm(x, x.double()),
        lambda x: torch.mm(x > 0, x > 0),
        lambda x: torch.bmm(x, x),
        lambda x: torch.addmm(x[:3, :4], x, x),
        lambda x: torch.addmm(x.double(), x, x),
        lambda x: torch.mm(x, x, out=torch.zeros_like(x, dtype=torch.float64)),
        lambda x: torch.dot(x[0], x[0, :-1]),
        lambda x: torch.dot(x[0], x[0].double()),
        lambda x: torch.softmax(x.to(torch.int64), 0),
        lambda x: torch.softmax(x, 2),
    ],
)
def test_errors(function):
    same_error(function, numbers(9, 9))


def test_another_device_is_named():
    a = torch.ones(2, 2, device="loom")
    with pytest.raises(RuntimeError, match="mat2 is on cpu, different from other tensors on loom"):
        torch.mm(a, torch.ones(2, 2))


@pytest.mark.parametrize("shape", [(5,), (64, 1000), (8, 12, 33, 40), (3, 100_000), (2, 0), ()])
@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_softmax(function, shape):
    for dim in range(-1, max(len(shape), 1)):
        agrees(lambda x, d=dim: function(x, d), numbers(*shape))
        agrees(lambda x, d=dim: function(x, d), numbers(*shape, dtype=torch.bfloat16))
    if len(shape) > 1:
        agrees(lambda x: function(x.transpose(0, 1), 1), numbers(*shape), strides=False)


def test_softmax_out():
    x = numbers(200, 300)
    agrees(lambda x, o: torch.softmax(x, 1, out=o), x, torch.zeros(200, 300))
    agrees(lambda x, o: torch.softmax(x, 1, out=o), x, torch.zeros(300, 200).t())


def test_gradients():
    gradients_agree(torch.mm, numbers(300, 200), numbers(200, 100))
    gradients_agree(torch.bmm, numbers(12, 30, 20), numbers(12, 20, 40))
    gradients_agree(F.linear, numbers(6, 50, 64), numbers(128, 64), numbers(128))
    for dim in (0, 1, 2):
        gradients_agree(lambda x, d=dim: torch.softmax(x, d), numbers(20, 30, 40))
        gradients_agree(lambda x, d=dim: torch.log_softmax(x, d), numbers(20, 30, 40))


@pytest.mark.parametrize(
    ("function", "left", "right"),
    [
        (torch.bmm, (0, 1, 3), (0, 3, 1)),
        (torch.bmm, (0, 1, 3), (0, 3, 4)),
        (torch.bmm, (2, 1, 3), (2, 3, 0)),
        (torch.mm, (1, 3), (3, 0)),
        (torch.mm, (0, 3), (3, 1)),
        (torch.mm, (1, 0), (0, 1)),
        (torch.mv, (0, 3), (3,)),
    ],
)
def test_products_without_elements(function, left, right):
    agrees(function, torch.ones(left), torch.ones(right))
