# SPDX-License-Identifier: BSD-3-Clause
"""Who uses loom on this host, and how busy its threads are: read from ``/proc``.

Loom's threads carry names, ``loom0/q1`` for a stream and ``loom0/c1`` for a core of device 0. The
kernels that a waiting thread of the program runs itself count as the program's time, not as
loom's.
"""

import os
import re
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from . import device as devices, memory
from ._utils import DeviceLike, _get_device_index, device_name

__all__ = [
    "ProcessUse",
    "device_memory_used",
    "list_gpu_processes",
    "memory_usage",
    "processes",
    "utilization",
]

_THREAD = re.compile(r"loom(\d+)/(q|hi|c)")
_PROC = Path("/proc")
# In clock ticks, from `man 5 proc_pid_stat`, counted after the name in parentheses.
_USER_TICKS, _SYSTEM_TICKS = 11, 12


@dataclass(frozen=True)
class ProcessUse:
    """A process in which loom has threads."""

    pid: int
    command: str
    streams: dict[int, int]
    """How many streams have worked on each device."""
    busy_seconds: dict[int, float]
    """How long loom's threads of each device have run since they were started."""
    resident_bytes: int
    """Memory of the whole process, device memory included."""


def processes() -> list[ProcessUse]:
    r"""Return the processes that use loom, of all users that the caller may look at."""
    found = []
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            use = _look_at(folder)
        except OSError:  # it has ended, or is somebody else's
            continue
        if use is not None:
            found.append(use)
    return sorted(found, key=lambda use: use.pid)


def _look_at(folder: Path) -> ProcessUse | None:
    streams: dict[int, int] = defaultdict(int)
    ticks: dict[int, int] = defaultdict(int)
    for task in (folder / "task").iterdir():
        try:
            stat = (task / "stat").read_text()
        except OSError:  # a thread that has ended
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        if match := _THREAD.match(name):
            device, kind = int(match[1]), match[2]
            fields = rest.split()
            ticks[device] += int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
            streams[device] += kind != "c"
    if not ticks:
        return None
    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    pages = int((folder / "statm").read_text().split()[1])
    per_second = os.sysconf("SC_CLK_TCK")
    return ProcessUse(
        pid=int(folder.name),
        command=command.strip(),
        streams=dict(streams),
        busy_seconds={device: count / per_second for device, count in ticks.items()},
        resident_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
    )


_SAMPLE_SECONDS = 0.1  # ticks are a hundredth of a second on most systems
_lock = threading.Lock()
_last: dict[int, tuple[float, float]] = {}


def _sample(index: int) -> tuple[float, float]:
    busy = sum(use.busy_seconds.get(index, 0.0) for use in processes())
    return time.monotonic(), busy


def utilization(device: DeviceLike = None) -> int:
    r"""Return how busy a device's cores have been since the last call, in percent.

    By all processes that use loom. The first call looks for a tenth of a second.

    Args:
        device (torch.device or str or int, optional): the device. Default: the current device.
    """
    index = _get_device_index(device, optional=True)
    cores = devices.get_device_properties(index).core_count
    with _lock:
        begin = _last.get(index)
        if begin is None or time.monotonic() - begin[0] < _SAMPLE_SECONDS:
            begin = _sample(index)
            time.sleep(_SAMPLE_SECONDS)
        end = _last[index] = _sample(index)
    share = (end[1] - begin[1]) / ((end[0] - begin[0]) * cores)
    return round(100 * min(max(share, 0.0), 1.0))


def memory_usage(device: DeviceLike = None) -> int:
    r"""Return how much of its memory this process has taken for a device, in percent.

    (``torch.cuda.memory_usage`` is the share of time in which memory was read or written, which the
    processor does not tell.)

    Args:
        device (torch.device or str or int, optional): the device. Default: the current device.
    """
    free, total = memory.mem_get_info(device)
    return round(100 * (total - free) / total)


def device_memory_used(device: DeviceLike = None) -> int:
    r"""Return how many bytes of a device's memory this process has taken: reserved and scratch.

    Args:
        device (torch.device or str or int, optional): the device. Default: the current device.
    """
    free, total = memory.mem_get_info(device)
    return total - free


def list_gpu_processes(device: DeviceLike = None) -> str:
    r"""Return a text of the processes that use a device and their resident memory.

    Args:
        device (torch.device or str or int, optional): the device. Default: the current device.
    """
    index = _get_device_index(device, optional=True)
    lines = [f"{device_name()}:{index}"]
    for use in processes():
        if index in use.busy_seconds:
            megabytes = use.resident_bytes / (1 << 20)
            lines.append(f"process {use.pid:>10d} uses {megabytes:>12.3f} MB memory")
    return "\n".join(lines if len(lines) > 1 else [*lines, "no processes are running"])
