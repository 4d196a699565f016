# SPDX-License-Identifier: BSD-3-Clause
"""ONNX: models that live on loom are exported by both exporters, and run in onnxruntime."""

import io

import pytest
import torch
from torch import nn
from torch.export import Dim

for package in ("onnx", "onnxscript"):
    pytest.importorskip(package)
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.isinstance\\(treespec, LeafSpec\\):FutureWarning"),
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The feature will be removed:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Converting a tensor:torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore:Exporting a model to ONNX with a batch_size:UserWarning"),
]


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, groups=2),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 5),
        )

    def forward(self, x):
        return self.body(x)


class Attention(nn.Module):
    """A block of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.heads = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.heads(self.norm(x)).view(batch, length, 3, 2, 8)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()
        y = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, 16))
        return x + self.mlp(x)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(31, 16)
        self.lstm = nn.LSTM(16, 12, batch_first=True)
        self.head = nn.Linear(12, 31)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, words):
        states, _ = self.lstm(self.embed(words))
        return self.head(states).softmax(-1) * self.scale


def pictures(count=2):
    return torch.randn(count, 3, 16, 16)


def vectors(count=2, length=5):
    return torch.randn(count, length, 16)


def words(count=2, length=5):
    return torch.randint(31, (count, length))


# The model, its example input, an input of other sizes, and the dimensions that may change.
MODELS = {
    "pictures": (Pictures, pictures(), pictures(7), {0: "batch"}),
    "attention": (Attention, vectors(), vectors(4, 9), {0: "batch", 1: "length"}),
    "words": (Words, words(1), words(1), {}),
}
every_model = pytest.mark.parametrize("name", MODELS)


def make(name):
    torch.manual_seed(0)
    cls, example, other, dynamic = MODELS[name]
    return cls().eval().to("loom"), example, other, dynamic


def assert_runs_the_same(file, model, example):
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    (found,) = session.run(None, {entry.name: example.numpy()})
    with torch.no_grad():
        expected = model(example.to("loom"))
    assert expected.is_loom
    torch.testing.assert_close(torch.from_numpy(found), expected.cpu(), rtol=1e-4, atol=1e-5)
    return session


@every_model
def test_exported_models_give_the_same_results(name, tmp_path):
    model, example, _, _ = make(name)
    path = tmp_path / "model.onnx"
    torch.onnx.export(model, (example.to("loom"),), path, dynamo=True, verbose=False)
    assert_runs_the_same(path, model, example)
    assert {p.device.type for p in model.parameters()} == {"loom"}


@pytest.mark.parametrize("name", ["pictures", "attention"])
def test_dimensions_may_change(name, tmp_path):
    model, example, other, dynamic = make(name)
    path = tmp_path / "model.onnx"
    torch.onnx.export(
        model,
        (example.to("loom"),),
        path,
        dynamo=True,
        verbose=False,
        dynamic_shapes=(dict.fromkeys(dynamic, Dim.DYNAMIC),),
    )
    session = assert_runs_the_same(path, model, other)
    free = [isinstance(size, str) for size in session.get_inputs()[0].shape]
    assert [index for index, is_free in enumerate(free) if is_free] == list(dynamic)


@every_model
def test_the_older_exporter_works_too(name):
    model, example, other, dynamic = make(name)
    file = io.BytesIO()
    torch.onnx.export(
        model,
        (example.to("loom"),),
        file,
        dynamo=False,
        input_names=["x"],
        dynamic_axes={"x": dynamic},
    )
    assert_runs_the_same(file.getvalue(), model, other)


def test_a_program_is_called_with_loom_tensors():
    model, example, _, _ = make("pictures")
    x = example.to("loom")
    program = torch.onnx.export(model, (x,), dynamo=True, verbose=False)
    (found,) = program(x)
    with torch.no_grad():
        torch.testing.assert_close(found.cpu(), model(x).cpu(), rtol=1e-4, atol=1e-5)


def test_weights_are_written_beside_the_model(tmp_path):
    model, example, _, _ = make("pictures")
    path = tmp_path / "model.onnx"
    program = torch.onnx.export(model, (example.to("loom"),), dynamo=True, verbose=False)
    program.save(path, external_data=True)
    assert (tmp_path / "model.onnx.data").exists()
    assert_runs_the_same(path, model, example)


def test_an_exported_program_of_loom_becomes_onnx(tmp_path):
    model, example, other, dynamic = make("pictures")
    shapes = (dict.fromkeys(dynamic, Dim.DYNAMIC),)
    exported = torch.export.export(model, (example.to("loom"),), dynamic_shapes=shapes)
    path = tmp_path / "model.onnx"
    torch.onnx.export(exported, f=path, dynamo=True, verbose=False)
    assert_runs_the_same(path, model, other)
