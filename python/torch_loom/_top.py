# SPDX-License-Identifier: BSD-3-Clause
"""``python -m torch_loom top``: the processes that use loom, refreshed in the terminal."""

import shutil
import sys
import time
from collections.abc import Sequence

from .monitor import ProcessUse, processes

__all__ = ["run", "table"]

_CLEAR = "\x1b[H\x1b[2J"


def table(
    now: Sequence[ProcessUse], before: Sequence[ProcessUse], seconds: float, width: int
) -> str:
    """Format the processes, with what their threads of loom did in the last seconds."""
    earlier = {use.pid: use.busy_seconds for use in before}
    lines = [f"{'PID':>8} {'DEVICE':>7} {'STREAMS':>7} {'CORES':>6} {'MEMORY':>9}  COMMAND"]
    for use in now:
        for index, busy in sorted(use.busy_seconds.items()):
            # A process that is new has no earlier reading: it shows from the next one on.
            since = busy - earlier.get(use.pid, use.busy_seconds).get(index, busy)
            cores = since / seconds if seconds > 0 else 0.0
            lines.append(
                f"{use.pid:>8} {f'loom:{index}':>7} {use.streams.get(index, 0):>7} {cores:>6.2f} "
                f"{use.resident_bytes / (1 << 20):>6.0f} MB  {use.command}"[:width]
            )
    if len(lines) == 1:
        lines.append("no process uses loom")
    return "\n".join(lines)


def run(interval: float, once: bool) -> int:
    """Print the table until interrupted, or once.

    Args:
        interval (float): seconds between two tables, in which work is counted.
        once (bool): whether to print one table and end.

    Returns:
        int: 0.
    """
    before, last = processes(), time.monotonic()
    try:
        while True:
            time.sleep(interval)
            now, moment = processes(), time.monotonic()
            text = table(now, before, moment - last, shutil.get_terminal_size().columns)
            is_screen = not once and sys.stdout.isatty()
            print((_CLEAR if is_screen else "") + text, flush=True)
            if once:
                return 0
            before, last = now, moment
    except KeyboardInterrupt:
        return 0
