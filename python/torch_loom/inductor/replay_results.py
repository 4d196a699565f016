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

from .. import _C

__all__ = ["describe"]

# Copying so much costs no more than the call that does it.
_SMALL_BYTES = 1 << 16


def describe(
    results: Sequence[Any], arguments: Sequence[Any], lends: bool = True
) -> list[tuple[Any, ...]]:
    """What a captured run returned for `arguments`, as `_C._CapturedCall` takes it.

    Returns:
        A row for each result: "input" and its number; "value" and what it is; "copy" or "lend" and
        the tensor; "view", the geometry, the number of the input and how many bytes after its first
        element; "together", the tensor, and the number of the first result that shares its memory.

    Raises:
        RuntimeError: where a result cannot be handed out, or not without lending it.
    """
    rows: list[tuple[Any, ...]] = [("value", result) for result in results]
    inside: dict[int, list[int]] = defaultdict(list)  # results that are no input's, by storage
    for j, result in enumerate(results):
        if not isinstance(result, torch.Tensor):
            continue
        if result.is_conj() or result.is_neg():
            raise RuntimeError("a result that is yet to be conjugated or negated")
        i = _input_of(result, arguments)
        if i is None:
            inside[_storage(result)].append(j)
        elif result is arguments[i]:
            rows[j] = ("input", i)
        else:  # geometry is enough: the memory is the caller's
            further = _byte_offset(result) - _byte_offset(arguments[i])
            rows[j] = ("view", _geometry(result), i, further)
    for js in inside.values():
        small = _is_small(results[js[0]])
        if not small and not lends:
            raise RuntimeError("a result of many bytes")
        alone = small and _is_copied_as_it_is(js, results)
        for j in js:
            if small and not alone:
                rows[j] = ("together", results[j], js[0])
            else:
                rows[j] = ("copy" if small else "lend", results[j])
    return rows


def _input_of(result: torch.Tensor, arguments: Sequence[Any]) -> int | None:
    """The number of the input that a result is, or lies in."""
    tensors = [(i, x) for i, x in enumerate(arguments) if isinstance(x, torch.Tensor)]
    same = [i for i, x in tensors if x is result]
    storage = _storage(result)
    around = [i for i, x in tensors if _storage(x) == storage]
    return next(iter([*same, *around]), None)


def _is_small(result: torch.Tensor) -> bool:
    return _C._storage_of(result)[1] <= _SMALL_BYTES


def _is_copied_as_it_is(numbers: list[int], results: Sequence[Any]) -> bool:
    """Whether a result alone fills its memory, so that a copy of its elements has its strides."""
    result = results[numbers[0]]
    return (
        len(numbers) == 1
        and result.nbytes == _C._storage_of(result)[1]
        and is_non_overlapping_and_dense_or_false(result)
    )


def _geometry(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device=torch.device("meta")
    )


def _byte_offset(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.itemsize


def _storage(tensor: torch.Tensor) -> int:
    return _C._storage_of(tensor)[0]
