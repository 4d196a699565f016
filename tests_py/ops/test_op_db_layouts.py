# SPDX-License-Identifier: BSD-3-Clause
"""Operators of op_db give, for operands that lie apart or share memory, cpu's results of copies.

Kernels of cpu that misread such operands are no oracle; what cpu refuses is not asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import to_loom
from op_db_differences import HOST_ARGUMENTS, NOT_COMPARED
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map_only

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore"),
]

SAMPLES = 8
# They look at strides or at what is beside the tensor, or have other places for equal elements.
OF_MEMORY = {"argsort", "as_strided", "as_strided_copy", "as_strided_scatter", "resize_", "sort"}
# Some samples have a dropout.
RANDOM = {"nn.functional.scaled_dot_product_attention"}
# Equal rows or columns leave a determinant of nothing but rounding, which a logarithm shows.
OF_ROUNDING = {"logdet", "linalg.slogdet"}
ELSEWHERE = {"to", *(op.name for op in op_db if op.name.startswith(("jiterator", "sparse.")))}
NOT_ASKED = {*HOST_ARGUMENTS, *NOT_COMPARED, *OF_MEMORY, *RANDOM, *ELSEWHERE}

Layout = Callable[[torch.Tensor], torch.Tensor]
LAYOUTS: dict[str, Layout] = {
    "expanded last": lambda x: x[..., :1].expand(x.shape),
    "expanded first": lambda x: x[:1].expand(x.shape),
    "expanded": lambda x: x.reshape(-1)[0].expand(x.shape),
    "columns": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "elements apart": lambda x: torch.stack([x, x.flip(0)], -1).select(-1, 0),
    "rows apart": lambda x: torch.stack([x, x.flip(0)], 1).select(1, 0),
}


def laid_out(sample: SampleInput, layout: Layout) -> tuple[Any, Any]:
    def change(x: torch.Tensor) -> torch.Tensor:
        plain = x.layout == torch.strided and x.dim() > 0 and x.numel() > 0
        return layout(x.detach()) if plain else x.detach()

    arguments = ((sample.input, *sample.args), sample.kwargs)
    return tree_map_only(torch.Tensor, change, arguments)  # type: ignore[no-any-return]


def call(op: OpInfo, given: tuple[Any, Any]) -> list[Any]:
    arguments, named = given
    return tree_leaves(op.op(*arguments, **named))


def copies(given: tuple[Any, Any]) -> tuple[Any, Any]:
    def copy(x: torch.Tensor) -> torch.Tensor:
        return x.clone(memory_format=torch.contiguous_format) if x.layout == torch.strided else x

    return tree_map_only(torch.Tensor, copy, given)  # type: ignore[no-any-return]


def is_near(got: Any, wanted: Any) -> bool:
    if not isinstance(wanted, torch.Tensor) or wanted.layout != torch.strided:
        return True
    got = got.cpu()
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return False
    # Elements that are all the same have a variance that is rounding.
    return torch.allclose(got, wanted, rtol=5e-3, atol=1e-4, equal_nan=True)


OPERATORS = [
    pytest.param(op, id=op.formatted_name)
    for op in op_db
    if op.name not in NOT_ASKED and torch.float32 in op.supported_dtypes("cpu")
]


@pytest.mark.parametrize("op", OPERATORS)
def test_results_are_those_of_copies(op: OpInfo) -> None:
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=False)
    wrong = []
    for sample in itertools.islice(samples, SAMPLES):
        for name, layout in LAYOUTS.items():
            if op.name in OF_ROUNDING and name.startswith("expanded"):
                continue
            given = laid_out(sample, layout)
            try:
                wanted = call(op, copies(given))
                call(op, given)
            except (RuntimeError, ValueError, IndexError, TypeError):
                continue
            got = call(op, to_loom(given))
            if len(got) != len(wanted) or not all(map(is_near, got, wanted)):
                wrong.append((name, sample))
    assert not wrong
