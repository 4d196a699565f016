# SPDX-License-Identifier: BSD-3-Clause
"""Fourier transforms, whose shapes loom infers itself: cut, in steps, and later than the call."""

import pytest
import torch
from compare import agrees, gradients_agree, natively, same_error
from ops_support import complexes, keep_busy, numbers

aten = torch.ops.aten

LAYOUTS = [
    lambda x: x,
    lambda x: x.transpose(0, 2),
    lambda x: x.permute(1, 2, 0, 3),
    lambda x: x[:, ::2],
    lambda x: x[:1].expand(3, -1, -1, -1),
]
DIMS = [(0,), (1,), (-1,), (0, 1), (1, 0), (2, 3), (3, 1), (0, 2, 3), (3, 2, 1, 0)]


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
@pytest.mark.parametrize("dims", DIMS, ids=str)
def test_transforms(layout, dims):
    for dtype, norm in ((torch.float32, "forward"), (torch.float64, "ortho")):
        x = LAYOUTS[layout](numbers(3, 4, 5, 6, dtype=dtype))
        z = LAYOUTS[layout](complexes(3, 4, 5, 6, dtype=dtype.to_complex()))
        agrees(lambda z: torch.fft.fftn(z, dim=dims, norm=norm), z)  # noqa: B023
        agrees(lambda z: torch.fft.ifftn(z, dim=dims, norm=norm), z)  # noqa: B023
        agrees(lambda x: torch.fft.rfftn(x, dim=dims), x)
        agrees(lambda z: torch.fft.irfftn(z, dim=dims), z)
        agrees(lambda z: torch.fft.irfft(z, n=7, dim=dims[0]), z)
        agrees(lambda x: torch.fft.fft(x, dim=dims[0]), x)
        agrees(lambda x: aten._fft_r2c(x, [d % 4 for d in dims], 0, False), x)
        agrees(lambda z: torch.fft.hfft(z, dim=dims[0]), z)


PLANES = [
    lambda x: x,
    lambda x: x.t(),
    lambda x: x[:, ::2],
    lambda x: x.view(1, 700, 200),
    lambda x: x.view(7, 100, 200),
    lambda x: x.view(20, 7, 1000),
]


@pytest.mark.parametrize("plane", range(len(PLANES)))
@pytest.mark.parametrize("norm", ["forward", "ortho"])
def test_transforms_of_planes_in_steps(plane, norm):
    x, z = PLANES[plane](numbers(700, 200)), PLANES[plane](complexes(700, 200))
    for dims in (None, (-1, -2), (0, -1)):
        for function in (torch.fft.fftn, torch.fft.ifftn, torch.fft.irfftn, torch.fft.hfftn):
            agrees(lambda z, f=function, d=dims: f(z, dim=d, norm=norm), z)
        for function in (torch.fft.fftn, torch.fft.rfftn, torch.fft.ihfftn):
            agrees(lambda x, f=function, d=dims: f(x, dim=d, norm=norm), x)
    agrees(lambda z: torch.fft.fftn(z.conj()), z)


def test_transforms_of_conjugates_and_given_sizes():
    z = complexes(4, 9)
    agrees(lambda z: torch.fft.fft(z.conj()), z)
    agrees(lambda z: torch.fft.fft(z, n=5, dim=0), z)
    agrees(lambda z: torch.fft.fft2(z, s=(3, 12)), z)
    agrees(
        lambda x: torch.stft(x, 16, 4, return_complex=True, window=torch.ones_like(x[0, :16])),
        numbers(2, 200),
    )
    gradients_agree(lambda x: torch.fft.rfft(x).abs(), numbers(3, 16))
    gradients_agree(lambda x: torch.fft.fft2(x).abs(), numbers(300, 300).double())
    gradients_agree(lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2), numbers(3, 8, 9))


def test_transforms_refuse_what_cpu_refuses():
    same_error(torch.fft.fft, torch.ones(3, 0))
    same_error(lambda x: torch.fft.fft(x, dim=2), torch.ones(3, 4))
    same_error(torch.fft.rfft, torch.ones(3, dtype=torch.complex64))
    same_error(torch.fft.fft, torch.ones(4).bfloat16())
    same_error(lambda x: aten._fft_r2c(x, [0], 0, True), torch.ones(3, dtype=torch.int64))


def test_inferred_operators_do_not_wait():
    x = torch.ones(4, 64, device="loom")
    keep_busy()
    result = natively(torch.fft.rfft, x)
    assert not torch.loom.current_stream().query()
    assert result[:, 0].tolist() == [64] * 4
