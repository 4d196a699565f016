# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: PT009, PT027  (the style of the classes that this is about)
"""PyTorch's device-generic test classes find loom by themselves: written once, for any device.

`instantiate_device_type_tests` makes a class for every device it knows; the renamed PrivateUse1
backend is one of them, through `torch.loom`.
"""

import pytest
import torch
from torch.testing._internal.common_device_type import (
    deviceCountAtLeast,
    dtypes,
    instantiate_device_type_tests,
    onlyNativeDeviceTypes,
    ops,
    skipCPUIf,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0"),  # some of op_db's samples
]

REDUCTIONS = [info for info in op_db if info.name in ("sum", "mean", "amax", "prod", "std", "var")]


class TestTensors(TestCase):
    """What holds for tensors on every device."""

    @dtypes(torch.float32, torch.bfloat16, torch.int64, torch.complex64)
    def test_factories_make_what_they_are_asked_for(self, device, dtype):
        for make in (torch.zeros, torch.ones, torch.empty):
            tensor = make(2, 3, device=device, dtype=dtype)
            self.assertEqual(tensor.device, torch.device(device))
            self.assertEqual(tensor.dtype, dtype)

    @dtypes(torch.float32, torch.float64)
    def test_sort_is_stable_and_sorted(self, device, dtype):
        x = torch.randint(5, (100,), device=device).to(dtype)
        values, indices = x.sort(stable=True)
        self.assertEqual(values, x[indices])
        self.assertTrue((values.diff() >= 0).all())
        same = values.diff() == 0
        self.assertTrue((indices.diff()[same] > 0).all())

    @deviceCountAtLeast(2)
    @skipCPUIf(True, "there is one cpu")
    def test_copies_between_devices(self, devices):
        x = torch.arange(6.0, device=devices[0]).reshape(2, 3)
        y = x.to(devices[1])
        self.assertEqual(y.device, torch.device(devices[1]))
        self.assertEqual(y.cpu(), x.cpu())

    def test_gradients(self, device):
        x = torch.randn(3, 4, device=device, dtype=torch.float64, requires_grad=True)
        self.assertTrue(torch.autograd.gradcheck(lambda t: (t.softmax(1) @ t.T).tanh(), (x,)))

    def test_errors_name_the_argument(self, device):
        with self.assertRaisesRegex(RuntimeError, "mat1 and mat2 shapes cannot be multiplied"):
            torch.mm(torch.ones(2, 3, device=device), torch.ones(2, 3, device=device))


class TestReductions(TestCase):
    """The same for operators from op_db."""

    @onlyNativeDeviceTypes
    def test_runs_on_native_devices(self, device):
        self.assertEqual(torch.ones(3, device=device).sum(), 3)

    @ops(REDUCTIONS, allowed_dtypes=(torch.float32,))
    def test_agrees_with_double(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            wide = sample.transform(
                lambda t: t.double() if isinstance(t, torch.Tensor) and t.dtype == dtype else t
            )
            if wide.kwargs.get("dtype") is not None:
                continue
            actual = op(sample.input, *sample.args, **sample.kwargs)
            expected = op(wide.input, *wide.args, **wide.kwargs)
            self.assertEqual(actual, expected, exact_dtype=False, rtol=1e-4, atol=1e-4)


instantiate_device_type_tests(TestTensors, globals(), only_for=("cpu", "loom"))
instantiate_device_type_tests(TestReductions, globals(), only_for=("cpu", "loom"))


def test_classes_for_loom_were_made() -> None:
    # torch names the first class that it makes for a renamed backend by the backend's old name.
    made = {name for name in globals() if name.endswith(("LOOM", "PRIVATEUSE1"))}
    assert len(made) == 2
