# SPDX-License-Identifier: BSD-3-Clause
"""What a captured graph leaves where it was captured, and how a caller gets it.

The next replay writes there again. So results that are small are handed out as copies, and larger
ones are lent: whoever replays asks first whether somebody still has one. Results that are memory of
an input, a view of it say, are that memory of the caller's own input. Either way they have the
strides and offsets that they have without a capture, and share memory as they do there.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false

__all__ = ["Results"]

# Copying so much costs no more than the call that does it.
_SMALL_BYTES = 1 << 16


class Results:
    """The results of one capture."""

    def __init__(self, results: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Note what the captured run returned for `arguments`.

        Raises:
            RuntimeError: where a result cannot be handed out.
        """
        self._kept = list(results)
        self._inputs: dict[int, int] = {}  # from the number of a result to that of the same input
        self._views: dict[int, tuple[int, int]] = {}  # to an input, and how many bytes further on
        inside: dict[int, list[int]] = defaultdict(list)  # the others, by their storage
        for j, result in enumerate(self._kept):
            if not isinstance(result, torch.Tensor):
                continue
            if result.is_conj() or result.is_neg():
                raise RuntimeError("a result that is yet to be conjugated or negated")
            i = _input_of(result, arguments)
            if i is None:
                inside[result.untyped_storage()._cdata].append(j)
                continue
            if result is arguments[i]:
                self._inputs[j] = i
            else:
                self._views[j] = (i, _byte_offset(result) - _byte_offset(arguments[i]))
        small = [js for js in inside.values() if _is_small(self._kept[js[0]])]
        self._alone = {js[0] for js in small if _is_copied_as_it_is(js, self._kept)}
        self._together = [js for js in small if js[0] not in self._alone]
        for j in (*self._inputs, *self._views):  # geometry is enough: the memory is the caller's
            self._kept[j] = _geometry(self._kept[j])
        # How many references there are while nobody else has any.
        self._references = {
            storage: _references(storage)
            for storage, js in inside.items()
            if not _is_small(self._kept[js[0]])
        }

    def lent(self) -> bool:
        """Whether somebody still has a result of the last replay."""
        return any(_references(s) > count for s, count in self._references.items())

    def hand_out(self, inputs: Sequence[Any]) -> list[Any]:
        """The results of a replay whose inputs were these."""
        results = [self._result(j, inputs) for j in range(len(self._kept))]
        for together in self._together:
            storage = self._kept[together[0]].untyped_storage().clone()
            for j in together:
                results[j] = _in_memory(storage, _byte_offset(self._kept[j]), self._kept[j])
        return results

    def _result(self, j: int, inputs: Sequence[Any]) -> Any:
        if j in self._inputs:
            return inputs[self._inputs[j]]
        result = self._kept[j]
        if j in self._views:
            i, offset = self._views[j]
            return _in_memory(inputs[i].untyped_storage(), _byte_offset(inputs[i]) + offset, result)
        if not isinstance(result, torch.Tensor):
            return result
        return result.clone() if j in self._alone else result.detach()


def _input_of(result: torch.Tensor, arguments: Sequence[Any]) -> int | None:
    """The number of the input that a result is, or lies in."""
    tensors = [(i, x) for i, x in enumerate(arguments) if isinstance(x, torch.Tensor)]
    same = [i for i, x in tensors if x is result]
    storage = result.untyped_storage()._cdata
    around = [i for i, x in tensors if x.untyped_storage()._cdata == storage]
    return next(iter([*same, *around]), None)


def _is_small(result: torch.Tensor) -> bool:
    return result.untyped_storage().nbytes() <= _SMALL_BYTES


def _is_copied_as_it_is(numbers: list[int], results: list[Any]) -> bool:
    """Whether a result alone fills its memory, so that a copy of its elements has its strides."""
    result = results[numbers[0]]
    return (
        len(numbers) == 1
        and result.nbytes == result.untyped_storage().nbytes()
        and is_non_overlapping_and_dense_or_false(result)
    )


def _in_memory(storage: torch.UntypedStorage, offset: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor of the geometry of `like`, from byte `offset` of a storage on."""
    made = torch.empty(0, dtype=like.dtype, device=storage.device)
    return made.set_(storage, offset // like.itemsize, like.size(), like.stride())


def _geometry(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device=torch.device("meta")
    )


def _byte_offset(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.itemsize


def _references(storage: int) -> int:
    return int(torch._C._storage_Use_Count(storage))
