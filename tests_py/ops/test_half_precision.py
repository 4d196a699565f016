# SPDX-License-Identifier: BSD-3-Clause
"""Losses, norms and reductions of float16 and bfloat16, and their gradients, against float64.

The table says how many units of the last place (ULPs) each may be off: of the element or, where
terms cancel, of a sixteenth of the largest one. Gradients are scaled as GradScaler does. What cpu
computes as a finite number is finite, too.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

Function = Callable[..., torch.Tensor]
ROWS, COLUMNS = 64, 100
SCALES = {torch.float16: [1.0, 32768.0], torch.bfloat16: [1.0, 65536.0]}


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


CLASSES = torch.randint(COLUMNS, (ROWS,), generator=_generator(1))
SIGNS = torch.randint(0, 2, (ROWS, COLUMNS), generator=_generator(2)) * 2.0 - 1


def _like(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return values.to(x.device, x.dtype if values.is_floating_point() else values.dtype)


def _classes(loss: Function, **keywords: Any) -> Function:
    return lambda x, reduction: loss(x, _like(CLASSES, x), reduction=reduction, **keywords)


def _signs(loss: Function, signs: torch.Tensor = SIGNS) -> Function:
    return lambda *xs, reduction: loss(*xs, _like(signs, xs[0]), reduction=reduction)


# What it computes, its operands (n: normal, u: between 0 and 1, p: positive), ULPs of the result
# and of the gradients.
LOSSES: dict[str, tuple[Function, str, float, float]] = {
    "mse_loss": (functional.mse_loss, "nn", 3, 3),
    "l1_loss": (functional.l1_loss, "nn", 1, 1),
    "smooth_l1_loss": (functional.smooth_l1_loss, "nn", 2, 2),
    "huber_loss": (functional.huber_loss, "nn", 2, 8),
    "binary_cross_entropy": (functional.binary_cross_entropy, "uu", 4, 12),
    "binary_cross_entropy_with_logits": (
        functional.binary_cross_entropy_with_logits,
        "nu",
        20,
        12,
    ),
    "kl_div": (functional.kl_div, "np", 4, 16),
    "poisson_nll_loss": (functional.poisson_nll_loss, "np", 4, 4),
    "gaussian_nll_loss": (functional.gaussian_nll_loss, "nnp", 8, 8),
    "cross_entropy": (_classes(functional.cross_entropy), "n", 2, 4),
    "cross_entropy, smoothed": (
        _classes(functional.cross_entropy, label_smoothing=0.1),
        "n",
        4,
        4,
    ),
    "nll_loss": (_classes(functional.nll_loss), "n", 1, 1),
    "soft_margin_loss": (_signs(functional.soft_margin_loss), "n", 2, 12),
    "hinge_embedding_loss": (_signs(functional.hinge_embedding_loss), "n", 1, 1),
    "multilabel_soft_margin_loss": (
        _signs(functional.multilabel_soft_margin_loss, (SIGNS + 1) / 2),
        "n",
        3,
        3,
    ),
    "margin_ranking_loss": (_signs(functional.margin_ranking_loss), "nn", 2, 2),
    # Composites that round after every step, on cpu, too: differences of what is nearly equal.
    "triplet_margin_loss": (functional.triplet_margin_loss, "nnn", 40, 4096),
    "cosine_embedding_loss": (
        _signs(functional.cosine_embedding_loss, SIGNS[:, 0]),
        "nn",
        2,
        512,
    ),
}


def _norm(order: float, *dims: int) -> Function:
    return lambda x: torch.linalg.vector_norm(x, order, dims or None)


def _images(x: torch.Tensor) -> torch.Tensor:
    return x.view(8, 8, COLUMNS)


REDUCTIONS: dict[str, tuple[Function, str, float, float]] = {
    "sum": (lambda x: x.sum(), "p", 1, 1),
    "sum of columns": (lambda x: x.sum(0), "p", 1, 1),
    "sum of rows": (lambda x: x.sum(1), "p", 1, 1),
    "nansum": (lambda x: x.nansum(), "p", 1, 1),
    "mean": (lambda x: x.mean(), "p", 1, 1),
    "mean of columns": (lambda x: x.mean(0), "p", 1, 1),
    "mean of rows": (lambda x: x.mean(1), "p", 1, 1),
    "nanmean": (lambda x: x.nanmean(1), "p", 2, 2),
    "prod": (lambda x: x[:, :12].prod(1), "p", 4, 4),
    "var": (lambda x: x.var(), "n", 2, 2),
    "var of columns": (lambda x: x.var(0), "n", 2, 3),
    "var of rows": (lambda x: x.var(1), "n", 2, 3),
    "std": (lambda x: x.std(), "n", 2, 2),
    "std of columns": (lambda x: x.std(0), "n", 2, 4),
    "std of rows": (lambda x: x.std(1), "n", 2, 4),
    **{f"norm {p}": (_norm(p), "n", 2, 3) for p in (1.0, 2.0, 3.0, math.inf)},
    **{f"norm {p} of columns": (_norm(p, 0), "n", 2, 4) for p in (0.5, 1.0, 2.0, 3.0, math.inf)},
    **{f"norm {p} of rows": (_norm(p, 1), "n", 2, 4) for p in (0.5, 1.0, 2.0, 3.0, math.inf)},
    "amax": (lambda x: x.amax(1), "n", 0, 0),
    "amin": (lambda x: x.amin(0), "n", 0, 0),
    "max": (lambda x: x.max(1).values, "n", 0, 0),
    "median": (lambda x: x.median(1).values, "n", 0, 0),
    "logsumexp": (lambda x: x.logsumexp(1), "n", 2, 12),
    "logsumexp of columns": (lambda x: x.logsumexp(0), "n", 2, 12),
    "softmax": (lambda x: x.softmax(1), "n", 2, 4),
    "softmax of columns": (lambda x: x.softmax(0), "n", 2, 4),
    "log_softmax": (lambda x: x.log_softmax(1), "n", 2, 8),
    "log_softmax of columns": (lambda x: x.log_softmax(0), "n", 2, 8),
    "cumsum": (lambda x: x.cumsum(1), "p", 2, 2),
    "cumprod": (lambda x: x[:, :12].cumprod(1), "p", 4, 8),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), "n", 2, 20),
    "layer_norm": (lambda x: functional.layer_norm(x, (COLUMNS,)), "n", 2, 6),
    "rms_norm": (lambda x: functional.rms_norm(x, (COLUMNS,)), "n", 2, 4),
    "group_norm": (lambda x: functional.group_norm(_images(x), 4), "n", 2, 6),
    "instance_norm": (lambda x: functional.instance_norm(_images(x)), "n", 3, 6),
    "batch_norm": (lambda x: functional.batch_norm(x, None, None, training=True), "n", 3, 6),
    "batch_norm of images": (
        lambda x: functional.batch_norm(_images(x), None, None, training=True),
        "n",
        2,
        6,
    ),
    "local_response_norm": (lambda x: functional.local_response_norm(_images(x), 2), "n", 4, 8),
    "normalize": (functional.normalize, "n", 2, 12),
    "dist": (lambda x: torch.dist(x, x.flip(0)), "n", 2, 3),
    "cosine_similarity": (lambda x: functional.cosine_similarity(x, x.flip(0)), "n", 10, 6),
    "pairwise_distance": (lambda x: functional.pairwise_distance(x, x.flip(0)), "n", 2, 4),
    "trace": (lambda x: x[:, :ROWS].trace(), "p", 1, 1),
    "renorm": (lambda x: x.renorm(2, 0, 1.0), "n", 3, 8),
    "frobenius": (torch.linalg.matrix_norm, "n", 2, 2),
    "weight_norm": (lambda x: torch._weight_norm(x, x[:, :1].abs() + 0.5, 0), "n", 4, 8),
    "avg_pool": (lambda x: functional.avg_pool1d(_images(x), 4), "n", 1, 1),
    "adaptive_avg_pool": (
        lambda x: functional.adaptive_avg_pool2d(x.view(1, 1, ROWS, COLUMNS), (3, 7)),
        "n",
        2,
        2,
    ),
}


def _operand(kind: str, seed: int) -> torch.Tensor:
    if kind == "n":
        return torch.randn(ROWS, COLUMNS, generator=_generator(seed), dtype=torch.float64)
    values = torch.rand(ROWS, COLUMNS, generator=_generator(seed), dtype=torch.float64)
    return values * 0.9 + 0.05 if kind == "u" else values + 0.5


def _run(function: Function, operands: list[torch.Tensor], scale: float) -> list[torch.Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in operands]
    result = function(*leaves)
    # Weights that each of the dtypes holds, so that nothing cancels as a whole.
    weights = torch.randint(1, 8, result.shape, generator=_generator(9)) * (scale / 8)
    gradients = torch.autograd.grad(result, leaves, _like(weights.double(), result))
    return [x.detach().cpu().double() for x in (result, *gradients)]


def _ulps_off(got: torch.Tensor, exact: torch.Tensor, cpu: torch.Tensor, dtype: Any) -> float:
    info = torch.finfo(dtype)
    # What overflows on cpu, too, in between or at the end, says nothing.
    comparable = cpu.isfinite() & (exact.abs() <= info.max)
    size = torch.maximum(exact.abs(), exact.abs().max() / 16).clamp(info.tiny, info.max)
    ulp = torch.exp2(size.log2().floor()) * info.eps
    off = (got - exact).abs() / ulp
    return torch.where(comparable, off, 0.0).nan_to_num(math.inf).max().item()


def _check(function: Function, kinds: str, limits: tuple[float, float], dtype: Any) -> None:
    operands = [_operand(kind, seed).to(dtype) for seed, kind in enumerate(kinds, 3)]
    for scale in SCALES[dtype]:
        exact = _run(function, [x.double() for x in operands], scale)
        on_cpu = _run(function, operands, scale)
        on_loom = _run(function, [x.to("loom") for x in operands], scale)
        off = [_ulps_off(*three, dtype) for three in zip(on_loom, exact, on_cpu, strict=True)]
        assert off[0] <= limits[0]
        assert max(off[1:]) <= limits[1]


@pytest.mark.parametrize("dtype", SCALES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
def test_losses(name: str, reduction: str, dtype: torch.dtype) -> None:
    loss, kinds, result, gradients = LOSSES[name]
    _check(lambda *xs: loss(*xs, reduction=reduction), kinds, (result, gradients), dtype)


@pytest.mark.parametrize("dtype", SCALES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_norms_and_reductions(name: str, dtype: torch.dtype) -> None:
    function, kinds, result, gradients = REDUCTIONS[name]
    _check(function, kinds, (result, gradients), dtype)


@pytest.mark.parametrize("dtype", SCALES, ids=str)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("last", [False, True])
def test_grid_samples_of_images_that_16_bits_cannot_count(
    last: bool, mode: str, dtype: torch.dtype
) -> None:
    """cpu has places in 16 bits, and coordinates in the half type: it reads other memory."""
    images = torch.randn(2, 20, 40, 60, generator=_generator(3)).to(dtype)
    if last:
        images = images.contiguous(memory_format=torch.channels_last)
    grid = (torch.rand(2, 9, 7, 2, generator=_generator(4)) * 2 - 1).to(dtype)

    def sampled(device: str, in_dtype: torch.dtype) -> list[torch.Tensor]:
        x, places = images.to(device, in_dtype), grid.to(device, in_dtype)
        x.requires_grad_()
        made = functional.grid_sample(x, places, mode, "border", align_corners=False)
        gradient = torch.autograd.grad(made, x, torch.ones_like(made))[0]
        return [made.detach().cpu(), gradient.cpu()]

    # Of coordinates in float32 the nearest pixel is the same one.
    for got, wanted in zip(sampled("loom", dtype), sampled("cpu", torch.float32), strict=True):
        assert got.dtype == dtype
        assert torch.equal(got, wanted.to(dtype))


def test_a_grid_sample_has_no_gradient_that_nobody_wants() -> None:
    images = torch.randn(1, 2, 5, 5, dtype=torch.bfloat16, device="loom")
    grid = torch.zeros(1, 3, 3, 2, dtype=torch.bfloat16, device="loom", requires_grad=True)
    made = functional.grid_sample(images, grid, align_corners=False)
    assert torch.autograd.grad(made.sum(), grid)[0].dtype == torch.bfloat16
