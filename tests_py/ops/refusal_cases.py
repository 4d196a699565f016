# SPDX-License-Identifier: BSD-3-Clause
"""Calls that cpu refuses because of metadata, beside those of PyTorch's database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from refusals import Call
from torch.nn import functional

aten = torch.ops.aten


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def longs(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers)


def call(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
    return Call(name, function, args, kwargs)


def shapes() -> list[Call]:
    x = ones(3, 4)
    return [
        call(
            "values do not fit", lambda x, i, v: aten.index_put_(x, [i], v), x, longs(0, 1), ones(3)
        ),
        call("indices do not fit", lambda x, i, j: x[i, j], x, longs(0, 1), longs(0, 1, 2)),
        call("put at a mask", aten.index_put_, x, [ones(4, 4, dtype=torch.bool)], ones(1)),
        call("too many indices", lambda x, i: x[i, i, i], x, longs(0)),
        call("put with too many", lambda x, i: aten.index_put_(x, [i, i, i], x), x, longs(0)),
        call("masked_scatter_", lambda x, m: x.masked_scatter_(m, x), x, ones(3, 3) > 0),
        call("masked_scatter", lambda x, m: x.masked_scatter(m, x), x, ones(5) > 0),
        *empty_dimensions(),
        call("gather", lambda x, i: x.gather(0, i), x, longs(0, 1)),
        call("take of nothing", lambda x, i: x.take(i), ones(0), longs(0)),
        call("put of another number", lambda x, i, v: x.put_(i, v), x, longs(0, 1), ones(3)),
        call(
            "fractional_max_pool2d samples",
            aten.fractional_max_pool2d,
            ones(2, 3, 6, 6),
            [2, 2],
            [3, 3],
            ones(2, 4, 2),
        ),
        call(
            "fractional_max_pool3d samples",
            aten.fractional_max_pool3d,
            ones(2, 3, 6, 6, 6),
            [2, 2, 2],
            [3, 3, 3],
            ones(2, 3, 2),
        ),
        call(
            "fractional_max_pool3d batch",
            aten.fractional_max_pool3d,
            ones(2, 3, 6, 6, 6),
            [2, 2, 2],
            [3, 3, 3],
            ones(1, 3, 3),
        ),
        call(
            "fractional_max_pool2d kernel",
            aten.fractional_max_pool2d,
            ones(2, 3, 6, 6),
            [7, 2],
            [3, 3],
            ones(2, 3, 2),
        ),
        call("index_add", lambda x, i: x.index_add(0, i, x), x, longs(0, 1)),
        call("index_copy", lambda x, i: x.index_copy(0, i, x[:2]), x, longs(0)),
        call("index_fill value", lambda x, i, v: x.index_fill(0, i, v), x, longs(0), ones(2)),
        call("nll_loss weights", functional.nll_loss, x, longs(0, 1, 2), ones(3)),
        call("nll_loss targets", functional.nll_loss, x, longs(0, 1)),
        call("cross_entropy targets", functional.cross_entropy, x, longs(0, 1)),
        call("batch_norm", functional.batch_norm, x, ones(3), ones(3)),
        call("layer_norm", functional.layer_norm, x, (3,)),
        call("layer_norm weights", functional.layer_norm, x, (4,), ones(3)),
        call("group_norm", functional.group_norm, ones(2, 6, 4), 4),
        call("conv2d channels", functional.conv2d, ones(1, 3, 5, 5), ones(2, 4, 3, 3)),
        call("conv2d kernel", functional.conv2d, ones(1, 3, 2, 2), ones(2, 3, 3, 3)),
        call("conv2d bias", functional.conv2d, ones(1, 3, 5, 5), ones(2, 3, 3, 3), ones(3)),
        call("linear", functional.linear, x, ones(2, 3)),
        call("bilinear", functional.bilinear, x, x, ones(2, 3, 4)),
        call("bincount weights", torch.bincount, longs(0, 1), ones(3)),
        call("bincount dims", torch.bincount, ones(2, 2, dtype=torch.int64)),
        call("multinomial of many dims", torch.multinomial, ones(2, 2, 2), 1),
        call("multinomial without replacement", torch.multinomial, ones(4), 5),
        call("one hot of floats", functional.one_hot, ones(3)),
        call(
            "lstm",
            lambda x, w: torch.lstm(x, (w, w), [w], False, 1, 0.0, False, False, False),
            ones(2, 3, 4),
            ones(1, 3, 4),
        ),
        call(
            "attention",
            functional.scaled_dot_product_attention,
            ones(1, 2, 3, 4),
            ones(1, 2, 3, 5),
            ones(1, 2, 3, 5),
        ),
        call(
            "embedding_bag offsets",
            functional.embedding_bag,
            ones(2, 2, dtype=torch.int64),
            ones(4, 4),
            longs(0, 1),
        ),
        call(
            "ctc_loss",
            functional.ctc_loss,
            ones(5, 2, 4),
            ones(3, 3, dtype=torch.int64),
            longs(5, 5),
            longs(3, 3),
        ),
        call("cdist", torch.cdist, ones(2, 3), ones(2, 4)),
        call("pixel_shuffle", functional.pixel_shuffle, ones(1, 3, 2, 2), 2),
        call("upsample", functional.interpolate, ones(1, 2, 3, 0), 4),
        call("grid_sample", functional.grid_sample, ones(1, 2, 3, 3), ones(1, 3, 3, 3)),
        call("tril", torch.tril, ones(3)),
        call("renorm", torch.renorm, ones(3), 2, 0, 1),
        call("repeat_interleave", torch.repeat_interleave, ones(3), longs(1, 2)),
        call("searchsorted", torch.searchsorted, ones(2, 3), ones(3, 3)),
        call("kthvalue k", torch.kthvalue, x, 5),
        call("topk k", torch.topk, x, 5),
        call("histogram", torch.histc, x, bins=0),
    ]


def empty_dimensions() -> list[Call]:
    functions: dict[str, Callable[..., Any]] = {
        name: getattr(torch, name)
        for name in (
            "argmax",
            "argmin",
            "max",
            "min",
            "amax",
            "amin",
            "aminmax",
            "median",
            "nanmedian",
            "mode",
            "kthvalue",
            "cummax",
            "logcumsumexp",
            "sort",
        )
    }
    arguments = {"kthvalue": {"k": 1}}
    calls = [
        call(f"{name} over no elements", function, ones(2, 0), dim=1, **arguments.get(name, {}))
        for name, function in functions.items()
    ]
    calls += [
        call(f"{name} of nothing", functions[name], ones(0, 3))
        for name in ("argmax", "argmin", "max", "min", "aminmax", "median", "amax")
    ]
    pool = ones(2, 0, 4, 4)
    return [
        *calls,
        call("quantile of nothing", torch.quantile, ones(0), 0.5),
        call("max_pool2d of no channels", functional.max_pool2d, pool, 2),
        call("avg_pool2d of no columns", functional.avg_pool2d, ones(1, 2, 0, 4), 2),
        call("adaptive_max_pool2d", functional.adaptive_max_pool2d, ones(1, 2, 0, 4), 2),
        call("adaptive_avg_pool2d", functional.adaptive_avg_pool2d, ones(1, 2, 0, 4), 2),
        call("fft of nothing", torch.fft.fft, ones(2, 0)),
        call("reflection_pad", functional.pad, ones(1, 2, 0), (1, 1), mode="reflect"),
        call("svd norm of nothing", torch.linalg.matrix_norm, ones(0, 2), 2),
        call("vector norm of nothing", torch.linalg.vector_norm, ones(0), float("inf")),
        call("cross of nothing", torch.linalg.cross, ones(0), ones(0)),
    ]


def dtypes() -> list[Call]:
    image = ones(1, 2, 4, 4, dtype=torch.int64)
    complexes = ones(2, 3, dtype=torch.complex64)
    volume = ones(1, 2, 4, 4, 4, dtype=torch.int64)
    calls = [
        call("aminmax of complex", torch.aminmax, complexes),
        call("aminmax of complex along", torch.aminmax, complexes, dim=1),
        call("layer_norm of integers", functional.layer_norm, image[0, 0], (4,)),
        call("group_norm of integers", functional.group_norm, image, 2),
        call("instance_norm of integers", functional.instance_norm, image),
        call("batch_norm of integers", functional.batch_norm, image, ones(2), ones(2)),
        call("softmax of integers", torch.softmax, image, 0),
        call("gelu of integers", functional.gelu, image),
        call("dropout of integers", functional.dropout, image),
        call(
            "index_select of uint1",
            lambda x, i: x.view(torch.uint1)[i],
            ones(3, dtype=torch.uint8),
            longs(1),
        ),
        call("cholesky of integers", torch.linalg.cholesky, image[0, 0]),
        call("svd of integers", torch.linalg.svd, image[0, 0]),
        call("median of complex", torch.median, complexes),
        call("sort of complex", torch.sort, complexes),
        call("topk of complex", torch.topk, complexes, 1),
        call("kthvalue of complex", torch.kthvalue, complexes, 1),
        call("cummax of complex", torch.cummax, complexes, 0),
        call("argmax of complex", torch.argmax, complexes),
        call("convolution of bool", functional.conv2d, image > 0, image > 0),
        call("embedding_bag of integers", functional.embedding_bag, image[0, 0], image[0, 0]),
        call("gather by floats", lambda x, i: x.gather(0, i), ones(3), ones(3)),
        call("index_add of dtypes", lambda x, i: x.index_add(0, i, x.double()), ones(1), longs(0)),
        call("masked_fill by integers", lambda x, m: x.masked_fill(m, 1), ones(3), longs(1, 0, 1)),
        call(
            "masked_scatter by integers",
            lambda x, m: x.masked_scatter(m, x),
            ones(3),
            longs(1, 0, 1),
        ),
        call("bincount of floats", torch.bincount, ones(3)),
        call("histc of complex", torch.histc, complexes),
        call(
            "grid_sample of dtypes",
            functional.grid_sample,
            ones(1, 1, 2, 2),
            ones(1, 2, 2, 2, dtype=torch.float64),
        ),
    ]
    for mode in ("nearest", "bilinear", "bicubic", "nearest-exact"):
        calls.append(call(f"interpolate {mode}", functional.interpolate, image, 6, mode=mode))
    calls.append(call("interpolate linear", functional.interpolate, image[0], 6, mode="linear"))
    calls.append(call("interpolate trilinear", functional.interpolate, volume, 6, mode="trilinear"))
    for dims, x in ((1, image[0]), (2, image), (3, volume)):
        for kind in ("adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "max_pool"):
            pool = getattr(functional, f"{kind}{dims}d")
            calls.append(call(f"{kind}{dims}d of integers", pool, x, 2))
            calls.append(call(f"{kind}{dims}d of complex", pool, x.to(torch.complex64), 2))
    return calls


def numbers() -> list[Call]:
    x, i = ones(3), longs(0, 2)
    z = 1 + 2j
    bytes_ = ones(3, dtype=torch.uint8)
    calls = [
        call("index_fill_", lambda x, i: x.index_fill_(0, i, z), x, i),
        call("index_fill", lambda x, i: x.index_fill(0, i, z), x, i),
        call(
            "index_fill of a tensor", lambda x, i, v: x.index_fill(0, i, v), x, i, torch.tensor(z)
        ),
        call("lerp", lambda x: torch.lerp(x, x, z), x),
        call("lerp_", lambda x, y: x.lerp_(y, z), x, ones(3)),
        call("addcmul", lambda x: torch.addcmul(x, x, x, value=z), x),
        call("addcdiv", lambda x: torch.addcdiv(x, x, x, value=z), x),
        call("addcmul_", lambda x, y: x.addcmul_(y, y, value=z), x, ones(3)),
        call("add alpha", lambda x: torch.add(x, x, alpha=z), x),
        call("addmm", lambda m: torch.addmm(m, m, m, alpha=z), ones(2, 2)),
        call("addmm beta", lambda m: torch.addmm(m, m, m, beta=z), ones(2, 2)),
        call("addmv", lambda m, v: torch.addmv(v, m, v, alpha=z), ones(2, 2), ones(2)),
        call("addbmm", lambda m: torch.addbmm(m[0], m, m, alpha=z), ones(2, 2, 2)),
        call("baddbmm", lambda m: torch.baddbmm(m, m, m, alpha=z), ones(2, 2, 2)),
        call("addr", lambda v, m: torch.addr(m, v, v, alpha=z), ones(2), ones(2, 2)),
        call("fill_", lambda x: x.fill_(z), x),
        call("full", lambda x: torch.full_like(x, z), x),
        call("masked_fill", lambda x: x.masked_fill(x > 0, z), x),
        call("masked_fill_", lambda x, m: x.masked_fill_(m, z), x, ones(3) > 0),
        call("index_add", lambda x, i: x.index_add(0, i, x[:2], alpha=z), x, i),
        call("scatter", lambda x, i: x.scatter(0, i, z), x, i),
        call("scatter_ reduce", lambda x, i: x.scatter_(0, i, z, reduce="add"), x, i),
        call("clamp", lambda x: x.clamp(z), x),
        call("threshold", lambda x: functional.threshold(x, z, 1), x),
        call("hardtanh", lambda x: functional.hardtanh(x, z, 1), x),
        call("leaky_relu", lambda x: functional.leaky_relu(x, z), x),
        call("elu", lambda x: functional.elu(x, z), x),
        call("softplus", lambda x: functional.softplus(x, z), x),
        call("pow_", lambda x: x.pow_(z), x),
        call("norm", lambda x: torch.norm(x, z), x),
        call("cdist", lambda m: torch.cdist(m, m, p=-1.0), ones(2, 2)),
        call("renorm", lambda m: torch.renorm(m, -1, 0, 1), ones(2, 2)),
        call("dropout", lambda x: torch.native_dropout(x, 2.0, True), x),
        call("softshrink", lambda x: functional.softshrink(x, -1), x),
    ]
    for value in (-1, 300, 0.5, 1e30, float("nan")):
        calls += [
            call(f"fill_ {value}", lambda x, v: x.fill_(v), bytes_, value),
            call(f"index_fill {value}", lambda x, i, v: x.index_fill(0, i, v), bytes_, i, value),
            call(f"masked_fill {value}", lambda x, v: x.masked_fill(x > 0, v), bytes_, value),
            call(f"scatter {value}", lambda x, i, v: x.scatter(0, i, v), bytes_, i, value),
            call(f"add {value}", lambda x, v: x.add_(x.clone(), alpha=v), bytes_, value),
            call(f"clamp {value}", lambda x, v: x.clamp(v), bytes_, value),
            call(f"threshold {value}", lambda x, v: functional.threshold(x, v, v), bytes_, value),
            call(f"addcmul {value}", lambda x, v: torch.addcmul(x, x, x, value=v), bytes_, value),
            call(f"remainder {value}", lambda x, v: x.remainder_(v), bytes_, value),
            call(f"pow {value}", lambda x, v: x.pow_(v), bytes_, value),
            call(f"full {value}", lambda x, v: torch.full_like(x, v), bytes_, value),
            call(f"eq {value}", lambda x, v: x.eq_(v), bytes_, value),
        ]
    for value in (1e300, -1e300):
        calls += [
            call(f"fill_ {value}", lambda x, v: x.fill_(v), x, value),
            call(f"add {value}", lambda x, v: torch.add(x, x, alpha=v), x, value),
            call(f"mul {value}", lambda x, v: torch.mul(x, v), x, value),
            call(f"lerp {value}", lambda x, v: torch.lerp(x, x, v), x, value),
            call(f"addcmul {value}", lambda x, v: torch.addcmul(x, x, x, value=v), x, value),
            call(f"index_fill {value}", lambda x, i, v: x.index_fill(0, i, v), x, i, value),
            call(f"masked_fill {value}", lambda x, v: x.masked_fill(x > 0, v), x, value),
            call(f"clamp {value}", lambda x, v: x.clamp(v), x, value),
            call(f"addmm {value}", lambda m, v: torch.addmm(m, m, m, alpha=v), ones(2, 2), value),
            call(f"scatter {value}", lambda x, i, v: x.scatter(0, i, v), x, i, value),
            call(f"threshold {value}", lambda x, v: functional.threshold(x, v, v), x, value),
            call(f"hardtanh {value}", lambda x, v: functional.hardtanh(x, v, 0.0), x, value),
            call(f"leaky_relu {value}", lambda x, v: functional.leaky_relu(x, v), x, value),
        ]
    return calls


CASES: dict[str, Callable[[], list[Call]]] = {
    "shapes": shapes,
    "dtypes": dtypes,
    "numbers": numbers,
}
