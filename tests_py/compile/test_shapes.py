# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: shapes that change, and functions that fall into several graphs."""

import pytest
import torch
from compile_support import assert_equal, compile_and_compare
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F  # noqa: N812

from torch_loom import _C


def normalised(x, w):
    return F.gelu(F.layer_norm(x @ w, (w.shape[1],))).mean(0)


def test_dynamic_shapes_take_one_kernel_for_all_sizes():
    compiled = torch.compile(normalised, dynamic=True, fullgraph=True)
    w = torch.randn(16, 40)
    for rows in (3, 7, 1000, 4000):
        x = torch.randn(rows, 16)
        with torch._dynamo.config.patch(error_on_recompile=rows > 3):
            actual = compiled(x.to("loom"), w.to("loom"))
        assert_equal(actual, normalised(x, w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [2, 3000])
def test_dynamic_pointwise_of_two_loops_covers_every_element(rows):
    compiled = torch.compile(lambda x: x.t() * 2 + 1, dynamic=True, fullgraph=True)
    for columns in (5, 64, 333):
        x = torch.randn(rows, columns)
        assert_equal(compiled(x.to("loom")), x.t() * 2 + 1)


def test_dynamic_sum_of_everything():
    compiled = torch.compile(lambda x: (x * x).sum(), dynamic=True, fullgraph=True)
    for count in (10, 1000, 500000):
        x = torch.randn(count)
        assert_equal(compiled(x.to("loom")), (x * x).sum(), rtol=1e-4, atol=1e-4)


def test_a_size_that_changes_makes_a_dynamic_kernel():
    function = torch.compile(lambda x: (x + 1).relu().sum(-1))
    for rows in (4, 9, 17):
        x = torch.randn(rows, 33)
        assert_equal(function(x.to("loom")), (x + 1).relu().sum(-1))


def test_no_elements():
    compile_and_compare(lambda x: (x * 2, x.sum(0), x.sum()), torch.randn(0, 7))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_the_mean_of_no_elements_is_not_a_number():
    def function(x, y):
        return torch.var_mean(x), torch.std_mean(y, (0, 1))

    nothing = torch.randn(0), torch.randn(3, 0)
    compile_and_compare(function, *nothing, tolerances={"equal_nan": True})


def views_of_views(x):
    """Of memory that the graph computes, each of its own."""
    return [
        (x + 1).view(10, 10).diagonal(),
        (x + 2).view(10, 10)[2:, 1::2].diagonal(1),
        (x + 3).view(2, 5, 10).diagonal(0, -2, -1),
        (x + 4).view(10, 5, 2).diagonal().diagonal(),
        (x + 5).view(10, 10).t().unfold(0, 4, 2),
        (x + 6).view(10, 10)[:, 1:].unfold(1, 4, 3),
    ]


def gradient_of_diagonals(x):
    x = x.detach().requires_grad_()
    weights = torch.arange(1e4, device=x.device).view(100, 100).sin()
    return torch.autograd.grad((torch.diag(x).view(-1) * weights.view(-1)).sum(), x)


@pytest.mark.filterwarnings("ignore:.*_prims_common.check")  # in Inductor's diagonals
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [views_of_views, gradient_of_diagonals])
def test_results_that_are_views_have_the_strides_of_eager_code(function, dynamic):
    x = torch.randn(100)
    expected = function(x)
    actual = torch.compile(function, dynamic=dynamic)(x.to("loom"))
    assert_equal(actual, expected)
    assert [y.stride() for y in actual] == [y.stride() for y in expected]
    assert [y.storage_offset() for y in actual] == [y.storage_offset() for y in expected]


def test_a_kernel_without_arguments():
    def function(x):
        ones = torch.nn.functional.one_hot(x.argmax(0).flatten() % 1, 1)
        return (x * 7).to(torch.int32) != ones

    compile_and_compare(function, torch.randn(17, 0, 1))


def test_one_element_without_dimensions():
    compile_and_compare(lambda x: x.sin() * 2 + 1, torch.randn(()))
    compile_and_compare(lambda x: torch.var_mean(x, 0, correction=0), torch.randn(()))


def test_a_reduction_where_openmp_may_choose_the_number_of_threads():
    with torch._inductor.config.patch({"cpp.dynamic_threads": True}):
        compile_and_compare(lambda x: (x.square().sum(), x.amax()), torch.randn(1000, 777))


def branches(x):
    y = x.sin() + 1
    if y.sum() > 0:  # the host looks: the graph ends here
        return y * 2
    return y * 3


def test_graph_breaks():
    for sign in (1, -1):
        x = torch.full((100,), 1.5 * sign)
        assert_equal(torch.compile(branches)(x.to("loom") * 4), branches(x * 4))


def test_data_dependent_sizes_in_one_graph():
    def positive(x):
        return x[x > 0] * 2

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compile_and_compare(positive, torch.randn(1000))


def test_cond():
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,)) * 3

    for sign in (1, -1):
        x = torch.rand(50) * sign
        assert_equal(torch.compile(function)(x.to("loom")), function(x))


def test_while_loop():
    def function(x, count):
        return torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y.sin() * 2), (count, x))[
            1
        ]

    x, count = torch.rand(50), torch.tensor(0)
    actual = torch.compile(function)(x.to("loom"), count.to("loom"))
    assert_equal(actual, function(x, count))


def test_disabled_functions_stay_eager():
    @torch.compiler.disable
    def eager(x):
        assert not torch.compiler.is_compiling()
        return x + 1

    def function(x):
        return eager(x * 2) * 3

    x = torch.randn(10)
    assert_equal(torch.compile(function)(x.to("loom")), function(x))


def test_inputs_are_checked_in_one_call():
    a, b = torch.randn(8, 4, device="loom"), torch.randn(4, 6, device="loom")
    _, code = run_and_get_code(torch.compile(lambda a, b: torch.relu(a @ b)), a, b)
    assert code[0].count("check_inputs(") == 1
    assert "assert_size_stride(arg" not in code[0]


def test_an_input_of_another_layout_is_refused():
    check = _C._Layouts([((8, 4), (4, 1)), ((1, 4), (9, 1))])
    x, row = torch.empty(8, 4, device="loom"), torch.empty(1, 4, device="loom")
    check(x, row)  # the stride of a dimension of one element means nothing
    with pytest.raises(AssertionError, match="expected size 4==8"):
        check(x.t(), row)
    with pytest.raises(TypeError):
        check(x, 3)
    with pytest.raises(TypeError):
        check(x)
