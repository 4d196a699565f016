# SPDX-License-Identifier: BSD-3-Clause
"""torch-loom: the host's own cores as a PyTorch device called ``loom``.

Importing the package loads the library, names the device and registers ``torch.loom``. A plain
``import torch`` does the same through the entry point below, where torch has no other accelerator.
"""

from typing import Any

from . import _loader

__all__ = ["__version__", "make_graphed_callables"]  # the second is below


def _autoload() -> None:
    """Entry point of ``torch.backends``: torch calls it at the end of its own import.

    Defined before anything imports torch: ``import torch_loom`` imports torch, which comes back
    here while this module is half imported.
    """
    _loader.autoload()


__version__ = _loader.on_import()


def __getattr__(name: str) -> Any:
    if name == "make_graphed_callables":  # not before torch has been imported
        from .graphed_callables import make_graphed_callables

        return make_graphed_callables
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
