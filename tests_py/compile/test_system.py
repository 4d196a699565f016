# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: what is imported when, what caches know, what profiles and logs show."""

import pytest
import torch
from compile_support import compile_and_compare
from torch._inductor.utils import run_and_get_code

from support.profiles import on_device


def test_importing_loom_imports_no_compiler(check):
    done = check(
        """
        import sys
        import torch, torch_loom
        torch.ones(3, device="loom").sum().item()
        print([m for m in ("torch._inductor", "torch._dynamo") if m in sys.modules])
        """
    )
    assert done.out.strip() == "[]"


@pytest.mark.usefixtures("compiled_nests")
def test_a_group_of_nests_is_one_command_in_a_profile():
    x = torch.randn(64, 100, device="loom")
    compiled = torch.compile(lambda x: torch.softmax(x * 2, -1) + x.sum(), fullgraph=True)
    compiled(x)
    torch.loom.synchronize()
    with torch.profiler.profile() as profile:
        compiled(x)
        torch.loom.synchronize()
    kernels = on_device(profile)
    assert len(kernels) == 1
    assert kernels[0].name.startswith("cpp_fused_")


def test_generated_kernels_use_no_openmp():
    x = torch.randn(1000, 100, device="loom")
    compiled = torch.compile(lambda x: (torch.tanh(x).sum(), x.t() + 1), fullgraph=True)
    _, sources = run_and_get_code(compiled, x)
    assert "loom_kernel::run_blocks" in sources[0]
    assert "#pragma omp" not in sources[0]
    assert "omp_get" not in sources[0]


@pytest.mark.usefixtures("compiled_nests")
def test_kernels_list_the_memory_that_they_touch():
    x, y = torch.randn(10, 100, device="loom"), torch.randn(10, 1, device="loom")
    compiled = torch.compile(lambda x, y: x + y, fullgraph=True)
    _, sources = run_and_get_code(compiled, x, y)
    assert "1000 * 4, kLoomKernelRead" in sources[0]
    assert "10 * 4, kLoomKernelRead" in sources[0]
    assert "1000 * 4, kLoomKernelReplace" in sources[0]


@pytest.mark.thorough
def test_caches_know_the_code_generator(check, tmp_path):
    program = """
        import torch, torch_loom
        from torch._dynamo.utils import counters
        {change}
        torch.compile(lambda x: x * 3 - 1)(torch.ones(5, device="loom")).cpu()
        print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
    """

    def counts(change=""):
        done = check(program.format(change=change), TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
        return done.out.split()

    assert counts() == ["0", "1"]
    assert counts() == ["1", "0"]
    changed = "import torch_loom.inductor.registration as r; r._sources_hash = lambda: b'2'"
    assert counts(changed) == ["0", "1"]


def test_max_autotune():
    compile_and_compare(
        lambda x, w: torch.relu(x @ w),
        torch.randn(30, 20),
        torch.randn(20, 10),
        mode="max-autotune-no-cudagraphs",
    )


@pytest.mark.parametrize("setting", ["benchmark_fusion", "combo_kernels"])
def test_settings_of_other_code_generators(setting):
    with torch._inductor.config.patch({setting: True}):
        compile_and_compare(
            lambda x, y: (torch.relu(x).sum(0), torch.softmax(x, 1) * 2, y + 1),
            torch.randn(60, 70),
            torch.randn(80),
        )
