# SPDX-License-Identifier: BSD-3-Clause
"""What cpu refuses because of metadata loom refuses at the call, with the same type and message."""

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from ops_support import keep_busy
from refusal_cases import CASES
from refusal_differences import DIFFERENCES, reason_of
from refusal_families import FAMILIES, checked_factorisations
from refusal_sweep import Report, sweep
from refusals import Finding, judge, outcome

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]

WRITTEN_BY_HAND = {**CASES, **FAMILIES}


def unexpected(findings: list[tuple[str, Finding]]) -> list[str]:
    return [
        f"{name}, {finding.name}: {finding.how}: {finding.found}; cpu: {finding.expected}"
        for name, finding in findings
        if reason_of(name, finding) is None
    ]


@pytest.mark.parametrize("family", WRITTEN_BY_HAND)
def test_calls_are_refused_as_on_cpu(family: str) -> None:
    verdicts = [judge(call) for call in WRITTEN_BY_HAND[family]()]
    assert sum(verdict is not False for verdict in verdicts) > 10  # cpu does refuse such calls
    findings = [(family, verdict) for verdict in verdicts if isinstance(verdict, Finding)]
    assert unexpected(findings) == []


@pytest.fixture(scope="module")
def reports() -> list[Report]:
    return sweep(["error inputs", "deterministic"])


def test_error_inputs_of_op_db_are_refused_as_on_cpu(reports: list[Report]) -> None:
    assert sum(report.refused for report in reports) > 500
    findings = [(report.name, finding) for report in reports for finding in report.findings]
    assert unexpected(findings) == []


def test_no_operator_crashes(reports: list[Report]) -> None:
    assert [report for report in reports if report.crashed] == []


@pytest.mark.parametrize("call", checked_factorisations(), ids=lambda call: call.name)
def test_factorisations_that_are_to_check_raise_at_the_call(call) -> None:
    expected = outcome(call, "cpu")
    assert expected is not None
    healthy = dataclasses.replace(call, args=tuple(torch.eye(2) for _ in call.args))
    assert outcome(healthy, "loom") is None  # after which the operator and its flags are known
    assert outcome(call, "loom") == expected


# --- what is refused stays as it was -----------------------------------------------------------


def test_what_a_refused_call_was_to_write_keeps_its_values() -> None:
    x, index = torch.arange(3.0, device="loom"), torch.tensor([0], device="loom")
    with pytest.raises(RuntimeError):
        x.index_fill_(0, index, 1 + 2j)
    with pytest.raises(IndexError):
        x.index_put_((index, index), x[0])
    assert x.tolist() == [0, 1, 2]


def test_a_large_call_is_refused_for_its_shapes_and_dtypes() -> None:
    x = torch.zeros(600, 600, device="loom")
    index = torch.arange(600, device="loom")
    with pytest.raises(RuntimeError, match="shape mismatch: value tensor of shape"):
        x.index_put_((index,), torch.ones(7, device="loom"))
    with pytest.raises(IndexError, match="could not be broadcast together"):
        x[index, index[:7]]
    with pytest.raises(RuntimeError, match="expected self and source to have same dtypes"):
        x.masked_scatter_(x > 0, x.double())
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        torch.nn.functional.layer_norm(x.long(), (600,))


@pytest.mark.parametrize("dims", [2, 3])
def test_a_call_like_one_that_was_taken_is_refused(dims: int) -> None:
    x = torch.ones(2, 3, *(6,) * dims, device="loom")
    pool = getattr(torch.ops.aten, f"fractional_max_pool{dims}d")
    pool(x, [2] * dims, [3] * dims, torch.ones(2, 3, dims, device="loom"))
    with pytest.raises(RuntimeError, match="Expect _random_samples"):
        pool(x, [2] * dims, [3] * dims, torch.ones(2, 4, dims, device="loom"))


# Sums of hashes that are the numbers themselves were the same for 64 columns more and a row less.
def test_a_call_whose_numbers_are_near_those_of_one_that_was_taken_is_refused() -> None:
    numbers = torch.zeros(200, device="loom")
    for rows in range(1, 17):
        for columns in range(50, 80):
            torch.mode(numbers.as_strided((rows, columns), (1, 1)), 1)
    for rows in range(1, 17):
        with pytest.raises(IndexError, match="Expected reduction dim 1 to have non-zero size"):
            torch.mode(numbers.as_strided((rows, 0), (1, 1)), 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2], ids=str)
def test_numbers_that_a_narrow_type_has_not_fill_one_element_only(dtype: torch.dtype) -> None:
    for number in (1e39, -1e39, 2**60, 3.3):
        for shape in ((), (1,), (1, 1)):
            filled = torch.zeros(shape, dtype=dtype, device="loom").fill_(number)
            expected = torch.zeros(shape, dtype=dtype).fill_(number)
            assert filled.cpu().float().equal(expected.float())
    for shape, number in (((2,), 1e39), ((), 1j)):
        with pytest.raises(RuntimeError, match="value cannot be converted to type"):
            torch.zeros(shape, dtype=dtype, device="loom").fill_(number)


def test_first_calls_do_not_wait() -> None:
    x, index = torch.zeros(5, 7, device="loom"), torch.tensor([4], device="loom")
    keep_busy()
    x.index_put_((index,), torch.ones(7, device="loom"))
    torch.aminmax(x)
    torch.nn.functional.interpolate(x[None, None].double(), scale_factor=2, mode="bicubic")
    assert not torch.loom.current_stream().query()


# --- deterministic algorithms ------------------------------------------------------------------


@pytest.fixture
def deterministic() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def put(device: str) -> torch.Tensor:
    index = torch.tensor([1, 0], device=device)
    return torch.zeros(3, device=device).put_(index, torch.ones(2, device=device))


def unpool(dims: int, device: str) -> torch.Tensor:
    index = torch.zeros((1,) * (dims + 2), dtype=torch.int64, device=device)
    function = getattr(torch.nn.functional, f"max_unpool{dims}d")
    return function(index.float(), index, 2)


ALERTS = {
    "put_": put,
    "max_unpool2d": lambda device: unpool(2, device),
    "max_unpool3d": lambda device: unpool(3, device),
}


@pytest.mark.parametrize("name", ALERTS)
def test_alerts_are_errors_of_the_call(name: str, deterministic: None) -> None:
    ALERTS[name]("loom")  # the operator has been met before
    torch.use_deterministic_algorithms(True)
    for device in ("cpu", "loom"):
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            ALERTS[name](device)


@pytest.mark.parametrize("name", ALERTS)
def test_alerts_are_warnings_of_the_call(name: str, deterministic: None) -> None:
    ALERTS[name]("loom")
    torch.use_deterministic_algorithms(True, warn_only=True)
    results = []
    for device in ("cpu", "loom"):
        with pytest.warns(UserWarning, match="does not have a deterministic implement") as warned:
            results.append(ALERTS[name](device))
        assert len(warned) == 1
    assert torch.equal(results[1].cpu(), results[0])


def test_the_table_of_differences_lists_nothing_that_agrees(reports: list[Report]) -> None:
    found = [(report.name, finding) for report in reports for finding in report.findings]
    for family, make in WRITTEN_BY_HAND.items():
        verdicts = [judge(call) for call in make()]
        found += [(family, verdict) for verdict in verdicts if isinstance(verdict, Finding)]
    for operator, part in DIFFERENCES:
        assert any(name == operator and part in finding.name for name, finding in found)
