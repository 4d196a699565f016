# SPDX-License-Identifier: BSD-3-Clause
"""Lightning: Trainer and Fabric choose loom, by name or unasked; bf16, checkpoints, devices."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

lightning = pytest.importorskip("lightning")

pytestmark = [
    pytest.mark.usefixtures("no_fallback"),
    pytest.mark.slow,
    # A dataset of tensors needs no worker processes.
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.isinstance\\(treespec, LeafSpec\\):FutureWarning"),
]


def data():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 8, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def loader():
    return DataLoader(data(), batch_size=16)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 3))
        self.seen = []
        self.losses = []

    def training_step(self, batch, index):
        x, y = batch
        output = self.body(x)
        self.seen.append((str(x.device), str(output.device), output.dtype))
        loss = nn.functional.cross_entropy(output, y)
        self.losses.append(loss.detach())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("accuracy", (self.body(x).argmax(-1) == y).float().mean())

    def predict_step(self, batch, index):
        return self.body(batch[0])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.02)


def make_trainer(folder, **options):
    options = {
        "max_epochs": 2,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
        "default_root_dir": folder,
        **options,
    }
    return lightning.Trainer(**options)


def fit(folder, **options):
    lightning.seed_everything(0, verbose=False)
    model = Classifier()
    trainer = make_trainer(folder, **options)
    trainer.fit(model, loader(), loader())
    return trainer, model


def losses(model):
    return torch.stack(model.losses).cpu()


CHOICES = {
    "unasked": ({}, "loom:0"),
    "auto": ({"accelerator": "auto", "devices": "auto"}, "loom:0"),
    "by name": ({"accelerator": "loom", "devices": 1}, "loom:0"),
    "by index": ({"accelerator": "loom", "devices": [1]}, "loom:1"),
    "by text": ({"accelerator": "loom", "devices": "1,"}, "loom:1"),
    "cpu": ({"accelerator": "cpu"}, "cpu"),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_training_runs_where_it_should(choice, tmp_path):
    options, device = CHOICES[choice]
    trainer, model = fit(tmp_path, max_epochs=1, **options)
    assert trainer.strategy.root_device == torch.device(device)
    assert set(model.seen) == {(device, device, torch.float32)}
    assert trainer.callback_metrics["accuracy"] > 0.2


def test_training_follows_the_cpu(tmp_path):
    torch.loom.reset_fallbacks()
    options = {"gradient_clip_val": 1.0, "accumulate_grad_batches": 2}
    trainer, model = fit(tmp_path, **options)
    assert torch.loom.fallbacks() == {}
    reference, expected = fit(tmp_path, accelerator="cpu", **options)
    assert all(loss.is_loom for loss in model.losses)
    torch.testing.assert_close(losses(model), losses(expected), rtol=1e-3, atol=1e-3)
    for name in ("loss", "accuracy"):
        found = trainer.callback_metrics[name].cpu()
        torch.testing.assert_close(found, reference.callback_metrics[name], atol=1e-3, rtol=0)
    for p, q in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p.detach().cpu(), q.detach(), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true"])
def test_training_in_lower_precision(precision, tmp_path):
    _, model = fit(tmp_path, precision=precision, max_epochs=4)
    dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
    assert set(model.seen) == {("loom:0", "loom:0", dtype)}
    assert losses(model)[-4:].mean() < 0.8 * losses(model)[:4].mean()


def test_predictions_are_those_of_the_cpu(tmp_path):
    _, model = fit(tmp_path)
    found = torch.cat(make_trainer(tmp_path).predict(model, loader()))
    expected = torch.cat(make_trainer(tmp_path, accelerator="cpu").predict(model, loader()))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-4)


def test_resumed_training_ends_where_unbroken_training_does(tmp_path):
    whole, model = fit(tmp_path, max_epochs=4)
    half, _ = fit(tmp_path, max_epochs=2)
    path = tmp_path / "half.ckpt"
    half.save_checkpoint(path)
    resumed = Classifier()
    trainer = make_trainer(tmp_path, max_epochs=4)
    trainer.fit(resumed, loader(), loader(), ckpt_path=path, weights_only=True)
    assert trainer.global_step == whole.global_step == 16
    assert {device for device, _, _ in resumed.seen} == {"loom:0"}
    for p, q in zip(resumed.parameters(), model.parameters(), strict=True):
        assert torch.equal(p.detach().cpu(), q.detach().cpu())


def test_device_statistics_are_logged(tmp_path):
    logger = lightning.pytorch.loggers.CSVLogger(tmp_path)
    monitor = lightning.pytorch.callbacks.DeviceStatsMonitor()
    fit(tmp_path, max_epochs=1, logger=logger, callbacks=[monitor])
    logger.save()
    assert "allocated_bytes.all.current" in (tmp_path / logger.log_dir / "metrics.csv").read_text()


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_fabric_trains_on_loom(precision):
    def train(**options):
        lightning.seed_everything(0, verbose=False)
        fabric = lightning.Fabric(precision=precision, **options)
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=0.02))
        history = []
        for x, y in fabric.setup_dataloaders(loader()):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            fabric.backward(loss)
            optimizer.step()
            history.append(loss.detach())
        return fabric, torch.stack(history)

    fabric, found = train()
    assert fabric.device == found.device == torch.device("loom", 0)
    _, expected = train(accelerator="cpu")
    tolerance = 1e-3 if precision == "32-true" else 0.03
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=tolerance)


def test_devices_that_do_not_exist_are_refused(tmp_path):
    with pytest.raises(ValueError, match="expected some of the 2 loom devices, got \\[7\\]"):
        make_trainer(tmp_path, accelerator="loom", devices=[7])


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_the_trainer_chooses_loom_under_both_names(name, check):
    package = pytest.importorskip(name).__name__
    done = check(
        f"""
        import {package} as package
        options = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False,
                       enable_model_summary=False)
        for chosen in ({{}}, {{"accelerator": "loom", "devices": [1]}}, {{"accelerator": "cpu"}},
                       {{"precision": "bf16-mixed"}}, {{"accelerator": "gpu"}}):
            try:
                trainer = package.Trainer(**options, **chosen)
            except Exception as error:
                print(type(error).__name__, end=" ")
            else:
                assert isinstance(trainer.accelerator, package.accelerators.Accelerator)
                device = getattr(trainer.precision_plugin, "device", "")
                print(trainer.strategy.root_device, device, end=" ")
        """,
        LOOM_DEVICES="2",
    )
    # A Trainer is told "gpu" where it must not run without one.
    assert done.out.split() == "loom:0 loom:1 cpu loom:0 loom MisconfigurationException".split()


@pytest.mark.parametrize("name", ["lightning.fabric", "lightning_fabric"])
def test_fabric_chooses_loom_under_both_names(name, check):
    package = pytest.importorskip(name).__name__
    done = check(
        f"""
        import torch, {package} as package
        for chosen in ({{}}, {{"accelerator": "loom", "devices": [1]}}, {{"accelerator": "cpu"}}):
            fabric = package.Fabric(**chosen)
            assert isinstance(fabric._accelerator, package.accelerators.Accelerator)
            model, optimizer = fabric.setup(
                layer := torch.nn.Linear(2, 2), torch.optim.SGD(layer.parameters())
            )
            fabric.backward(model(torch.ones(2, device=fabric.device)).sum())
            print(fabric.device, layer.weight.grad.device, end=" ")
        """,
        LOOM_DEVICES="2",
    )
    assert done.out.split() == "loom:0 loom:0 loom:1 loom:1 cpu cpu".split()
