# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own test suite of torch.distributed, which its wheel carries, rewritten for loom.

The suite names devices and backends throughout. Its syntax tree is changed before it is compiled:
CUDA becomes loom, NCCL lccl, and what would skip a test by the name of a backend is taken out, so
that lccl runs what NCCL runs and what Gloo runs.
"""

from __future__ import annotations

import ast
import os
import sys
import types
from pathlib import Path

RANKS = 4

# The suite reads these when it is imported, its ranks when they start.
os.environ.update(
    BACKEND="lccl",
    WORLD_SIZE=str(RANKS),
    LOOM_DEVICES=str(RANKS),
    LOOM_THREADS="1",
    OMP_NUM_THREADS="1",
    GOMP_SPINCOUNT="1000",
    DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="300",
)

import torch  # noqa: E402
import torch.testing._internal.common_distributed as common  # noqa: E402

import torch_loom  # noqa: E402, F401

SUITE = Path(common.__file__).parent / "distributed" / "distributed_test.py"

# Decorators that skip for want of what only CUDA or a named backend has. `require_world_size` and
# the like stay.
SKIPS = (
    "skip_but_pass_in_sandcastle_if",
    "require_backend_is_available",
    "require_n_gpus_for_nccl_backend",
    "requires_nccl_version",
    "nccl_skip_if_lt_x_gpu",
    "skip_if_lt_x_gpu",
    "skip_if_no_gpu",
    "skip_if_rocm_multiprocess",
    "skip_if_small_worldsize",  # below 8, where no test needs more than 4
    "unittest.skipIf",
    # What PyTorch's own machines skip, mostly since it is not reliable there.
    "skip_but_pass_in_sandcastle(",
    "unittest.skip(",
)
# Of the conditions of those, the ones that say something of this machine.
KEPT = ("HAS_TORCHVISION",)


class Rewriter(ast.NodeTransformer):
    """Says loom and lccl where the suite says CUDA and NCCL."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [each for each in node.decorator_list if not self._skips(each)]
        if node.name == "test_ddp_uneven_inputs":
            SmallerSizes().visit(node)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if node.value == "nccl":
            node.value = "lccl"
        elif isinstance(node.value, str) and (node.value == "cuda" or node.value[:5] == "cuda:"):
            node.value = "loom" + node.value[4:]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr == "cuda":
            node.attr = "loom"
        elif node.attr == "CUDA":  # of ProfilerActivity and DeviceType
            node.attr = "PrivateUse1"
        elif node.attr == "NCCL":
            node.attr = "LCCL"
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.module == "torch.cuda.amp":
            node.module = "torch.amp"
        return node

    @staticmethod
    def _skips(decorator: ast.expr) -> bool:
        text = ast.unparse(decorator)
        return text.startswith(SKIPS) and not any(name in text for name in KEPT)


class SmallerSizes(ast.NodeTransformer):
    """Images of 64 x 64: those of 1000 x 1000 take four ranks hours on two cores."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if node.value == 1000:
            node.value = 64
        return node


def devices_of_ranks(world_size: int, backend: str) -> dict[int, list[int]]:
    """Each rank has a device."""
    del backend
    return {rank: [rank] for rank in range(world_size)}


def _load() -> types.ModuleType:
    common.TIMEOUT_OVERRIDE = {"test_ddp_uneven_inputs": 1800}  # on a busy machine
    common.init_multigpu_helper = devices_of_ranks
    for backends in common.DistTestCases.backend_feature.values():
        backends.add("lccl")
    module = types.ModuleType("wheel_source_suite")
    sys.modules[module.__name__] = module  # for pickle
    tree = Rewriter().visit(ast.parse(SUITE.read_text()))
    code = compile(ast.fix_missing_locations(tree), str(SUITE), "exec", dont_inherit=True)
    exec(code, module.__dict__)
    # Ranks wait for each other for 10 s, which those of a busy machine do not always meet.
    module.Barrier.sync.__func__.__defaults__ = (None, 300)
    # setUp() takes this test for one that is decorated.
    may_end = module.DistributedTest._DistTestBase.test_ddp_has_finalized
    may_end.__wrapped__ = lambda self: None
    module.autocast = lambda *args, **kwargs: torch.autocast("loom", *args, **kwargs)
    return module


suite = _load()


class WheelSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    """All tests of the suite; each rank is a fork, which has imported torch already."""

    def setUp(self) -> None:
        super().setUp()
        suite.INIT_METHOD = os.environ["INIT_METHOD"]  # as a rank would read it that starts anew
        self._start_processes(torch.multiprocessing.get_context("fork").Process)
