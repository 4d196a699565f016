# SPDX-License-Identifier: BSD-3-Clause
"""Operators with devices among their arguments, in packages and with the C++ wrapper."""

import pytest
import torch
from compile_support import LOOM, package
from torch import nn
from torch._inductor import aoti_compile_and_package, aoti_load_package
from torch._inductor.utils import run_and_get_code
from torch._subclasses import FakeTensorMode

from torch_loom.inductor import numbered_devices

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings(
        # run_decompositions copies tree specifications of an old class.
        r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning",
    ),
]

CPU = torch.device("cpu")


@torch.library.custom_op("loom_aot::ones_on", mutates_args=())
def ones_on(
    x: torch.Tensor, device: torch.device, n: int, *, by: int = 1, other: torch.device = CPU
) -> torch.Tensor:
    ones = torch.ones(x.shape, device=device) * n * by
    return ones + torch.zeros(x.shape, device=other).to(device)


@ones_on.register_fake
def _(x, device, n, *, by=1, other=CPU):
    return torch.empty(x.shape, device=device)


class WithoutIndex(nn.Module):
    def forward(self, x):
        return (
            ones_on(x, torch.device("loom"), 2) * 3,
            ones_on(x, x.device, 4, other=x.device) + x,
        )


def results_without_index(current, path):
    torch._dynamo.reset()  # what was compiled keeps its device
    x = torch.ones(3, device="loom:1")
    with torch.loom.device(current):
        program = torch.export.export(WithoutIndex(), (x,))
        made = aoti_compile_and_package(program, package_path=str(path / f"{current}.pt2"))
        with torch._inductor.config.patch(cpp_wrapper=True):
            compiled = torch.compile(WithoutIndex())(x)
    packaged = aoti_load_package(made, device_index=1)(x)
    for results in (compiled, packaged):
        assert [each.tolist() for each in results] == [[6] * 3, [5] * 3]
    return [[each.device.index for each in results] for results in (compiled, packaged)]


@pytest.mark.parametrize("current", [0, 1])
def test_devices_without_an_index_are_the_current_one_of_compilation(current, tmp_path):
    for each in (current, 1 - current):
        assert results_without_index(each, tmp_path) == [[each, 1]] * 2


def test_fake_tensors_know_the_current_device():
    with FakeTensorMode():
        for current in (0, 1, 0):
            with torch.loom.device(current):
                made = torch.ones(3, device="loom")
                assert made.device.index == current
                assert torch.ones(3).to("loom", torch.float64).device.index == current
                assert made.new_empty(2, device="loom").device.index == current


@pytest.mark.parametrize("cpp_wrapper", [True, False])
@pytest.mark.parametrize("current", [0, 1])
def test_a_device_without_an_index_between_tensors_of_the_host(current, cpp_wrapper):
    """Kernels and operators run on the device that was current when it was compiled."""

    class Between(nn.Module):
        def forward(self, x):
            return (ones_on(x, torch.device("loom"), 2) * 3).cpu()

    torch._dynamo.reset()
    x = torch.ones(3)
    compiled = torch.compile(Between())
    with torch._inductor.config.patch(cpp_wrapper=cpp_wrapper):
        with torch.loom.device(current):
            _, [code] = run_and_get_code(compiled, x)
        named = f"at::kPrivateUse1, {current})" if cpp_wrapper else f"type='loom', index={current}"
        assert named in code
        assert "type='loom')" not in code
        for device in (current, 1 - current):
            with torch.loom.device(device):
                for _ in range(20):
                    assert compiled(x).tolist() == [6] * 3


def test_folded_constants_call_no_operator_that_packages_look_up(tmp_path):
    weight = torch.ones(100, device=LOOM)
    options = {"aot_inductor.use_runtime_constant_folding": True}
    with pytest.raises(Exception, match=r"ones_on\.default cannot be called when constants are"):
        package(
            lambda x: x + ones_on(weight, weight.device, 2),
            torch.ones(100, device=LOOM),
            path=tmp_path,
            **options,
        )


def test_methods_with_a_device_are_refused_by_name():
    method = torch.ops.higher_order.call_torchbind
    with pytest.raises(NotImplementedError, match="call_torchbind has a device as an argument"):
        numbered_devices.numbered(method, None, [torch.device("cpu")], str)


def test_devices_of_others_are_refused_by_name():
    with pytest.raises(NotImplementedError, match=r"devices of loom, cpu or meta, got cuda:0"):
        numbered_devices.number_of(torch.device("cuda:0"))
