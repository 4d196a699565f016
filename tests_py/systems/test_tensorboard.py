# SPDX-License-Identifier: BSD-3-Clause
"""TensorBoard: SummaryWriter logs a training on loom: scalars, histograms, graphs, embeddings."""

import numpy
import pytest
import torch
from torch import nn

pytest.importorskip("tensorboard")
events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
tensorboard = pytest.importorskip("torch.utils.tensorboard")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning"),
]


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def log_training(folder, device):
    """Train for a few steps, and log what people log."""
    model = make_model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 4, generator=generator).to(device)
    y = x.sum(1, keepdim=True).expand(-1, 2)
    with tensorboard.SummaryWriter(folder) as writer:
        for step in range(4):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            writer.add_scalar("loss", loss, step)
            writer.add_scalars("both", {"mean": y.mean(), "loss": loss.detach()}, step)
            for name, parameter in model.named_parameters():
                writer.add_histogram(name, parameter, step)
                writer.add_histogram(f"{name}.grad", parameter.grad, step)
        writer.add_graph(model, x)
        writer.add_image("weights", model[0].weight.detach().sigmoid(), dataformats="HW")
        writer.add_embedding(model(x), metadata=y[:, 0].tolist(), tag="outputs")
        writer.add_pr_curve("curve", y[:, 0] > 0, model(x)[:, 0].sigmoid())
        writer.add_tensor("outputs", model(x).detach())
    return model(x).detach()


def read(folder):
    accumulator = events.EventAccumulator(str(folder), size_guidance={events.HISTOGRAMS: 0})
    return accumulator.Reload()


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    torch.loom.reset_fallbacks()
    outputs = log_training(folder / "loom", "loom")
    assert outputs.is_loom
    log_training(folder / "cpu", "cpu")
    return folder, outputs.cpu()


def test_scalars_are_those_of_the_cpu(logs):
    folder, _ = logs
    found, expected = (
        [(e.step, e.value) for e in read(folder / device).Scalars("loss")]
        for device in ("loom", "cpu")
    )
    assert [step for step, _ in found] == [0, 1, 2, 3]
    assert found[3][1] < found[0][1]
    assert [v for _, v in found] == pytest.approx([v for _, v in expected], rel=1e-4)
    assert (folder / "loom" / "both_mean").is_dir()


def test_histograms_are_those_of_the_cpu(logs):
    folder, _ = logs
    found, expected = (read(folder / device) for device in ("loom", "cpu"))
    tags = found.Tags()["histograms"]
    assert sorted(tags) == sorted(expected.Tags()["histograms"])
    assert len(tags) == 8
    for tag in tags:
        for mine, theirs in zip(found.Histograms(tag), expected.Histograms(tag), strict=True):
            assert mine.histogram_value.num == theirs.histogram_value.num
            assert mine.histogram_value.sum == pytest.approx(
                theirs.histogram_value.sum, rel=1e-3, abs=1e-4
            )


def test_the_graph_of_a_model_on_loom(logs):
    folder, _ = logs
    operators = [
        {node.op for node in read(folder / device).Graph().node} for device in ("loom", "cpu")
    ]
    assert operators[0] == operators[1]
    assert "aten::linear" in operators[0]


def test_embeddings_are_written(logs):
    folder, outputs = logs
    (table,) = (folder / "loom").rglob("tensors.tsv")
    found = torch.from_numpy(numpy.loadtxt(table, dtype=numpy.float32))
    torch.testing.assert_close(found, outputs)
    (labels,) = (folder / "loom").rglob("metadata.tsv")
    assert len(labels.read_text().split()) == 32


def test_images_curves_and_tensors_are_written(logs):
    folder, outputs = logs
    log = read(folder / "loom")
    assert log.Images("weights")[0].height == 8
    assert {"curve", "outputs"} <= set(log.Tags()["tensors"])
    proto = log.Tensors("outputs")[0].tensor_proto
    assert numpy.reshape(proto.float_val, (32, 2)).tolist() == outputs.tolist()
