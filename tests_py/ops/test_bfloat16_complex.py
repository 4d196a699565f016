# SPDX-License-Identifier: BSD-3-Clause
"""torch.bcomplex32, two bfloat16: what torch's kernels do not know is refused as on cpu."""

import pytest
import torch

from torch_loom._torch_features import BCOMPLEX32

pytestmark = [
    pytest.mark.skipif(not BCOMPLEX32.is_there(), reason=BCOMPLEX32.place),
    pytest.mark.filterwarnings("ignore:BComplex32 support is experimental"),
]


def halves(device):
    return torch.tensor([1.5, -2.0, 0.25], dtype=torch.bfloat16, device=device)


def numbers(device):
    return torch.tensor([1.5 + 2j, -2.0j, 0.25], device=device).to(torch.bcomplex32)


CALLS = {
    "a number": lambda d: halves(d) * 1j,
    "complex": lambda d: torch.complex(halves(d), halves(d)),
    "fft": lambda d: torch.fft.fft(halves(d)),
    "polar": lambda d: torch.polar(halves(d), halves(d)),
    "view_as_complex": lambda d: torch.view_as_complex(halves(d)[:2]),
    "fill": lambda d: torch.ones(3, dtype=torch.bcomplex32, device=d),
    "add": lambda d: numbers(d) + numbers(d),
    "mul": lambda d: numbers(d) * 2,
    "mm": lambda d: numbers(d)[None] @ numbers(d)[:, None],
    "sum": lambda d: numbers(d).sum(),
    "abs": lambda d: numbers(d).abs(),
    "sqrt": lambda d: numbers(d).sqrt(),
    "exp": lambda d: numbers(d).exp(),
    "where": lambda d: torch.where(numbers(d).real > 0, numbers(d), numbers(d)),
    "cat": lambda d: torch.cat([numbers(d), numbers(d)]),
    "index": lambda d: numbers(d)[torch.tensor([2, 0], device=d)],
    "copy": lambda d: numbers(d).clone(),
    "conj": lambda d: numbers(d).conj().resolve_conj(),
    "cast": lambda d: numbers(d).to(torch.complex64),
    "real": lambda d: numbers(d).real,
    "equal": lambda d: numbers(d) == numbers(d),
    "softmax": lambda d: numbers(d).softmax(0),
}


def outcome(call, device):
    try:
        result = call(device)
        torch.loom.synchronize()
    except Exception as error:
        return type(error), None
    return type(result), result.cpu()


@pytest.mark.parametrize("name", CALLS)
def test_results_and_refusals_are_those_of_cpu(name):
    expected, value = outcome(CALLS[name], "cpu")
    kind, ours = outcome(CALLS[name], "loom")
    assert kind is expected
    if value is not None:
        assert ours.dtype == value.dtype
        assert torch.equal(torch.view_as_real(ours) if ours.is_complex() else ours,
                           torch.view_as_real(value) if value.is_complex() else value)  # fmt: skip
