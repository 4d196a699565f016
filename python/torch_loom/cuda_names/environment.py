# SPDX-License-Identifier: BSD-3-Clause
"""Processes that a program starts, which must know the device by the same name."""

import os

from .changes import Changes


def apply(changes: Changes) -> None:
    """Set the variable for new processes; forked ones have everything as it is."""
    from .context import VARIABLE

    if os.environ.get(VARIABLE, "") in ("", "0"):
        # Where this process was forced past a device of CUDA, the others are, too.
        changes.set_item(os.environ, VARIABLE, "force" if changes.forced else "1")
