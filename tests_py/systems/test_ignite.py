# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch-Ignite: idist chooses loom; engines, metrics, mixed precision, checkpoints."""

import pytest
import torch
from torch import nn

pytest.importorskip("ignite")

import ignite.distributed as idist
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint
from ignite.metrics import Accuracy, Loss

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_fallback")]

PRECISIONS = {
    "full": ({}, torch.float32, 1e-4),
    "mixed": ({"amp_mode": "amp"}, torch.bfloat16, 0.03),
    "mixed, with a scaler": ({"amp_mode": "amp", "scaler": True}, torch.bfloat16, 0.03),
}


def data():
    x = torch.randn(8, 16, 4, generator=torch.Generator().manual_seed(1))
    return [(part, (part[:, 0] > 0).long() + (part[:, 1] > 0).long()) for part in x]


def train(device, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
    model = model.to(device) if device else idist.auto_model(model)
    device = device or idist.device()
    seen = set()
    model.register_forward_hook(lambda _, __, y: seen.add((y.device.type, y.dtype)))
    optimizer = idist.auto_optim(torch.optim.AdamW(model.parameters(), lr=0.02))
    trainer = create_supervised_trainer(
        model, optimizer, nn.functional.cross_entropy, device=device, **options
    )
    losses = []
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda e: losses.append(e.state.output))
    trainer.run(data(), max_epochs=3)
    return model, optimizer, trainer, torch.tensor(losses), seen


def test_the_device_of_a_process_is_loom():
    assert idist.device() == torch.device("loom")
    model = idist.auto_model(nn.Linear(2, 2))
    assert {p.device for p in model.parameters()} == {torch.device("loom", 0)}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_follows_the_cpu(precision):
    options, dtype, tolerance = PRECISIONS[precision]
    torch.loom.reset_fallbacks()
    _, _, _, losses, seen = train(None, **options)
    assert torch.loom.fallbacks() == {}
    assert seen == {("loom", dtype)}
    _, _, _, expected, seen = train("cpu")
    assert seen == {("cpu", torch.float32)}
    torch.testing.assert_close(losses, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("amp_mode", [None, "amp"])
def test_metrics_are_those_of_the_cpu(amp_mode):
    model, _, _, _, _ = train(None)
    found = []
    for device in ("loom", "cpu"):
        metrics = {
            "accuracy": Accuracy(device=device),
            "loss": Loss(nn.functional.cross_entropy, device=device),
        }
        model = model.to(device)
        mode = amp_mode if device == "loom" else None
        seen = set()
        hook = model.register_forward_hook(lambda _, __, y, seen=seen: seen.add(y.dtype))
        evaluator = create_supervised_evaluator(model, metrics, device=device, amp_mode=mode)
        found.append(evaluator.run(data()).metrics)
        hook.remove()
        assert seen == {torch.bfloat16 if mode else torch.float32}
    assert found[0] == pytest.approx(found[1], rel=0.02 if amp_mode else 1e-4)


def test_training_goes_on_from_a_checkpoint(tmp_path):
    model, optimizer, trainer, _, _ = train(None)
    state = {"model": model, "optimizer": optimizer, "trainer": trainer}
    torch.save({name: part.state_dict() for name, part in state.items()}, tmp_path / "checkpoint")
    saved = [p.detach().clone() for p in model.parameters()]
    trainer.run(data(), max_epochs=5)
    finished = [p.detach().clone() for p in model.parameters()]
    Checkpoint.load_objects(state, torch.load(tmp_path / "checkpoint", weights_only=True))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), saved, strict=True))
    trainer.run(data(), max_epochs=5)
    for p, q in zip(model.parameters(), finished, strict=True):
        torch.testing.assert_close(p.detach(), q)
