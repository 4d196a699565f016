# SPDX-License-Identifier: BSD-3-Clause
"""complex and polar, eye, indices of triangles, and rrelu."""

import pytest
import torch
from compare import agrees, assert_same, gradients_agree, natively, same_error, to_loom
from ops_support import keep_busy

F = torch.nn.functional


def numbers(*shape, dtype=torch.float32, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(dtype)


@pytest.mark.parametrize("function", [torch.complex, torch.polar], ids=["complex", "polar"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_complex_numbers_of_two(function, dtype):
    a, b = numbers(40, 50, dtype=dtype), numbers(40, 50, dtype=dtype, seed=4)
    agrees(function, a, b)
    agrees(function, a.t(), b.t())
    agrees(function, a, b[:1])
    agrees(function, a[:, :1], b[0])
    agrees(function, a[0, 0], b[0, 0])
    agrees(function, a[:0], b[:0])
    agrees(
        lambda a, b: function(a, b, out=torch.empty(0, dtype=dtype.to_complex(), device=a.device)),
        a,
        b,
    )
    agrees(
        lambda a, b: function(
            a, b, out=torch.zeros(50, 40, dtype=dtype.to_complex(), device=a.device).t()
        ),
        a,
        b,
    )
    gradients_agree(lambda a, b: torch.view_as_real(function(a, b)), a, b)


def test_complex_numbers_refused():
    a = numbers(3)
    for function in (torch.complex, torch.polar):
        same_error(function, a, a.double())
        same_error(function, a.int(), a)
        same_error(function, a, a[:2])
        same_error(function, a.bfloat16(), a.bfloat16())
        same_error(lambda a, f=function: f(a, a, out=torch.empty(3, device=a.device)), a)
    same_error(torch.polar, a.half(), a.half())
    agrees(lambda a: torch.view_as_real(torch.complex(a, a)), a.half())


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str
)
@pytest.mark.parametrize("shape", [(3,), (3, 5), (5, 3), (0,), (0, 4), (1, 1)], ids=str)
def test_eye(shape, dtype):
    assert_same(
        natively(torch.eye, *shape, dtype=dtype, device="loom"), torch.eye(*shape, dtype=dtype)
    )


def test_eye_into_given_tensors():
    for out in (torch.ones(3, 4), torch.ones(4, 3).t(), torch.ones(0)):
        agrees(lambda out: torch.eye(3, 4, out=out), out)
    same_error(lambda x: torch.eye(-1, device=x.device), numbers(1))
    same_error(lambda x: torch.eye(2, -1, device=x.device), numbers(1))
    agrees(lambda x: torch.linalg.matrix_power(x, 0), numbers(3, 4, 4))


@pytest.mark.parametrize("function", [torch.tril_indices, torch.triu_indices], ids=["tril", "triu"])
@pytest.mark.parametrize("shape", [(3, 3), (4, 7), (7, 4), (0, 3), (3, 0), (1, 1)], ids=str)
def test_triangles(function, shape):
    for offset in (-9, -1, 0, 2, 9):
        for dtype in (torch.int64, torch.int32):
            on_loom = natively(function, *shape, offset, dtype=dtype, device="loom")
            assert_same(on_loom, function(*shape, offset, dtype=dtype))
    for bad in ((-1, 2), (2, -1)):
        same_error(lambda x, bad=bad: function(*bad, device=x.device), numbers(1))
    same_error(lambda x: function(2, 2, dtype=torch.bool, device=x.device), numbers(1))


def test_factories_do_not_wait():
    keep_busy()
    made = torch.eye(3, device="loom"), torch.tril_indices(3, 3, device="loom")
    assert not torch.loom.current_stream().query()
    assert made[0].sum().item() == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_rrelu(dtype):
    x = numbers(1000, dtype=dtype)
    agrees(lambda x: F.rrelu(x, 0.1, 0.3), x)
    ours = to_loom(x).requires_grad_()
    y = natively(F.rrelu, ours, 0.1, 0.3, training=True)
    y.backward(torch.ones_like(y))
    slopes = (y / ours).detach().cpu().double()
    below = (x < 0).cpu()
    assert torch.all(slopes[~below] == 1)
    error = 0.01 if dtype == torch.bfloat16 else 1e-6
    assert slopes[below].min() > 0.1 - error
    assert slopes[below].max() < 0.3 + error
    assert abs(slopes[below].mean() - 0.2) < 0.01
    torch.testing.assert_close(ours.grad.cpu().double(), slopes, rtol=1e-2, atol=0)
    again = to_loom(x)
    natively(F.rrelu_, again, training=True)
    assert torch.equal(again.cpu()[~below], x[~below])
    assert torch.all(again.cpu()[below] < 0)


def test_rrelu_obeys_the_seed():
    x = to_loom(numbers(1000))
    torch.manual_seed(4)
    first = F.rrelu(x, training=True)
    torch.manual_seed(4)
    assert torch.equal(first, F.rrelu(x, training=True))
    same_error(lambda x: torch.ops.aten.rrelu_with_noise(x, x[:2]), numbers(3))
