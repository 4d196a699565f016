# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile on loom where there is no C++ compiler."""

import copy

import pytest
import torch
from compile_support import assert_equal, compile_and_compare, generated_kernels, to
from torch.nn import functional

from torch_loom.inductor import without_compiler

NO_COMPILER = {"cpp.cxx": (None, "/no/such/compiler")}

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore:torch.compile on loom found no C.."),
]


@pytest.fixture(autouse=True)
def no_compiler():
    torch._dynamo.reset()
    with torch._inductor.config.patch(NO_COMPILER):
        yield


def compare(function, *inputs, **options):
    compiled = compile_and_compare(function, *inputs, kernels=False, **options)
    assert generated_kernels() == 0
    return compiled


def test_functions():
    compare(
        lambda x, w: (functional.layer_norm(torch.tanh(x) @ w, (7,)), x.t().sum(1), x[:, 1::2]),
        torch.randn(30, 20),
        torch.randn(20, 7),
    )


def test_inputs_and_views_that_are_written():
    def function(x, number):
        view = x[1:].t()
        view.mul_(2)
        x.add_(number)
        return view, view + 1

    compare(function, torch.randn(4, 5), torch.tensor(2.0))


def test_a_result_that_is_a_view_of_an_input():
    compiled = compare(lambda x: x.t()[1:], torch.randn(4, 5))
    x = torch.randn(4, 5, device="loom")
    assert compiled(x).data_ptr() == x.t()[1:].data_ptr()


def test_branches_and_loops():
    def function(x):
        x = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
        return torch.while_loop(lambda x: x.sum() < 100, lambda x: (x.abs() * 2,), (x,))

    compare(function, torch.randn(4, 5))


def test_sizes_that_change():
    compiled = compare(lambda x: torch.softmax(x, 0).cumsum(0), torch.randn(5, 3), dynamic=True)
    for rows in (1, 0, 12):
        x = torch.randn(rows, 3)
        assert_equal(compiled(x.to("loom")), torch.softmax(x, 0).cumsum(0))


def test_random_numbers_are_those_of_eager_code():
    def function(x):
        return functional.dropout(x, 0.5) + torch.rand_like(x)

    x = torch.randn(100, device="loom")
    torch.manual_seed(3)
    expected = function(x)
    torch.manual_seed(3)
    assert_equal(torch.compile(function, fullgraph=True)(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_training(mode):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, bias=False),
        torch.nn.BatchNorm2d(4),
        torch.nn.GELU(),
        torch.nn.Flatten(),
    )
    on_loom = copy.deepcopy(model).to("loom")
    compiled = torch.compile(on_loom, mode=mode)
    sides = [
        (model, torch.optim.Adam(model.parameters())),
        (compiled, torch.optim.Adam(on_loom.parameters())),
    ]
    for _ in range(5):
        x = torch.randn(2, 3, 6, 6)
        losses = []
        for side, optimizer in sides:
            loss = side(x.to(next(side.parameters()).device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().cpu())
        assert_equal(losses[1], losses[0])
    assert_equal(to(list(on_loom.parameters()), "cpu"), list(model.parameters()))


def test_an_operator_views_memory_from_its_beginning():
    def function(x):
        return x.as_strided((3, 4), (2, 1), 125) * 2

    compiled = torch.compile(function, fullgraph=True, mode="reduce-overhead")
    kept = []  # so that inputs move
    for _ in range(6):
        memory = torch.randn(400)
        kept.append(memory.to("loom"))
        assert_equal(compiled(kept[-1][123:323]), function(memory[123:323]))


def test_a_user_is_told_once():
    without_compiler._warn.cache_clear()
    with pytest.warns(UserWarning, match="looked for /no/such/compiler.*install g"):
        torch.compile(lambda x: x + 1)(torch.ones(2, device="loom"))
    torch.compile(lambda x: x + 2)(torch.ones(2, device="loom"))


def test_graphs_of_the_cpu_fail_as_without_loom():
    with pytest.raises(torch._inductor.exc.InductorError, match=r"No working C\+\+ compiler found"):
        torch.compile(lambda x: x + 1)(torch.ones(2))


def test_no_compiler_on_the_path(check, tmp_path):
    done = check(
        """
        import torch, torch_loom
        print(torch.compile(lambda x: x * 3 - 1)(torch.ones(2, device="loom")).tolist())
        """,
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
        CXX=None,
        PATH="/nowhere",
    )
    assert done.out.strip() == "[2.0, 2.0]"
