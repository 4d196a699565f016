# SPDX-License-Identifier: BSD-3-Clause
"""torch-loom: the host's own cores as a PyTorch device called ``loom``.

Importing the package loads the library, names the device and registers ``torch.loom``. A plain
``import torch`` does the same through the entry point below, where torch has no other accelerator.
"""

from . import _loader

__all__ = ["__version__"]


def _autoload() -> None:
    """Entry point of ``torch.backends``: torch calls it at the end of its own import.

    Defined before anything imports torch: ``import torch_loom`` imports torch, which comes back
    here while this module is half imported.
    """
    _loader.autoload()


__version__ = _loader.on_import()
