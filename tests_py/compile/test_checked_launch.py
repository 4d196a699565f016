# SPDX-License-Identifier: BSD-3-Clause
"""Under AddressSanitizer generated kernels that touch more than their operands end the process."""

import os

import pytest

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        "checked_launch" not in os.environ.get("LD_PRELOAD", ""),
        reason="needs the build with AddressSanitizer: make sanitizers",
    ),
]

PROGRAM = """
import sys
import torch
import torch_loom
from torch_loom.inductor import kernel_cache

compile_kernel = kernel_cache.loom_kernel
at = int(sys.argv[1])

def loom_kernel(async_compile, types, source):
    index = "in_ptr0 + static_cast<int64_t>(x0", "in_ptr0[static_cast<int64_t>(x0"
    for code in index:
        source = source.replace(code, f"{code} + {at}")
    assert f"(x0 + {at})" in source
    return compile_kernel(async_compile, types, source)

kernel_cache.loom_kernel = loom_kernel
x = torch.arange(1024.0, device="loom")[:1016]
print(torch.compile(lambda x: x * 2)(x).sum().item())
"""


def test_a_read_beyond_an_operand_is_reported(run):
    done = run(PROGRAM, "1")
    assert done.code != 0
    assert "AddressSanitizer" in done.err
    assert "kernel_body" in done.err


def test_a_read_of_an_operand_is_not(check):
    assert float(check(PROGRAM, "0").out) == 1016 * 1015
