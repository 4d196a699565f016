# SPDX-License-Identifier: BSD-3-Clause
"""torchao: optimisers with states of 8 and 4 bits, which compile unasked, and int8 weights."""

import copy
from collections.abc import Iterator

import pytest
import torch
import torch._inductor.metrics
from torch import nn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        # Compiling imports modules that are written with torch.jit.
        r"ignore:`torch.jit.\w+` is deprecated:DeprecationWarning",
    ),
]

optim = pytest.importorskip("torchao.optim")
quantization = pytest.importorskip("torchao.quantization")

OPTIMIZERS = ["AdamW8bit", "AdamW4bit", "AdamWFp8"]


@pytest.fixture(autouse=True)
def settings_are_kept() -> Iterator[None]:
    """quantize_ changes settings of Inductor and of products for the process."""
    precision = torch.get_float32_matmul_precision()
    torch._dynamo.reset()
    torch.loom.reset_fallbacks()
    with torch._inductor.config.patch({}):
        yield
    torch.set_float32_matmul_precision(precision)
    torch._dynamo.reset()
    assert torch.loom.fallbacks() == {}


def make_model() -> nn.Module:
    """Its weights are large enough for states of few bits, its biases are not."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))


def train(device: str, name: str, dtype: torch.dtype = torch.float32, **options: object):
    """The losses of some steps and the optimiser."""
    model = make_model().to(device, dtype)
    optimizer = getattr(optim, name)(model.parameters(), lr=1e-2, **options)
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(1)).to(device, dtype)
    losses = []
    for _ in range(8):
        loss = nn.functional.mse_loss(model(x), x.sin())
        losses.append(loss.detach().float().cpu())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(losses), optimizer


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_follows_the_cpu(name: str) -> None:
    torch._inductor.metrics.reset()
    losses, optimizer = train("loom", name)
    assert torch._inductor.metrics.generated_kernel_count > 0
    states = [s["exp_avg"] for s in optimizer.state.values()]
    assert [type(s) is torch.Tensor for s in states] == [False, True, False, True]
    assert {s.device.type for s in states} == {"loom"}
    expected, _ = train("cpu", name)
    assert losses[-1] < losses[0] - 0.1
    torch.testing.assert_close(losses, expected, rtol=2e-3, atol=2e-3)


def test_states_take_few_bytes() -> None:
    for name, bytes_each in (("AdamW8bit", 1), ("AdamWFp8", 1), ("AdamW4bit", 0.5)):
        _, optimizer = train("loom", name)
        state = next(iter(optimizer.state.values()))["exp_avg"]
        codes = state.codes.untyped_storage().nbytes()
        assert codes == 64 * 128 * bytes_each
        assert state.codes.is_loom


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_saved_optimiser_goes_on(name: str, tmp_path) -> None:
    _, optimizer = train("loom", name)
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    saved = torch.load(tmp_path / "optimizer.pt", weights_only=True)
    _, other = train("loom", name)
    other.load_state_dict(saved)
    for mine, theirs in zip(other.state.values(), optimizer.state.values(), strict=True):
        assert mine["exp_avg_sq"].is_loom
        pairs = [
            s["exp_avg_sq"].dequantize() if hasattr(s["exp_avg_sq"], "codes") else s["exp_avg_sq"]
            for s in (mine, theirs)
        ]
        assert torch.equal(*pairs)


def test_stochastic_rounding_of_bfloat16_parameters() -> None:
    losses, optimizer = train("loom", "AdamW8bit", torch.bfloat16, bf16_stochastic_round=True)
    (parameter, *_) = optimizer.param_groups[0]["params"]
    assert parameter.dtype == torch.bfloat16
    expected, _ = train("cpu", "AdamW8bit", torch.bfloat16, bf16_stochastic_round=True)
    torch.testing.assert_close(losses, expected, rtol=0.05, atol=0.02)


CONFIGS = {
    "int8 weights": lambda: quantization.Int8WeightOnlyConfig(),
    "int8 weights by groups": lambda: quantization.Int8WeightOnlyConfig(
        granularity=quantization.PerGroup(32)
    ),
    "int8 weights and activations": lambda: quantization.Int8DynamicActivationInt8WeightConfig(),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_quantized_models_give_the_results_of_the_cpu(name, dtype, compiled) -> None:
    model = make_model().to(dtype)
    on_loom = copy.deepcopy(model).to("loom")
    x = torch.randn(32, 64, dtype=dtype)
    for m in (model, on_loom):
        quantization.quantize_(m, CONFIGS[name]())
    weight = on_loom[0].weight
    assert weight.is_loom
    assert weight.qdata.dtype == torch.int8
    assert torch.equal(weight.qdata.cpu(), model[0].weight.qdata)
    with torch.no_grad():
        expected = model(x)
        result = (torch.compile(on_loom, fullgraph=True) if compiled else on_loom)(x.to("loom"))
    assert result.is_loom
    # An activation that is rounded the other way moves a result by a step of its scale.
    tolerance = 0.02 if dtype == torch.bfloat16 or "activations" in name else 1e-4
    torch.testing.assert_close(result.cpu(), expected, rtol=tolerance, atol=tolerance)


def test_a_quantized_model_is_moved_saved_and_loaded(tmp_path) -> None:
    model = make_model()
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    x = torch.randn(32, 64)
    with torch.no_grad():
        expected = model(x)
        model.to("loom")
        torch.save(model.state_dict(), tmp_path / "model.pt")
        other = make_model().to("loom")
        other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True), assign=True)
        for m in (model, other):
            assert m[0].weight.qdata.is_loom
            torch.testing.assert_close(m(x.to("loom")).cpu(), expected, rtol=1e-4, atol=1e-5)
