# SPDX-License-Identifier: BSD-3-Clause
"""Nests that become loom's own programs: which do, what they compute, what they share."""

import math
import os
import subprocess
import sys

import pytest
import torch
from compile_support import LOOM, assert_equal, compile_and_compare, source_of, to
from torch import nn
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F  # noqa: N812

from torch_loom import _C

_COPY = _C._CompiledProgram(
    "copy",
    0,
    [(n, torch.float32, 0, (64,), (1,)) for n in range(2)],
    [("load", 0), ("store", 1, 0)],
)

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        not _COPY.runs_as_machine_code(), reason="loom makes no machine code here: all is C++"
    ),
]


def parts_of(function, *inputs):
    """How many programs and kernels of C++ a function becomes, compiled; the results are right."""
    source = source_of(function, *inputs)
    return source.count(" = loom_program("), source.count("loom_kernel(async_compile")


def layer_norm(x):
    return F.layer_norm(x, x.shape[-1:], x[0], x[1])


def scaled_rows(x):
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    return y, y.amax(-1), (y > 0).float().sum(-1)


ONE_PROGRAM = {
    "arithmetic": lambda x: torch.relu(x * 2 + 1),
    "gelu": F.gelu,
    "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax of scaled rows": lambda x: torch.softmax(x * 0.125, -1),
    "softmax of divided rows": lambda x: torch.softmax(x / 3, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "layer_norm": layer_norm,
    "rms norm, other rows too": scaled_rows,
    "where": lambda x: torch.where(x > 0.5, x, x.abs().sqrt()),
    "row vector": lambda x: x + x[3],
    "whole numbers": lambda x: x.round(),
    "comparisons": lambda x: (x > 0) & (x < 1) | torch.isnan(x),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ONE_PROGRAM)
def test_one_program(name, dtype):
    assert parts_of(ONE_PROGRAM[name], torch.randn(64, 192).to(dtype)) == (1, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_other_floats(dtype):
    for function in (layer_norm, F.gelu, lambda x: torch.softmax(x, -1)):
        torch._dynamo.reset()
        assert parts_of(function, torch.randn(48, 64).to(dtype)) == (1, 0)


def test_integers_and_bool():
    def mix(i, j, b):
        return torch.where(b, i * 3 - j, i ^ j), (i > j) | b, -j, i.to(torch.float32) / 3

    i, j = (torch.randint(-9, 9, (40, 64), dtype=d) for d in (torch.int32, torch.int64))
    programs, kernels = parts_of(mix, i, j, torch.rand(40, 64) > 0.5)
    assert programs > 0
    assert kernels == 0


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_shifts(dtype):
    # By all the bits there are where a number is negative or too large.
    x = torch.randint(-(2**30), 2**30, (40, 64), dtype=dtype)
    by = torch.randint(-2, 70, (40, 64), dtype=dtype)
    parts = parts_of(lambda x, by: (x >> 2, (x << 3) ^ 1, x >> by, x << by), x, by)
    assert parts == (1, 0)


def test_casts_wrap_around():
    programs, kernels = parts_of(
        lambda x: (x.to(torch.uint8), x.to(torch.int8).float(), x.to(torch.bfloat16).float()),
        torch.randint(-500, 500, (64, 64), dtype=torch.int32),
    )
    assert programs > 0
    assert kernels == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x.t(),  # operands in several orders
        lambda x: x.flip(0) * 2,
        lambda x: x[x[0].long().clamp(0, 3)] * 2,
        lambda x: x.sum(0) * 2,
        lambda x: F.pad(x, (1, 1)) * 2,
        lambda x: x.argmax(-1),
        lambda x: x.view(-1, 4).amax(-1),  # short rows
    ],
)
def test_what_programs_do_not_do_is_compiled(function):
    _, kernels = parts_of(function, torch.rand(64, 64) + 1)
    assert kernels > 0


def test_symbols_are_compiled():
    x = torch.randn(6, 8)
    torch._dynamo.mark_dynamic(x, 0)

    def double(x):
        return torch.relu(x) * 2

    on_loom = x.to(LOOM)
    torch._dynamo.mark_dynamic(on_loom, 0)
    actual, (source,) = run_and_get_code(torch.compile(double), on_loom)
    assert_equal(actual, double(x))
    assert "loom_kernel(async_compile" in source


def test_a_nest_is_the_epilogue_of_a_product():
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU()).to(LOOM)
    x = torch.randn(512, 256, device=LOOM)
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            result = compiled(x)
        torch.loom.synchronize()
        with torch.profiler.profile() as profile:
            result = compiled(x)
            torch.loom.synchronize()
        assert_equal(result, model(x))
    on_device = torch.autograd.DeviceType.PrivateUse1
    (command,) = [e.name for e in profile.events() if e.device_type == on_device]
    assert "addmm" in command
    assert "loom_fused_" in command


def test_nests_on_separate_memory_are_one_command():
    inputs = [torch.randn(n, device=LOOM) for n in (5000, 7000, 9000)]

    def each(*tensors):
        return [torch.relu(x) * 2 for x in tensors]

    compiled = torch.compile(each, fullgraph=True)
    results = compiled(*inputs)
    torch.loom.synchronize()
    assert_equal(results, each(*(x.cpu() for x in inputs)))


def test_an_input_that_is_written_may_overlap_with_another():
    def shift(to, x):
        to.copy_(x * 2 + 1)

    programs, kernels = parts_of(shift, torch.randn(100), torch.randn(100))
    assert (programs, kernels) == (1, 0)
    compiled = torch.compile(shift, fullgraph=True)
    memory = torch.arange(101.0).to(LOOM)
    compiled(torch.empty(100, device=LOOM), memory[:-1].clone())
    compiled(memory[1:], memory[:-1])
    assert_equal(memory, torch.cat([torch.zeros(1), torch.arange(100.0) * 2 + 1]))


def test_numbers_of_the_host_are_those_of_the_call():
    def scale(x, factor):
        return x * factor

    compiled = torch.compile(scale, fullgraph=True)
    x, factor = torch.ones(1000, device=LOOM), torch.tensor(2.0, dtype=torch.float64)
    results = []
    for value in (2.0, 3.0, math.inf):
        factor.fill_(value)
        results.append(compiled(x, factor))
        factor.fill_(0)
    for result, value in zip(results, (2.0, 3.0, math.inf), strict=True):
        assert_equal(result, torch.full((1000,), value))


def test_a_program_says_what_it_does_not_know():
    operands = [(0, torch.float32, 0, (64,), (1,))]
    for steps in ([("load", 1)], [("load", 0), ("cube", 0)], [("add", 0, 0)]):
        with pytest.raises(ValueError, match="CompiledProgram: expected"):
            _C._CompiledProgram("wrong", 0, operands, steps)
    with pytest.raises(ValueError, match="expected a dtype of fused programs"):
        _C._CompiledProgram("wrong", 0, [(0, torch.complex64, 0, (), ())], [])


def test_what_is_not_a_number_is_a_number():
    parts = parts_of(
        lambda x: (x.masked_fill(x > 0, -math.inf), x * -0.0),
        torch.randn(64, 64),
    )
    assert parts == (1, 0)


@pytest.mark.parametrize(
    "function", [torch.relu, F.relu6, lambda x: x.clamp(min=0.0), lambda x: x.clamp(max=0.0)]
)
def test_bounds_keep_the_sign_of_a_zero(function):
    x = torch.tensor([-0.0, 0.0, -1.0, 1.0, math.nan] * 16)
    result = torch.compile(function, fullgraph=True)(x.to(LOOM)).cpu()
    assert_equal(result, function(x), equal_nan=True)
    assert torch.equal(result.signbit()[x == 0], function(x).signbit()[x == 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_inverse_hyperbolic_functions_of_large_numbers(dtype):
    x = torch.tensor([2.0, 1e5, 9e9, 2e10, 1e18, 2e19, 3e38, math.inf, math.nan] * 8).to(dtype)
    wide = torch.tensor([1e150, 1e160, 1e300] * 8, dtype=torch.float64)
    x = torch.cat([x, wide]) if dtype == torch.float64 else x
    for function in (lambda x: (torch.asinh(x), torch.asinh(-x)), torch.acosh):
        torch._dynamo.reset()
        actual = torch.compile(function, fullgraph=True)(x.to(LOOM))
        assert_equal(actual, function(x), equal_nan=True)


def test_half_of_twice_a_number_overflows_as_it_does():
    x, y = torch.full((64,), 0.5), torch.full((64,), 3e38)
    compile_and_compare(lambda x, y: (x * 0.5) * (y + y), x, y)


def test_results_that_are_read_by_another_nest_are_written():
    def several(x):
        y = torch.softmax(x * 2, -1)
        return y, y.sum(0), torch.relu(y) + 1

    compile_and_compare(several, torch.randn(64, 128))


def test_operands_are_concatenated_one_by_one():
    assert parts_of(
        lambda x, y: torch.cat([x, torch.relu(y)], 1), torch.randn(64, 64), torch.randn(64, 32)
    ) == (2, 0)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_convolution_and_norm_of_inference(layout):
    model = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()).eval()
    model[1].running_mean.uniform_(-1, 1)
    model[1].running_var.uniform_(0.5, 2)
    x = torch.randn(2, 16, 24, 24)
    expected = model(x)
    model = model.to(LOOM, memory_format=layout)
    with torch.no_grad():
        actual, (source,) = run_and_get_code(
            torch.compile(model, fullgraph=True), x.to(LOOM).to(memory_format=layout)
        )
    assert_equal(actual, expected, atol=1e-4, rtol=1e-4)
    assert "loom_kernel(async_compile" not in source


def test_norms_of_training_are_operators():
    model = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU())
    x = torch.randn(4, 8, 12, 12, requires_grad=True)
    model(x).square().sum().backward()
    other = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU()).to(LOOM)
    y = to(x, LOOM)
    compiled = torch.compile(other, fullgraph=True)

    def step():
        compiled(y).square().sum().backward()

    _, sources = run_and_get_code(step)
    assert_equal(y.grad, x.grad, atol=1e-4, rtol=1e-3)
    assert_equal([*other.state_dict().values()], [*model.state_dict().values()])
    assert [p.grad for p in other.parameters()]
    assert "_native_batch_norm_legit_functional" in sources[0]
    assert "native_batch_norm_backward.default(" in sources[1]
    assert not any("loom_kernel(async_compile" in source for source in sources)


@pytest.mark.parametrize("fused", [False, True])
def test_steps_of_an_optimizer(fused):
    shapes = ((300, 20), (7,), (64, 64))

    def train(device):
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(s).to(device)) for s in shapes]
        optimizer = torch.optim.AdamW(parameters, lr=0.1, fused=fused or None)
        step = torch.compile(optimizer.step) if device == LOOM else optimizer.step
        for _ in range(4):
            for parameter in parameters:
                parameter.grad = torch.sin(parameter.detach())
            step()
        return [parameter.detach() for parameter in parameters]

    assert_equal(train(LOOM), train(torch.device("cpu")), atol=1e-5, rtol=1e-5)


def test_caches_know_whether_there_is_machine_code(tmp_path):
    text = """if True:
        import torch
        from torch._inductor.utils import run_and_get_code
        compiled = torch.compile(lambda x: torch.relu(x) * 2)
        print(" = loom_program(" in run_and_get_code(compiled, torch.ones(64, device="loom"))[1][0])
    """
    results = []
    for machine_code in ("0", "1"):
        variables = {"LOOM_FUSION_JIT": machine_code, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", text]
        results.append(subprocess.check_output(command, env=os.environ | variables, text=True))
    assert results == ["False\n", "True\n"]
