# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: kernels over tiles, whose operands are contiguous along different dimensions."""

import pytest
import torch
from compile_support import compile_and_compare

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("compiled_nests")]

ROWS = 100


def places(x):
    return torch.arange(ROWS, device=x.device)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.t() + x + places(x),
        lambda x: x.t() * places(x)[:, None] + x,
        lambda x: torch.where(places(x) > ROWS // 2, x.t(), x).exp(),
        lambda x: (x.t() + x).tril(),
    ],
    ids=["column", "row", "condition", "triangle"],
)
def test_the_place_of_an_element_counts(function):
    compile_and_compare(function, torch.randn(ROWS, ROWS))


def test_a_loop_over_tiles_beside_a_reduction():
    def function(x):
        return x + x.t(), (x.t() * 2 + x).sum(0), x.t().contiguous() * x

    compile_and_compare(function, torch.randn(517, 517), tolerances={"rtol": 1e-4, "atol": 1e-3})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_what_is_masked(dtype):
    def join(x, y):
        return torch.cat((x.mT, y), 0) + 1, torch.nn.functional.pad(x.mT > 2, (1, 2)) | (
            y[0, 0] > 3
        )

    x, y = (torch.randint(0, 7, shape).to(dtype) for shape in ((40, 37), (20, 40)))
    compile_and_compare(join, x, y)
