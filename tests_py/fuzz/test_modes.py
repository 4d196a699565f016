# SPDX-License-Identifier: BSD-3-Clause
"""The fuzzer's modes are those of this host."""

from __future__ import annotations

import torch
from run import SETS, Cases, modes

NAMES = {"scalar", "neon", "avx2", "avx512", "avx512_bf16", "amx"}


def test_modes_have_the_names_of_instruction_sets() -> None:
    sets = {mode.simd for mode in modes()}
    assert "scalar" in sets
    assert len(sets) > 1 or torch.loom.get_device_properties(0).simd == "scalar"
    assert sets <= NAMES
    assert set(SETS.values()) <= NAMES


def test_kinds_of_cases_share_the_time_and_not_the_number() -> None:
    cases = Cases(["pool", "norm", "graphs"], first=5)
    made = []
    for _ in range(4000):
        family, seed = cases.next()
        cases.took(family, 10.0 if family == "graphs" else 0.01)
        made.append((family, seed))
    graphs = [seed for family, seed in made if family == "graphs"]
    assert graphs == list(range(5, 5 + len(graphs)))
    assert 1 <= len(graphs) <= 10
    assert made.count(("pool", 6)) == made.count(("norm", 6)) == 1
