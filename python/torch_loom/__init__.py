# SPDX-License-Identifier: BSD-3-Clause
"""torch-loom: the host's own cores as a PyTorch device called ``loom``.

Importing the package loads the library, names the device and registers ``torch.loom``. A plain
``import torch`` does the same through the entry point below, where torch has no other accelerator.

Type checkers do not see that ``torch.loom`` is there. ``from torch_loom import loom`` is the same
module, with types.
"""

import sys
from typing import TYPE_CHECKING, Any

from . import _loader

if TYPE_CHECKING:
    from . import loom
    from .cuda_names import as_cuda
    from .graphed_callables import make_graphed_callables

__all__ = ["__version__", "as_cuda", "loom", "make_graphed_callables"]  # all but one are below


def _autoload() -> None:
    """Entry point of ``torch.backends``: torch calls it at the end of its own import.

    Defined before anything imports torch: ``import torch_loom`` imports torch, which comes back
    here while this module is half imported.
    """
    _loader.autoload()


def _is_command_line() -> bool:
    # While Python imports the package that `-m` names, that is the first argument.
    return sys.argv[:1] == ["-m"] and "torch_loom" in sys.orig_argv


_load_problem = ""
try:
    __version__ = _loader.on_import()
except (ImportError, OSError) as error:
    if not _is_command_line():
        raise
    # `python -m torch_loom` says what is wrong, and what to do about it.
    __version__ = ""
    _load_problem = str(error)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # Not before torch has been imported.
        if name == "make_graphed_callables":
            from .graphed_callables import make_graphed_callables

            return make_graphed_callables
        if name == "as_cuda":
            from .cuda_names import as_cuda

            return as_cuda
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
