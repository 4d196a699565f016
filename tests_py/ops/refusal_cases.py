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


def fractional_pool(what: str, kernel: list[int], samples: torch.Tensor) -> Call:
    dims = len(kernel)
    pool = getattr(aten, f"fractional_max_pool{dims}d")
    images = ones(2, 3, *[6] * dims)
    return call(f"fractional_max_pool{dims}d, {what}", pool, images, kernel, [3] * dims, samples)


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
        fractional_pool("samples of other channels", [2, 2], ones(2, 4, 2)),
        fractional_pool("samples of two dimensions", [2, 2, 2], ones(2, 3, 2)),
        fractional_pool("samples of another batch", [2, 2, 2], ones(1, 3, 3)),
        fractional_pool("a kernel larger than images", [7, 2], ones(2, 3, 2)),
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
    along = "argmax argmin max min amax amin aminmax median nanmedian mode cummax logcumsumexp sort"
    whole = "argmax argmin max min aminmax median amax"
    calls = [
        call(f"{name} over no elements", getattr(torch, name), ones(2, 0), dim=1)
        for name in along.split()
    ]
    calls += [
        call(f"{name} of nothing", getattr(torch, name), ones(0, 3)) for name in whole.split()
    ]
    pool = ones(2, 0, 4, 4)
    return [
        *calls,
        call("kthvalue over no elements", torch.kthvalue, ones(2, 0), 1, dim=1),
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


# Of a tensor, an index into it and a number.
WITH_A_NUMBER: dict[str, Callable[[torch.Tensor, torch.Tensor, Any], Any]] = {
    "fill_": lambda x, _, v: x.fill_(v),
    "full": lambda x, _, v: torch.full_like(x, v),
    "index_fill": lambda x, i, v: x.index_fill(0, i, v),
    "index_fill_": lambda x, i, v: x.index_fill_(0, i, v),
    "index_add": lambda x, i, v: x.index_add(0, i, x[:2], alpha=v),
    "masked_fill": lambda x, _, v: x.masked_fill(x > 0, v),
    "masked_fill_": lambda x, _, v: x.masked_fill_(x > 0, v),
    "scatter": lambda x, i, v: x.scatter(0, i, v),
    "scatter_ reduce": lambda x, i, v: x.scatter_(0, i, v, reduce="add"),
    "add": lambda x, _, v: torch.add(x, x, alpha=v),
    "add_": lambda x, _, v: x.add_(x.clone(), alpha=v),
    "mul": lambda x, _, v: torch.mul(x, v),
    "pow_": lambda x, _, v: x.pow_(v),
    "remainder_": lambda x, _, v: x.remainder_(v),
    "eq_": lambda x, _, v: x.eq_(v),
    "lerp": lambda x, _, v: torch.lerp(x, x, v),
    "lerp_": lambda x, _, v: x.lerp_(x.clone(), v),
    "addcmul": lambda x, _, v: torch.addcmul(x, x, x, value=v),
    "addcmul_": lambda x, _, v: x.addcmul_(x.clone(), x.clone(), value=v),
    "addcdiv": lambda x, _, v: torch.addcdiv(x, x, x, value=v),
    "addmm": lambda x, _, v: torch.addmm(x, x[:, None], x[None], alpha=v),
    "addmm beta": lambda x, _, v: torch.addmm(x, x[:, None], x[None], beta=v),
    "addmv": lambda x, _, v: torch.addmv(x, x.expand(3, 3), x, alpha=v),
    "addr": lambda x, _, v: torch.addr(x, x, x, alpha=v),
    "addbmm": lambda x, _, v: torch.addbmm(x, x[None, :, None], x[None, None], alpha=v),
    "baddbmm": lambda x, _, v: torch.baddbmm(x, x[None, :, None], x[None, None], alpha=v),
    "clamp": lambda x, _, v: x.clamp(v),
    "threshold": lambda x, _, v: functional.threshold(x, v, v),
    "hardtanh": lambda x, _, v: functional.hardtanh(x, v, 1.0),
    "leaky_relu": lambda x, _, v: functional.leaky_relu(x, v),
    "elu": lambda x, _, v: functional.elu(x, v),
    "softplus": lambda x, _, v: functional.softplus(x, v),
    "norm": lambda x, _, v: torch.norm(x, v),
}


def numbers() -> list[Call]:
    index, two = longs(0, 2), ones(2, 2)
    operands = [
        (ones(3, dtype=torch.uint8), (-1, 300, 0.5, 1e30, float("nan"))),
        (ones(3), (1e300, -1e300, 1 + 2j)),
    ]
    return [
        *(
            call(f"{name} {value} of {x.dtype}", function, x, index, value)
            for x, values in operands
            for value in values
            for name, function in WITH_A_NUMBER.items()
        ),
        call("index_fill of a tensor", aten.index_fill, ones(3), 0, index, torch.tensor(1 + 2j)),
        call("cdist", torch.cdist, two, two, p=-1.0),
        call("renorm", torch.renorm, two, -1, 0, 1),
        call("dropout", torch.native_dropout, ones(3), 2.0, True),
        call("softshrink", functional.softshrink, ones(3), -1),
    ]


CASES: dict[str, Callable[[], list[Call]]] = {
    "shapes": shapes,
    "dtypes": dtypes,
    "numbers": numbers,
}
