# SPDX-License-Identifier: BSD-3-Clause
"""Why operators are behind cpu, where that is known to stay so."""

from __future__ import annotations

_WAITS = "waits for a number that the data decide, some 12 us"
_WAITS_IN_PARTS = "its composite looks at a number, or at an error, on the host"
_SPARSE = "sparse tensors are made and read on the host"

# By the beginning of the operator's name, and the kinds of call that it is about.
_REASONS: tuple[tuple[str, str, str], ...] = (
    ("equal", "small", _WAITS),
    ("nonzero", "small", _WAITS),
    ("argwhere", "small", _WAITS),
    ("bincount", "small", _WAITS),
    ("nn_functional_one_hot", "small", _WAITS),
    ("masked_select", "small", _WAITS),
    ("unique", "small", _WAITS),
    ("linalg_cholesky", "small", _WAITS_IN_PARTS),
    ("linalg_eigvals", "small", _WAITS_IN_PARTS),
    ("cov", "small", _WAITS_IN_PARTS),
    ("corrcoef", "small", _WAITS_IN_PARTS),
    ("nn_functional_linear_cross_entropy_chunked", "small", _WAITS_IN_PARTS),
    ("sparse_sampled_addmm", "small", _SPARSE),
)


def reason(name: str, kind: str) -> str:
    """What is known of an operator that is behind in a kind of call; empty if nothing is."""
    for start, about, why in _REASONS:
        if name.startswith(start) and kind.startswith(about):
            return why
    return ""
