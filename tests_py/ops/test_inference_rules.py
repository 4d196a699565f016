# SPDX-License-Identifier: BSD-3-Clause
"""Operators whose results loom's own rules describe: cpu's geometry in every layout of operands."""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from compare import agrees, gradients_agree, same_error, to_loom
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map_only

F = torch.nn.functional

NAMES = """
addbmm addr angle bucketize cdist cholesky_solve conj_physical count_nonzero flip frexp
grid_sampler_2d grid_sampler_3d histc index_fill index_put logit masked_scatter median mode
nanmedian nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
nn.functional.adaptive_avg_pool3d nn.functional.binary_cross_entropy
nn.functional.binary_cross_entropy_with_logits nn.functional.channel_shuffle
nn.functional.cross_entropy nn.functional.embedding_bag nn.functional.fold nn.functional.glu
nn.functional.grid_sample nn.functional.huber_loss nn.functional.logsigmoid
nn.functional.max_pool3d nn.functional.max_unpool2d nn.functional.max_unpool3d
nn.functional.multi_margin_loss nn.functional.pdist nn.functional.prelu
nn.functional.smooth_l1_loss nn.functional.soft_margin_loss nn.functional.unfold prod roll
searchsorted std_mean take trace unfold
""".split()
SAMPLES = 6


def layouts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The same values, laid out in several ways."""
    forms = [tensor]
    if tensor.dim() >= 2:
        forms.append(tensor.transpose(-1, -2).contiguous().transpose(-1, -2))
        forms.append(tensor.transpose(0, 1).contiguous().transpose(0, 1))
    if tensor.dim() in (4, 5):
        last = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        forms.append(tensor.contiguous(memory_format=last))
    if tensor.numel() > 0 and tensor.dim() > 0:
        forms.append(torch.stack([tensor, tensor], -1)[..., 0])
    return forms


def calls(info: Any, dtype: torch.dtype) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The operator's samples, with all of their tensors in each layout."""
    grad = info.supports_autograd and dtype.is_floating_point
    torch.manual_seed(0)
    for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=grad), SAMPLES):
        given = ((sample.input, *sample.args), sample.kwargs)
        tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]
        for form in range(max(len(layouts(tensor.detach())) for tensor in tensors)):

            def laid_out(tensor: torch.Tensor, form: int = form) -> torch.Tensor:
                forms = layouts(tensor.detach())
                chosen = forms[form] if form < len(forms) else forms[0]
                return chosen.requires_grad_(tensor.requires_grad)

            yield tree_map_only(torch.Tensor, laid_out, given)


def results(function: Callable[..., Any], arguments: Any, keywords: Any) -> list[torch.Tensor]:
    """What the call returns, and the gradients of what wants some."""
    made = [x for x in tree_leaves(function(*arguments, **keywords)) if isinstance(x, torch.Tensor)]
    leaves = [x for x in tree_leaves((arguments, keywords)) if isinstance(x, torch.Tensor)]
    wanted = [x for x in leaves if x.requires_grad]
    sources = [x for x in made if x.requires_grad]
    if sources and wanted:
        made += torch.autograd.grad(
            sources, wanted, [torch.ones_like(x) for x in sources], allow_unused=True
        )
    return [x.detach() for x in made if x is not None]


def in_float64(tree: Any) -> Any:
    def widen(x: torch.Tensor) -> torch.Tensor:
        return x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x

    return tree_map_only(torch.Tensor, widen, tree)


def description(tensor: torch.Tensor) -> Any:
    strides = [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n != 1]
    return tensor.shape, tensor.dtype, strides if tensor.numel() > 1 else None


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_results_look_as_on_cpu(name, dtype):
    for info in (info for info in op_db if info.name == name and dtype in info.dtypes):
        for arguments, keywords in calls(info, dtype):
            on_loom = to_loom((arguments, keywords))
            try:
                expected = results(info.op, arguments, keywords)
            except RuntimeError as error:  # some views are not there in every layout
                with pytest.raises(type(error), match=re.escape(str(error)[:40])):
                    results(info.op, *on_loom)
                continue
            actual = results(info.op, *on_loom)
            assert [description(x) for x in actual] == [description(x) for x in expected]
            tolerance = 2e-2 if dtype == torch.bfloat16 else 2e-4
            for place, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
                if torch.allclose(got.cpu(), wanted, tolerance, tolerance, equal_nan=True):
                    continue
                # Sums that cpu rounds at every step are rounded once here.
                assert dtype == torch.bfloat16
                exact = results(info.op, *in_float64((arguments, keywords)))[place]
                assert (got.cpu() - exact).abs().max() <= (wanted - exact).abs().max()


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5))


# PyTorch's inferences say otherwise.
def test_layouts_that_inferences_of_pytorch_do_not_tell():
    matrix = torch.complex(numbers(6, 4), numbers(6, 4)).t()
    agrees(torch.angle, matrix)
    agrees(lambda z: torch.angle(z.conj()), matrix)
    image = numbers(2, 6, 4, 4).contiguous(memory_format=torch.channels_last)
    agrees(lambda x: F.channel_shuffle(x, 3), image)
    volume = numbers(2, 3, 4, 4, 4).contiguous(memory_format=torch.channels_last_3d)
    values, places = F.max_pool3d(volume, 2, return_indices=True)
    agrees(lambda v, p: F.max_unpool3d(v, p, 2), values, places)


MATRICES = {
    "transposed": lambda: numbers(4, 6).t(),
    "rows expanded": lambda: numbers(4).expand(6, 4),
    "columns apart": lambda: numbers(6, 8)[:, ::2],
    "one column apart": lambda: numbers(6, 3)[:, 1:2].expand(6, 4),
    "transposed and apart": lambda: numbers(8, 6).t()[:, ::2],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int32])
@pytest.mark.parametrize("beta", [0, 2])
@pytest.mark.parametrize("matrix", MATRICES)
def test_outer_products_lie_as_the_matrix_that_is_added_whatever_its_factor(matrix, beta, dtype):
    added = MATRICES[matrix]().mul(4).to(dtype)
    rows, columns = numbers(12).mul(4).to(dtype), numbers(4).mul(4).to(dtype)
    agrees(lambda c, x, y: torch.addr(c, x[::2], y, beta=beta, alpha=3), added, rows, columns)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mode", ["reflection", "replication"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_paddings_lie_as_the_images_do(dims, mode, dtype):
    """As the gradients of the results, some did."""
    padding = [1, 2, 0, 1, 1, 1][: 2 * dims]
    backward = getattr(torch.ops.aten, f"{mode}_pad{dims}d_backward")
    pad = getattr(torch.ops.aten, f"{mode}_pad{dims}d")
    image = numbers(2, 6, 4, 5, 3)[(..., *[0] * (3 - dims))].to(dtype)
    for images in (image.contiguous(), image.movedim(1, -1).contiguous().movedim(-1, 1)):
        padded = pad(images, padding)
        for gradient in (padded.contiguous(), padded.movedim(1, -1).contiguous().movedim(-1, 1)):
            agrees(lambda g, x: backward(g, x, padding), gradient, images)


def test_ranges():
    for given in ((5,), (1, 8, 2), (0.5, 3), (9, -2, -3), (0, 1, 0.1), (2, 2)):
        for dtype in (None, torch.float32, torch.float64, torch.int64, torch.int16):
            if dtype is not None and not dtype.is_floating_point and 0.1 in given:
                continue  # no step at all
            expected = torch.arange(*given, dtype=dtype)
            torch.testing.assert_close(
                torch.arange(*given, dtype=dtype, device="loom").cpu(), expected
            )
    same_error(lambda x: torch.arange(0, 5, -1, device=x.device), numbers(1))
    same_error(lambda x: torch.arange(0, 5, 0, device=x.device), numbers(1))
    same_error(lambda x: torch.linspace(0, 1, -1, device=x.device), numbers(1))
    torch.testing.assert_close(
        torch.linspace(0, 3, 5, device="loom").cpu(), torch.linspace(0, 3, 5)
    )


def test_indices_that_are_no_neighbours_and_refusals():
    x, rows, columns = numbers(4, 5, 6), torch.tensor([0, 2, 3]), torch.tensor([[1], [4]])

    def put(x, values, *indices):
        x = x.clone()
        x[indices] = values
        return x

    agrees(lambda x, r, c: put(x, x[:3, 0, :5], r, slice(None), c.view(-1)[:1]), x, rows, columns)
    agrees(lambda x, r, c: put(x, 2 * x[:2, :3], r, c), x, rows, columns)
    agrees(lambda x, r, c: put(x, x[0, 0, 0], slice(None), r, c), x, rows, columns)
    gradients_agree(lambda x: put(x * 2, x[0, 0], rows.to(x.device)), x.clone())
    large = torch.zeros(600, 700)
    same_error(lambda x, r: put(x, torch.ones(2, 700, device=x.device), r), large, rows)
    same_error(lambda x, r: put(x, x[:3], r, r[:2]), large, rows)
    same_error(lambda x, r: x.index_put((r,), x[:3].double()), large, rows)


# Calls that are too large for a trial: the rule alone has to see what is wrong.
def test_large_calls_are_refused_at_the_call():
    x = torch.zeros(512, 1024)
    labels = torch.zeros(512, dtype=torch.long)
    same_error(lambda x: torch.huber_loss(x, x, 1, -1.0), x)
    same_error(lambda x, y: F.multi_margin_loss(x, y[:100]), x, labels)
    same_error(lambda x, y: F.multi_margin_loss(x, y, p=3), x, labels)
    same_error(lambda x: F.unfold(x[None, None], (600, 3)), x)
    same_error(lambda x: F.fold(x[None], (30, 40), (3, 3)), x)
    same_error(lambda x: torch.flip(x, (0, 0)), x)
    same_error(lambda x: torch.roll(x, (1, 2), (0,)), x)
    same_error(lambda x: F.glu(x[:, :1023]), x)
    same_error(lambda x: F.prelu(x, torch.ones(3, device=x.device)), x)
    same_error(lambda x: torch.cdist(x, x[:, :5]), x)
    same_error(lambda x: torch.addr(x, x[0], x[1]), x)
    same_error(lambda x: torch.trace(x[None]), x)
    same_error(lambda x: torch.std_mean(x, (0, 0)), x)
    same_error(lambda x: torch.histc(x, 0), x)
    same_error(lambda x: torch.histc(x, 5, 2, 1), x)
    same_error(lambda x: torch.searchsorted(x, x[:3]), x)
    same_error(lambda x: torch.bucketize(x, x), x)
    same_error(lambda x: F.grid_sample(x[None, None], x.view(1, 512, 512, 2)[:, :, :, :1]), x)
    same_error(lambda x: F.binary_cross_entropy(x, x, weight=x[:, :5]), x)
    same_error(lambda x, y: torch.take(x, y.float()), x, labels)
    same_error(lambda x, y: x.index_fill(2, y, 1), x, labels)
    same_error(lambda x: F.adaptive_avg_pool2d(x, (2, 2)), x)
    same_error(lambda x: F.channel_shuffle(x[None, :511, :, None], 2), x)
    same_error(lambda x: F.pad(x[None, None], (1024, 0, 0, 0), "reflect"), x)


def apart(dtype: torch.dtype) -> torch.Tensor:
    """Elements of a matrix for each of seven columns, which share them."""
    return numbers(14).mul(4).to(dtype).as_strided((7, 2, 1, 7), (1, 7, 14, 0))


PROMOTED = {
    "sub": lambda x, y: x - y,
    "atan2 of the other order": lambda x, y: torch.atan2(y, x),
    "zeta of integers": lambda x, y: torch.special.zeta(x.char(), x.char()),
    "lt": lambda x, y: x < y,
    "out": lambda x, y: torch.mul(x, y, out=torch.empty(0, device=x.device)),
    "sin of integers": lambda x, y: x.int().expand(3, *x.shape).sin(),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int16], ids=str)
@pytest.mark.parametrize("name", PROMOTED)
def test_results_lie_as_those_of_operands_that_cpu_has_converted(name, dtype):
    other = numbers(98).as_strided((7, 2, 1, 7), (14, 1, 14, 2))
    agrees(PROMOTED[name], apart(dtype), other)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_dtypes_of_empty_tensors_are_refused_as_those_of_others(shape):
    """By some kernels; others have nothing to do with them."""
    whole = torch.zeros(shape, dtype=torch.uint8)
    same_error(lambda x: torch.lerp(x, x, 0.3), whole)
    same_error(lambda x: torch._foreach_lerp([x], [x], 0.3), whole)
    same_error(lambda x: torch.lerp(x, x, x), whole)
    agrees(lambda x: torch.sort(x)[0], whole)
    agrees(lambda x: torch.add(x, x), whole)
    agrees(lambda x, i: torch.gather(x, 0, i), numbers(*shape), torch.zeros(shape).long())
