# SPDX-License-Identifier: BSD-3-Clause
"""``python -m torch_loom run``: a program as it is, in a process that is set up for it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["run"]


def run(program: Sequence[str], *, as_cuda: bool, devices: int | None) -> NoReturn:
    """Become a Python process that runs a script, or a module after ``-m``.

    It is this process, with the interpreter's options of this one, so that the program finds what
    it finds without loom: its folder in ``sys.path``, ``__main__``, standard input, signals. All
    that is asked for here is in the environment, which processes that it starts inherit.

    Args:
        program (Sequence): a script or ``-m`` and a module, and the program's own arguments.
        as_cuda (bool): whether the device is called ``cuda``.
        devices (int, optional): how many devices there are. Default: as the environment says.

    Raises:
        RuntimeError: when loom cannot have the name, as :class:`torch_loom.as_cuda`.
    """
    if devices is not None:
        os.environ["LOOM_DEVICES"] = str(devices)
    if as_cuda:
        from .cuda_names import turn_on_as_asked
        from .cuda_names.context import VARIABLE, is_on

        if not is_on():
            os.environ[VARIABLE] = "1"
            turn_on_as_asked()  # what it raises is said before the program begins
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"  # the program does not import loom
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *options, *program])
