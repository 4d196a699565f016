# SPDX-License-Identifier: BSD-3-Clause
"""channels_last: the layout is kept through a network, forward and backward."""

import copy

import pytest
import torch
from torch import nn

LOOM = "loom"
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


pytestmark = pytest.mark.usefixtures("no_fallback")


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return torch.relu(x + self.inner(x))


class Encoder(nn.Module):
    """Down, up and side by side, as a U-Net."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.residual = Residual(8)
        self.pool = nn.MaxPool2d(2)
        self.middle = nn.Sequential(nn.Conv2d(8, 8, 1), nn.SiLU(), nn.Dropout2d(0.0))
        self.up = nn.Upsample(scale_factor=2, mode="bilinear")
        self.transposed = nn.ConvTranspose2d(16, 6, 2, stride=2)
        self.average = nn.AvgPool2d(2)
        self.last = nn.Conv2d(6, 4, 1)

    def forward(self, x):
        wide = self.residual(self.stem(x))
        deep = self.up(self.middle(self.pool(wide)))
        return self.last(self.average(self.transposed(torch.cat([wide, deep], 1))))


def watch(model):
    """Collects the strides of what each module returns and of the gradient that reaches it."""
    seen = {"forward": {}, "backward": {}}

    def note(kind, name):
        def hook(module, arguments, result):
            result = result[0] if isinstance(result, tuple) else result
            if isinstance(result, torch.Tensor):
                seen[kind][name] = tuple(result.shape), result.stride()

        return hook

    for name, module in model.named_modules():
        if not getattr(module, "inplace", False):
            module.register_forward_hook(note("forward", name))
    return seen


def run(model, x):
    seen = watch(model)
    x = x.detach().requires_grad_()
    result = model(x)
    result.square().mean().backward()
    tensors = [result, x.grad, *(p.grad for p in model.parameters())]
    seen["gradients"] = [t.stride() for t in tensors]
    return [t.detach().cpu() for t in tensors], seen


def test_a_network_keeps_the_layout_as_on_cpu():
    model = Encoder().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    mine = copy.deepcopy(model).to(LOOM)
    values, seen = run(mine, x.to(LOOM))
    expected, seen_on_cpu = run(model, x)
    torch.testing.assert_close(values, expected, rtol=1e-3, atol=1e-5)
    assert seen == seen_on_cpu
    for name, (shape, stride) in seen["forward"].items():
        assert stride == torch.empty(shape).to(memory_format=torch.channels_last).stride(), name


def test_the_layout_does_not_change_the_values():
    model = Encoder().to(LOOM)
    x = torch.randn(2, 3, 8, 8, device=LOOM)
    expected, _ = run(model, x)
    model.zero_grad()
    model.to(memory_format=torch.channels_last)
    result, _ = run(model, x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-5)


def test_moving_to_loom_and_back_keeps_the_layout():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    model = nn.Conv2d(4, 6, 3).to(LOOM, memory_format=torch.channels_last)
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    for there in (x.to(LOOM), x.loom(), x.to("loom:1"), x.to(LOOM, torch.float64)):
        assert there.stride() == x.stride()
        assert there.cpu().stride() == x.stride()
    assert x.to(LOOM, memory_format=torch.contiguous_format).is_contiguous()
    made = torch.empty(2, 3, 4, 5, device=LOOM, memory_format=torch.channels_last)
    assert made.stride() == x.stride()


STEPS = {
    "pixel shuffle": (lambda x: nn.functional.pixel_shuffle(x, 2), 1),
    "pixel unshuffle": (lambda x: nn.functional.pixel_unshuffle(x, 2), 1),
    "relu": (nn.functional.relu, 1),
    "gelu": (nn.functional.gelu, 1),
    "dropout": (lambda x: nn.functional.dropout(x, 0.0), 1),
    "batch norm": (lambda x: nn.functional.batch_norm(x, None, None, training=True), 1),
    "group norm": (lambda x: nn.functional.group_norm(x, 2), 1),
    "instance norm": (nn.functional.instance_norm, 1),
    "max pool": (lambda x: nn.functional.max_pool2d(x, 2), 1),
    "average pool": (lambda x: nn.functional.avg_pool2d(x, 2), 1),
    "adaptive pool": (lambda x: nn.functional.adaptive_avg_pool2d(x, 3), 1),
    "adaptive max pool": (lambda x: nn.functional.adaptive_max_pool2d(x, 3), 1),
    "nearest": (lambda x: nn.functional.interpolate(x, scale_factor=2), 1),
    "bilinear": (lambda x: nn.functional.interpolate(x, scale_factor=2, mode="bilinear"), 1),
    "bicubic": (lambda x: nn.functional.interpolate(x, scale_factor=2, mode="bicubic"), 1),
    "sum": (torch.add, 2),
    "product with scalars": (lambda x: x * 2 + 1, 1),
    "cat": (lambda x, y: torch.cat([x, y], 1), 2),
    "where": (lambda x, y: torch.where(x > 0, x, y), 2),
    "clone": (torch.clone, 1),
    "softmax": (lambda x: torch.softmax(x, 1), 1),
    "pad": (lambda x: nn.functional.pad(x, (1, 1, 1, 1)), 1),
    "reflection": (lambda x: nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"), 1),
    "broadcast": (lambda x: x * x.mean((2, 3), keepdim=True), 1),
    "cast": (lambda x: x.double() * 2, 1),
    "unlike": (lambda x: torch.zeros_like(x) + x, 1),
    "convolution": (lambda x: nn.functional.conv2d(x, torch.ones(2, 4, 3, 3).to(x)), 1),
    "transposed": (lambda x: nn.functional.conv_transpose2d(x, torch.ones(4, 2, 3, 3).to(x)), 1),
}


@pytest.mark.parametrize("name", STEPS)
def test_each_step_has_the_strides_of_cpu(name):
    function, count = STEPS[name]
    results = {}
    tensors = [torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last) for _ in range(count)]
    for device in (LOOM, "cpu"):
        leaves = [t.to(device).requires_grad_() for t in tensors]
        result = function(*leaves)
        assert result.device.type == device
        result.square().sum().backward()
        results[device] = [result.detach(), *(leaf.grad for leaf in leaves)]
    for mine, theirs in zip(results[LOOM], results["cpu"], strict=True):
        assert mine.stride() == theirs.stride()
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dims", FORMATS)
@pytest.mark.parametrize("weight_too", [False, True])
@pytest.mark.parametrize("input_too", [False, True])
def test_one_of_two_operands_decides_for_a_convolution(dims, weight_too, input_too):
    layer = {4: nn.Conv2d, 5: nn.Conv3d}[dims](3, 4, 3)
    x = torch.randn(2, 3, *[6] * (dims - 2))
    if weight_too:
        layer.to(memory_format=FORMATS[dims])
    if input_too:
        x = x.to(memory_format=FORMATS[dims])
    values, seen = run(copy.deepcopy(layer).to(LOOM), x.to(LOOM))
    expected, seen_on_cpu = run(layer, x)
    torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-5)
    assert seen["forward"] == seen_on_cpu["forward"]


def test_training_with_autocast_keeps_the_layout():
    model = Encoder().to(LOOM, memory_format=torch.channels_last)
    seen = watch(model)
    x = torch.randn(2, 3, 8, 8, device=LOOM).to(memory_format=torch.channels_last)
    with torch.autocast(LOOM, dtype=torch.bfloat16):
        result = model(x)
    result.float().square().mean().backward()
    assert result.dtype == torch.bfloat16
    for name, (shape, stride) in seen["forward"].items():
        assert stride == torch.empty(shape).to(memory_format=torch.channels_last).stride(), name
    assert all(p.grad.isfinite().all() for p in model.parameters())
