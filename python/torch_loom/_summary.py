# SPDX-License-Identifier: BSD-3-Clause
"""The text table of :func:`torch.loom.memory_summary`."""

from collections.abc import Callable, Mapping

from ._utils import device_name

_BYTES = (
    ("allocated_bytes", "Allocated memory"),
    ("active_bytes", "Active memory"),
    ("requested_bytes", "Requested memory"),
    ("reserved_bytes", "Reserved memory"),
    ("inactive_split_bytes", "Cached in pieces"),
)
_COUNTS = (
    ("allocation", "Allocations"),
    ("active", "Active blocks"),
    ("segment", "Segments"),
    ("inactive_split", "Cached pieces"),
)
_PARTS = (("large_pool", "  large pool"), ("small_pool", "  small pool"))
_COLUMNS = ("current", "peak", "allocated", "freed")
_UNITS = ("KiB", "MiB", "GiB", "TiB")
_WIDTH = 79


def _bytes(value: int) -> str:
    if abs(value) < 1024:
        return f"{value:8d} B  "
    power = min((abs(value).bit_length() - 1) // 10, len(_UNITS))
    return f"{value / 1024**power:8.1f} {_UNITS[power - 1]}"


def _count(value: int) -> str:
    return f"{value:12d}"


def _row(label: str, stats: Mapping[str, int], key: str, text: Callable[[int], str]) -> str:
    cells = " | ".join(text(stats.get(f"{key}.{column}", 0)) for column in _COLUMNS)
    return f"| {label:<17} | {cells} |"


def format_summary(device: int, stats: Mapping[str, int], abbreviated: bool) -> str:
    """Lay out the flat statistics of one device, one row a metric."""
    rule = "|" + "-" * _WIDTH + "|"
    ooms, retries = stats.get("num_ooms", 0), stats.get("num_alloc_retries", 0)
    name = f"{device_name()}:{device}"
    head = f" {name} memory | out of memory: {ooms} | retries after a flush: {retries}"
    titles = " | ".join(f"{name:>12}" for name in ("Now", "Peak", "Total taken", "Total freed"))
    lines = [rule, f"|{head:<{_WIDTH}}|", rule, f"| {'':<17} | {titles} |"]
    for metrics, text in ((_BYTES, _bytes), (_COUNTS, _count)):
        for key, label in metrics:
            lines.append(rule)
            lines.append(_row(label, stats, f"{key}.all", text))
            if not abbreviated:
                lines += [_row(name, stats, f"{key}.{part}", text) for part, name in _PARTS]
    lines.append(rule)
    lines.append(_row("Oversize blocks", stats, "oversize_allocations", _count))
    lines.append(_row("Oversize segments", stats, "oversize_segments", _count))
    lines.append(rule)
    return "\n".join(lines) + "\n"
