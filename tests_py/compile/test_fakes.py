# SPDX-License-Identifier: BSD-3-Clause
"""Fake tensors have the shapes, strides and dtypes that operators give, for all of op_db."""

from itertools import islice

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.fake_utils import CrossRefFakeMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

pytestmark = pytest.mark.thorough

SAMPLES = 3
DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}

WRONG = {
    "nn.functional.channel_shuffle": (
        "PyTorch's fake result is contiguous where the operator keeps channels_last"
    ),
    "to_sparse": "PyTorch has no fake tensors for it",
    "sparse.mm.reduce": "PyTorch has no fake tensors for its operands",
    "sparse.sampled_addmm": "PyTorch has no fake tensors for its operands",
}


def name_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def cases():
    for op in op_db:
        if op.name.startswith("jiterator"):  # compiles for CUDA
            continue
        known = WRONG.get(name_of(op))
        marks = [pytest.mark.xfail(reason=known, strict=True)] if known else []
        yield pytest.param(op, id=name_of(op), marks=marks)


def in_channels_last(sample):
    def convert(value):
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return value
        memory_format = FORMATS.get(value.dim(), torch.preserve_format)
        copy = value.detach().clone(memory_format=memory_format)
        return copy.requires_grad_(value.requires_grad)

    return sample.transform(convert)


def layouts(sample):
    yield sample
    if isinstance(sample.input, torch.Tensor) and sample.input.dim() in FORMATS:
        yield in_channels_last(sample)


def tensors_with_gradients(tree):
    leaves = tree_leaves(tree)
    return [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]


def call(op, sample):
    with CrossRefFakeMode(check_aliasing=False):
        results = tensors_with_gradients(op(sample.input, *sample.args, **sample.kwargs))
        inputs = tensors_with_gradients((sample.input, sample.args, sample.kwargs))
        if results and inputs:
            grads = [torch.ones_like(result) for result in results]
            torch.autograd.grad(results, inputs, grads, allow_unused=True)


@pytest.mark.filterwarnings("ignore")  # of operators
@pytest.mark.parametrize("op", list(cases()))
def test_what_is_promised_is_given(op):
    dtype = next((d for d in DTYPES if d in op.dtypes), None)
    if dtype is None:
        pytest.skip("takes none of the dtypes")
    requires_grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    for sample in islice(op.sample_inputs("loom", dtype, requires_grad=requires_grad), SAMPLES):
        for case in layouts(sample):
            call(op, case)


@pytest.mark.parametrize("parameters", [None, torch.bfloat16, torch.float32])
def test_what_a_layer_norm_saves_has_the_dtype_it_has_on_cpu(parameters):
    def function(x, *parameters):
        return torch.native_layer_norm(x, [8], *(parameters or (None, None)), 1e-5)

    def dtypes(function, device):
        both = [torch.ones(8, dtype=parameters, device=device)] * (2 if parameters else 0)
        x = torch.arange(24.0, device=device).view(3, 8).bfloat16()
        return [result.dtype for result in function(x, *both)]

    wanted = dtypes(function, "cpu")
    assert dtypes(function, "loom") == wanted
    assert dtypes(torch.compile(function, fullgraph=True), "loom") == wanted
    with FakeTensorMode():
        assert dtypes(function, "loom") == wanted
