# SPDX-License-Identifier: BSD-3-Clause
"""Whether the machine's processors run at their pace, or are held back from outside.

Virtual processors are now and then slow together for a while, as if they were the two threads of
one core: a loop in registers takes twice as long on both, and so does a matrix product, whoever
computes it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import limits

# Enough independent sums to fill the units that multiply and add; nothing leaves the registers.
# Sums that begin alike would be one.
SOURCE = r"""
#ifdef __AVX512F__
constexpr int kBytes = 64;
#else
constexpr int kBytes = 32;
#endif
typedef float vec __attribute__((vector_size(kBytes)));
extern "C" float multiply(long n) {
  vec sums[12];
  vec factor = {};
  factor += .5f;
  for (int i = 0; i < 12; ++i) sums[i] = factor * static_cast<float>(n + i);
  for (long i = 0; i < n; ++i) {
#pragma GCC unroll 12
    for (vec& sum : sums) sum = sum * factor + factor;
  }
  vec sum = sums[0];
  for (const vec& each : sums) sum += each;
  return sum[0];
}
"""
# Half a millisecond or so.
STEPS = 300_000
# Slower than the best of all looks by this factor: held back. Other programs' interrupts cost less.
HELD_BACK = 1.35
SECONDS_BETWEEN_LOOKS = 0.03
# Enough to see the right pace once.
LOOKS_AT_FIRST = 60
LONGEST_WAIT_SECONDS = 5.0
MOST_REPEATS = 4

Json = dict[str, Any]
Measured = TypeVar("Measured")


class Pace:
    """Looks at the pace around measurements; without a compiler it takes every pace for right.

    Attributes:
        turns (int): measurements.
        repeated (int): how often one was made again.
        slow (int): measurements that stand although the processors were held back around them.
    """

    def __init__(self) -> None:
        self.turns = self.repeated = self.slow = 0
        self._shortest = float("inf")
        library = limits.compile_library(SOURCE)
        self._multiply = None if library is None else library["multiply"]
        if self._multiply is not None:
            self._multiply.argtypes = [ctypes.c_long]
            self._multiply.restype = ctypes.c_float
        self._pool = ThreadPoolExecutor(limits.cores())
        self._together = threading.Barrier(limits.cores())
        for _ in range(LOOKS_AT_FIRST if self._multiply is not None else 0):
            self.is_right()
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def _seconds(self) -> float:
        """How long the loop takes on the slowest of all processors at once."""

        def timed(_: int) -> float:
            self._together.wait()
            start = time.perf_counter()
            self._multiply(STEPS)
            return time.perf_counter() - start

        return max(self._pool.map(timed, range(limits.cores())))

    def is_right(self) -> bool:
        if self._multiply is None:
            return True
        # One that was interrupted says nothing.
        seconds = min(self._seconds(), self._seconds())
        self._shortest = min(self._shortest, seconds)
        return seconds < HELD_BACK * self._shortest

    def wait(self) -> bool:
        """Waits until the pace is right, but not for ever; returns whether it is."""
        deadline = time.perf_counter() + LONGEST_WAIT_SECONDS
        while not (right := self.is_right()) and time.perf_counter() < deadline:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        return right

    def measure(self, measure: Callable[[], Measured]) -> Measured:
        """What `measure` returns, of a time when the pace was right before and after, or an error:
        a dict with the key `error`.

        What never has such a time is what it was the last time.
        """
        self.turns += 1
        for repeats in range(MOST_REPEATS + 1):
            right = self.wait()
            result = measure()
            failed = isinstance(result, dict) and "error" in result
            if failed or (right and self.is_right()):
                return result
            self.repeated += repeats < MOST_REPEATS
        self.slow += 1
        return result

    def counts(self) -> dict[str, int]:
        return {"turns": self.turns, "repeated": self.repeated, "slow": self.slow}
