# SPDX-License-Identifier: BSD-3-Clause
"""A compiled graph is captured once and replayed as one command, asked or not.

Asked by ``mode="reduce-overhead"``; where it costs little, by unasked_replays.py.

A capture fixes addresses. Inputs that came from the same place in the calls before it are read
there; others are copied to a place of the graph's own before each replay. What a replay writes is
there until the next one, so results that are small are handed out as copies, and larger ones are
lent: while somebody still has one, the next call takes another capture, or runs the kernels one by
one.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from .. import _C, device as devices, graphs, memory, streams
from .._utils import is_loom
from .replay_results import describe

__all__ = ["Limits", "Replays"]

_log = logging.getLogger(__name__)

_Model = Callable[[list[Any]], Any]

_WARM_UPS = 2
_MOST_CAPTURES = 4
_MOST_RECAPTURES = 8
_STREAM_IN_USE = "nobody captures"
# Captures that nobody asked for leave a device with little memory alone.
_SHARE_OF_MEMORY = 16


@dataclass(frozen=True)
class Limits:
    """What replays may cost that nobody asked for. They lend nothing, either."""

    copied: int
    """Bytes of inputs that are copied before each replay."""
    kept: int
    """Bytes that the captures of one compiled graph keep."""
    kept_by_all: int
    """Bytes that all captures of a device, users' too, keep before there are no more of these."""


class Replays:
    """A compiled graph as a function of its inputs, replayed where that is possible.

    Thread: any. While one is at it, others run the kernels one by one: a capture has one place for
    its inputs and one for its results.
    """

    _boxed_call = True  # takes a list, which it empties

    def __init__(
        self,
        model: _Model,
        device_index: int,
        mutated: Sequence[int],
        limits: Limits | None = None,
    ) -> None:
        self._model = model
        self._limits = limits
        self._device_index = device_index
        self._mutated = frozenset(mutated)
        self._seen: list[tuple[Any, ...]] = []
        self._moving: set[int] = set()
        self._captures: list[_Capture] = []
        self._recaptures = 0
        self._gave_up = False
        # Protects all of the above but for the model, from the look at a capture's places until its
        # replay is queued. Never waited for, so that nobody waits for it with the GIL.
        self._lock = threading.Lock()

    def __call__(self, inputs: list[Any]) -> Any:
        if self._gave_up or not self._lock.acquire(blocking=False):
            return self._model(inputs)
        try:
            return self._run(inputs)
        finally:
            self._lock.release()

    def _run(self, inputs: list[Any]) -> Any:
        results = self._again(inputs)
        if results is not None:
            return results
        if len(self._seen) < _WARM_UPS:
            self._note_addresses(inputs)
            return self._model(inputs)
        capture = None if _is_capturing(self._device_index) else self._capture_for(inputs)
        # A function that was compiled for inputs apart is called with overlapping ones, too: its
        # kernels then read what they have written, where a copy made before would be stale.
        if capture is None or capture.copies_what_it_writes(inputs):
            return self._model(inputs)
        return capture.replay(inputs)

    def _again(self, inputs: list[Any]) -> list[Any] | None:
        # Apart from what may drop the captures, whose memory a name here would keep.
        for capture in self._captures:
            results = capture.again(inputs)
            if results is not None:
                return results
        return None

    def _note_addresses(self, inputs: list[Any]) -> None:
        addresses = tuple(_address(x) for x in inputs)
        for before in self._seen:
            self._note_moved(i for i, a in enumerate(addresses) if a != before[i])
        self._seen.append(addresses)

    def _note_moved(self, moved: Any) -> None:
        self._moving.update(moved)
        if self._moving & self._mutated:
            self._give_up("an input that the graph writes changes its place")

    def _capture_for(self, inputs: list[Any]) -> "_Capture | None":
        moved = {i for c in self._captures for i in c.moved(inputs)}
        if moved:
            self._note_moved(moved)
            self._captures.clear()
            self._recaptures += 1
            if self._recaptures > _MOST_RECAPTURES:
                self._give_up("inputs keep changing their places")
        if self._gave_up:
            return None
        for capture in self._captures:
            if not capture.lent():
                return capture
        if len(self._captures) == _MOST_CAPTURES:
            return None  # results of all of them are in use
        return self._capture(inputs)

    def _capture(self, inputs: list[Any]) -> "_Capture | None":
        limits = self._limits
        if limits and (why := self._why_not(limits, inputs)):
            self._give_up(why)
            return None
        try:
            capture = _Capture(
                self._model, inputs, self._moving, self._mutated, self._device_index, not limits
            )
        except RuntimeError as error:  # something that cannot be captured, by name
            why = str(error).partition("\n")[0]
            if _STREAM_IN_USE not in why:  # by a capture of another thread
                self._give_up(why)
            return None
        if limits and sum(c.bytes_kept() for c in (*self._captures, capture)) > limits.kept:
            self._give_up("a capture would keep much memory")
            return None
        self._captures.append(capture)
        return capture

    def _why_not(self, limits: Limits, inputs: list[Any]) -> str:
        if _bytes_of(inputs, self._moving) > limits.copied:
            return "large inputs change their places"
        total = memory.mem_get_info(self._device_index)[1]
        kept = sum(_C._bytes_of_private_pools(self._device_index).values())
        if kept > min(limits.kept_by_all, total // _SHARE_OF_MEMORY):
            return "captures of others keep much memory"
        return ""

    def _give_up(self, why: str) -> None:
        _log.info("a compiled graph is not replayed: %s", why)
        self._gave_up = True
        self._captures.clear()


class _Capture:
    """One captured run: where it reads, and where it leaves its results."""

    _streams: ClassVar[dict[int, streams.Stream]] = {}  # other than what users capture on

    def __init__(
        self,
        model: _Model,
        inputs: list[Any],
        moving: set[int],
        mutated: frozenset[int],
        device_index: int,
        lends: bool,
    ) -> None:
        graph = torch.accelerator.Graph()
        self._device_index = device_index
        self._stream: torch.Stream | None = None  # of the last replay
        self._own = {
            i: _place_for(x)
            for i, x in enumerate(inputs)
            if i in moving and isinstance(x, torch.Tensor)
        }
        fixed = [(i, x) for i, x in enumerate(inputs) if i not in self._own]
        arguments = [self._own.get(i, x) for i, x in enumerate(inputs)]
        stream = self._streams.setdefault(device_index, streams.Stream(device_index))
        with devices.device(device_index), graphs.graph(graph, stream=stream):
            results = model(list(arguments))
        self._pool = graph.pool()
        self._call = _C._CapturedCall(
            graph,
            device_index,
            list(self._own.items()),
            fixed,
            sorted(mutated),
            describe(results, arguments, lends),
        )

    def bytes_kept(self) -> int:
        """The bytes of memory that nobody else can have."""
        return _C._bytes_of_private_pools(self._device_index).get(self._pool, 0)

    def moved(self, inputs: list[Any]) -> list[int]:
        """The inputs that are not where they were."""
        return self._call.moved(inputs)

    def lent(self) -> bool:
        """Whether somebody still has a result of the last replay."""
        return self._call.lent()

    def copies_what_it_writes(self, inputs: list[Any]) -> bool:
        """Whether an input that would be copied lies in one that the graph writes."""
        return self._call.copies_what_it_writes(inputs)

    def again(self, inputs: list[Any]) -> list[Any] | None:
        """Replay on the stream of the last replay, if inputs and results allow one."""
        return self._call.again(inputs)

    def replay(self, inputs: list[Any]) -> list[Any]:
        """Replay on the current stream."""
        self._follow_last_replay()
        return self._call.run(inputs)

    def _follow_last_replay(self) -> None:
        # What the stream of the last replay was given since may still read its results.
        stream = torch._C._accelerator_getStream(self._device_index)
        if self._stream == stream:
            return
        if self._stream is not None:
            stream.wait_stream(self._stream)
        for own in self._own.values():
            if is_loom(own.device):
                own.record_stream(stream)  # which may be behind when the capture is dropped
        self._stream = stream


def _address(value: Any) -> Any:
    """What must not change between replays: where a tensor is, or a number itself (a size)."""
    return value.data_ptr() if isinstance(value, torch.Tensor) else value


def _bytes_of(inputs: list[Any], numbers: Iterable[int]) -> int:
    return sum(inputs[i].nbytes for i in numbers if isinstance(inputs[i], torch.Tensor))


def _place_for(tensor: torch.Tensor) -> torch.Tensor:
    if torch._debug_has_internal_overlap(tensor) == 1:
        raise RuntimeError("an input whose elements share memory changes its place")
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


def _is_capturing(device_index: int) -> bool:
    # torch.loom.current_stream() makes a stream of its own class, for some microseconds.
    return bool(torch._C._accelerator_getStream(device_index).is_capturing())
