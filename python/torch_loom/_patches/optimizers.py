# SPDX-License-Identifier: BSD-3-Clause
"""Optimisers: whether their steps can be captured in a graph."""

import torch

from .._replace import replace


def apply() -> None:
    """Have optimisers that count their steps on the host refuse a capture, as on CUDA."""
    # The check compares the accelerator with a list of names; without it the factors of the step
    # that was captured would silently be those of every replay.
    original = torch.optim.Optimizer._accelerator_graph_capture_health_check

    def check(self: torch.optim.Optimizer) -> None:
        if torch.compiler.is_compiling():
            return
        original(self)
        groups = self.param_groups
        if all(group.get("capturable", False) for group in groups):
            return
        loom = torch.loom  # type: ignore[attr-defined]
        if loom.is_initialized() and loom.is_current_stream_capturing():
            has_setting = all("capturable" in group for group in groups)
            way_out = "make it with" if has_setting else "take an optimizer that has the setting"
            raise RuntimeError(
                f"{type(self).__name__}.step cannot be captured in a graph: it counts its steps on "
                f"the host; {way_out} capturable=True"
            )

    replace(torch.optim.Optimizer, "_accelerator_graph_capture_health_check", check)
