# SPDX-License-Identifier: BSD-3-Clause
"""Calls that differed once: each shows one mistake that was mended, the shortest call that does."""

from __future__ import annotations

import torch
from calls.call import Call, Operand

BF16, F16, F32, U8 = torch.bfloat16, torch.float16, torch.float32, torch.uint8

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
        (Operand((40,), F16, values="unit"), Operand((40,), torch.int64, limit=2)),
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
        (Operand((13, 17)), Operand((4, 9), torch.int64, limit=13)),
        exact=True,
    ),
}
