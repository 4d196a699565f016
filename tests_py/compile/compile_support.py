# SPDX-License-Identifier: BSD-3-Clause
"""Compiled functions on loom beside eager ones on cpu."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._inductor.utils import run_and_get_code
from torch.utils import _pytree as pytree

LOOM = torch.device("loom", 0)


def to(tree: Any, device: Any) -> Any:
    """Copies of all tensors in a tree, leaves of autograd that require grad as before."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        moved = tensor.detach().clone().to(device)
        return moved.requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, move, tree)


def assert_equal(actual: Any, expected: Any, **tolerances: float) -> None:
    torch.testing.assert_close(to(actual, "cpu"), to(expected, "cpu"), **tolerances)


def generated_kernels() -> int:
    return torch._inductor.metrics.generated_kernel_count


def compile_and_compare(
    function: Callable[..., Any],
    *inputs: Any,
    device: torch.device = LOOM,
    kernels: bool = True,
    tolerances: dict[str, float] | None = None,
    **options: Any,
) -> Any:
    """Call `function`, compiled, on loom and compare with eager cpu: results and what it wrote.

    Args:
        function: what is compiled, whole.
        inputs: on cpu; each side gets copies.
        device: where the compiled one runs.
        kernels: that code was generated for it, not operators called.
        tolerances: of the comparison, if not those of the dtypes.
        options: of torch.compile.
    """
    options.setdefault("fullgraph", True)
    on_cpu, on_loom = to(inputs, "cpu"), to(inputs, device)
    expected = function(*on_cpu)
    compiled = torch.compile(function, **options)
    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        torch._inductor.metrics.reset()
        actual = compiled(*on_loom)
    assert not kernels or generated_kernels() > 0
    for result in pytree.tree_leaves(actual):
        assert not isinstance(result, torch.Tensor) or result.device == device
    assert_equal(actual, expected, **(tolerances or {}))
    assert_equal(on_loom, on_cpu, **(tolerances or {}))
    return compiled


@torch.library.custom_op("loom_tests::shifted", mutates_args=())
def shifted(x: torch.Tensor, by: float) -> torch.Tensor:
    """An operator of a user's own."""
    return x + by


@shifted.register_fake
def _(x: torch.Tensor, by: float) -> torch.Tensor:
    return torch.empty_like(x)


def across(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of tensors of loom:0 and loom:1, a result on each."""
    return (x * 2).to("loom:1") + y * 3, (y + 1).to("loom:0") * x


def compile_across_devices() -> None:
    x, y = torch.randn(40, device="loom:0"), torch.randn(40, device="loom:1")
    actual = torch.compile(across, fullgraph=True)(x, y)
    assert [str(t.device) for t in actual] == ["loom:1", "loom:0"]
    assert_equal(actual, across(x, y))


def package(function: Callable[..., Any], *inputs: Any, path: Path, **options: Any) -> Any:
    """Compile a function for loom into a package in the folder `path`, and load that."""

    class Module(torch.nn.Module):
        def forward(self, *x: Any) -> Any:
            return function(*x)

    program = torch.export.export(Module(), inputs)
    made = torch._inductor.aoti_compile_and_package(
        program, package_path=str(path / "f.pt2"), inductor_configs=options
    )
    return torch._inductor.aoti_load_package(made)


def source_of(function: Callable[..., Any], *inputs: Any) -> str:
    """What a function becomes, compiled on loom, with no cache; its results are right."""
    on_cpu, on_loom = to(inputs, "cpu"), to(inputs, LOOM)
    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        actual, sources = run_and_get_code(torch.compile(function, fullgraph=True), *on_loom)
    assert_equal(actual, function(*on_cpu))
    assert_equal(on_loom, on_cpu)
    return "\n".join(sources)
