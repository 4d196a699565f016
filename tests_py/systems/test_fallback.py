# SPDX-License-Identifier: BSD-3-Clause
"""The report of operators that have no kernel of their own."""

import pytest
import torch


@pytest.fixture(autouse=True)
def forget():
    torch.loom.reset_fallbacks()


def by_name(part):
    return {name: row for name, row in torch.loom.fallbacks().items() if part in name}


def test_native_operators_do_not_fall_back():
    x = torch.randn(64, 64, device="loom")
    ((x @ x).relu() * 2 + x).sum().item()
    assert torch.loom.fallbacks() == {}


def test_fallbacks_are_counted_timed_and_located():
    x = torch.randn(100, device="loom", dtype=torch.float32)
    for _ in range(3):
        x.to_sparse()
    rows = by_name("to_sparse")
    assert sum(row.count for row in rows.values()) >= 3
    for row in rows.values():
        assert 0 < row.seconds < 60
        assert sum(row.callers.values()) == row.count
        assert all("test_fallback.py:" in place for place in row.callers)


def test_reset_forgets():
    torch.ones(3, device="loom").to_sparse()
    assert torch.loom.fallbacks()
    torch.loom.reset_fallbacks()
    assert torch.loom.fallbacks() == {}


def test_reading_a_value_waits_and_launching_does_not():
    x = torch.ones(1 << 20, device="loom")
    x.sum().item()
    before = torch.loom.host_waits()
    for _ in range(20):
        x = x * 1.5
    assert torch.loom.host_waits() == before
    x.sum().item()
    assert torch.loom.host_waits() >= before


@pytest.mark.parametrize(("mode", "code"), [("allow", 0), ("warn", 0), ("error", 1)])
def test_fallbacks_may_be_forbidden(run, mode, code):
    done = run(
        """
        import torch
        a = torch.ones(3, 3).to("loom")
        a.to_sparse()
        """,
        LOOM_FALLBACK=mode,
    )
    assert done.code == code
    assert ("to_sparse" in done.err) == (mode != "allow")
