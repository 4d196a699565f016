# SPDX-License-Identifier: BSD-3-Clause
"""Random calls of operators do on loom what they do on cpu: values, dtypes, strides, errors.

A fixed batch of each family runs by default, more of it with the thorough tests.
`make fuzz MINUTES=60` goes on for a chosen time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from calls import ways
from calls.call import Call, Operand
from calls.families import FAMILIES, random_call
from calls.known import KNOWN
from calls.verdict import Finding, judge
from corpus import PAST, RIGHT
from run import Caller, answers

QUICK, THOROUGH = range(30), range(30, 100)


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    made = Caller()
    yield made
    made.close()


def check(caller: Caller, family: str, seeds: range) -> None:
    found = list(answers(caller, [family], seeds))
    wrong = [str(answer) for answer in found if answer.kind and not answer.known]
    assert not wrong, "\n".join(wrong)
    # Calls that cpu refuses test little.
    assert sum(answer.refused for answer in found) <= 0.45 * len(found)


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_agree_with_cpu(caller: Caller, family: str) -> None:
    check(caller, family, QUICK)


@pytest.mark.parametrize("name", PAST)
def test_what_differed_once_agrees(name: str) -> None:
    assert judge(PAST[name]) is None


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_rounded_elsewhere_agrees(name: str) -> None:
    assert judge(RIGHT[name]) is None


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("family", FAMILIES)
def test_more_calls_agree_with_cpu(caller: Caller, family: str) -> None:
    check(caller, family, THOROUGH)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.reason)
def test_what_is_known_still_differs(known) -> None:
    finding = judge(known.example)
    assert finding is not None
    assert known.matches(known.example, finding)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_always_makes_the_same_call(family: str) -> None:
    assert random_call(family, 7) == random_call(family, 7)
    assert len({random_call(family, seed) for seed in range(5)}) > 1


def test_what_is_printed_makes_the_same_call() -> None:
    scope = {"Call": Call, "Operand": Operand, "torch": torch}
    for family in FAMILIES:
        call = random_call(family, 3)
        assert eval(repr(call), scope) == call


@pytest.mark.parametrize("way", ways.WAYS)
def test_a_difference_is_found_in_every_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed on loom is off by a fifth."""
    call = ways.Attempt.__call__

    def off(self: ways.Attempt, *operands: torch.Tensor) -> object:
        result = call(self, *operands)
        return result * 1.2 if self.device == "loom" else result

    example = Call("", "torch.mul(a, b)", (Operand((9, 8)), Operand((9, 8), seed=1)), way=way)
    assert judge(example) is None
    monkeypatch.setattr(ways.Attempt, "__call__", off)
    if way != "out":  # its second call is not the one above
        assert isinstance(judge(dataclasses.replace(example, operands=example.operands)), Finding)


SEEN = {
    "values": ("a + 0.001", "a"),
    "form": ("a.double()", "a"),
    "strides": ("a.t().contiguous().t()", "a"),
    "error": ("a.view(7, 7, 7)", "a"),
    "memory": ("a.add_(1) - 1", "a.add(1) - 1"),
}


def test_float64_is_not_float32() -> None:
    """cpu is its judge, and may be off by many units itself."""
    code = "torch.sum(a.float().double() if device == 'loom' else a, [0])"
    assert judge(Call("", code, (Operand((73239,), torch.float64),))) is not None


@pytest.mark.parametrize("kind", SEEN)
def test_each_kind_of_difference_is_seen(kind: str) -> None:
    there, here = SEEN[kind]
    code = f"{there} if device == 'loom' else {here}"
    finding = judge(Call("", f"({code}) * 1.0", (Operand((6, 8)),)))
    assert finding is not None
    assert finding.kind == kind
