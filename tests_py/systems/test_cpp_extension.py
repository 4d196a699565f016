# SPDX-License-Identifier: BSD-3-Clause
"""torch.utils.cpp_extension: inline and ahead of time, with kernels for the cpu and for loom."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

pytestmark = [
    pytest.mark.slow,  # compiles
    # torch's advice about its own default.
    pytest.mark.filterwarnings("ignore:TORCH_CUDA_ARCH_LIST is not set"),
    pytest.mark.filterwarnings("ignore:.*SwigPy.* has no __module__ attribute:DeprecationWarning"),
]

# No pybind11 and no torch/extension.h: operators are registered, as the tutorial advises.
OPERATORS = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <torch/custom_class.h>
#include <torch/library.h>
#include <atomic>
#include <vector>

namespace {

std::atomic<int64_t> loom_calls{0};

// Calls operators of ATen: any device, and gradients.
at::Tensor muladd(const at::Tensor& a, const at::Tensor& b, double c) {
  return at::add(at::mul(a, b), c);
}

at::Tensor twice_on_cpu(const at::Tensor& x) { return at::mul(x, 2); }

at::Tensor twice_on_loom(const at::Tensor& x) {
  ++loom_calls;
  TORCH_CHECK(x.is_privateuseone(), "expected a loom tensor, got one on ", x.device());
  return at::add(x, x);
}

// Reads and writes memory: a kernel for the cpu only.
at::Tensor square_on_cpu(const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kFloat, "square: expected float, got ", x.scalar_type());
  const at::Tensor values = x.contiguous();
  at::Tensor result = at::empty_like(values);
  const float* in = values.const_data_ptr<float>();
  float* out = result.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) out[i] = in[i] * in[i];
  return result;
}

// A class for TorchScript that holds tensors of any device.
struct TensorStack : torch::CustomClassHolder {
  explicit TensorStack(std::vector<at::Tensor> given) : items(std::move(given)) {}
  void push(const at::Tensor& item) { items.push_back(item); }
  at::Tensor pop() {
    TORCH_CHECK_INDEX(!items.empty(), "TensorStack: pop from an empty stack");
    at::Tensor item = items.back();
    items.pop_back();
    return item;
  }
  std::vector<at::Tensor> items;
};

}  // namespace

TORCH_LIBRARY(NAMESPACE, m) {
  m.class_<TensorStack>("TensorStack")
      .def(torch::init<std::vector<at::Tensor>>())
      .def("push", [](const c10::intrusive_ptr<TensorStack>& s, at::Tensor x) { s->push(x); })
      .def("pop", [](const c10::intrusive_ptr<TensorStack>& s) { return s->pop(); })
      .def_pickle(
          [](const c10::intrusive_ptr<TensorStack>& s) { return s->items; },
          [](std::vector<at::Tensor> items) {
            return c10::make_intrusive<TensorStack>(std::move(items));
          });
  m.def("muladd(Tensor a, Tensor b, float c) -> Tensor", &muladd);
  m.def("loom_calls() -> int", []() -> int64_t { return loom_calls; });
  m.def("twice(Tensor x) -> Tensor");
  m.def("square(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(NAMESPACE, CPU, m) {
  m.impl("twice", &twice_on_cpu);
  m.impl("square", &square_on_cpu);
}
TORCH_LIBRARY_IMPL(NAMESPACE, PrivateUse1, m) { m.impl("twice", &twice_on_loom); }
"""

MODULE = """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "ahead", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_ahead() { return PyModule_Create(&definition); }
"""

SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
setup(
    name="ahead",
    ext_modules=[CppExtension("ahead", ["ahead.cpp"], extra_compile_args=["-O0"])],
    cmdclass={"build_ext": BuildExtension},
)
"""


def environment():
    # ninja stands beside the interpreter of a virtual environment that may not be active.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "MAX_JOBS": "1"}


@pytest.fixture(scope="module")
def inline(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        cpp_extension.load_inline(
            name="inline_operators",
            cpp_sources=OPERATORS.replace("NAMESPACE", "inline_operators"),
            extra_cflags=["-O0"],
            build_directory=str(tmp_path_factory.mktemp("inline")),
            is_python_module=False,
            no_implicit_headers=True,
        )
    return torch.ops.inline_operators


def test_functions_call_operators_on_loom(inline):
    results = []
    for device in ("cpu", "loom"):
        a = torch.arange(6.0).view(2, 3).to(device).requires_grad_()
        b = torch.full((3,), 2.0, device=device, requires_grad=True)
        torch.loom.reset_fallbacks()
        out = inline.muladd(a, b, 0.5)
        out.sum().backward()
        assert out.device.type == device
        assert torch.loom.fallbacks() == {}
        results.append([out.detach().cpu(), a.grad.cpu(), b.grad.cpu()])
    assert all(torch.equal(theirs, ours) for theirs, ours in zip(*results, strict=True))


def test_each_device_has_its_kernel(inline):
    before = inline.loom_calls()
    assert inline.twice(torch.ones(3)).tolist() == [2, 2, 2]
    assert inline.loom_calls() == before
    there = inline.twice(torch.ones(3, device="loom:1"))
    assert there.device == torch.device("loom:1")
    assert there.tolist() == [2, 2, 2]
    assert inline.loom_calls() == before + 1


def test_a_kernel_for_the_cpu_serves_loom_through_the_fallback(inline):
    x = torch.arange(6.0, device="loom:1").view(2, 3).t()
    torch.loom.reset_fallbacks()
    y = inline.square(x + 1)
    assert y.device == x.device
    assert torch.equal(y.cpu(), (x.cpu() + 1) ** 2)
    assert torch.loom.fallbacks()["inline_operators::square"].count == 1
    with pytest.raises(RuntimeError, match="square: expected float"):
        inline.square(x.long())


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_class_of_an_extension_holds_loom_tensors_in_torchscript(inline, tmp_path):
    stack_of = torch.classes.inline_operators.TensorStack

    class Doubler(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.stack = stack_of([torch.ones(2, device="loom")])

        def forward(self, x):
            self.stack.push(torch.ops.inline_operators.twice(x))
            return self.stack.pop() + self.stack.pop()

    path = str(tmp_path / "doubler.pt")
    torch.jit.script(Doubler()).save(path)
    loaded = torch.jit.load(path)
    result = loaded(torch.arange(2.0, device="loom"))
    assert result.is_loom
    assert result.tolist() == [1, 3]
    with pytest.raises(RuntimeError, match="pop from an empty stack"):
        loaded(torch.ones(2, device="loom"))


def test_extensions_may_be_built_ahead_of_time(tmp_path):
    source = MODULE + OPERATORS.replace("NAMESPACE", "ahead")
    Path(tmp_path / "ahead.cpp").write_text(source)
    Path(tmp_path / "setup.py").write_text(SETUP)
    build = [sys.executable, "setup.py", "build_ext", "--inplace"]
    built = subprocess.run(build, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    program = """
import torch, ahead
x = torch.arange(3.0, device="loom")
print(torch.ops.ahead.twice(x).tolist(), torch.ops.ahead.square(x).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0.0, 2.0, 4.0] [0.0, 1.0, 4.0]\n"
