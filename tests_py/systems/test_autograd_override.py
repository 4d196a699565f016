# SPDX-License-Identifier: BSD-3-Clause
"""Autograd overrides: cross entropy with a fused forward and backward."""

import pytest
import torch
from torch.nn.functional import cross_entropy

# torch.func.jvp imports decompositions that are scripted.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

REDUCTIONS = ["mean", "sum", "none"]


def sample(rows, classes, dtype=torch.float32, ignored=0):
    logits = torch.randn(rows, classes, dtype=dtype) * 3
    target = torch.randint(0, classes, (rows,))
    target[:ignored] = -100
    return logits, target


def loss_and_gradient(logits, target, device, **options):
    x = logits.to(device).requires_grad_()
    options = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    loss = cross_entropy(x, target.to(device), **options)
    seed = torch.linspace(1, 2, loss.numel(), dtype=loss.dtype).view(loss.shape).to(device)
    (gradient,) = torch.autograd.grad(loss, x, seed)
    return loss, gradient


def is_fused(loss):
    return loss.grad_fn.name() == "CrossEntropyLossBackward"


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (300, 1000)], ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ignored", [0, 1])
def test_loss_and_gradient_are_those_of_cpu(shape, reduction, dtype, ignored):
    logits, target = sample(*shape, dtype, ignored)
    loss, gradient = loss_and_gradient(logits, target, "loom", reduction=reduction)
    expected, expected_gradient = loss_and_gradient(logits, target, "cpu", reduction=reduction)
    assert is_fused(loss)
    assert loss.dtype == expected.dtype
    torch.testing.assert_close(loss.cpu(), expected, equal_nan=True)
    torch.testing.assert_close(gradient.cpu(), expected_gradient, equal_nan=True)


OTHER_FORMS = {
    "weights": {"weight": torch.rand(5)},
    "label smoothing": {"label_smoothing": 0.1},
}


@pytest.mark.parametrize("options", OTHER_FORMS.values(), ids=OTHER_FORMS.keys())
def test_other_forms_stay_the_composite(options):
    logits, target = sample(6, 5)
    loss, gradient = loss_and_gradient(logits, target, "loom", **options)
    expected, expected_gradient = loss_and_gradient(logits, target, "cpu", **options)
    assert not is_fused(loss)
    torch.testing.assert_close(loss.cpu(), expected)
    torch.testing.assert_close(gradient.cpu(), expected_gradient)


@pytest.mark.parametrize(
    ("logits", "target"),
    [
        (torch.randn(2, 5, 3), torch.randint(0, 5, (2, 3))),
        (torch.randn(5), torch.tensor(2)),
        (torch.randn(4, 5), torch.rand(4, 5)),
        (torch.randn(0, 5), torch.zeros(0, dtype=torch.int64)),
        (torch.randn(4, 5, dtype=torch.bfloat16), torch.randint(0, 5, (4,))),
    ],
    ids=["images", "one sample", "probabilities", "nothing", "bfloat16"],
)
def test_other_inputs_stay_the_composite(logits, target):
    loss = cross_entropy(logits.to("loom").requires_grad_(), target.to("loom"))
    assert not is_fused(loss)
    torch.testing.assert_close(loss.cpu(), cross_entropy(logits, target), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_float32_without_a_float32_copy(dtype):
    logits, target = sample(40, 30, dtype)
    x = logits.to("loom").requires_grad_()
    with torch.autocast("loom", dtype=dtype):
        loss = cross_entropy(x, target.to("loom"))
    assert is_fused(loss)
    loss.backward()
    expected, expected_gradient = loss_and_gradient(logits.float(), target, "cpu")
    torch.testing.assert_close(loss.cpu(), expected)
    assert x.grad.dtype == dtype
    torch.testing.assert_close(x.grad.cpu(), expected_gradient.to(dtype))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradients_of_gradients(reduction):
    logits, target = sample(4, 3, torch.float64, ignored=1)
    x, y = logits.to("loom").requires_grad_(), target.to("loom")

    def loss(z):
        return cross_entropy(z, y, reduction=reduction)

    assert torch.autograd.gradcheck(loss, (x,))
    assert torch.autograd.gradgradcheck(loss, (x,))


def test_logits_may_change_after_the_loss_as_on_cpu():
    logits, target = sample(6, 5)
    gradients = {}
    for device in ("loom", "cpu"):
        x = logits.to(device, copy=True).requires_grad_()
        z = x * 1
        loss = cross_entropy(z, target.to(device))
        z.data.zero_()
        with torch.no_grad():
            z.add_(1)
        loss.backward()
        gradients[device] = x.grad.cpu()
    torch.testing.assert_close(gradients["loom"], gradients["cpu"])


def test_a_class_out_of_bounds_is_an_index_error_and_the_device_works_on():
    logits, target = sample(4, 3)
    target[2] = 3
    cross_entropy(logits.to("loom"), target.to("loom"))
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        torch.loom.synchronize()
    assert cross_entropy(logits.to("loom"), target.clamp(max=2).to("loom")).isfinite()


@pytest.mark.parametrize("label", [-9, 3, 3_000_000_000_000])
def test_backward_of_a_class_out_of_bounds_writes_nowhere(label):
    neighbours = [torch.zeros(512, device="loom") for _ in range(16)]
    x = torch.zeros(4, 3, device="loom", requires_grad=True)
    target = torch.tensor([0, 1, 2, label], device="loom")
    cross_entropy(x, target).backward()
    with pytest.raises(IndexError, match="out of bounds"):
        torch.loom.synchronize()
    assert all(tensor.eq(0).all().item() for tensor in neighbours)


def test_a_loss_of_nothing_has_no_gradient_even_to_be_differentiated():
    ignored = torch.full((3,), -100)
    for device in ("loom", "cpu"):
        x = torch.randn(3, 4).to(device).requires_grad_()
        loss = cross_entropy(x, ignored.to(device))
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        assert loss.isnan()
        assert gradient.eq(0).all()


def test_classes_of_python_see_the_operators_of_the_composite():
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            seen.append(function.name())
            plain = torch.utils._pytree.tree_map_only(Watched, lambda t: t.inner, args)
            return function(*plain, **(kwargs or {}))

    def watched(tensor):
        result = torch.Tensor._make_wrapper_subclass(
            Watched, tensor.size(), dtype=tensor.dtype, device=tensor.device
        )
        result.inner = tensor
        return result

    logits, target = sample(6, 5)
    loss = cross_entropy(watched(logits.to("loom")), watched(target.to("loom")))
    assert [name.partition("::")[0] for name in seen] == ["aten"] * len(seen)
    torch.testing.assert_close(loss.cpu(), cross_entropy(logits, target))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_autograd_takes_the_node():
    from torch._dynamo import compiled_autograd

    logits, target = sample(6, 5)
    x = logits.to("loom").requires_grad_()
    loss = cross_entropy(x, target.to("loom"))
    with compiled_autograd._enable(lambda graph: graph):
        loss.backward()
    _, gradient = loss_and_gradient(logits, target, "cpu")
    torch.testing.assert_close(x.grad.cpu(), gradient)


@pytest.mark.parametrize(
    "arguments",
    [
        (torch.zeros(9, 4), torch.zeros(1, dtype=torch.int64)),
        (torch.zeros(2, 4), torch.zeros(2, dtype=torch.int32)),
        (torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)),
        (torch.zeros(8), torch.zeros(8, dtype=torch.int64)),
    ],
    ids=["rows", "class dtype", "logit dtype", "dimensions"],
)
def test_arguments_of_the_operators_are_checked_at_the_call(arguments):
    for device in ("loom", "meta"):
        with pytest.raises(RuntimeError, match="cross_entropy: expected"):
            torch.ops.loom.cross_entropy(*(a.to(device) for a in arguments), 1, -100, False)


def test_transforms_of_torch_func_see_the_composite():
    logits, target = sample(6, 5)
    x, y = logits.to("loom"), target.to("loom")

    def loss(z, t):
        return cross_entropy(z.unsqueeze(0), t.unsqueeze(0))

    per_sample = torch.func.vmap(torch.func.grad(loss))(x, y)
    _, gradient = loss_and_gradient(logits, target, "cpu", reduction="sum")
    torch.testing.assert_close(per_sample.cpu(), gradient)
    _, tangent = torch.func.jvp(lambda z: cross_entropy(z, y), (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent.cpu(), torch.tensor(0.0))


def test_compiled_training_takes_it():
    logits, target = sample(6, 5)
    compiled = torch.compile(cross_entropy, backend="aot_eager", fullgraph=True)
    x = logits.to("loom").requires_grad_()
    compiled(x, target.to("loom")).backward()
    _, gradient = loss_and_gradient(logits, target, "cpu")
    torch.testing.assert_close(x.grad.cpu(), gradient)


def test_the_operators_pass_opcheck():
    logits, target = sample(4, 3)
    x, y = logits.to("loom"), target.to("loom")
    torch.library.opcheck(torch.ops.loom.cross_entropy.default, (x, y, 1, -100, True))
    grad, total = torch.ones((), device="loom"), torch.full((), 4.0, device="loom")
    softmax = x.softmax(1)
    torch.library.opcheck(
        torch.ops.loom.cross_entropy_backward.default,
        (grad, softmax, y, total, 1, -100, torch.float32),
    )


def test_it_takes_less_memory_than_the_composite():
    logits, target = sample(512, 2048)
    target = target.to("loom")
    peaks = []
    for smoothing in (0.0, 1e-9):  # the second keeps it from being fused
        x = logits.to("loom").requires_grad_()
        torch.loom.reset_peak_memory_stats()
        before = torch.loom.memory_allocated()
        cross_entropy(x, target, label_smoothing=smoothing).backward()
        peaks.append(torch.loom.max_memory_allocated() - before)
    assert peaks[0] < peaks[1]
    assert peaks[0] < 2.1 * logits.nbytes


def test_nothing_falls_back_or_waits():
    logits, target = sample(64, 32)
    x, y = logits.to("loom").requires_grad_(), target.to("loom")
    torch.loom.synchronize()
    torch.loom.reset_fallbacks()
    waits = torch.loom.host_waits()
    cross_entropy(x, y).backward()
    assert torch.loom.host_waits() == waits
    assert not torch.loom.fallbacks()
