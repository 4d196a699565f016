# SPDX-License-Identifier: BSD-3-Clause
"""``python -m torch_loom run``: a program as it is, in a process that is set up for it."""

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["run"]


def run(program: Sequence[str], *, as_cuda: bool, devices: int | None) -> int:
    """Run a script, or a module after ``-m``, as ``python`` would, in this process.

    Processes that it starts inherit what is asked for here, through the environment.

    Args:
        program (Sequence): a script or ``-m`` and a module, and the program's own arguments.
        as_cuda (bool): whether the device is called ``cuda``.
        devices (int, optional): how many devices there are. Default: as the environment says.

    Returns:
        int: 0. A program that ends otherwise raises what it raises, SystemExit included.
    """
    if devices is not None:
        os.environ["LOOM_DEVICES"] = str(devices)  # read at the first use of the device
    if as_cuda:
        from .cuda_names import turn_on_as_asked
        from .cuda_names.context import VARIABLE, is_on

        if not is_on():
            os.environ[VARIABLE] = "1"
            turn_on_as_asked()
    arguments = list(program)
    if arguments[0] == "-m":
        module, *rest = arguments[1:]
        sys.argv = [module, *rest]
        # Where python -m puts the current directory: in the place of that of this program.
        sys.path[0:0] = [] if sys.flags.safe_path else [str(Path.cwd())]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0
    script = Path(arguments[0])
    sys.argv = arguments
    if not sys.flags.safe_path:
        sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(str(script), run_name="__main__")
    return 0
