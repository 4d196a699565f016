# SPDX-License-Identifier: BSD-3-Clause
"""Where loom and cpu are allowed to differ in random calls, each with its reason and an example.

A test makes the examples, too: an entry that agrees after all has to go.
"""

from __future__ import annotations

import dataclasses
import re

import torch

from calls.call import Call, Operand
from calls.verdict import Finding


@dataclasses.dataclass(frozen=True)
class Known:
    """A difference that is right, or whose reason is known.

    Attributes:
        kind: of the finding.
        code: a pattern that the call's code has to match.
        text: a pattern that the finding's text has to match.
        way: a pattern for the way of calling.
        values: a pattern for the values of some operand.
        layouts: a pattern for the layout of some operand.
    """

    reason: str
    kind: str
    example: Call
    code: str = ""
    text: str = ""
    way: str = ""
    values: str = ""
    layouts: str = ""

    def matches(self, call: Call, finding: Finding) -> bool:
        pairs = [(self.code, call.code), (self.text, finding.text), (self.way, call.way)]
        pairs.append((self.values, " ".join(o.values for o in call.operands)))
        pairs.append((self.layouts, " ".join(o.layout for o in call.operands)))
        return self.kind == finding.kind and all(re.search(p, text) for p, text in pairs)


def halves(*shape: int, dtype: torch.dtype = torch.float16) -> Operand:
    return Operand(shape, dtype)


KNOWN = [
    Known(
        "cpu has no kernel of half types there, and loom computes it in float32",
        "error",
        Call("resample", "F.interpolate(a, size=[4, 4], mode='bilinear', antialias=True)",
             (halves(1, 1, 3, 3),)),
        text=r"no error; on cpu NotImplementedError: .* not implemented for '(Half|BFloat16)'",
    ),
    Known(
        "weights do not meet padding, where cpu multiplies its zeros by infinities",
        "values",
        Call("convolution", "F.conv2d(a, b, padding=[3, 1])",
             (Operand((1, 2, 11, 4)), Operand((6, 2, 3, 1), values="infinite"))),
        code="conv",
        text=r"on cpu nan",
        values="infinite|special",
    ),
    Known(
        "cpu multiplies complex infinities by 1 where the product has nothing to add",
        "values",
        Call("product", "torch.addmm(a, b, c)",
             (Operand((5, 35), torch.complex64, values="infinite"),
              Operand((5, 0), torch.complex64), Operand((0, 35), torch.complex64))),
        code=r"\b(add(mm|mv|bmm)|baddbmm)\b",
        text="on cpu nan",
        values="infinite|special",
    ),
    Known(
        "the largest of a window may be what cpu made NaN by multiplying padding by infinities",
        "values",
        Call("other_convolution", "F.max_pool2d(F.conv2d(a, b, padding=1), 2)",
             (Operand((1, 2, 4, 4)), Operand((6, 2, 3, 3), values="infinite")), way="gradients"),
        code=r"max_pool.*conv.*padding",
        text="result [1-9]",
        way="gradients|leaves|second|jvp",
        values="infinite|special",
    ),
    Known(
        "cpu has another kernel for max_pool1d without gradients, whose result is contiguous",
        "strides",
        Call("pool", "F.max_pool1d(a, 2)", (Operand((3, 16, 7), layout="last"),)),
        code=r"\bmax_pool1d\((?!.*return_indices)",
        way="plain|queued|stream|twice",
    ),
    Known(
        "autocast refuses to promote float16 where it casts to bfloat16, as CUDA's does",
        "error",
        Call("product", "torch.vdot(a, b)", (halves(4), halves(4)), way="autocast"),
        text="Unexpected floating ScalarType in at::autocast::prioritize; on cpu no error",
        way="autocast",
    ),
    Known(
        "autocast refuses it, as CUDA's does",
        "error",
        Call("loss", "F.binary_cross_entropy(a.sigmoid(), b.sigmoid())",
             (Operand((4,)), Operand((4,))), way="autocast"),
        text="unsafe to autocast.*on cpu no error",
        way="autocast",
    ),
    Known(
        "loom has kernels for them, as CUDA",
        "error",
        Call("reduction", "torch.nansum(a)", (Operand((3,), torch.complex64),)),
        text='no error; on cpu (NotImplementedError: "abs_cpu"|RuntimeError: nansum on CPU)',
    ),
    Known(
        "cpu has no power of 2 for exponents that are bool",
        "error",
        Call("binary", "torch.ldexp(a, b)", (halves(4), Operand((4,), torch.bool))),
        text='no error; on cpu NotImplementedError: "ldexp_cpu_exp"',
    ),
    Known(
        "the gradient of a group norm of channels that lie last is contiguous",
        "strides",
        Call("norm", "F.group_norm(a, 2)", (Operand((2, 4, 3, 3), layout="last"),),
             way="gradients"),
        code="group_norm",
        way="gradients|leaves|second",
    ),
    Known(
        "loom has the derivative",
        "error",
        Call("attention", "F.scaled_dot_product_attention(a, b, b, attn_mask=c, enable_gqa=True)",
             (Operand((2, 6, 9, 8), torch.float64), Operand((2, 2, 9, 8), torch.float64),
              Operand((2, 1, 9, 9), torch.bool)), way="second"),
        text="no error; on cpu .*(derivative for .* not implemented|forward AD with _scaled_dot)",
        way="second|jvp",
    ),
    Known(
        "cpu has another gradient of NaN in the elements behind its last vector",
        "values",
        Call("activation", "F.relu6(a)", (Operand((7,), seed=4, values="infinite"),),
             way="gradients"),
        code="relu6|hardtanh|shrink|elu|hardswish|hardsigmoid|threshold",
        values="infinite|special",
    ),
]  # fmt: skip


def reason_of(call: Call, finding: Finding) -> str:
    """Why the difference is known, or nothing."""
    return next((known.reason for known in KNOWN if known.matches(call, finding)), "")
