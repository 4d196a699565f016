# SPDX-License-Identifier: BSD-3-Clause
"""What the operating system says of the machine and of this process's share of it.

Everything is read from files below a root folder, ``/`` unless a test makes another. Needs neither
torch nor the library.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Machine"]

_CPUS = "sys/devices/system/cpu"


def _cpu_list(text: str) -> list[int]:
    """Parse the system's lists of numbers, such as "0-3,8,10-11"."""
    cpus: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


class Machine:
    """The machine as this process sees it.

    Args:
        root (Path): the folder that has ``proc`` and ``sys``.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def read(self, path: str) -> str:
        """Return what a file below the root says, or ``""`` where there is none to read."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self._root / path).read_text().strip()
        return ""

    def _field(self, path: str, name: str) -> str:
        found = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", self.read(path), re.MULTILINE)
        return found.group(1) if found else ""

    def processor(self) -> str:
        """Return the name of the processor's model."""
        return self._field("proc/cpuinfo", "model name") or "unknown processor"

    def online_cpus(self) -> list[int]:
        """Return the numbers of all hardware threads."""
        return _cpu_list(self.read(f"{_CPUS}/online"))

    def allowed_cpus(self) -> list[int]:
        """Return the hardware threads that this process's affinity mask allows."""
        return _cpu_list(self._field("proc/self/status", "Cpus_allowed_list"))

    def core_count(self, cpus: list[int]) -> int:
        """Return the number of cores that hardware threads belong to."""
        siblings = (self.read(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list") for cpu in cpus)
        return len({text or str(cpu) for text, cpu in zip(siblings, cpus, strict=True)})

    def memory_bytes(self) -> int:
        """Return the host's memory."""
        return 1024 * int((self._field("proc/meminfo", "MemTotal").split() or ["0"])[0])

    def huge_pages(self) -> str:
        """Return when memory gets huge pages: always, madvise, never, or "" if unknown."""
        text = self.read("sys/kernel/mm/transparent_hugepage/enabled")
        found = re.search(r"\[(\w+)\]", text)
        return found.group(1) if found else ""

    def load(self) -> float:
        """Return how many threads ran or wanted to run in the last minute, on average."""
        return float((self.read("proc/loadavg").split() or ["0"])[0])

    def loaded_libraries(self) -> list[Path]:
        """Return the shared libraries in this process, each once."""
        lines = self.read("proc/self/maps").splitlines()
        paths = (line.split(maxsplit=5)[5] for line in lines if line.count("/"))
        return [Path(path) for path in dict.fromkeys(paths) if ".so" in path]

    def cpu_limit(self) -> float | None:
        """Return how many processors' time the process's control groups grant it."""
        limits: list[float] = []
        for folder, unified in self._groups("cpu"):
            if unified:
                quota, _, period = self.read(f"{folder}/cpu.max").partition(" ")
            else:
                quota = self.read(f"{folder}/cpu.cfs_quota_us")
                period = self.read(f"{folder}/cpu.cfs_period_us")
            if quota.isdigit() and int(quota) > 0:
                limits.append(int(quota) / int(period or 100_000))
        return min(limits, default=None)

    def memory_limit(self) -> int | None:
        """Return the bytes that the process's control groups grant it."""
        limits: list[int] = []
        for folder, unified in self._groups("memory"):
            text = self.read(f"{folder}/memory.{'max' if unified else 'limit_in_bytes'}")
            if text.isdigit() and 0 < int(text) < 1 << 62:  # version 1 has no word for "none"
                limits.append(int(text))
        return min(limits, default=None)

    def _groups(self, controller: str) -> Iterator[tuple[str, bool]]:
        """The folders of the process's group for a controller and of all above it; version 2?"""
        for line in self.read("proc/self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            unified = not controllers
            if not unified and controller not in controllers.split(","):
                continue
            group, point = self._mount(controller, unified)
            path = path.removeprefix(group if group != "/" else "").rstrip("/")
            # A container often sees its own group mounted, and its path in the host's hierarchy.
            if not (self._root / point / path.lstrip("/")).is_dir() or "/.." in path:
                path = ""
            while True:
                yield f"{point}{path}", unified
                if not path:
                    break
                path = path.rpartition("/")[0]

    def _mount(self, controller: str, unified: bool) -> tuple[str, str]:
        """The group that is mounted, and where, relative to the root."""
        kind = "cgroup2" if unified else "cgroup"
        for line in self.read("proc/self/mountinfo").splitlines():
            where, _, what = line.partition(" - ")
            words, details = where.split(), what.split()
            if len(words) < 5 or len(details) < 3 or details[0] != kind:
                continue
            if unified or controller in details[2].split(","):
                return words[3], words[4].lstrip("/")
        return "/", "sys/fs/cgroup" if unified else f"sys/fs/cgroup/{controller}"
