# SPDX-License-Identifier: BSD-3-Clause
"""Products and a*b+c on loom against stock cpu, quiet and beside one busy foreign process.

`one` is a single call waited for; `50` is the time of one of fifty that are queued and waited for
together, as a program that looks at its results now and then has it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from measure import busy_process, describe, duration, interleaved, seconds_per_call, table

SECONDS = 0.05
QUEUED = 50


def product(size: int, device: str) -> Callable[[], object]:
    a, b = (torch.rand(size, size, device=device) for _ in range(2))
    return lambda: torch.mm(a, b)


def multiply_add(count: int, device: str) -> Callable[[], object]:
    a, b, c = (torch.rand(count, device=device) for _ in range(3))
    return lambda: a * b + c


CASES: dict[str, tuple[Callable[[int, str], Callable[[], object]], int]] = {
    **{f"mm {size}x{size}": (product, size) for size in (64, 256, 512, 1024)},
    **{f"a*b+c {count:.0e}": (multiply_add, count) for count in (10**5, 10**6, 10**7)},
}


def measure(name: str, batch: int, quiet: bool) -> dict[str, float]:
    make, size = CASES[name]

    def variant(device: str, finish: Callable[[], object]) -> Callable[[], float]:
        call = make(size, device)
        return lambda: seconds_per_call(call, finish, batch, SECONDS, keep=True)

    return interleaved(
        {"cpu": variant("cpu", lambda: None), "loom": variant("loom", torch.loom.synchronize)},
        quiet=quiet,
    )


def rows(where: str) -> list[list[str]]:
    result = []
    for name in CASES:
        for batch in (1, QUEUED):
            times = measure(name, batch, where == "quiet")
            cpu, loom = times["cpu"], times["loom"]
            label = "one" if batch == 1 else str(batch)
            result.append([name, where, label, duration(cpu), duration(loom), f"{cpu / loom:.2f}"])
    return result


def main() -> None:
    describe("products and a*b+c, seconds per call (cpu / loom: more than 1 is faster than cpu)")
    header = ["operation", "host", "calls", "cpu", "loom", "cpu / loom"]
    table(header, rows("quiet"))
    with busy_process():
        print()
        table(header, rows("busy"))


if __name__ == "__main__":
    main()
