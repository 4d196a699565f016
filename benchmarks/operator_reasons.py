# SPDX-License-Identifier: BSD-3-Clause
"""Why operators are behind cpu, where that is known to stay so."""

from __future__ import annotations

_WAITS = "waits for a number that the data decide, some 12 us"
_WAITS_IN_PARTS = "its composite looks at a number, or at an error, on the host"
_SPARSE = "sparse tensors are made and read on the host"
_COMMAND = "microseconds of work, to which the worker's part of a command adds some 4"
_ALL_PAIRS = "ATen's kernel is one block; that for two matrices is slower on all cores"
_SERIAL = "the serial form of ATen's kernel takes longer than the one it has for its own threads"
_UNDERFLOW = "a product of many numbers runs through denormal ones, here once for each block"
_MKL = "MKL's function on an Intel, which Sleef's does not reach"
_ONE_CORE = "ATen's kernel fills and adds up on one core, in an order that depends on the indices"
_FEW_MATRICES = "few matrices: LAPACK has one core for each, so that bits do not depend on cores"

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
    ("masked_scatter", "small", _WAITS),
    ("normal", "small", _WAITS_IN_PARTS),
    ("linalg_lu_factor", "small", _WAITS_IN_PARTS),
    ("_segment_reduce_offsets", "small", _WAITS_IN_PARTS),
    ("_segment_reduce_offsets", "large", _COMMAND),
    ("trace", "large", _COMMAND),
    ("nonzero_static", "large", _COMMAND),
    ("diagonal_copy", "large", _COMMAND),
    ("narrow_copy", "large", _COMMAND),
    ("__getitem__", "large", _COMMAND),
    ("sum_to_size", "large", _COMMAND),
    ("fft_rfft2", "large", _COMMAND),
    ("fft_rfftn", "large", _COMMAND),
    ("fft_ihfft", "large", _COMMAND),
    ("nn_functional_pdist", "large", _ALL_PAIRS),
    ("cdist", "large", _SERIAL),
    ("prod", "large", _UNDERFLOW),
    ("masked_prod", "large", _UNDERFLOW),
    ("tan", "large", _MKL),
    ("nn_functional_embedding_bag", "large, gradient", _ONE_CORE),
    ("lu", "large", _FEW_MATRICES),
    ("linalg_lu", "large", _FEW_MATRICES),
    ("linalg_det", "large", _FEW_MATRICES),
    ("linalg_slogdet", "large", _FEW_MATRICES),
    ("linalg_householder_product", "large", _FEW_MATRICES),
    ("cholesky", "large", _FEW_MATRICES),
    ("linalg_cholesky", "large", _FEW_MATRICES),
)


def reason(name: str, kind: str) -> str:
    """What is known of an operator that is behind in a kind of call; empty if nothing is."""
    for start, about, why in _REASONS:
        if name.startswith(start) and kind.startswith(about):
            return why
    return ""
