# SPDX-License-Identifier: BSD-3-Clause
"""Half types that the processor does not multiply: convolutions and attention are computed in
float32 and rounded once, in the layouts that cpu's results have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ops_support import numbers
from torch.nn import functional

LOOM = "loom"
HALVES = [torch.float16, torch.bfloat16]

# images, weights, arguments
CONVOLUTIONS = {
    "3x3": ((2, 5, 9, 8), (7, 5, 3, 3), {"padding": 1}),
    "1x1": ((2, 16, 7, 7), (24, 16, 1, 1), {}),
    "strides": ((1, 3, 30, 31), (8, 3, 7, 7), {"stride": 2, "padding": 3}),
    "dilated": ((2, 8, 12, 12), (8, 8, 3, 3), {"dilation": 2}),
    "groups": ((2, 8, 6, 6), (12, 4, 3, 3), {"groups": 2}),
    "depthwise": ((2, 8, 10, 10), (8, 1, 3, 3), {"groups": 8, "padding": 1}),
    "signals": ((2, 10, 40), (12, 10, 5), {"padding": 2}),
    "volumes": ((1, 4, 5, 6, 7), (6, 4, 3, 3, 3), {"padding": 1}),
    "padding beyond the window": ((1, 16, 4, 4), (8, 16, 1, 1), {"padding": 1}),
}


def close(mine: torch.Tensor, exact: torch.Tensor, roundings: float = 0.51) -> None:
    """But for the sums, which are of float32 and in another order."""
    scale = exact.abs().max().item()
    unit = torch.finfo(mine.dtype).eps
    error = (mine.cpu().double() - exact).abs()
    allowed = roundings * unit * exact.abs().clamp(min=unit * scale) + 1e-6 * scale
    assert (error <= allowed).all(), (error / allowed).max()


def with_gradients(function, operands, grad):
    leaves = [operand.detach().requires_grad_() for operand in operands]
    result = function(*leaves)
    return [result, *torch.autograd.grad(result, leaves, grad)]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, last, dtype):
    images, weights, arguments = CONVOLUTIONS[name]
    x, w = numbers(*images, dtype=dtype), numbers(*weights, seed=1, dtype=dtype)
    bias = numbers(weights[0], seed=2, dtype=dtype)
    if last and x.dim() == 4:
        x = x.to(memory_format=torch.channels_last)

    def convolve(x, w, b):
        kind = (functional.conv1d, functional.conv2d, functional.conv3d)[x.dim() - 3]
        return kind(x, w, b, **arguments)

    stock = convolve(x, w, bias)
    grad = torch.ones_like(stock) * 0.5
    exact = with_gradients(convolve, [x.double(), w.double(), bias.double()], grad.double())
    mine = with_gradients(convolve, [x.to(LOOM), w.to(LOOM), bias.to(LOOM)], grad.to(LOOM))
    assert mine[0].stride() == stock.stride()
    for one, other in zip(mine, exact, strict=True):
        assert one.dtype == dtype
        close(one, other)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_transposed_convolutions(dtype):
    x, w = numbers(2, 6, 8, 8, dtype=dtype), numbers(6, 5, 4, 4, seed=1, dtype=dtype)
    bias = numbers(5, seed=2, dtype=dtype)

    def convolve(x, w, b):
        return functional.conv_transpose2d(x, w, b, stride=2, padding=1)

    grad = torch.ones(2, 5, 16, 16, dtype=dtype)
    exact = with_gradients(convolve, [x.double(), w.double(), bias.double()], grad.double())
    mine = with_gradients(convolve, [x.to(LOOM), w.to(LOOM), bias.to(LOOM)], grad.to(LOOM))
    for one, other in zip(mine, exact, strict=True):
        close(one, other)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "kind"),
    [
        (70, 70, "plain"),
        (70, 70, "causal"),
        (70, 70, "masked"),
        (20, 130, "plain"),
        (20, 130, "masked"),
    ],
)
def test_attention(queries, keys, kind, dtype):
    query = numbers(2, 3, queries, 32, dtype=dtype)
    key, value = (numbers(2, 3, keys, 32, seed=seed, dtype=dtype) for seed in (1, 2))
    mask = numbers(queries, keys, seed=3, dtype=dtype) if kind == "masked" else None

    def attend(query, key, value, mask=None):
        return functional.scaled_dot_product_attention(
            query, key, value, mask, is_causal=kind == "causal"
        )

    operands = [query, key, value] + ([] if mask is None else [mask])
    grad = numbers(2, 3, queries, 32, seed=4, dtype=dtype)
    exact = with_gradients(
        lambda q, k, v: attend(q, k, v, None if mask is None else mask.double()),
        [operand.double() for operand in operands[:3]],
        grad.double(),
    )
    mine = with_gradients(
        lambda q, k, v: attend(q, k, v, None if mask is None else mask.to(LOOM)),
        [operand.to(LOOM) for operand in operands[:3]],
        grad.to(LOOM),
    )
    for one, other in zip(mine, exact, strict=True):
        error = (one.cpu().double() - other).norm() / other.norm()
        assert error < 2 * torch.finfo(dtype).eps, error


@pytest.mark.thorough
@pytest.mark.skipif(os.environ.get("LOOM_SIMD") == "avx2", reason="it is what is run here")
def test_bfloat16_without_its_instructions():
    files = [Path(__file__), Path(__file__).with_name("test_product_half.py")]
    made = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow",
         "-k", "bfloat16", *files],
        env={**os.environ, "LOOM_SIMD": "avx2"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout[-3000:]
    assert " passed" in made.stdout
