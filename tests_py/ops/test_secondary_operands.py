# SPDX-License-Identifier: BSD-3-Clause
"""Each operand beside the main one may lie in memory as it likes.

A case names the operands of a function. One of them at a time takes each of the layouts, and the
gradient of the result takes them too. The work is large enough to be cut into blocks for the cores.
Kernels of cpu misread some layouts, so the oracle is cpu with contiguous copies in float64.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from compare import TOLERANCE
from torch.nn import functional as F  # noqa: N812
from torch.utils._pytree import tree_leaves

Tensor = torch.Tensor

pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore")]

WIDE = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclasses.dataclass
class Case:
    """A function and its operands, of which the first one is the main one unless told."""

    function: Callable[..., Any]
    operands: dict[str, Tensor]
    main: str = ""
    # Equal elements of these have no meaning, or the function writes into these.
    distinct: tuple[str, ...] = ()
    # These may have no dimension.
    scalars: tuple[str, ...] = ()
    # These get no gradients.
    still: tuple[str, ...] = ()
    # These stay float32.
    kept: tuple[str, ...] = ()
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)
    # Values of float64 would be others.
    wide: bool = True

    def to(self, dtype: torch.dtype) -> dict[str, Tensor]:
        real = torch.float32 if dtype.is_complex else dtype
        return {
            name: x.to(real) if x.is_floating_point() and name not in self.kept else x
            for name, x in self.operands.items()
        }


def case(function: Callable[..., Any], *, main: str | None = None, **given: Any) -> Case:
    names = {field.name for field in dataclasses.fields(Case)}
    options = {name: given.pop(name) for name in list(given) if name in names}
    return Case(function, given, next(iter(given)) if main is None else main, **options)


# Operands


@functools.cache
def numbers(*shape: int, seed: int = 5) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def positive(*shape: int) -> Tensor:
    return numbers(*shape, seed=9).abs() + 0.5


def shares(*shape: int) -> Tensor:
    """Numbers in (0, 1)."""
    return numbers(*shape, seed=11).sigmoid()


def ints(high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(7))


def flags(*shape: int) -> Tensor:
    return ints(2, *shape).bool()


def order(size: int) -> Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(3))


def orders(rows: int, size: int) -> Tensor:
    return numbers(rows, size).argsort(-1)


def pairs(*shape: int) -> Tensor:
    """Complex numbers."""
    return torch.complex(numbers(*shape), numbers(*shape, seed=6))


# Layouts


def junk(x: Tensor, *shape: int) -> Tensor:
    """What lies beside the elements: it spoils results that read it."""
    if x.is_floating_point() or x.is_complex():
        return torch.full(shape, float("nan"), dtype=x.dtype)
    return torch.zeros(shape, dtype=x.dtype)


def apart(x: Tensor) -> Tensor:
    return torch.stack([x, junk(x, *x.shape)], -1).select(-1, 0)


def offset(x: Tensor) -> Tensor:
    return torch.cat([junk(x, 1), x.reshape(-1), junk(x, 2)])[1:-2].view(x.shape)


def rows_apart(x: Tensor) -> Tensor:
    beside = junk(x, *x.shape[:-1], 3)
    return torch.cat([beside[..., :1], x, beside[..., 1:]], -1)[..., 1:-2]


def transposed(x: Tensor) -> Tensor:
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def channels_last(x: Tensor) -> Tensor:
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def all_layouts(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Layouts of the same values."""
    yield "offset", offset(x)
    if x.dim() > 0:
        yield "apart", apart(x)
    if x.dim() > 1:
        if x.dtype != torch.bfloat16:
            yield "rows apart", rows_apart(x)
        yield "transposed", transposed(x)
    if x.dim() > 2:
        yield "channels last", channels_last(x)
    if x.is_complex():
        yield "conjugated", x.conj().resolve_conj().conj()
        yield "conjugated apart", apart(x.conj().resolve_conj()).conj()
    if (x.is_floating_point() or x.is_complex()) and x.dtype != torch.bfloat16:
        yield "negated", torch._neg_view(-x)


def shared_layouts(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Layouts of elements that share memory."""
    if x.dim() > 0 and x.numel() > 1:
        yield "one", x.reshape(-1)[0].expand(x.shape)
    if x.dim() > 1:
        yield "expanded last", x[..., :1].expand(x.shape)
        yield "expanded first", x[:1].expand(x.shape)


def on_loom(x: Tensor) -> Tensor:
    """A copy of the whole storage, so that the offset stays, too."""
    x = x.detach()
    if x.is_conj():
        return on_loom(x.conj()).conj()
    if x.is_neg():
        return torch._neg_view(on_loom(torch._neg_view(x)))
    size = x.untyped_storage().nbytes() // x.element_size()
    whole = torch.as_strided(x, (size,), (1,), 0).to("loom")
    return torch.as_strided(whole, x.shape, x.stride(), x.storage_offset())


def copied(x: Tensor) -> Tensor:
    return x.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


# Runs


def run(
    case: Case,
    operands: dict[str, Tensor],
    grads: Callable[[int, Tensor], Tensor],
) -> list[Tensor]:
    """The results and the gradients of all operands that may have one."""
    wanted = [
        x.requires_grad_()
        for name, x in operands.items()
        if (x.is_floating_point() or x.is_complex()) and name not in case.still
    ]
    results = [x for x in tree_leaves(case.function(*operands.values())) if torch.is_tensor(x)]
    slopes = [x for x in results if x.requires_grad]
    found = [x.detach() for x in results]
    if slopes and wanted:
        seeds = [grads(place, x) for place, x in enumerate(slopes)]
        found += [
            x
            for x in torch.autograd.grad(slopes, wanted, seeds, allow_unused=True)
            if x is not None
        ]
    return found


def seed(dtype: torch.dtype) -> Callable[[int, Tensor], Tensor]:
    def make(place: int, result: Tensor) -> Tensor:
        made = pairs(*result.shape) if result.is_complex() else numbers(*result.shape, seed=place)
        if result.is_complex():
            return made.to(torch.complex64)
        return made.to(torch.float32 if dtype.is_complex else dtype)

    return make


def reference(case: Case, operands: dict[str, Tensor], dtype: torch.dtype) -> list[Tensor]:
    def widen(x: Tensor) -> Tensor:
        x = copied(x)
        return x.to(WIDE[x.dtype]) if case.wide and x.dtype in WIDE else x

    made = seed(dtype)
    copies = {name: widen(x) for name, x in operands.items()}
    return run(case, copies, lambda place, x: made(place, x).to(x.dtype))


def assert_near(got: list[Tensor], wanted: list[Tensor]) -> None:
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert one.device.type == "loom"
        assert one.shape == other.shape
        assert one.is_floating_point() == other.is_floating_point()
        found = one.cpu().resolve_conj().resolve_neg()
        other = other.to(found.dtype)
        tolerance = TOLERANCE.get(found.dtype, 0.0)
        sizes = other.nan_to_num(0, 0, 0).abs() if tolerance else torch.zeros(1)
        scale = max(1.0, sizes.max().item()) if sizes.numel() else 1.0
        torch.testing.assert_close(
            found.to_dense() if found.layout != torch.strided else found,
            other.to_dense() if other.layout != torch.strided else other,
            rtol=tolerance,
            atol=tolerance * scale,
            equal_nan=True,
        )


def variants(
    case: Case, operands: dict[str, Tensor], dtype: torch.dtype
) -> Iterator[tuple[str, str, Tensor, bool]]:
    """Operand, layout, the operand so laid out, and whether its values are still the same."""
    for name, x in operands.items():
        if name == case.main:
            continue
        for layout, changed in all_layouts(x):
            # PyTorch itself writes the running statistics into a copy of such a view.
            if not (layout == "negated" and {*case.still, *case.distinct} >= {name, "spread"}):
                yield name, layout, changed, True
        # Thousands of elements that are added up at one place are no sum in bfloat16.
        if name not in case.distinct and (x.is_floating_point() or dtype != torch.bfloat16):
            for layout, changed in shared_layouts(x):
                yield name, layout, changed, False
        if name in case.scalars:
            yield name, "no dimension", x.reshape(-1)[0].clone(), False


def refused(case: Case, operands: dict[str, Tensor], dtype: torch.dtype) -> bool:
    """Whether cpu, too, refuses the very layouts."""
    made = seed(dtype)
    try:
        run(case, operands, made)
    except (RuntimeError, NotImplementedError, ValueError, IndexError):
        return True
    return False


def failures(case: Case, dtype: torch.dtype) -> Iterator[tuple[str, str, str]]:
    operands = case.to(dtype)
    usual = reference(case, operands, dtype)
    made = seed(dtype)

    def plain(place: int, result: Tensor) -> Tensor:
        return on_loom(made(place, result))

    def fails(
        given: dict[str, Tensor], grads: Callable[[int, Tensor], Tensor], wanted: list[Tensor]
    ) -> str:
        try:
            got = run(case, {name: on_loom(x) for name, x in given.items()}, grads)
            assert_near(got, wanted)
        except AssertionError as error:
            return " ".join(str(error).split())[:200]
        except (RuntimeError, NotImplementedError, ValueError, IndexError, TypeError) as error:
            if not refused(case, {name: x.detach() for name, x in given.items()}, dtype):
                return f"raises {error}"
        return ""

    def told(name: str, layout: str, text: str) -> Iterator[tuple[str, str, str]]:
        if text:
            yield name, layout, text

    yield from told("none", "contiguous", fails(operands, plain, usual))
    for name, layout, changed, same in variants(case, operands, dtype):
        given = {**operands, name: changed}
        wanted = usual if same else reference(case, given, dtype)
        yield from told(name, layout, fails(given, plain, wanted))
    layouts = [name for name, _ in all_layouts(numbers(2, 2, 2))]
    if dtype.is_complex:
        layouts += ["conjugated", "conjugated apart"]
    for layout in layouts:

        def odd(place: int, result: Tensor, layout: str = layout) -> Tensor:
            usual = made(place, result)
            return on_loom(next((x for name, x in all_layouts(usual) if name == layout), usual))

        yield from told("gradient", layout, fails(operands, odd, usual))
    if dtype == torch.bfloat16:
        return  # Gradients of norms cancel.
    for layout in ("one", "expanded last", "expanded first"):

        def shared(place: int, result: Tensor, layout: str = layout) -> Tensor:
            usual = made(place, result)
            return dict(shared_layouts(usual)).get(layout, usual)

        copies = {
            name: copied(x).to(WIDE.get(x.dtype, x.dtype) if case.wide else x.dtype)
            for name, x in operands.items()
        }
        wanted = run(case, copies, lambda place, x: copied(shared(place, x)).to(x.dtype))
        text = fails(operands, lambda place, x: on_loom(shared(place, x)), wanted)
        yield from told("gradient", layout, text)


# Cases


def convolution(
    dims: int, *, groups: int = 1, out: int = 24, kernel: int = 3, **options: Any
) -> Case:
    channels = 16
    sizes = {1: (6, channels, 900), 2: (4, channels, 44, 45), 3: (2, channels, 7, 16, 18)}[dims]
    function = [F.conv1d, F.conv2d, F.conv3d][dims - 1]
    last = options.pop("last", False)
    x = numbers(*sizes)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)

    def call(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return function(x, w, b, groups=groups, **options)

    w = numbers(out, channels // groups, *[kernel] * dims) * 0.1
    return case(call, x=x, w=w, b=numbers(out))


def transposed_convolution(dims: int, *, groups: int = 1, **options: Any) -> Case:
    channels = 16
    sizes = {1: (6, channels, 800), 2: (4, channels, 30, 31), 3: (2, channels, 5, 13, 14)}[dims]
    function = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][dims - 1]

    def call(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return function(x, w, b, groups=groups, **options)

    w = numbers(channels, 16 // groups, *[3] * dims) * 0.1
    return case(call, x=numbers(*sizes), w=w, b=numbers(16))


def binary(
    function: Callable[..., Any], make: Callable[..., Tensor] = numbers, **options: Any
) -> Case:
    return case(function, x=make(250, 300), y=make(250, 300).flip(0), scalars=("y",), **options)


def rows_of(function: Callable[..., Any], make: Callable[..., Tensor] = numbers) -> Case:
    """The second operand is broadcast along the last dimension."""
    return case(function, x=make(9, 40, 200), y=make(9, 40, 1), z=make(40, 1))


def three(function: Callable[..., Any], last: Tensor | None = None, **options: Any) -> Case:
    z = positive(220, 300) if last is None else last
    x, y = numbers(220, 300), numbers(220, 300, seed=8)
    return case(function, x=x, y=y, z=z, scalars=("y", "z"), **options)


def loss(function: Callable[..., Any], target: Tensor, **more: Any) -> Case:
    x = more.pop("x", None)
    x = numbers(*target.shape) if x is None else x
    return case(function, x=x, target=target, **more)


FLOAT = (torch.float32,)
HALF = (torch.bfloat16,)
COMPLEX = (torch.complex64,)

CONVOLUTIONS: dict[str, Callable[[], Case]] = {
    "conv1d": lambda: convolution(1, padding=1),
    "conv1d grouped": lambda: convolution(1, groups=4, stride=2),
    "conv1d depthwise": lambda: convolution(1, groups=16, out=16, padding=1),
    "conv1d long": lambda: convolution(1, out=4, kernel=13, padding=6),
    "conv2d": lambda: convolution(2, padding=1),
    "conv2d odd": lambda: convolution(2, out=21, padding=1, dilation=2),
    "conv2d pixels": lambda: convolution(2, kernel=1),
    "conv2d strided": lambda: convolution(2, stride=2, padding=1),
    "conv2d grouped": lambda: convolution(2, groups=2, padding=1),
    "conv2d depthwise": lambda: convolution(2, groups=16, out=16, padding=1),
    "conv2d multiplied": lambda: convolution(2, groups=16, out=32, padding=1),
    "conv2d last": lambda: convolution(2, padding=1, last=True),
    "conv2d last depthwise": lambda: convolution(2, groups=16, out=16, padding=1, last=True),
    "conv2d last pixels": lambda: convolution(2, kernel=1, last=True),
    "conv3d": lambda: convolution(3, padding=1),
    "conv3d grouped": lambda: convolution(3, groups=4),
    "conv3d depthwise": lambda: convolution(3, groups=16, out=16),
    "conv_transpose1d": lambda: transposed_convolution(1, stride=2),
    "conv_transpose2d": lambda: transposed_convolution(2, padding=1),
    "conv_transpose2d strided": lambda: transposed_convolution(2, stride=2, output_padding=1),
    "conv_transpose2d grouped": lambda: transposed_convolution(2, groups=4),
    "conv_transpose2d depthwise": lambda: transposed_convolution(2, groups=16, stride=2),
    "conv_transpose3d": lambda: transposed_convolution(3, stride=2),
}

PRODUCTS: dict[str, Callable[[], Case]] = {
    "linear": lambda: case(F.linear, x=numbers(500, 130), w=numbers(140, 130), b=numbers(140)),
    "linear 3d": lambda: case(F.linear, x=numbers(5, 90, 128), w=numbers(96, 128), b=numbers(96)),
    "linear few rows": lambda: case(
        F.linear, x=numbers(3, 700), w=numbers(300, 700), b=numbers(300)
    ),
    "linear one row": lambda: case(F.linear, x=numbers(900), w=numbers(300, 900), b=numbers(300)),
    "linear thin": lambda: case(F.linear, x=numbers(9000, 12), w=numbers(7, 12), b=numbers(7)),
    "linear relu": lambda: case(
        lambda x, w, b: F.linear(x, w, b).relu(), x=numbers(500, 130), w=numbers(140, 130),
        b=numbers(140), still=("x", "w", "b"),
    ),
    "addmm": lambda: case(
        lambda x, y, c: torch.addmm(c, x, y, beta=0.5, alpha=2), x=numbers(400, 150),
        y=numbers(150, 170), c=numbers(400, 170),
    ),
    "addmm row": lambda: case(
        lambda x, y, c: torch.addmm(c, x, y), x=numbers(400, 150), y=numbers(150, 170),
        c=numbers(170), scalars=("c",),
    ),
    "addmm column": lambda: case(
        lambda x, y, c: torch.addmm(c, x, y), x=numbers(400, 150), y=numbers(150, 170),
        c=numbers(400, 1),
    ),
    "baddbmm": lambda: case(
        lambda x, y, c: torch.baddbmm(c, x, y, beta=0.3), x=numbers(8, 90, 60),
        y=numbers(8, 60, 70), c=numbers(8, 90, 70),
    ),
    "baddbmm row": lambda: case(
        lambda x, y, c: torch.baddbmm(c, x, y), x=numbers(8, 90, 60), y=numbers(8, 60, 70),
        c=numbers(1, 1, 70),
    ),
    "addbmm": lambda: case(
        lambda x, y, c: torch.addbmm(c, x, y), x=numbers(8, 90, 60), y=numbers(8, 60, 70),
        c=numbers(90, 70),
    ),
    "addmv": lambda: case(
        lambda x, y, c: torch.addmv(c, x, y), x=numbers(500, 400), y=numbers(400), c=numbers(500),
        scalars=("c",),
    ),
    "addr": lambda: case(
        lambda c, x, y: torch.addr(c, x, y), c=numbers(500, 400), x=numbers(500), y=numbers(400)
    ),
    "mm": lambda: case(torch.mm, x=numbers(300, 200), y=numbers(200, 250)),
    "mm thin": lambda: case(torch.mm, x=numbers(9000, 20), y=numbers(20, 3)),
    "bmm": lambda: case(torch.bmm, x=numbers(20, 60, 50), y=numbers(20, 50, 70)),
    "mv": lambda: case(torch.mv, x=numbers(500, 400), y=numbers(400)),
    "vm": lambda: case(lambda x, y: y @ x, x=numbers(500, 400), y=numbers(500)),
    "dot": lambda: case(torch.dot, x=numbers(200000), y=numbers(200000, seed=6)),
    "outer": lambda: case(torch.outer, x=numbers(700), y=numbers(500)),
    "matmul": lambda: case(torch.matmul, x=numbers(6, 4, 60, 50), y=numbers(4, 50, 70)),
    "tensordot": lambda: case(
        lambda x, y: torch.tensordot(x, y, [[1, 2], [0, 1]]), x=numbers(200, 12, 20),
        y=numbers(12, 20, 90),
    ),
    "einsum": lambda: case(
        lambda x, y: torch.einsum("abc,cbd->ad", x, y), x=numbers(200, 12, 20),
        y=numbers(20, 12, 90),
    ),
    "kron": lambda: case(torch.kron, x=numbers(30, 40), y=numbers(20, 9)),
    "bilinear": lambda: case(
        F.bilinear, x=numbers(600, 30), y=numbers(600, 20), w=numbers(25, 30, 20), b=numbers(25),
        still=("x",),
    ),
    "cdist": lambda: case(torch.cdist, x=numbers(300, 60), y=numbers(310, 60, seed=6)),
    "cdist of few": lambda: case(
        torch.cdist, x=numbers(20, 900), y=numbers(21, 900, seed=6), dtypes=FLOAT
    ),
    "cdist 1": lambda: case(
        lambda x, y: torch.cdist(x, y, p=1), x=numbers(3, 80, 30), y=numbers(3, 70, 30, seed=6),
        dtypes=FLOAT,
    ),
    "cdist 3": lambda: case(
        lambda x, y: torch.cdist(x, y, p=3), x=numbers(150, 30), y=numbers(160, 30, seed=6),
        dtypes=FLOAT,
    ),
    "weight norm": lambda: case(torch._weight_norm, x=numbers(300, 20, 30), g=positive(300, 1, 1)),
    "weight norm last": lambda: case(
        lambda x, g: torch._weight_norm(x, g, 1), x=numbers(400, 300), g=positive(1, 300)
    ),
    "cross": lambda: case(torch.linalg.cross, x=numbers(40000, 3), y=numbers(40000, 3, seed=6)),
    "cross 1": lambda: case(
        lambda x, y: torch.cross(x, y, dim=1), x=numbers(90, 3, 500), y=numbers(90, 3, 500, seed=6)
    ),
    "vecdot": lambda: case(torch.linalg.vecdot, x=numbers(500, 400), y=numbers(500, 400, seed=6)),
    "solve_triangular": lambda: case(
        lambda b, a: torch.linalg.solve_triangular(a + 40 * torch.eye(160).to(a), b, upper=True),
        b=numbers(160, 90), a=numbers(160, 160), dtypes=FLOAT, distinct=("a",),
    ),
    "solve": lambda: case(
        lambda a, b: torch.linalg.solve(a + 40 * torch.eye(160).to(a), b), a=numbers(160, 160),
        b=numbers(160, 90), dtypes=FLOAT,
    ),
    "cholesky_solve": lambda: case(
        lambda b, a: torch.cholesky_solve(b, a.tril() + 40 * torch.eye(160).to(a)),
        b=numbers(160, 90), a=numbers(160, 160), dtypes=FLOAT,
    ),
    "lu_solve": lambda: case(
        lambda b, a, p: torch.linalg.lu_solve(a * 0.02 + torch.eye(160).to(a), p, b),
        b=numbers(160, 90), a=numbers(160, 160), p=torch.arange(1, 161).int(), dtypes=FLOAT,
        distinct=("p",),
    ),
    "householder": lambda: case(
        lambda a, t: torch.linalg.householder_product(a, t), a=numbers(160, 60) * 0.1,
        t=numbers(60) * 0.1, dtypes=FLOAT,
    ),
    "ormqr": lambda: case(
        lambda c, a, t: torch.ormqr(a, t, c), c=numbers(160, 90), a=numbers(160, 60) * 0.1,
        t=numbers(60) * 0.1, dtypes=FLOAT,
    ),
}  # fmt: skip


def batch_norm(*shape: int, training: bool, last: bool = False, **options: Any) -> Case:
    def call(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, spread: Tensor) -> list[Tensor]:
        return [F.batch_norm(x, mean, spread, w, b, training=training), mean, spread]

    n = shape[1]
    x = numbers(*shape)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    still = ("mean", "spread")
    return case(
        call, x=x, w=numbers(n), b=numbers(n, seed=6), mean=numbers(n) * 0.1, spread=positive(n),
        still=still, distinct=still if training else (), **options,
    )  # fmt: skip


def instance_norm(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, spread: Tensor) -> list[Tensor]:
    return [F.instance_norm(x, mean, spread, w, b, use_input_stats=True), mean, spread]


NORMS: dict[str, Callable[[], Case]] = {
    "batch_norm": lambda: batch_norm(8, 24, 30, 31, training=True),
    "batch_norm rows": lambda: batch_norm(700, 150, training=True),
    "batch_norm last": lambda: batch_norm(8, 24, 30, 31, training=True, last=True),
    "batch_norm 3d": lambda: batch_norm(4, 24, 9, 10, 11, training=True),
    "batch_norm given": lambda: batch_norm(8, 24, 30, 31, training=False),
    "batch_norm given rows": lambda: batch_norm(700, 150, training=False),
    "batch_norm given last": lambda: batch_norm(8, 24, 30, 31, training=False, last=True),
    **{
        f"batch_norm {name} beside floats{' given' * given}": functools.partial(
            batch_norm, *sizes, training=not given, last=name == "last", dtypes=HALF,
            kept=("w", "b", "mean", "spread"),
        )
        for name, sizes in {
            "planes": (8, 24, 30, 31), "rows": (700, 150), "last": (8, 24, 30, 31)
        }.items()
        for given in (False, True)
    },
    "layer_norm beside floats": lambda: case(
        lambda x, w, b: F.layer_norm(x, w.shape, w, b), x=numbers(400, 300), w=numbers(300),
        b=numbers(300), dtypes=HALF, kept=("w", "b"),
    ),
    "group_norm beside floats": lambda: case(
        lambda x, w, b: F.group_norm(x, 4, w, b), x=numbers(8, 24, 30, 31), w=numbers(24),
        b=numbers(24), dtypes=HALF, kept=("w", "b"),
    ),
    "instance_norm": lambda: case(
        instance_norm, x=numbers(8, 24, 30, 31), w=numbers(24), b=numbers(24), mean=numbers(24),
        spread=positive(24), still=("mean", "spread"), distinct=("mean", "spread"),
    ),
    "group_norm": lambda: case(
        lambda x, w, b: F.group_norm(x, 4, w, b), x=numbers(8, 24, 30, 31), w=numbers(24),
        b=numbers(24),
    ),
    "group_norm of rows": lambda: case(
        lambda x, w, b: F.group_norm(x, 4, w, b), x=numbers(800, 200), w=numbers(200),
        b=numbers(200),
    ),
    "layer_norm": lambda: case(
        lambda x, w, b: F.layer_norm(x, w.shape, w, b), x=numbers(400, 300), w=numbers(300),
        b=numbers(300),
    ),
    "layer_norm 2d": lambda: case(
        lambda x, w, b: F.layer_norm(x, w.shape, w, b), x=numbers(100, 40, 50), w=numbers(40, 50),
        b=numbers(40, 50),
    ),
    "layer_norm long": lambda: case(
        lambda x, w, b: F.layer_norm(x, w.shape, w, b), x=numbers(4, 50000), w=numbers(50000),
        b=numbers(50000),
    ),
    "rms_norm": lambda: case(
        lambda x, w: F.rms_norm(x, w.shape, w), x=numbers(400, 300), w=numbers(300)
    ),
    "rms_norm 2d": lambda: case(
        lambda x, w: F.rms_norm(x, w.shape, w), x=numbers(100, 40, 50), w=numbers(40, 50)
    ),
    "prelu": lambda: case(F.prelu, x=numbers(8, 24, 30, 31), w=numbers(24)),
    "prelu of one": lambda: case(F.prelu, x=numbers(8, 24, 30, 31), w=numbers(1), scalars=("w",)),
    "prelu rows": lambda: case(F.prelu, x=numbers(800, 200), w=numbers(200)),
    "fake quantize": lambda: case(
        lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, -100, 100),
        x=numbers(30, 24, 200), s=positive(24), z=ints(9, 24).int(), still=("s",), dtypes=FLOAT,
        wide=False,
    ),
    "fake quantize all": lambda: case(
        lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, -100, 100),
        x=numbers(300, 400), s=positive(1)[0], z=ints(9, 1)[0].int(), still=("s",), dtypes=FLOAT,
        wide=False,
    ),
}  # fmt: skip

POINTWISE: dict[str, Callable[[], Case]] = {
    **{
        name: lambda name=name: binary(getattr(torch, name))
        for name in (
            "add sub mul maximum fmin copysign hypot atan2 logaddexp "
            "logaddexp2 eq lt logical_xor rsub isclose"
        ).split()
    },
    **{
        name: lambda name=name: binary(getattr(torch, name), positive)
        for name in "div pow float_power xlogy".split()
    },
    **{
        name: lambda name=name: binary(
            getattr(torch, name), positive, dtypes=FLOAT, wide=False, still=("x", "y")
        )
        for name in "floor_divide remainder fmod nextafter igamma heaviside".split()
    },
    **{
        name: lambda name=name: binary(getattr(torch, name), lambda *shape: ints(60, *shape) + 1)
        for name in "gcd lcm bitwise_and bitwise_xor true_divide".split()
    },
    **{
        f"{name} of ints": lambda name=name: binary(
            getattr(torch, name), lambda *shape: ints(60, *shape) + 1
        )
        for name in "remainder floor_divide add mul eq".split()
    },
    "shift": lambda: binary(torch.bitwise_left_shift, lambda *shape: ints(20, *shape)),
    **{
        f"{name} of rows": lambda name=name: rows_of(
            lambda x, y, z: getattr(torch, name)(getattr(torch, name)(x, y), z)
        )
        for name in "add mul maximum hypot atan2".split()
    },
    "div of rows": lambda: rows_of(lambda x, y, z: x / y / z, positive),
    "mixed": lambda: case(
        lambda x, i, b: x * i + b, x=numbers(300, 400), i=ints(9, 300, 400), b=flags(300, 400),
        scalars=("i", "b"),
    ),
    "ldexp": lambda: case(
        torch.ldexp, x=numbers(300, 400), e=ints(9, 300, 400) - 4, scalars=("e",)
    ),
    "lerp": lambda: three(torch.lerp, shares(220, 300)),
    "lerp of rows": lambda: case(
        torch.lerp, x=numbers(300, 400), y=numbers(300, 400, seed=8), z=shares(300, 1)
    ),
    "addcmul": lambda: three(lambda x, y, z: torch.addcmul(x, y, z, value=0.5)),
    "addcdiv": lambda: three(lambda x, y, z: torch.addcdiv(x, y, z, value=0.5)),
    "clamp": lambda: three(lambda x, y, z: torch.clamp(x, y - 1, z), dtypes=FLOAT),
    "clamp as given": lambda: three(lambda x, y, z: torch.clamp(x, -z, z + y * 0)),
    "clamp bounds": lambda: three(torch.clamp),
    "where": lambda: case(
        lambda x, y, c: torch.where(c, x, y), x=numbers(300, 400), y=numbers(300, 400, seed=8),
        c=flags(300, 400), scalars=("y", "c"),
    ),
    "where of rows": lambda: case(
        lambda x, y, c: torch.where(c, x, y), x=numbers(300, 400), y=numbers(1, 400),
        c=flags(300, 1),
    ),
    "masked_fill": lambda: case(
        lambda x, c, v: x.masked_fill(c, v), x=numbers(300, 400), c=flags(300, 400),
        v=numbers(1)[0], scalars=("c",),
    ),
    "masked_fill of rows": lambda: case(
        lambda x, c: x.masked_fill(c, -1.0), x=numbers(9, 100, 400), c=flags(100, 1)
    ),
    "masked_fill in place": lambda: case(
        lambda x, c: x.masked_fill_(c, -1.0), x=numbers(300, 400), c=flags(300, 400), still=("x",)
    ),
    "add in place": lambda: case(
        lambda x, y: x.add_(y, alpha=2), x=numbers(300, 400), y=numbers(300, 400, seed=8),
        still=("x",), scalars=("y",),
    ),
    "copy": lambda: case(
        lambda x, y: x.copy_(y), x=numbers(300, 400), y=numbers(300, 400, seed=8), still=("x",),
        scalars=("y",),
    ),
    "copy of others": lambda: case(
        lambda x, y: x.copy_(y), x=ints(9, 300, 400), y=numbers(300, 400, seed=8), still=("x",),
        scalars=("y",),
    ),
    "fill": lambda: case(
        lambda x, y: x.fill_(y), x=numbers(300, 400), y=numbers(1)[0], still=("x",)
    ),
    "dist": lambda: binary(torch.dist),
    "complex": lambda: binary(torch.complex, dtypes=FLOAT),
    "polar": lambda: binary(torch.polar, dtypes=FLOAT),
    "many": lambda: case(
        lambda x, y, z: torch.tanh(x * y + z) * y - z.sigmoid(), x=numbers(300, 400),
        y=numbers(300, 400, seed=8), z=numbers(400),
    ),
    "foreach": lambda: case(
        lambda x, y, z: [
            *torch._foreach_addcmul([x, x], [y, z], [z, y], 0.5),
            *torch._foreach_lerp([x, x], [y, z], 0.3),
            *torch._foreach_mul([x, y], [z, z]),
            *torch._foreach_norm([y, z]),
        ],
        x=numbers(300, 400), y=numbers(300, 400, seed=8), z=numbers(300, 400, seed=9),
        still=("x", "y", "z"),
    ),
    "foreach in place": lambda: case(
        lambda x, y, z: (torch._foreach_add_([x, x + 1], [y, z]), x)[1],
        x=numbers(300, 400), y=numbers(300, 400, seed=8), z=numbers(300, 400, seed=9),
        still=("x", "y", "z"),
    ),
    "foreach by one": lambda: case(
        lambda x, y: torch._foreach_mul([x, x + 1], y), x=numbers(300, 400), y=numbers(1)[0],
        still=("x", "y"),
    ),
}  # fmt: skip


def complex_product(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x @ y + z


OF_COMPLEX: dict[str, Callable[[], Case]] = {
    **{
        f"complex {name}": lambda name=name: binary(getattr(torch, name), pairs, dtypes=COMPLEX)
        for name in "add sub mul div eq".split()
    },
    "complex addmm": lambda: case(
        lambda x, y, c: torch.addmm(c, x, y, alpha=0.5), x=pairs(200, 90), y=pairs(90, 110),
        c=pairs(200, 110), dtypes=COMPLEX,
    ),
    "complex linear": lambda: case(
        F.linear, x=pairs(200, 90), w=pairs(70, 90), b=pairs(70), dtypes=COMPLEX
    ),
    "complex baddbmm": lambda: case(
        lambda x, y, c: torch.baddbmm(c, x, y), x=pairs(8, 50, 40), y=pairs(8, 40, 60),
        c=pairs(8, 50, 60), dtypes=COMPLEX,
    ),
    "complex addmv": lambda: case(
        lambda x, y, c: torch.addmv(c, x, y), x=pairs(300, 200), y=pairs(200), c=pairs(300),
        dtypes=COMPLEX,
    ),
    "complex addr": lambda: case(
        torch.addr, c=pairs(300, 200), x=pairs(300), y=pairs(200), dtypes=COMPLEX
    ),
    "complex mv": lambda: case(torch.mv, x=pairs(300, 200), y=pairs(200), dtypes=COMPLEX),
    "complex dot": lambda: case(torch.dot, x=pairs(60000), y=pairs(60000), dtypes=COMPLEX),
    "complex vdot": lambda: case(torch.vdot, x=pairs(60000), y=pairs(60000), dtypes=COMPLEX),
    "complex outer": lambda: case(torch.outer, x=pairs(300), y=pairs(200), dtypes=COMPLEX),
    "complex vecdot": lambda: case(
        torch.linalg.vecdot, x=pairs(300, 200), y=pairs(300, 200), dtypes=COMPLEX
    ),
    "complex product": lambda: case(
        complex_product, x=pairs(120, 90), y=pairs(90, 80), z=pairs(80), dtypes=COMPLEX
    ),
    "complex conv1d": lambda: case(
        F.conv1d, x=pairs(4, 8, 500), w=pairs(12, 8, 3), b=pairs(12), dtypes=COMPLEX
    ),
    "complex conv2d": lambda: case(
        F.conv2d, x=pairs(2, 8, 30, 31), w=pairs(12, 8, 3, 3), b=pairs(12), dtypes=COMPLEX
    ),
    "complex addcmul": lambda: case(
        lambda x, y, z: torch.addcmul(x, y, z, value=0.5j), x=pairs(300, 200), y=pairs(300, 200),
        z=pairs(300, 200), dtypes=COMPLEX,
    ),
    "complex lerp": lambda: case(
        torch.lerp, x=pairs(300, 200), y=pairs(300, 200), z=pairs(300, 200), dtypes=COMPLEX
    ),
    "complex where": lambda: case(
        lambda x, y, c: torch.where(c, x, y), x=pairs(300, 200), y=pairs(300, 200),
        c=flags(300, 200), dtypes=COMPLEX,
    ),
    "complex index_add": lambda: case(
        lambda x, i, s: x.index_add(0, i, s), x=pairs(300, 200), i=ints(300, 280),
        s=pairs(280, 200), dtypes=COMPLEX,
    ),
    "complex index_put": lambda: case(
        lambda x, i, s: x.index_put((i,), s, accumulate=True), x=pairs(300, 200), i=ints(300, 280),
        s=pairs(280, 200), dtypes=COMPLEX,
    ),
    "complex scatter": lambda: case(
        lambda x, i, s: x.scatter(1, i, s), x=pairs(300, 200), i=orders(300, 200),
        s=pairs(300, 200), distinct=("i",), dtypes=COMPLEX,
    ),
    "complex masked_scatter": lambda: case(
        lambda x, c, s: x.masked_scatter(c, s), x=pairs(300, 200), c=flags(300, 200),
        s=pairs(300, 200), dtypes=COMPLEX,
    ),
    "complex cat": lambda: case(
        lambda x, y: torch.cat([x, y], 1), x=pairs(300, 200), y=pairs(300, 90), dtypes=COMPLEX
    ),
    "complex copy": lambda: case(
        lambda x, y: x.copy_(y), x=pairs(300, 200), y=pairs(300, 200), still=("x",), dtypes=COMPLEX
    ),
    "complex cross": lambda: case(
        torch.linalg.cross, x=pairs(20000, 3), y=pairs(20000, 3), dtypes=COMPLEX
    ),
    "complex kron": lambda: case(torch.kron, x=pairs(30, 20), y=pairs(20, 9), dtypes=COMPLEX),
    "complex solve": lambda: case(
        lambda a, b: torch.linalg.solve(a + 40 * torch.eye(90).to(a), b), a=pairs(90, 90),
        b=pairs(90, 60), dtypes=COMPLEX,
    ),
    "stft": lambda: case(
        lambda x, w: torch.stft(x, 256, window=w, return_complex=True), x=numbers(4, 16000),
        w=positive(256), dtypes=FLOAT,
    ),
    "istft": lambda: case(
        lambda x, w: torch.istft(x, 256, window=w), x=pairs(4, 129, 200), w=positive(256),
        dtypes=FLOAT,
    ),
}  # fmt: skip

INDICES: dict[str, Callable[[], Case]] = {
    "embedding": lambda: case(
        lambda i, w: F.embedding(i, w), i=ints(500, 30, 40), w=numbers(500, 96), main=""
    ),
    "embedding padded": lambda: case(
        lambda i, w: F.embedding(i, w, padding_idx=3, scale_grad_by_freq=True),
        i=ints(500, 30, 40).int(), w=numbers(500, 96), main="",
    ),
    **{
        f"embedding_bag {mode}": lambda mode=mode: case(
            lambda i, w, o: F.embedding_bag(i, w, o, mode=mode), i=ints(400, 3000),
            w=numbers(400, 64), o=torch.arange(0, 3000, 10), main="", distinct=("o",),
        )
        for mode in ("sum", "mean", "max")
    },
    "embedding_bag weighted": lambda: case(
        lambda i, w, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s),
        i=ints(400, 3000), w=numbers(400, 64), o=torch.arange(0, 3000, 10), s=numbers(3000),
        main="", distinct=("o",),
    ),
    "embedding_bag of rows": lambda: case(
        lambda i, w, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s),
        i=ints(400, 300, 10), w=numbers(400, 64), s=numbers(300, 10), main="",
    ),
    "gather": lambda: case(
        lambda x, i: x.gather(1, i), x=numbers(300, 400), i=ints(400, 300, 350)
    ),
    "gather 0": lambda: case(
        lambda x, i: x.gather(0, i), x=numbers(300, 400), i=ints(300, 350, 400)
    ),
    "take": lambda: case(torch.take, x=numbers(300, 400), i=ints(120000, 300, 350)),
    "take_along_dim": lambda: case(
        lambda x, i: torch.take_along_dim(x, i, 1), x=numbers(300, 400), i=ints(400, 300, 350)
    ),
    "take_along_dim of rows": lambda: case(
        lambda x, i: torch.take_along_dim(x, i, 1), x=numbers(300, 400), i=ints(400, 1, 350)
    ),
    "scatter": lambda: case(
        lambda x, i, s: x.scatter(1, i, s), x=numbers(300, 400), i=orders(300, 400),
        s=numbers(300, 400, seed=6), distinct=("i",),
    ),
    "scatter 0": lambda: case(
        lambda x, i, s: x.scatter(0, i, s), x=numbers(300, 400),
        i=orders(400, 300).t().contiguous(), s=numbers(300, 400, seed=6), distinct=("i",),
    ),
    "scatter of one": lambda: case(
        lambda x, i: x.scatter(1, i, 3.0), x=numbers(300, 400), i=ints(400, 300, 300)
    ),
    "scatter_add": lambda: case(
        lambda x, i, s: x.scatter_add(1, i, s), x=numbers(300, 400), i=ints(400, 300, 400),
        s=numbers(300, 400, seed=6),
    ),
    "scatter_add 0": lambda: case(
        lambda x, i, s: x.scatter_add(0, i, s), x=numbers(300, 400), i=ints(300, 300, 400),
        s=numbers(300, 400, seed=6),
    ),
    "scatter_add rows": lambda: case(
        lambda x, i, s: x.scatter_add(0, i.expand(s.shape), s), x=numbers(300, 400),
        i=ints(300, 280, 1), s=numbers(280, 400, seed=6),
    ),
    **{
        f"scatter_reduce {kind}": lambda kind=kind: case(
            lambda x, i, s: x.scatter_reduce(1, i, s, kind), x=numbers(300, 400),
            i=ints(400, 300, 400), s=numbers(300, 400, seed=6), distinct=("i", "s"),
        )
        for kind in ("sum", "mean", "amax")
    },
    **{
        f"index_add {dim}": lambda dim=dim: case(
            lambda x, i, s: x.index_add(dim, i, s, alpha=0.5), x=numbers(300, 400),
            i=ints(300, 280), s=numbers(280, 400) if dim == 0 else numbers(300, 280),
        )
        for dim in (0, 1)
    },
    **{
        f"index_copy {dim}": lambda dim=dim: case(
            lambda x, i, s: x.index_copy(dim, i, s), x=numbers(300, 400), i=order(300)[:280],
            s=numbers(280, 400) if dim == 0 else numbers(300, 280), distinct=("i",),
        )
        for dim in (0, 1)
    },
    **{
        f"index_fill {dim}": lambda dim=dim: case(
            lambda x, i, v: x.index_fill(dim, i, v), x=numbers(300, 400), i=ints(300, 50),
            v=numbers(1)[0],
        )
        for dim in (0, 1)
    },
    **{
        f"index_select {dim}": lambda dim=dim: case(
            lambda x, i: x.index_select(dim, i), x=numbers(30, 100, 40), i=ints(30, 290)
        )
        for dim in (0, 1, 2)
    },
    **{
        f"index_reduce {kind}": lambda kind=kind: case(
            lambda x, i, s: x.index_reduce(0, i, s, kind), x=numbers(300, 400), i=ints(300, 280),
            s=numbers(280, 400), distinct=("i", "s"),
        )
        for kind in ("mean", "amax")
    },
    "index_put": lambda: case(
        lambda x, i, s: x.index_put((i,), s), x=numbers(300, 400), i=order(300)[:280],
        s=numbers(280, 400), distinct=("i",),
    ),
    "index_put added": lambda: case(
        lambda x, i, s: x.index_put((i,), s, accumulate=True), x=numbers(300, 400),
        i=ints(300, 280), s=numbers(280, 400),
    ),
    "index_put of one": lambda: case(
        lambda x, i, s: x.index_put((i,), s), x=numbers(300, 400), i=ints(300, 280),
        s=numbers(1)[0],
    ),
    "index_put of two": lambda: case(
        lambda x, i, j, s: x.index_put((i, j), s, accumulate=True), x=numbers(300, 400),
        i=ints(300, 40000), j=ints(400, 40000), s=numbers(40000),
    ),
    "index_put of a mask": lambda: case(
        lambda x, c, s: x.index_put((c,), s), x=numbers(300, 400), c=flags(300, 400),
        s=numbers(1)[0],
    ),
    "index": lambda: case(lambda x, i: x[i], x=numbers(300, 400), i=ints(300, 280)),
    "index 1": lambda: case(lambda x, i: x[:, i], x=numbers(300, 400), i=ints(400, 20, 19)),
    "index of two": lambda: case(
        lambda x, i, j: x[i, j], x=numbers(300, 400), i=ints(300, 400, 1), j=ints(400, 300)
    ),
    "index of a mask": lambda: case(lambda x, c: x[c], x=numbers(300, 400), c=flags(300, 400)),
    "index of a row mask": lambda: case(lambda x, c: x[c], x=numbers(300, 400), c=flags(300)),
    "masked_select": lambda: case(torch.masked_select, x=numbers(300, 400), c=flags(300, 400)),
    "masked_select of rows": lambda: case(torch.masked_select, x=numbers(300, 400), c=flags(400)),
    "masked_scatter": lambda: case(
        lambda x, c, s: x.masked_scatter(c, s), x=numbers(300, 400), c=flags(300, 400),
        s=numbers(300, 400, seed=6),
    ),
    "masked_scatter of rows": lambda: case(
        lambda x, c, s: x.masked_scatter(c, s), x=numbers(300, 400), c=flags(300, 1),
        s=numbers(300, 400, seed=6),
    ),
    "put": lambda: case(
        lambda x, i, s: x.put(i, s, accumulate=True), x=numbers(300, 400), i=ints(120000, 40000),
        s=numbers(40000),
    ),
    "select_scatter": lambda: case(
        lambda x, s: x.select_scatter(s, 1, 3), x=numbers(90, 4, 400), s=numbers(90, 400)
    ),
    "slice_scatter": lambda: case(
        lambda x, s: x.slice_scatter(s, 1, 3, 203, 2), x=numbers(400, 300), s=numbers(400, 100)
    ),
    "diagonal_scatter": lambda: case(
        lambda x, s: x.diagonal_scatter(s), x=numbers(400, 300), s=numbers(300)
    ),
    "repeat_interleave": lambda: case(
        lambda x, r: x.repeat_interleave(r, 0), x=numbers(300, 200), r=ints(4, 300)
    ),
    "segment_reduce": lambda: case(
        lambda x, n: torch.segment_reduce(x, "sum", lengths=n, axis=0, unsafe=True),
        x=numbers(3000, 40), n=torch.full((300,), 10), dtypes=FLOAT,
    ),
    "searchsorted": lambda: case(
        lambda x, b: torch.searchsorted(b, x), x=numbers(300, 200), b=numbers(50).sort()[0]
    ),
    "searchsorted of rows": lambda: case(
        lambda x, b: torch.searchsorted(b, x, right=True), x=numbers(300, 200),
        b=numbers(300, 50).sort()[0],
    ),
    "searchsorted sorter": lambda: case(
        lambda x, b, s: torch.searchsorted(b, x, sorter=s), x=numbers(300, 200), b=numbers(300, 50),
        s=numbers(300, 50).argsort(-1), distinct=("b", "s"), dtypes=FLOAT,
    ),
    "bucketize": lambda: case(
        torch.bucketize, x=numbers(300, 200), b=numbers(50).sort()[0]
    ),
    "bincount": lambda: case(
        lambda x, w: torch.bincount(x, w), x=ints(300, 60000), w=numbers(60000), dtypes=FLOAT,
        still=("w",),
    ),
    "histogram": lambda: case(
        lambda x, b, w: torch.histogram(x, b, weight=w), x=numbers(60000), b=numbers(50).sort()[0],
        w=positive(60000), dtypes=FLOAT, still=("x", "b", "w"), distinct=("b",),
    ),
    "quantile": lambda: case(
        lambda x, q: torch.quantile(x, q, dim=1), x=numbers(300, 200), q=shares(7), still=("q",),
        dtypes=FLOAT, scalars=("q",),
    ),
    "nanquantile": lambda: case(
        lambda x, q: torch.nanquantile(x, q), x=numbers(30000), q=shares(7), still=("q",),
        wide=False, dtypes=FLOAT, scalars=("q",),
    ),
    "isin": lambda: case(torch.isin, x=ints(900, 300, 200), y=ints(900, 6)),
    "isin of many": lambda: case(torch.isin, x=ints(9000, 300, 200), y=ints(9000, 50, 90)),
    "isin of numbers": lambda: case(torch.isin, x=numbers(300, 200), y=numbers(300, 9)),
    "cov": lambda: case(
        lambda x, f, a: torch.cov(x, fweights=f, aweights=a), x=numbers(40, 3000),
        f=ints(5, 3000) + 1, a=positive(3000), still=("a",), dtypes=FLOAT,
    ),
    "trapezoid": lambda: case(torch.trapezoid, y=numbers(300, 400), x=numbers(400)),
    "cumulative_trapezoid": lambda: case(
        torch.cumulative_trapezoid, y=numbers(300, 400), x=numbers(400)
    ),
    "gradient": lambda: case(
        lambda y, x: torch.gradient(y, spacing=(x,), dim=1), y=numbers(300, 400),
        x=torch.arange(400.0) + shares(400), still=("x",), dtypes=FLOAT, distinct=("x",),
    ),
    "diff": lambda: case(
        lambda x, p, a: torch.diff(x, prepend=p, append=a), x=numbers(300, 400), p=numbers(300, 3),
        a=numbers(300, 5),
    ),
    "cat": lambda: case(
        lambda x, y, z: torch.cat([x, y, z], 1), x=numbers(300, 400), y=numbers(300, 70),
        z=ints(9, 300, 60),
    ),
    "cat 0": lambda: case(
        lambda x, y: torch.cat([x, y, x]), x=numbers(300, 400), y=numbers(70, 400)
    ),
    "stack": lambda: case(
        lambda x, y: torch.stack([x, y], -1), x=numbers(300, 400), y=numbers(300, 400, seed=6)
    ),
    "block_diag": lambda: case(torch.block_diag, x=numbers(200, 300), y=numbers(90, 80)),
    "cartesian_prod": lambda: case(torch.cartesian_prod, x=numbers(300), y=numbers(200)),
    "meshgrid": lambda: case(
        lambda x, y: [g * 2 for g in torch.meshgrid(x, y, indexing="ij")], x=numbers(300),
        y=numbers(400),
    ),
}  # fmt: skip

LOSSES: dict[str, Callable[[], Case]] = {
    **{
        f"cross_entropy {name}": lambda options=options: loss(
            lambda x, t, w: F.cross_entropy(x, t, w, **options), ints(90, 1200),
            x=numbers(1200, 90), w=positive(90), still=("w",),
        )
        for name, options in {
            "mean": {},
            "each": {"reduction": "none"},
            "smoothed": {"label_smoothing": 0.1},
            "ignoring": {"ignore_index": 3, "reduction": "sum"},
        }.items()
    },
    "cross_entropy unweighted": lambda: loss(
        F.cross_entropy, ints(90, 1200), x=numbers(1200, 90)
    ),
    "cross_entropy of images": lambda: loss(
        lambda x, t, w: F.cross_entropy(x, t, w), ints(20, 4, 40, 41), x=numbers(4, 20, 40, 41),
        w=positive(20), still=("w",),
    ),
    "cross_entropy of shares": lambda: loss(
        lambda x, t, w: F.cross_entropy(x, t, w, label_smoothing=0.1), shares(1200, 90),
        w=positive(90), still=("w",),
    ),
    "nll_loss": lambda: loss(
        lambda x, t, w: F.nll_loss(x, t, w), ints(90, 1200), x=numbers(1200, 90), w=positive(90),
        still=("w",),
    ),
    "nll_loss each": lambda: loss(
        lambda x, t, w: F.nll_loss(x, t, w, reduction="none"), ints(9, 12000), x=numbers(12000, 9),
        w=positive(9), still=("w",),
    ),
    "nll_loss of images": lambda: loss(
        lambda x, t, w: F.nll_loss(x, t, w), ints(20, 4, 40, 41), x=numbers(4, 20, 40, 41),
        w=positive(20), still=("w",),
    ),
    "nll_loss of images each": lambda: loss(
        lambda x, t, w: F.nll_loss(x, t, w, reduction="none"), ints(20, 4, 40, 41),
        x=numbers(4, 20, 40, 41), w=positive(20), still=("w",),
    ),
    **{
        f"bce {kind}": lambda kind=kind: loss(
            lambda x, t, w: F.binary_cross_entropy(x, t, w, reduction=kind), shares(300, 200),
            x=shares(300, 200).flip(0), w=positive(300, 200), still=("t", "target", "w"),
        )
        for kind in ("none", "mean", "sum")
    },
    **{
        f"bce_with_logits {kind}": lambda kind=kind: loss(
            lambda x, t, w, p: F.binary_cross_entropy_with_logits(
                x, t, w, pos_weight=p, reduction=kind
            ),
            shares(300, 200), w=positive(300, 200), p=positive(200), still=("w", "p"),
            scalars=("w", "p"),
        )
        for kind in ("none", "mean")
    },
    **{
        f"{name} {kind}": lambda name=name, kind=kind: loss(
            lambda x, t: getattr(F, name)(x, t, reduction=kind), numbers(300, 200, seed=8)
        )
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
        for kind in ("none", "mean")
    },
    "soft_margin_loss": lambda: loss(
        lambda x, t: F.soft_margin_loss(x, t, reduction="none"), numbers(300, 200, seed=8),
        still=("target",),
    ),
    "mse_loss weighted": lambda: loss(
        lambda x, t, w: F.mse_loss(x, t, weight=w), numbers(300, 200, seed=8), w=positive(300, 200)
    ),
    **{
        f"kl_div {kind}": lambda kind=kind: loss(
            lambda x, t: F.kl_div(x, t, reduction=kind), shares(300, 200)
        )
        for kind in ("none", "batchmean")
    },
    "kl_div log": lambda: loss(
        lambda x, t: F.kl_div(x, t, reduction="sum", log_target=True), numbers(300, 200, seed=8)
    ),
    "poisson_nll_loss": lambda: loss(
        lambda x, t: F.poisson_nll_loss(x, t, full=True), positive(300, 200) * 3, still=("target",)
    ),
    "gaussian_nll_loss": lambda: loss(
        lambda x, t, v: F.gaussian_nll_loss(x, t, v, full=True), numbers(300, 200, seed=8),
        v=positive(300, 200),
    ),
    "multi_margin_loss": lambda: loss(
        lambda x, t, w: F.multi_margin_loss(x, t, weight=w), ints(90, 1200), x=numbers(1200, 90),
        w=positive(90), still=("w",), dtypes=FLOAT,
    ),
    "multi_margin_loss each": lambda: loss(
        lambda x, t, w: F.multi_margin_loss(x, t, p=2, weight=w, reduction="none"), ints(90, 1200),
        x=numbers(1200, 90), w=positive(90), still=("w",), dtypes=FLOAT,
    ),
    "multilabel_margin_loss": lambda: loss(
        F.multilabel_margin_loss, orders(900, 60) - 1, x=numbers(900, 60), dtypes=FLOAT,
        distinct=("target",),
    ),
    "multilabel_soft_margin_loss": lambda: loss(
        lambda x, t, w: F.multilabel_soft_margin_loss(x, t, weight=w), shares(900, 60),
        w=positive(60), still=("w",),
    ),
    "hinge_embedding_loss": lambda: loss(
        F.hinge_embedding_loss, ints(2, 300, 200) * 2 - 1
    ),
    "margin_ranking_loss": lambda: loss(
        F.margin_ranking_loss, numbers(60000, seed=8), z=(ints(2, 60000) * 2 - 1).float()
    ),
    "cosine_embedding_loss": lambda: loss(
        F.cosine_embedding_loss, numbers(900, 90, seed=8), z=ints(2, 900) * 2 - 1
    ),
    "triplet_margin_loss": lambda: loss(
        F.triplet_margin_loss, numbers(900, 90, seed=8), z=numbers(900, 90, seed=9)
    ),
    "cosine_similarity": lambda: loss(F.cosine_similarity, numbers(900, 90, seed=8)),
    "pairwise_distance": lambda: loss(F.pairwise_distance, numbers(900, 90, seed=8)),
    "ctc_loss": lambda: loss(
        lambda x, t, i, n: F.ctc_loss(x.log_softmax(-1), t, i, n), ints(29, 16, 20) + 1,
        x=numbers(80, 16, 30), i=torch.full((16,), 80), n=ints(9, 16) + 10, dtypes=FLOAT,
    ),
    "ctc_loss in one": lambda: loss(
        lambda x, t, i, n: F.ctc_loss(x.log_softmax(-1), t, i, n, reduction="none"),
        ints(29, 320) + 1, x=numbers(80, 16, 30), i=torch.full((16,), 80), n=torch.full((16,), 20),
        dtypes=FLOAT, distinct=("i", "n"),
    ),
}  # fmt: skip


def attention(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=m)


def recurrent(name: str, gates: int, *, last: bool = False) -> Case:
    """Two layers' worth of operands are left out: one layer has all kinds of them."""
    x, hidden = numbers(40, 24, 32), 48

    def call(x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        state = (h, c) if name == "lstm" else h + 0 * c
        results = getattr(torch._VF, name)(
            x, state, list(weights), True, 1, 0.0, False, False, last
        )
        return tuple(results)

    if last:
        x = x.transpose(0, 1).contiguous()
    return case(
        call, x=x, h=numbers(1, 24, hidden), c=numbers(1, 24, hidden, seed=6),
        w=numbers(gates * hidden, 32) * 0.2, u=numbers(gates * hidden, hidden) * 0.1,
        b=numbers(gates * hidden) * 0.2, d=numbers(gates * hidden, seed=6) * 0.2,
    )  # fmt: skip


def cell(name: str, gates: int, **options: Any) -> Case:
    def call(x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> Any:
        return getattr(torch._VF, name)(x, (h, c) if name == "lstm_cell" else h + 0 * c, *weights)

    return case(
        call, x=numbers(400, 64), h=numbers(400, 96), c=numbers(400, 96, seed=6),
        w=numbers(gates * 96, 64) * 0.2, u=numbers(gates * 96, 96) * 0.1, b=numbers(gates * 96),
        d=numbers(gates * 96, seed=6), **options,
    )  # fmt: skip


def heads(
    x: Tensor, y: Tensor, w: Tensor, b: Tensor, o: Tensor, p: Tensor, k: Tensor, m: Tensor
) -> Tensor:
    return F.multi_head_attention_forward(
        x, y, y, 64, 4, w, b, None, None, False, 0.0, o, p, key_padding_mask=k, attn_mask=m,
        need_weights=False,
    )[0]  # fmt: skip


def unpool(dims: int, *shape: int) -> Case:
    x = numbers(*shape)
    pool = [F.max_pool1d, F.max_pool2d, F.max_pool3d][dims - 1]
    back = [F.max_unpool1d, F.max_unpool2d, F.max_unpool3d][dims - 1]
    values, places = pool(x, 2, return_indices=True)
    return case(lambda x, i: back(x, i, 2), x=values, i=places, distinct=("i",))


def grid(*shape: int) -> Tensor:
    return numbers(*shape) * 0.6


LAYERS: dict[str, Callable[[], Case]] = {
    "lstm": lambda: recurrent("lstm", 4),
    "lstm batch first": lambda: recurrent("lstm", 4, last=True),
    "gru": lambda: recurrent("gru", 3),
    "rnn_tanh": lambda: recurrent("rnn_tanh", 1),
    "lstm_cell": lambda: cell("lstm_cell", 4),
    "gru_cell": lambda: cell("gru_cell", 3),
    "rnn_relu_cell": lambda: cell("rnn_relu_cell", 1, dtypes=FLOAT),
    **{
        f"attention {name}": lambda make=make: case(
            attention, q=numbers(3, 4, 70, 32), k=numbers(3, 4, 90, 32), v=numbers(3, 4, 90, 32),
            m=make(), scalars=(),
        )
        for name, make in {
            "mask": lambda: numbers(3, 4, 70, 90),
            "one mask": lambda: numbers(70, 90),
            "of keys": lambda: numbers(3, 1, 1, 90),
            "flags": lambda: flags(3, 4, 70, 90),
            "flags of keys": lambda: flags(3, 1, 1, 90),
        }.items()
    },
    "attention one query": lambda: case(
        attention, q=numbers(3, 4, 1, 64), k=numbers(3, 4, 500, 64), v=numbers(3, 4, 500, 64),
        m=numbers(3, 1, 1, 500), still=("q", "k", "v", "m"),
    ),
    "attention unasked": lambda: case(
        attention, q=numbers(3, 4, 90, 32), k=numbers(3, 4, 200, 32), v=numbers(3, 4, 200, 32),
        m=numbers(90, 200), still=("q", "k", "v", "m"),
    ),
    "attention causal": lambda: case(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        q=numbers(3, 4, 70, 32), k=numbers(3, 4, 70, 32, seed=8), v=numbers(3, 4, 70, 32, seed=9),
    ),
    "heads": lambda: case(
        heads, x=numbers(50, 8, 64), y=numbers(60, 8, 64), w=numbers(192, 64) * 0.2,
        b=numbers(192) * 0.2, o=numbers(64, 64) * 0.2, p=numbers(64),
        k=torch.arange(60).expand(8, 60) > 40, m=numbers(50, 60), distinct=("k",),
    ),
    **{
        f"grid_sample {mode} {padding}": lambda mode=mode, padding=padding: case(
            lambda x, g: F.grid_sample(x, g, mode, padding, align_corners=False),
            x=numbers(4, 6, 50, 51), g=grid(4, 60, 61, 2), dtypes=FLOAT,
            distinct=("g",) if mode == "nearest" else (),
        )
        for mode, padding in (
            ("bilinear", "zeros"), ("bilinear", "border"), ("nearest", "zeros"),
            ("bicubic", "reflection"),
        )
    },
    "grid_sample 3d": lambda: case(
        lambda x, g: F.grid_sample(x, g, align_corners=True), x=numbers(2, 4, 20, 21, 22),
        g=grid(2, 22, 23, 24, 3), dtypes=FLOAT,
    ),
    "affine_grid": lambda: case(
        lambda t: F.affine_grid(t, [9, 3, 90, 91], align_corners=False), t=numbers(9, 2, 3),
        main="", dtypes=FLOAT,
    ),
    "unpool 1d": lambda: unpool(1, 8, 30, 600),
    "unpool 2d": lambda: unpool(2, 8, 16, 40, 42),
    "unpool 3d": lambda: unpool(3, 4, 8, 14, 16, 18),
    "unfold": lambda: case(
        lambda x: F.unfold(x, 3, padding=1, stride=2), x=numbers(8, 16, 40, 42)
    ),
    "fold": lambda: case(
        lambda x: F.fold(x, (30, 31), 3, padding=1), x=numbers(4, 72, 930)
    ),
    **{
        f"{name}": lambda function=function: case(function, x=numbers(8, 16, 40, 42))
        for name, function in {
            "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
            "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1),
            "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 7),
            "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 7),
            "lp_pool2d": lambda x: F.lp_pool2d(x.abs() + 1, 2, 3),
            "interpolate bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
            "interpolate nearest": lambda x: F.interpolate(x, scale_factor=2),
            "interpolate bicubic": lambda x: F.interpolate(x, size=(60, 50), mode="bicubic"),
            "pad reflect": lambda x: F.pad(x, (3, 2, 1, 4), mode="reflect"),
            "pad replicate": lambda x: F.pad(x, (3, 2, 1, 4), mode="replicate"),
            "pad circular": lambda x: F.pad(x, (3, 2, 1, 4), mode="circular"),
            "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
            "softmax": lambda x: F.softmax(x, 1),
            "softmax last": lambda x: F.softmax(x, -1),
            "log_softmax": lambda x: F.log_softmax(x, 2),
            "gelu": F.gelu,
            "silu": F.silu,
            "glu": lambda x: F.glu(x, 1),
            "logsumexp": lambda x: x.logsumexp(1),
            "cumsum": lambda x: x.cumsum(2),
            "cumprod": lambda x: (x.sigmoid() + 0.5).cumprod(2),
            "logcumsumexp": lambda x: x.logcumsumexp(-1),
            "cummax": lambda x: x.cummax(-1)[0],
            "sort": lambda x: torch.sort(x, dim=-1, stable=True)[0],
            "topk": lambda x: x.topk(5, -1)[0],
            "amax": lambda x: x.amax((1, 2)),
            "var": lambda x: x.var((1, 3)),
            "std_mean": lambda x: torch.std_mean(x, 2),
            "norm": lambda x: torch.linalg.vector_norm(x, 3, (1, 2)),
            "normalize": lambda x: F.normalize(x, dim=1),
            "local_response_norm": lambda x: F.local_response_norm(x, 5),
            "unfold of a dimension": lambda x: x.unfold(2, 5, 2) * 1,
            "roll": lambda x: x.roll((3, 5), (1, 3)),
            "flip": lambda x: x.flip(1, 3),
            "tril": lambda x: x.tril(2),
            "repeat": lambda x: x.repeat(1, 2, 1, 3),
        }.items()
    },
    "pdist": lambda: case(F.pdist, x=numbers(200, 30), dtypes=FLOAT),
    "fft": lambda: case(lambda x: torch.fft.rfft(x).abs(), x=numbers(200, 300), dtypes=FLOAT),
    "rfft2": lambda: case(torch.fft.rfft2, x=numbers(20, 60, 50), dtypes=FLOAT),
    "fft of complex": lambda: case(torch.fft.fft2, x=pairs(20, 60, 50), dtypes=COMPLEX),
    "irfft": lambda: case(torch.fft.irfft, x=pairs(200, 151), dtypes=COMPLEX),
}  # fmt: skip


def sparse_rows(x: Tensor, crow: Tensor, col: Tensor, values: Tensor) -> Tensor:
    return torch.sparse_csr_tensor(crow, col, values, (300, 400)) @ x


def sparse_pairs(x: Tensor, places: Tensor, values: Tensor) -> Tensor:
    return torch.sparse.mm(torch.sparse_coo_tensor(places, values, (300, 400)), x)


def sparse_added(x: Tensor, places: Tensor, values: Tensor, c: Tensor) -> Tensor:
    return torch.sparse.addmm(c, torch.sparse_coo_tensor(places, values, (300, 400)), x)


SPARSE: dict[str, Callable[[], Case]] = {
    "sparse csr": lambda: case(
        sparse_rows, x=numbers(400, 90), crow=torch.arange(0, 3001, 10),
        col=torch.arange(3000) * 7 % 400, values=numbers(3000), distinct=("crow", "col"),
        dtypes=FLOAT, still=("x", "values"),
    ),
    "sparse coo": lambda: case(
        sparse_pairs, x=numbers(400, 90), places=torch.stack([ints(300, 3000), ints(400, 3000)]),
        values=numbers(3000), dtypes=FLOAT,
    ),
    "sparse addmm": lambda: case(
        sparse_added, x=numbers(400, 90), places=torch.stack([ints(300, 3000), ints(400, 3000)]),
        values=numbers(3000), c=numbers(300, 90), dtypes=FLOAT,
    ),
    "sparse dense": lambda: case(
        lambda places, values: torch.sparse_coo_tensor(places, values, (300, 400)).to_dense(),
        places=torch.stack([ints(300, 9000), ints(400, 9000)]), values=numbers(9000), main="",
        dtypes=FLOAT,
    ),
}  # fmt: skip

CASES = {
    **CONVOLUTIONS, **PRODUCTS, **NORMS, **POINTWISE, **OF_COMPLEX, **INDICES, **LOSSES, **LAYERS,
    **SPARSE,
}  # fmt: skip


def every(cases: dict[str, Callable[[], Case]]) -> Iterator[Any]:
    for name, make in cases.items():
        for dtype in make().dtypes:
            yield pytest.param(make, dtype, id=f"{name}-{dtype}")


@pytest.mark.parametrize(("make", "dtype"), list(every(CASES)))
def test_operands_give_what_their_copies_give(make: Callable[[], Case], dtype: torch.dtype) -> None:
    wrong = list(failures(make(), dtype))
    assert not wrong, "\n".join(map(str, wrong))


# Results given by the caller


OUT: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "add": (torch.add, (numbers(300, 400), numbers(300, 400, seed=6))),
    "add row": (torch.add, (numbers(300, 400), numbers(400))),
    "exp": (torch.exp, (numbers(300, 400),)),
    "eq": (torch.eq, (ints(3, 300, 400), ints(3, 300, 400).flip(0))),
    "where": (torch.where, (flags(300, 400), numbers(300, 400), numbers(400))),
    "addcmul": (torch.addcmul, (numbers(300, 400), numbers(300, 400), numbers(400))),
    "clamp": (torch.clamp, (numbers(300, 400), numbers(400) - 1, positive(400))),
    "lerp": (torch.lerp, (numbers(300, 400), numbers(300, 400, seed=6), shares(400))),
    "pow": (torch.pow, (positive(300, 400), numbers(300, 400))),
    "mm": (torch.mm, (numbers(300, 200), numbers(200, 250))),
    "addmm": (torch.addmm, (numbers(250), numbers(300, 200), numbers(200, 250))),
    "bmm": (torch.bmm, (numbers(8, 90, 60), numbers(8, 60, 70))),
    "baddbmm": (torch.baddbmm, (numbers(70), numbers(8, 90, 60), numbers(8, 60, 70))),
    "mv": (torch.mv, (numbers(900, 400), numbers(400))),
    "addmv": (torch.addmv, (numbers(900), numbers(900, 400), numbers(400))),
    "addr": (torch.addr, (numbers(400), numbers(300), numbers(400))),
    "outer": (torch.outer, (numbers(300), numbers(400))),
    "matmul": (torch.matmul, (numbers(6, 4, 60, 50), numbers(4, 50, 70))),
    "linear": (torch._C._nn.linear, (numbers(300, 200), numbers(250, 200), numbers(250))),
    "kron": (torch.kron, (numbers(30, 40), numbers(20, 9))),
    "cross": (torch.linalg.cross, (numbers(40000, 3), numbers(40000, 3, seed=6))),
    "sum": (lambda x, out: torch.sum(x, 1, out=out), (numbers(300, 400),)),
    "sum of columns": (lambda x, out: torch.sum(x, 0, out=out), (numbers(300, 400),)),
    "sum of planes": (lambda x, out: torch.sum(x, 1, out=out), (numbers(30, 90, 50),)),
    "mean": (lambda x, out: torch.mean(x, 1, out=out), (numbers(30, 90, 50),)),
    "amax": (lambda x, out: torch.amax(x, 1, out=out), (numbers(30, 90, 50),)),
    "argmax": (lambda x, out: torch.argmax(x, 1, out=out), (numbers(30, 90, 50),)),
    "any": (lambda x, out: torch.any(x, 1, out=out), (flags(30, 90, 50),)),
    "prod": (lambda x, out: torch.prod(x, 1, out=out), (positive(300, 40),)),
    "var": (lambda x, out: torch.var(x, 1, out=out), (numbers(30, 90, 50),)),
    "norm": (lambda x, out: torch.linalg.vector_norm(x, 2, 1, out=out), (numbers(30, 90, 50),)),
    "logsumexp": (lambda x, out: torch.logsumexp(x, 1, out=out), (numbers(30, 90, 50),)),
    "softmax": (lambda x, out: torch.softmax(x, 1, out=out), (numbers(30, 90, 50),)),
    "log_softmax": (lambda x, out: torch.log_softmax(x, -1, out=out), (numbers(30, 90, 50),)),
    "cumsum": (lambda x, out: torch.cumsum(x, 1, out=out), (numbers(30, 90, 50),)),
    "cumsum last": (lambda x, out: torch.cumsum(x, -1, out=out), (numbers(300, 400),)),
    "cumprod": (lambda x, out: torch.cumprod(x, 0, out=out), (positive(30, 90, 50),)),
    "logcumsumexp": (lambda x, out: torch.logcumsumexp(x, 1, out=out), (numbers(30, 90, 50),)),
    "cummax": (lambda x, out: torch.cummax(x, 1, out=out), (numbers(30, 90, 50),)),
    "sort": (lambda x, out: torch.sort(x, dim=1, stable=True, out=out), (numbers(30, 90, 50),)),
    "sort last": (lambda x, out: torch.sort(x, stable=True, out=out), (numbers(300, 400),)),
    "topk": (lambda x, out: torch.topk(x, 9, 1, out=out), (numbers(30, 90, 50),)),
    "kthvalue": (lambda x, out: torch.kthvalue(x, 9, 1, out=out), (numbers(30, 90, 50),)),
    "median": (lambda x, out: torch.median(x, 1, out=out), (numbers(30, 91, 50),)),
    "max": (lambda x, out: torch.max(x, 1, out=out), (numbers(30, 90, 50),)),
    "aminmax": (lambda x, out: torch.aminmax(x, dim=1, out=out), (numbers(30, 90, 50),)),
    "cat": (lambda *x, out: torch.cat(x, 1, out=out), (numbers(300, 400), numbers(300, 70))),
    "cat 0": (lambda *x, out: torch.cat(x, out=out), (numbers(300, 400), numbers(70, 400))),
    "stack": (lambda *x, out: torch.stack(x, 1, out=out), (numbers(300, 400), numbers(300, 400))),
    "gather": (
        lambda x, i, out: torch.gather(x, 1, i, out=out), (numbers(300, 400), ints(400, 300, 350))
    ),
    "index_select": (
        lambda x, i, out: torch.index_select(x, 1, i, out=out), (numbers(300, 400), ints(400, 350))
    ),
    "take": (torch.take, (numbers(300, 400), ints(9000, 300, 350))),
    "scatter": (
        lambda x, i, s, out: torch.scatter(x, 1, i, s, out=out),
        (numbers(300, 400), orders(300, 400), numbers(300, 400, seed=6)),
    ),
    "scatter_add": (
        lambda x, i, s, out: torch.scatter_add(x, 1, i, s, out=out),
        (numbers(300, 400), ints(400, 300, 400), numbers(300, 400, seed=6)),
    ),
    "index_add": (
        lambda x, i, s, out: torch.index_add(x, 0, i, s, out=out),
        (numbers(300, 400), ints(300, 280), numbers(280, 400)),
    ),
    "searchsorted": (torch.searchsorted, (numbers(300, 50).sort()[0], numbers(300, 200))),
    "bucketize": (torch.bucketize, (numbers(300, 200), numbers(50).sort()[0])),
    "isin": (torch.isin, (ints(900, 300, 200), ints(900, 60))),
    "tril": (torch.tril, (numbers(300, 400),)),
    "diag": (torch.diag, (numbers(300),)),
    "quantile": (
        lambda x, q, out: torch.quantile(x, q, dim=1, out=out), (numbers(300, 200), shares(7))
    ),
    "renorm": (lambda x, out: torch.renorm(x, 2, 0, 1.0, out=out), (numbers(300, 400),)),
    "avg_pool2d": (
        lambda x, out: torch._C._nn.avg_pool2d(x, 3, out=out), (numbers(8, 16, 40, 42),)
    ),
    "mse_loss": (
        lambda x, y, out: torch._C._nn.mse_loss(x, y, 0, out=out),
        (numbers(300, 400), numbers(300, 400, seed=6)),
    ),
    "gelu": (torch._C._nn.gelu, (numbers(300, 400),)),
    "fft": (lambda x, out: torch.fft.rfft(x, out=out), (numbers(200, 300),)),
    "complex mm": (torch.mm, (pairs(200, 90), pairs(90, 110))),
    "complex mul": (torch.mul, (pairs(200, 90), pairs(200, 90))),
    "arange": (lambda out: torch.arange(0, 90000, out=out), ()),
    "linspace": (lambda out: torch.linspace(0, 1, 90000, out=out), ()),
    "eye": (lambda out: torch.eye(300, 400, out=out), ()),
}  # fmt: skip


def spare(x: Tensor) -> Tensor:
    return torch.full_like(x, 7 if x.dtype != torch.bool else True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OUT)
def test_results_go_where_the_caller_wants_them(name: str, dtype: torch.dtype) -> None:
    function, given = OUT[name]
    if dtype == torch.bfloat16 and name in NOT_HALF:
        return
    given = tuple(x.to(dtype) if x.is_floating_point() else x for x in given)
    results = function(*given, out=None)
    alone = isinstance(results, Tensor)
    expected = [results] if alone else list(results)
    wrong = []
    for place, usual in enumerate(expected):
        for layout, changed in all_layouts(spare(usual)):
            out = [spare(x) for x in expected]
            out[place] = changed
            found = [on_loom(x) for x in out]
            try:
                function(*map(on_loom, given), out=found[0] if alone else tuple(found))
                for one, other, value in zip(found, out, expected, strict=True):
                    other.copy_(value)
                    assert_near([whole(one)], [whole(other)])
            except AssertionError as error:
                wrong.append((place, layout, " ".join(str(error).split())[:200]))
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    function(*given, out=out[0] if alone else tuple(out))
    assert not wrong, "\n".join(map(str, wrong))


def whole(x: Tensor) -> Tensor:
    """All elements of the storage."""
    x = x.conj() if x.is_conj() else x
    x = torch._neg_view(x) if x.is_neg() else x
    return torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)


NOT_HALF = {
    "cross", "kthvalue", "quantile", "renorm", "fft", "complex mm", "complex mul", "argmax", "topk",
    "sort", "sort last", "median", "max", "cummax",
}  # fmt: skip


# Random numbers


RANDOM: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "normal": (torch.normal, (numbers(300, 400), positive(300, 400))),
    "normal of a mean": (lambda m: torch.normal(m, 2.0), (numbers(300, 400),)),
    "normal of a spread": (lambda s: torch.normal(1.0, s), (positive(300, 400),)),
    "bernoulli": (torch.bernoulli, (shares(300, 400),)),
    "bernoulli in place": (
        lambda x, p: x.clone().bernoulli_(p), (numbers(300, 400), shares(300, 400))
    ),
    "poisson": (torch.poisson, (positive(300, 400) * 3,)),
    "binomial": (torch.binomial, (positive(300, 400).mul(9).ceil(), shares(300, 400))),
    "multinomial": (lambda w: torch.multinomial(w, 50), (positive(200, 300),)),
    "multinomial again": (lambda w: torch.multinomial(w, 50, True), (positive(200, 300),)),
    "standard_gamma": (torch._standard_gamma, (positive(300, 400),)),
    "dirichlet": (torch._sample_dirichlet, (positive(300, 40),)),
}  # fmt: skip


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_of_operands_are_those_of_copies(name: str) -> None:
    function, given = RANDOM[name]

    def draw(*operands: Tensor) -> Tensor:
        torch.manual_seed(4)
        return function(*map(on_loom, operands))

    wrong = []
    for place, usual in enumerate(given):
        for layout, changed in (*all_layouts(usual), *shared_layouts(usual)):
            operands = [*given[:place], changed, *given[place + 1 :]]
            wanted = draw(*map(copied, operands)).cpu()
            try:
                assert_near([draw(*operands)], [wanted])
            except (AssertionError, RuntimeError) as error:
                wrong.append((place, layout, " ".join(str(error).split())[:200]))
    assert not wrong, "\n".join(map(str, wrong))
