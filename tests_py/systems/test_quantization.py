# SPDX-License-Identifier: BSD-3-Clause
"""Quantization: observers, training with fake quantization, converted models, quantized tensors."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.ao.quantization import quantize_fx

# What torch says of all of torch.ao.quantization and of quantized tensors, on any device.
pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_channel and"),
    pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max:UserWarning"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning"),
]

DEVICES = ("cpu", "loom")


def images(seed: int = 0) -> torch.Tensor:
    return torch.randn(8, 1, 6, 6, generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    """A small classifier in the form that eager mode quantization asks for."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.norm, self.relu = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.linear = nn.Linear(4 * 16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.norm(self.conv(self.quant(x))))
        return self.dequant(self.linear(x.flatten(1)))


def state_on_host(module: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: value.cpu()
        for name, value in module.state_dict().items()
        if isinstance(value, torch.Tensor)
    }


@pytest.mark.parametrize(
    "name",
    [
        "MinMaxObserver",
        "MovingAverageMinMaxObserver",
        "PerChannelMinMaxObserver",
        "MovingAveragePerChannelMinMaxObserver",
        "HistogramObserver",
    ],
)
def test_observers_find_the_same_scales(name: str) -> None:
    found = {}
    for device in DEVICES:
        observer = getattr(quantization, name)().to(device)
        for seed in range(3):
            x = images(seed).to(device)
            assert observer(x) is x
        found[device] = observer.calculate_qparams()
        assert {part.device.type for part in found[device]} <= {device, "cpu"}
    for mine, theirs in zip(found["loom"], found["cpu"], strict=True):
        torch.testing.assert_close(mine.cpu(), theirs)


def scales(device: str) -> torch.Tensor:
    return torch.tensor([0.02, 0.05, 0.1, 0.2], device=device, requires_grad=True)


def points(device: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([0, 1, -2, 3], dtype=dtype, device=device)


FAKE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "per_tensor": lambda x, _: torch.fake_quantize_per_tensor_affine(x, 0.05, 2, -20, 20),
    "per_tensor_with_tensors": lambda x, s: torch.fake_quantize_per_tensor_affine(
        x, s[1].detach(), points(x.device, torch.int32)[1], -20, 20
    ),
    "per_channel": lambda x, s: torch.fake_quantize_per_channel_affine(
        x, s.detach(), points(x.device, torch.int32), 0, -20, 20
    ),
    "learnable_per_tensor": lambda x, s: torch._fake_quantize_learnable_per_tensor_affine(
        x, s[1:2], points(x.device, torch.float32)[1:2], -20, 20, 0.5
    ),
    "learnable_per_channel": lambda x, s: torch._fake_quantize_learnable_per_channel_affine(
        x, s, points(x.device, torch.float32), 0, -20, 20, 0.5
    ),
}


@pytest.mark.parametrize("kind", FAKE)
def test_fake_quantization_and_its_gradients(kind: str) -> None:
    values, grads = {}, {}
    for device in DEVICES:
        x = torch.linspace(-3, 3, 24).view(4, 6).to(device, copy=True).requires_grad_()
        scale = scales(device)
        values[device] = FAKE[kind](x, scale)
        assert values[device].device.type == device
        (values[device] * torch.arange(24.0, device=device).view(4, 6)).sum().backward()
        grads[device] = [g.cpu() for g in (x.grad, scale.grad) if g is not None]
    torch.testing.assert_close(values["loom"].detach().cpu(), values["cpu"].detach())
    torch.testing.assert_close(grads["loom"], grads["cpu"])


@pytest.mark.parametrize("kind", ["FakeQuantize", "FusedMovingAvgObsFakeQuantize"])
def test_fake_quantizing_modules_keep_their_statistics(kind: str) -> None:
    outputs, states = {}, {}
    for device in DEVICES:
        module = getattr(quantization, kind)(
            observer=quantization.MovingAverageMinMaxObserver, quant_min=0, quant_max=255
        ).to(device)
        for seed in range(3):
            outputs[device] = module(images(seed).to(device))
        module.apply(quantization.disable_observer)
        before = state_on_host(module)
        outputs[device] = module(images(3).to(device) * 10).cpu()
        states[device] = state_on_host(module)
        torch.testing.assert_close(states[device], before, rtol=0, atol=0)
    torch.testing.assert_close(outputs["loom"], outputs["cpu"])
    torch.testing.assert_close(states["loom"], states["cpu"])


def test_quantization_aware_training_and_conversion() -> None:
    losses, outputs = {}, {}
    labels = torch.arange(8) % 5
    for device in DEVICES:
        model = Net().train()
        model.qconfig = quantization.get_default_qat_qconfig("x86")
        quantization.fuse_modules_qat(model, [["conv", "norm", "relu"]], inplace=True)
        model = quantization.prepare_qat(model).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses[device] = []
        for step in range(4):
            loss = nn.functional.cross_entropy(model(images(step).to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
        model.eval().cpu()
        converted = quantization.convert(model)
        assert converted.linear.weight().is_quantized
        outputs[device] = converted(images())
        if device == "loom":  # and the result runs there
            on_loom = copy.deepcopy(converted).to("loom")(images().to("loom"))
            assert on_loom.device.type == "loom"
            torch.testing.assert_close(on_loom.cpu(), outputs[device], rtol=0, atol=0)
    torch.testing.assert_close(losses["loom"], losses["cpu"], rtol=1e-3, atol=1e-3)
    # A rounding that falls the other way moves a result by a step of the last scale.
    torch.testing.assert_close(outputs["loom"], outputs["cpu"], rtol=0, atol=0.05)


@pytest.mark.parametrize("where", ["cpu", "loom"])
def test_calibration_on_loom_and_conversion(where: str) -> None:
    outputs = {}
    for device in DEVICES:
        model = Net().eval()
        model.qconfig = quantization.get_default_qconfig("x86")
        quantization.fuse_modules(model, [["conv", "norm", "relu"]], inplace=True)
        model = quantization.prepare(model).to(device)
        for seed in range(3):
            model(images(seed).to(device))
        place = where if device == "loom" else "cpu"
        outputs[device] = quantization.convert(model.to(place))(images().to(place))
        assert outputs[device].device.type == place
    torch.testing.assert_close(outputs["loom"].cpu(), outputs["cpu"])


@pytest.mark.parametrize("kind", ["linear", "conv2d"])
def test_packed_parameters_keep_their_bias(kind: str) -> None:
    shape = (16, 4) if kind == "linear" else (16, 4, 1, 1)
    weight = torch.quantize_per_tensor(torch.ones(shape), 0.1, 0, torch.qint8).to("loom")
    bias = torch.full((16,), 3.0, device="loom")
    if kind == "linear":
        packed = torch.ops.quantized.linear_prepack(weight, bias)
    else:
        packed = torch.ops.quantized.conv2d_prepack(weight, bias, [1, 1], [0, 0], [1, 1], 1)
    del bias
    others = [torch.full((16,), 50.0, device="loom") for _ in range(8)]  # in memory that was free
    x = torch.zeros(2, 4, *shape[2:])
    x = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).to("loom")
    result = getattr(torch.ops.quantized, kind)(x, packed, 0.1, 0)
    assert result.dequantize().cpu().flatten().tolist() == pytest.approx([3.0] * 32)
    assert len(others) == 8


def test_graph_mode() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)).eval()
    mapping = quantization.get_default_qconfig_mapping("x86")
    outputs = {}
    for device in DEVICES:
        example = (images().to(device),)
        prepared = quantize_fx.prepare_fx(copy.deepcopy(model).to(device), mapping, example)
        for seed in range(3):
            prepared(images(seed).to(device))
        converted = quantize_fx.convert_fx(prepared.cpu()).to(device)
        outputs[device] = converted(*example)
        assert outputs[device].device.type == device
    torch.testing.assert_close(outputs["loom"].cpu(), outputs["cpu"])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.linear = nn.LSTM(6, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.lstm(x)[0])


@pytest.mark.parametrize("quantized_on", DEVICES)
def test_dynamic_quantization(quantized_on: str) -> None:
    layers = {nn.LSTM, nn.Linear}
    x = images().view(4, 12, 6)
    expected = quantization.quantize_dynamic(Recurrent(), layers, dtype=torch.qint8)(x)
    model = Recurrent().to(quantized_on)
    quantized = quantization.quantize_dynamic(model, layers, dtype=torch.qint8).to("loom")
    got = quantized(x.to("loom"))
    assert got.device.type == "loom"
    torch.testing.assert_close(got.cpu(), expected)


def per_tensor(device: str) -> torch.Tensor:
    return torch.quantize_per_tensor(images().view(4, 72).to(device), 0.1, 3, torch.qint8)


def per_channel(device: str) -> torch.Tensor:
    return torch.quantize_per_channel(
        images().view(4, 72).to(device),
        scales(device).detach(),
        torch.arange(4, device=device),
        0,
        torch.quint8,
    )


def assert_same(got: torch.Tensor, expected: torch.Tensor) -> None:
    """The same integers, scales and zero points."""
    assert (got.device.type, got.dtype, got.qscheme()) == (
        "loom",
        expected.dtype,
        expected.qscheme(),
    )
    assert torch.equal(got.int_repr().cpu(), expected.int_repr())
    if expected.qscheme() == torch.per_tensor_affine:
        assert got.q_scale() == expected.q_scale()
        assert got.q_zero_point() == expected.q_zero_point()
    else:
        assert got.q_per_channel_axis() == expected.q_per_channel_axis()
        for name in ("q_per_channel_scales", "q_per_channel_zero_points"):
            part = getattr(got, name)()
            assert part.device.type == "loom"
            assert torch.equal(part.cpu(), getattr(expected, name)())
    assert torch.equal(got.dequantize().cpu(), expected.dequantize())


KINDS = [per_tensor, per_channel]


@pytest.mark.parametrize("make", KINDS)
def test_quantized_tensors(make: Callable[[str], torch.Tensor]) -> None:
    assert_same(make("loom"), make("cpu"))
    assert_same(make("cpu").to("loom"), make("cpu"))
    assert_same(make("loom").clone(), make("cpu"))
    assert_same(copy.deepcopy(make("loom")), make("cpu"))
    assert "device='loom:0'" in repr(make("loom"))
    back = make("loom").cpu()
    assert back.device.type == "cpu"
    assert torch.equal(back.dequantize(), make("cpu").dequantize())


@pytest.mark.parametrize("make", KINDS)
def test_quantized_tensors_are_saved_and_loaded(make: Callable[[str], torch.Tensor]) -> None:
    file = io.BytesIO()
    torch.save(make("loom"), file)
    file.seek(0)
    assert_same(torch.load(file), make("cpu"))
    file.seek(0)
    assert torch.equal(torch.load(file, map_location="cpu").int_repr(), make("cpu").int_repr())


def test_views_of_quantized_tensors_share_memory() -> None:
    x = per_tensor("loom")
    x.view(2, 144)[1].fill_(0.5)
    assert x[2:].dequantize().unique().tolist() == [0.5]
    assert torch.equal(x[:2].int_repr().cpu(), per_tensor("cpu")[:2].int_repr())


QUANTIZED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "concatenation": lambda x: torch.cat([x, x]),
    "mean": lambda x: x.mean(1),
    "largest": lambda x: x.topk(3).values,
    "sum_of_two": lambda x: torch.ops.quantized.add(x, x, 0.2, 1),
    "pooled": lambda x: nn.functional.max_pool2d(x.view(4, 2, 6, 6), 2),
    "upsampled": lambda x: nn.functional.interpolate(x.view(4, 2, 6, 6), scale_factor=2),
    "rows": lambda x: x.index_select(0, torch.tensor([3, 1], device=x.device)),
    "in_place": lambda x: x.clone().relu_(),
    "requantized": lambda x: torch.quantize_per_tensor(x.dequantize(), 0.2, 1, torch.quint8),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_operators_on_quantized_tensors(name: str) -> None:
    assert_same(QUANTIZED[name](per_tensor("loom")), QUANTIZED[name](per_tensor("cpu")))


def test_an_operator_that_quantized_tensors_have_not_is_refused_as_on_cpu() -> None:
    for device in DEVICES:
        with pytest.raises(NotImplementedError, match="aten::cumsum"):
            per_tensor(device).cumsum(0)
