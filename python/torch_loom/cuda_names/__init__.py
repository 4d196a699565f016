# SPDX-License-Identifier: BSD-3-Clause
"""Loom under the name of CUDA: programs that say ``cuda``, unmodified, on a machine without a GPU.

Inside ``with torch_loom.as_cuda():``, or in a process with ``TORCH_LOOM_AS_CUDA=1``, the device
string ``"cuda"`` means a loom device, loom devices print as ``cuda``, and ``torch.cuda`` answers.
Devices get their names below Python, in c10 (``_C._set_cuda_name``): nothing is done per call.
What PyTorch knows of CUDA by other means than the name is answered by the hooks of :mod:`.table`.

What holds, and what was weighed: docs/design/cuda-names.md. Importing the package changes nothing.
"""

from .context import as_cuda, is_on, turn_on_as_asked

__all__ = ["as_cuda", "is_on", "turn_on_as_asked"]
