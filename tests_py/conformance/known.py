# SPDX-License-Identifier: BSD-3-Clause
"""Where loom may differ from cpu over PyTorch's operator databases, each with its reason."""

import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))

from op_db_differences import HOST_ARGUMENTS, NOT_COMPARED

__all__ = [
    "HOST_ARGUMENTS",
    "KNOWN",
    "KNOWN_COMPILED",
    "NOT_COMPARED",
    "RANDOM_MODULES",
    "UNINITIALISED",
]

# Lazy modules draw their parameters on the device when they first see an input; the others in
# training.
RANDOM_MODULES = {
    *(f"nn.Lazy{kind}{n}d" for kind in ("Conv", "ConvTranspose") for n in (1, 2, 3)),
    "nn.Dropout",
    "nn.Dropout1d",
    "nn.Dropout2d",
    "nn.Dropout3d",
    "nn.AlphaDropout",
    "nn.FeatureAlphaDropout",
    "nn.RReLU",
    "nn.FractionalMaxPool2d",
    "nn.FractionalMaxPool3d",
}

# (operator, check) whose results are memory that nobody has written, on cpu too.
UNINITIALISED = {
    ("resize_", "zero_size"),
    ("resize_as_", "zero_size"),
    ("nn.functional.multi_margin_loss", "zero_size"),
    ("nn.functional.multilabel_margin_loss", "zero_size"),
}

# Half types that the processor does not multiply, so that loom does so in float32.
WIDENED = {"float16"}
if (
    not torch.cpu._is_avx512_bf16_supported()
    or os.environ.get("LOOM_SIMD") in ("scalar", "avx2", "avx512")
):  # fmt: skip
    WIDENED.add("bfloat16")

# (database, name, check, dtype) that do not agree; "*" stands for any. A row that agrees after all
# fails the run until its entry is removed.
KNOWN: dict[tuple[str, str, str, str], str] = {
    ("op_db", "nn.functional.scaled_dot_product_attention", "gradient", "*"): (
        "strides of gradients: PyTorch's fake result of this operator has those of the inputs, and "
        "compiled graphs count on it; cpu has another operator, which transposes"
    ),
    ("op_db", "linalg.householder_product", "second_gradient", "float32"): (
        "rounding: values reach 1e12 in a sample, where float32's own results on cpu are farther "
        "from those in float64 than loom's"
    ),
    ("op_db", "nn.functional.instance_norm", "*", "bfloat16"): (
        "rounding: cpu rounds on the way and its results are farther from those in float64 than "
        "loom's"
    ),
    ("op_db", "nn.functional.interpolate.trilinear", "*", "bfloat16"): (
        "rounding: cpu rounds the weights to bfloat16 and its results are farther from those in "
        "float64 than loom's, which has weights in float32"
    ),
    **{
        ("op_db", f"nn.functional.conv_transpose{rank}d", "*", dtype): (
            f"rounding: cpu adds up what windows share in {dtype} and its results are farther from "
            "those in float64 than loom's, which adds it up in float32"
        )
        for rank, dtype in ((2, "float16"), (2, "bfloat16"), (3, "bfloat16"))
        if dtype in WIDENED
    },
    ("op_db", "nn.functional.gelu", "out", "*"): (
        "an out= that is not contiguous: cpu's kernel leaves it as it was, loom writes it"
    ),
    **{
        ("op_db", "cov", "*", dtype): (
            "weights in float32 whose correction leaves a hundredth of their sum: the last bit of "
            "a sum, which cpu adds in another order, is the fifth digit of the result"
        )
        for dtype in ("float64", "int64")
    },
}

# What differs besides where the device's code is compiled. Compiled code of cpu differs from eager
# code in the same way, unless the reason says more: `--device cpu --compiled` shows it.
KNOWN_COMPILED: dict[tuple[str, str, str, str], str] = {
    ("op_db", "ormqr", "gradient", "*"): (
        "strides of gradients: PyTorch's formula takes another path for tensors that are traced, "
        "whose matrices lie in rows; in eager code they lie in columns"
    ),
    ("module_db", "nn.MultiLabelMarginLoss", "*", "*"): (
        "PyTorch's decomposition gives the loss of one vector, not reduced, a dimension"
    ),
}
