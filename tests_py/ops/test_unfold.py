# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of windows, which are cut along another dimension or along their own."""

from collections.abc import Iterator

import pytest
import torch
from compare import agrees

# (sizes, dim, size, step): whole windows, parts of them, gaps between them, a rest at the end.
CASES = [
    ((20, 20, 20, 20), 0, 4, 1),
    ((40, 30, 20), 1, 5, 2),
    ((40, 30, 20), -1, 3, 7),
    ((1, 100003), 1, 400, 100),
    ((100003,), 0, 16, 4),
    ((100003,), 0, 3, 10),
    ((50000, 3), 0, 50, 49),
    ((200, 200), 1, 200, 1),
    ((7,), 0, 2, 1),
]


@pytest.fixture(autouse=True)
def all_cores() -> Iterator[None]:
    yield
    torch.loom.set_num_threads(torch.loom.get_device_properties(0).core_count)


def windows_of(case, dtype: torch.dtype) -> torch.Tensor:
    sizes, dim, size, step = case
    shape = list(torch.empty(sizes).unfold(dim, size, step).shape)
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_gradient_of_windows(case, dtype: torch.dtype) -> None:
    sizes, dim, size, step = case
    windows = windows_of(case, dtype)

    def gradient(grad: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.unfold_backward(grad, sizes, dim, size, step)

    agrees(gradient, windows)
    agrees(gradient, windows.mT.contiguous().mT if windows.dim() > 1 else windows)
    many = gradient(windows.to("loom")).cpu()
    torch.loom.set_num_threads(1)
    assert torch.equal(gradient(windows.to("loom")).cpu(), many)


def test_windows_of_the_wrong_shape_are_refused_as_on_cpu() -> None:
    for given in ((torch.ones(3, 4), (9,), 3, 2, 2), (torch.ones(3, 4), (9,), 0, 4, 0)):
        outcomes = []
        for device in ("cpu", "loom"):
            try:
                torch.ops.aten.unfold_backward(given[0].to(device), *given[1:]).cpu()
                outcomes.append(None)
            except (RuntimeError, IndexError, ValueError) as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("batch", [1, 30])
def test_istft(batch: int) -> None:
    spectrum = torch.randn(
        batch, 201, 90, dtype=torch.complex64, generator=torch.Generator().manual_seed(9)
    )
    spectrum[:, 0].imag.zero_()
    spectrum[:, -1].imag.zero_()
    agrees(lambda s, w: torch.istft(s, 400, window=w), spectrum, torch.hann_window(400))
