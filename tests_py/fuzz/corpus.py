# SPDX-License-Identifier: BSD-3-Clause
"""Calls that differed once: each shows one mistake that was mended, the shortest call that does."""

from __future__ import annotations

import torch
from calls.call import Call, Operand

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
U8, I64 = torch.uint8, torch.int64

PAST: dict[str, Call] = {
    "a bias with a stride, read by oneDNN as contiguous": Call(
        "convolution",
        "F.conv2d(a, b, c, padding=1)",
        (
            Operand((9, 34, 29, 39)),
            Operand((26, 34, 3, 3), values="small"),
            Operand((26,), layout="sliced"),
        ),
    ),
    "channels of uint8 joined before they are resampled to one column": Call(
        "resample",
        "F.interpolate(a, size=(16, 1), mode='bicubic')",
        (Operand((2, 3, 33, 2), U8, limit=256),),
        exact=True,
    ),
    "ldexp by way of a power that overflows": Call(
        "binary",
        "torch.ldexp(a, b + 16)",
        (Operand((40,), F16, values="unit"), Operand((40,), I64, limit=2)),
        exact=True,
    ),
    "a variance above the range of float32, batch and channels exchanged": Call(
        "norm",
        "F.batch_norm((a * 1e20).transpose(0, 1), None, None, None, None, True)",
        (Operand((4, 2, 31, 20)),),
    ),
    "a mean of an infinite channel": Call(
        "norm",
        "[F.instance_norm(a / 0, b, c), b, c]",
        (Operand((2, 3, 3, 3), BF16), Operand((3,), BF16), Operand((3,), BF16, values="positive")),
    ),
    "nan_to_num_ of integers that share memory": Call(
        "unary",
        "a.nan_to_num_()",
        (Operand((6, 7), torch.int32, layout="expanded"),),
        exact=True,
    ),
    "a quotient rounded before it is cut": Call(
        "binary",
        "torch.div(a, b, rounding_mode='trunc')",
        (Operand((4096,), BF16), Operand((1,), BF16, values="positive")),
        exact=True,
    ),
    "an index whose strides are out of order": Call(
        "indexing",
        "a[b.t()]",
        (Operand((13, 17)), Operand((4, 9), I64, limit=13)),
        exact=True,
    ),
    "dtypes of empty tensors, which cpu refuses": Call(
        "lists",
        "torch._foreach_lerp([a, b], [a, b], 0.3)",
        (Operand((7, 0), U8), Operand((7, 1, 0), U8)),
    ),
    "an outer product without the matrix, which decides how it lies": Call(
        "product",
        "torch.addr(a, b, c, alpha=2, beta=0)",
        (Operand((13, 9), layout="permuted", seed=1), Operand((13,)), Operand((9,))),
    ),
}

# Calls that were found to differ and do not: each says what the judge has to know.
RIGHT: dict[str, Call] = {
    "autocast rounds operands, and tanh makes small what was large": Call(
        "linear",
        "torch.tanh(F.linear(a.tanh(), b))",
        (
            Operand((99, 550), seed=649939, layout="sliced"),
            Operand((3, 550), seed=606933, layout="last"),
        ),
        way="autocast",
    ),
    "a product of half types under autocast": Call(
        "linear",
        "torch.tanh(F.linear(a, b))",
        (
            Operand((2, 3, 20, 15), F16, seed=27336, layout="offset", values="infinite"),
            Operand((257, 15), F16, seed=120574, layout="rows", values="infinite"),
        ),
        way="autocast",
    ),
    "sums that autocast cannot hold": Call(
        "convolution",
        "F.conv2d(a, b, padding='same')",
        (Operand((1, 5, 10, 17), values="huge"), Operand((11, 5, 5, 3), values="huge", seed=1)),
        way="autocast",
    ),
    "functions of integers, which vectors of cpu overflow in": Call(
        "unary",
        "torch.sinh(a)",
        (Operand((45, 8), torch.int8, seed=769417, values="special"),),
        pointwise=True,
    ),
    "first gradients are sums": Call(
        "indexed",
        "a[:, b]",
        (Operand((1, 1, 1, 1957), seed=347169), Operand((4, 9), I64, seed=389473, limit=1)),
        way="second",
        exact=True,
        seed=747465,
    ),
    "cpu corrects a variance in float64 number by number": Call(
        "reduction",
        "torch.var(a, [-2, -1], keepdim=True, correction=0)",
        (Operand((1, 1, 73239), F64, seed=361530, layout="permuted", values="whole"),),
    ),
}
