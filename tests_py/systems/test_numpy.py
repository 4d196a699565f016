# SPDX-License-Identifier: BSD-3-Clause
"""NumPy: arrays to loom and back, scalars and indices as operands, polite refusals."""

import numpy as np
import pytest
import torch

# NumPy's, about torch: its __array__ has no argument of that name.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn.t accept a copy keyword:DeprecationWarning"
)

REFUSED = (
    r"can't convert loom:0 device type tensor to numpy\. "
    r"Use Tensor\.cpu\(\) to copy the tensor to host memory first\."
)


@pytest.fixture
def x():
    return torch.arange(6.0).view(2, 3).to("loom")


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.numpy(),
        lambda x: x.__array__(),
        np.asarray,
        lambda x: np.array(x, dtype=np.float32),
        lambda x: np.array([x[0], x[1]]),
        lambda x: np.add(x, 1),
        lambda x: x * np.ones(3, dtype=np.float32),
        lambda x: np.sqrt(x),
    ],
    ids=["numpy", "__array__", "asarray", "array", "list", "ufunc", "operand", "function"],
)
def test_device_memory_is_refused_in_cudas_words(x, use):
    with pytest.raises(TypeError, match=REFUSED):
        use(x)


def test_no_array_interface_is_offered(x):
    for name in ("__array_interface__", "__array_struct__", "__cuda_array_interface__"):
        assert not hasattr(x, name)


DTYPES = [
    np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64,
    np.float16, np.float32, np.float64, np.complex64, np.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)
def test_arrays_go_there_and_back(dtype):
    array = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    for there in (
        torch.from_numpy(array).to("loom"),
        torch.tensor(array, device="loom"),
        torch.as_tensor(array, device="loom"),
        torch.asarray(array, device="loom"),
    ):
        assert there.is_loom
        back = there.cpu().numpy()
        assert back.dtype == dtype
        assert np.array_equal(back, array)
        assert np.array_equal(there.numpy(force=True), array)
        assert there.tolist() == array.tolist()


@pytest.mark.parametrize(
    "view",
    [lambda a: a.T, lambda a: a[:, ::2], lambda a: a[1:2], lambda a: a[1, 2], lambda a: a[:0]],
    ids=["transposed", "stepped", "row", "scalar", "empty"],
)
def test_layouts_go_there_and_back(view):
    array = np.arange(12.0).reshape(3, 4)
    there = torch.as_tensor(view(array), device="loom")
    assert np.array_equal(there.cpu().numpy(), view(array))
    back = view(torch.from_numpy(array).to("loom")).numpy(force=True)
    assert np.array_equal(back, view(array))


def test_the_array_is_the_programs_own_after_the_move():
    array = np.arange(1 << 16, dtype=np.float32)
    there = torch.from_numpy(array).to("loom")
    array[:] = -1
    assert torch.equal(there.cpu(), torch.arange(float(1 << 16)))


def test_force_gives_up_gradients_and_conjugation():
    x = torch.ones(3, device="loom", requires_grad=True)
    with pytest.raises((RuntimeError, TypeError), match=r"requires grad|to numpy"):
        x.numpy()
    assert x.numpy(force=True).tolist() == [1, 1, 1]
    z = torch.tensor([1 + 2j], device="loom").conj()
    assert z.numpy(force=True).tolist() == [1 - 2j]


@pytest.mark.parametrize("device", ["cpu", "loom"])
def test_bfloat16_is_unknown_to_numpy(device):
    x = torch.arange(3.0, device=device).bfloat16()
    with pytest.raises(TypeError, match="unsupported ScalarType BFloat16"):
        x.numpy(force=True)
    assert x.float().numpy(force=True).tolist() == [0, 1, 2]
    assert x.tolist() == [0, 1, 2]


SCALARS = [np.float32(2), np.float64(2), np.int64(2), np.uint8(2), np.float16(2), np.bool_(True)]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda scalar: type(scalar).__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bfloat16], ids=str)
def test_scalars_are_operands(scalar, dtype):
    def results(device):
        x = torch.tensor([1, 2, 5], dtype=dtype, device=device)
        return [x + scalar, x * scalar, scalar * x, x > scalar, torch.full((2,), scalar.item())]

    for ours, theirs in zip(results("loom"), results("cpu"), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours.cpu(), theirs)


def test_values_become_scalars(x):
    assert np.float64(x.sum()) == 15.0
    assert isinstance(x.sum().item(), float)
    assert np.int64(x.long().sum().item()) == 15
    assert np.arange(10)[torch.tensor(3, device="loom")] == 3


@pytest.mark.parametrize(
    "index",
    [np.array([1, 0]), np.array([True, False]), np.int64(1), (slice(None), np.array([0, 2]))],
    ids=["numbers", "mask", "scalar", "columns"],
)
def test_arrays_are_indices(x, index):
    assert x[index].is_loom
    assert torch.equal(x[index].cpu(), x.cpu()[index])
    changed, expected = x.clone(), x.cpu()
    changed[index] = 9
    expected[index] = 9
    assert torch.equal(changed.cpu(), expected)
