# SPDX-License-Identifier: BSD-3-Clause
"""Libraries under torchrun: accelerate, Lightning and the Trainer train on several ranks."""

import json
import os
import textwrap

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchrun import torchrun

os.environ["HF_HUB_OFFLINE"] = "1"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# What all scripts train, and the losses of the same on one process of the cpu.
PROBLEM = """
    import json
    import os

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    def make_model():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 3))

    def data():
        x = torch.randn(64, 8, generator=torch.Generator().manual_seed(3))
        return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())

    def tell(rank, device, model):
        flat = torch.cat([p.detach().cpu().flatten() for p in model.parameters()])
        answer = {"rank": rank, "device": str(device), "weights": flat.tolist()}
        print(json.dumps(answer), flush=True)
"""
RATE, BATCH = 0.05, 16


def alone():
    """Weights after an epoch of batches in order, in this process on the cpu."""
    problem = {}
    exec(textwrap.dedent(PROBLEM), problem)
    model = problem["make_model"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for x, y in DataLoader(problem["data"](), batch_size=BATCH):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def said(out):
    """What each rank says in JSON."""
    return [json.loads(line) for line in out.splitlines() if line.startswith('{"rank"')]


def check(out, ranks):
    answers = said(out)
    assert sorted(answer["rank"] for answer in answers) == list(range(ranks))
    for answer in answers:
        assert answer["device"] == f"loom:{answer['rank']}"
        torch.testing.assert_close(torch.tensor(answer["weights"]), alone(), rtol=1e-3, atol=1e-5)


ACCELERATE = """
    from accelerate import Accelerator

    accelerator = Accelerator()
    assert accelerator.num_processes == int(os.environ["WORLD_SIZE"])
    model = make_model()
    loader = DataLoader(data(), batch_size=16 // accelerator.num_processes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    seen = []
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        seen.append(accelerator.gather(loss.detach().reshape(1)))
    assert all(len(each) == accelerator.num_processes for each in seen)
    assert accelerator.gather_for_metrics(y).device.type == "loom"
    accelerator.save_state("state")
    accelerator.wait_for_everyone()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    accelerator.load_state("state")
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    tell(accelerator.process_index, accelerator.device, model)
    accelerator.end_training()
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_accelerate(tmp_path, ranks):
    pytest.importorskip("accelerate")
    check(torchrun(tmp_path, PROBLEM + ACCELERATE, ranks), ranks)


LIGHTNING = """
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.body = make_model()

        def training_step(self, batch, index):
            x, y = batch
            loss = nn.functional.cross_entropy(self.body(x), y)
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    ranks = int(os.environ["WORLD_SIZE"])
    fabric = lightning.Fabric(accelerator="loom", devices=ranks, strategy="ddp")
    fabric.launch()
    small = nn.Linear(3, 1)
    wrapped, _ = fabric.setup(small, torch.optim.SGD(small.parameters(), lr=0.1))
    x = torch.full((2, 3), float(fabric.global_rank), device=fabric.device)
    fabric.backward(wrapped(x).sum())
    assert small.weight.grad.tolist() == [[float(ranks - 1)] * 3]  # twice the average of ranks
    model = Classifier()
    trainer = lightning.Trainer(
        accelerator="loom",
        devices=ranks,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        use_distributed_sampler=False,
    )
    sampler = [
        [16 * step + i for i in range(int(os.environ["RANK"]), 16, ranks)] for step in range(4)
    ]
    trainer.fit(model, DataLoader(data(), batch_sampler=sampler))
    assert dist.get_backend() in ("lccl", "cpu:gloo,loom:lccl", "custom"), dist.get_backend()
    tell(trainer.global_rank, trainer.strategy.root_device, model)
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_lightning(tmp_path, ranks):
    pytest.importorskip("lightning")
    check(torchrun(tmp_path, PROBLEM + LIGHTNING, ranks), ranks)


TRAINER = """
    import transformers

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = make_model()

        def forward(self, x, labels=None):
            out = self.body(x)
            return {"loss": nn.functional.cross_entropy(out, labels), "logits": out}

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            x, y = data()[i]
            return {"x": x, "labels": y}

    ranks = int(os.environ["WORLD_SIZE"])
    trainer = transformers.Trainer(
        model=Net(),
        args=transformers.TrainingArguments(
            output_dir="out",
            per_device_train_batch_size=16 // ranks,
            num_train_epochs=1,
            learning_rate=0.05,
            lr_scheduler_type="constant",
            optim="sgd",
            max_grad_norm=0.0,
            save_strategy="epoch",
            report_to=[],
            disable_tqdm=True,
            logging_steps=1,
            train_sampling_strategy="sequential",
        ),
        train_dataset=Rows(),
        eval_dataset=Rows(),
    )
    trainer.train()
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] < 1.2
    assert trainer.args.parallel_mode.value == "distributed"
    tell(dist.get_rank(), trainer.args.device, trainer.model)
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_trainer(tmp_path, ranks):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    out = torchrun(tmp_path, PROBLEM + TRAINER, ranks)
    check(out, ranks)
    assert list((tmp_path / "out").glob("checkpoint-*"))
