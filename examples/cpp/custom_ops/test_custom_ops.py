# SPDX-License-Identifier: BSD-3-Clause
"""The operators as Python sees them: all dispatch keys of one, from autograd to the tracer.

CUSTOM_OPS_LIBRARY is the path of libcustom_ops.so.
"""

import os
import warnings

import pytest
import torch
from torch.func import grad, jacrev, vmap

import torch_loom  # noqa: F401  autoload steps aside where torch sees a GPU

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

torch.ops.load_library(os.environ["CUSTOM_OPS_LIBRARY"])
OPS = torch.ops.custom_ops


def random(*sizes, dtype=torch.float32, device="loom", requires_grad=False):
    return torch.rand(*sizes, dtype=dtype).to(device).requires_grad_(requires_grad)


SAMPLES = [
    pytest.param(OPS.myadd, (3, 4), (3, 4), id="sum"),
    pytest.param(OPS.myadd, (3, 1), (2, 1, 4), id="broadcast sum"),
    pytest.param(OPS.mymatmul, (3, 4), (4, 2), id="product"),
    pytest.param(OPS.mymatmul, (5, 3, 4), (5, 4, 2), id="batch of products"),
]


def reference(op, a, b):
    return a + b if op is OPS.myadd else a @ b


@pytest.mark.parametrize(
    ("op", "left", "right"),
    [
        pytest.param(OPS.myadd, (300, 200), (200,), id="sum"),
        pytest.param(OPS.myadd, (300, 1), (4, 1, 200), id="broadcast sum"),
        pytest.param(OPS.mymatmul, (300, 200), (200, 100), id="product"),
        pytest.param(OPS.mymatmul, (5, 300, 20), (5, 20, 70), id="batch of products"),
    ],
)
def test_blocks_make_up_the_result(op, left, right):
    a, b = random(*left), random(*right)
    torch.testing.assert_close(op(a, b).cpu(), reference(op, a.cpu(), b.cpu()))
    torch.testing.assert_close(op(a.cpu(), b.cpu()), reference(op, a.cpu(), b.cpu()))


def test_products_of_nothing_are_zero():
    assert torch.equal(OPS.mymatmul(random(3, 0), random(0, 4)).cpu(), torch.zeros(3, 4))
    assert OPS.mymatmul(random(0, 2), random(2, 4)).shape == (0, 4)


@pytest.mark.parametrize("device", ["loom", "cpu"])
def test_shapes_and_dtypes_are_checked_at_the_call(device):
    x = random(2, 3, device=device)
    with pytest.raises(RuntimeError, match="size of tensor"):
        OPS.myadd(x, random(4, device=device))
    with pytest.raises(RuntimeError, match="do not fit"):
        OPS.mymatmul(x, x)
    with pytest.raises(RuntimeError, match="expected two matrices or two batches"):
        OPS.mymatmul(x, x[0])
    with pytest.raises(RuntimeError, match="expected operands of one dtype"):
        OPS.mymatmul(x, x.t().double())
    with pytest.raises(RuntimeError, match="expected a floating or complex dtype"):
        OPS.mymatmul(x.long(), x.t().long())
    with pytest.raises(RuntimeError, match="batches of 1 and 2 matrices"):
        OPS.mymatmul(x.unsqueeze(0), random(2, 3, 1, device=device))


@pytest.mark.parametrize("device", ["loom", "cpu"])
@pytest.mark.parametrize(("op", "left", "right"), SAMPLES)
def test_it_is_what_pytorch_expects_of_an_operator(op, left, right, device):
    a = random(*left, device=device, requires_grad=True)
    b = random(*right, device=device, requires_grad=True)
    torch.library.opcheck(op.default, (a, b))


def test_opcheck_finds_autograd_in_the_wrong_place():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g

    with torch.library._scoped_library("loom_test", "FRAGMENT") as library:
        library.define("square(Tensor x) -> Tensor")
        library.impl("square", Square.apply, "PrivateUse1")
        a = random(3, requires_grad=True)
        with pytest.raises(torch.testing._internal.optests.OpCheckError, match="autograd key"):
            torch.library.opcheck(
                torch.ops.loom_test.square.default, (a,), test_utils="test_autograd_registration"
            )


@pytest.mark.parametrize("device", ["loom", "cpu"])
@pytest.mark.parametrize(("op", "left", "right"), SAMPLES)
def test_gradients_of_first_and_second_order(op, left, right, device):
    a = random(*left, dtype=torch.float64, device=device, requires_grad=True)
    b = random(*right, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(op, (a, b), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(op, (a, b))


@pytest.mark.parametrize(("op", "left", "right"), SAMPLES)
def test_forward_mode_of_one_operand(op, left, right):
    a, b, direction = random(*left), random(*right), random(*left)
    value, tangent = torch.func.jvp(lambda x: op(x, b), (a,), (direction,))
    _, expected = torch.func.jvp(lambda x: reference(op, x, b), (a,), (direction,))
    torch.testing.assert_close(value, reference(op, a, b))
    torch.testing.assert_close(tangent, expected)


def test_gradients_reach_broadcast_and_promoted_operands():
    a = random(4, 3, requires_grad=True)
    b = random(3, dtype=torch.float64, requires_grad=True)
    c = random(3, 2, dtype=torch.float64)
    OPS.mymatmul(OPS.myadd(a, b), c).sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(a.grad, c.sum(1).float().expand(4, 3))
    torch.testing.assert_close(b.grad, 4 * c.sum(1))


def test_a_graph_is_used_once_unless_it_is_retained():
    a = random(2, 2, requires_grad=True)
    result = OPS.mymatmul(a, a).sum()
    result.backward(retain_graph=True)
    result.backward()
    with pytest.raises(RuntimeError, match="second time"):
        result.backward()


@pytest.mark.parametrize("dtype", [torch.complex128, torch.float64])
def test_a_real_operand_of_a_complex_sum_has_a_real_gradient(dtype):
    a = torch.randn(3, dtype=torch.complex128, device="loom", requires_grad=True)
    b = torch.randn(3, dtype=dtype, device="loom", requires_grad=True)
    assert torch.autograd.gradcheck(OPS.myadd, (a, b))


@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.bool, torch.bool),
        (torch.uint8, torch.int16),
        (torch.int64, torch.float16),
        (torch.bfloat16, torch.float16),
        (torch.float32, torch.complex64),
    ],
)
def test_sums_promote_as_pytorch_does(dtypes):
    a, b = (torch.randint(0, 2, (7,)).to(dtype) for dtype in dtypes)
    result = OPS.myadd(a.to("loom"), b.to("loom"))
    assert result.dtype == (a + b).dtype == OPS.myadd(a, b).dtype
    assert torch.equal(result.cpu(), a + b)


def test_a_cpu_scalar_goes_with_a_loom_tensor():
    a = random(3)
    assert torch.equal(OPS.myadd(torch.tensor(2.0), a).cpu(), a.cpu() + 2)
    with pytest.raises(RuntimeError, match="same device"):
        OPS.myadd(a, torch.ones(3))


IN_DIMS = [(0, 0), (1, None), (None, 2), (2, 1)]


def batched_reference(op, in_dims, a, b):
    count = next(t.size(d) for t, d in zip((a, b), in_dims, strict=True) if d is not None)
    pick = [
        [t if d is None else t.select(d, i) for i in range(count)]
        for t, d in zip((a, b), in_dims, strict=True)
    ]
    return torch.stack([reference(op, x, y) for x, y in zip(*pick, strict=True)])


def with_batch(sizes, dim):
    sizes = list(sizes)
    if dim is not None:
        sizes.insert(dim, 6)
    return random(*sizes)


@pytest.mark.parametrize("in_dims", IN_DIMS, ids=str)
@pytest.mark.parametrize(("op", "left", "right"), SAMPLES)
def test_vmap_calls_the_operator_once_for_the_batch(op, left, right, in_dims):
    a, b = with_batch(left, in_dims[0]), with_batch(right, in_dims[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing batching rule warns that it loops
        result = vmap(op, in_dims=in_dims)(a, b)
    torch.testing.assert_close(result, batched_reference(op, in_dims, a, b))


def test_vmap_of_vmap():
    a, b = random(2, 3, 4, 5), random(3, 5, 6)
    result = vmap(vmap(OPS.mymatmul), in_dims=(0, None))(a, b)
    torch.testing.assert_close(result, a @ b)
    outer = vmap(vmap(OPS.mymatmul, in_dims=(0, None)), in_dims=(None, 0))(a[0], b)
    torch.testing.assert_close(outer, torch.stack([a[0] @ m for m in b]))


def test_a_batch_of_scalars_promotes_as_a_scalar():
    scalars = torch.arange(3, dtype=torch.float64, device="loom")
    row = random(4)
    result = vmap(OPS.myadd, in_dims=(0, None))(scalars, row)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, scalars.float().unsqueeze(1) + row)


@pytest.mark.parametrize("batched_first", [True, False])
def test_a_batch_of_scalars_with_a_scalar_promotes_as_two_scalars(batched_first):
    batch, scalar = random(3), torch.tensor(1.0, dtype=torch.float64, device="loom")

    def add(a):
        return OPS.myadd(a, scalar) if batched_first else OPS.myadd(scalar, a)

    result = vmap(add)(batch)
    assert result.dtype == torch.float64
    torch.testing.assert_close(result, batch.double() + 1)


@pytest.mark.parametrize("op", [OPS.myadd, OPS.mymatmul])
def test_meta_tensors_do_not_mix_with_others(op):
    real, meta = random(3, 3), torch.empty(3, 3, device="meta")
    assert op(meta, meta).is_meta
    for device in ("cpu", "loom"):
        for operands in ((real.to(device), meta), (meta, real.to(device))):
            with pytest.raises((RuntimeError, NotImplementedError), match=r"device|meta"):
                op(*operands)


def test_an_operand_is_kept_only_for_the_other_ones_gradient():
    weight = random(64, 64, requires_grad=True)
    before = torch.loom.memory_allocated()
    result = OPS.mymatmul(weight, random(64, 64))  # only the constant is needed again
    kept = torch.loom.memory_allocated() - before
    result2 = OPS.mymatmul(random(64, 64), random(64, 64))
    assert kept == 2 * result.nbytes
    assert torch.loom.memory_allocated() - before - kept == result2.nbytes


def test_per_sample_gradients_and_jacobians():
    weight, x = random(4, 2), random(5, 1, 4)

    def loss(w, sample):
        return OPS.mymatmul(OPS.myadd(sample, sample), w).square().sum()

    def plain(w, sample):
        return ((sample + sample) @ w).square().sum()

    ours = vmap(grad(loss), in_dims=(None, 0))(weight, x)
    torch.testing.assert_close(ours, vmap(grad(plain), in_dims=(None, 0))(weight, x))
    torch.testing.assert_close(jacrev(OPS.mymatmul)(x[0], weight), jacrev(torch.mm)(x[0], weight))


@pytest.mark.parametrize("device", ["loom", "cpu"])
def test_autocast_lowers_the_product_and_widens_the_sum(device):
    a, low = random(4, 4, device=device), random(4, 4, dtype=torch.bfloat16, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert OPS.mymatmul(a, a).dtype == torch.bfloat16
        assert OPS.mymatmul(a.double(), a.double()).dtype == torch.float64  # as torch.mm
        assert OPS.myadd(a, low).dtype == torch.float32
        assert OPS.myadd(low, low).dtype == torch.bfloat16
        with torch.autocast(device, enabled=False):
            assert OPS.mymatmul(a, a).dtype == torch.float32
    assert OPS.mymatmul(a, a).dtype == torch.float32


def test_gradients_under_autocast_have_the_dtype_of_their_leaf():
    a = random(4, 4, requires_grad=True)
    with torch.autocast("loom", dtype=torch.bfloat16):
        loss = OPS.mymatmul(a, a).float().sum()
    loss.backward()
    assert a.grad.dtype == torch.float32


class Net(torch.nn.Module):
    def forward(self, a, b):
        return OPS.mymatmul(a, OPS.myadd(b, b)).relu()


def test_a_trace_has_one_node_for_each_call(tmp_path):
    a, b = random(3, 4), random(4, 2)
    traced = torch.jit.trace(Net(), (a, b))
    kinds = [node.kind() for node in traced.graph.nodes()]
    assert kinds == ["custom_ops::myadd", "custom_ops::mymatmul", "aten::relu"]
    traced.save(tmp_path / "net.pt")
    loaded = torch.jit.load(tmp_path / "net.pt")
    c = random(5, 4)
    torch.testing.assert_close(loaded(c, b), Net()(c, b))
    torch.testing.assert_close(torch.jit.script(Net())(c, b), Net()(c, b))


def test_an_error_inside_leaves_tracing_as_it_was():
    def wrong(a):
        with pytest.raises(RuntimeError, match="do not fit"):
            OPS.mymatmul(a, a)
        return OPS.myadd(a, a)

    traced = torch.jit.trace(wrong, (random(3, 4),))
    assert "custom_ops::myadd" in [node.kind() for node in traced.graph.nodes()]


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_and_export(dynamic):
    a, b = random(3, 4, requires_grad=True), random(4, 2)
    compiled = torch.compile(Net(), backend="aot_eager", fullgraph=True, dynamic=dynamic)
    result = compiled(a, b)
    torch.testing.assert_close(result, Net()(a, b))
    result.sum().backward()
    torch.testing.assert_close(a.grad, (2 * b.sum(1)).expand(3, 4))
    exported = torch.export.export(Net(), (a.detach(), b))
    torch.testing.assert_close(exported.module()(a.detach(), b), Net()(a, b))


def test_they_run_on_loom_without_waiting():
    a, b = random(64, 64), random(64, 64)
    torch.loom.synchronize()
    torch.loom.reset_fallbacks()
    waits = torch.loom.host_waits()
    result = OPS.myadd(OPS.mymatmul(a, b), a)
    assert torch.loom.host_waits() == waits
    assert result.device == a.device
    assert not torch.loom.fallbacks()
    torch.testing.assert_close(result.cpu(), a.cpu() @ b.cpu() + a.cpu())
