# SPDX-License-Identifier: BSD-3-Clause
"""fastai: DataLoaders and learners on loom unasked, mixed precision, saved learners."""

import textwrap

import pytest
import torch
from torch import nn

# What fastai.torch_core does, for hosts without fastai: it wants torchvision.
STAND_IN = """
    from types import SimpleNamespace
    import torch

    defaults = SimpleNamespace(use_cuda=None)

    def default_device(use=-1):
        if use == -1:
            use = defaults.use_cuda
        else:
            defaults.use_cuda = use
        if use is not False and torch.cuda.is_available():
            return torch.device(torch.cuda.current_device())
        return torch.device("cpu")
"""


def test_the_default_device_is_loom(tmp_path, check):
    package = tmp_path / "fastai"
    package.mkdir()
    (package / "torch_core.py").write_text(textwrap.dedent(STAND_IN))
    (package / "__init__.py").write_text("from .torch_core import *")
    metadata = tmp_path / "fastai-2.8.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: fastai\nVersion: 2.8.0\n")
    done = check(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        from fastai.torch_core import default_device
        print(default_device(), default_device(True), default_device(False), default_device())
        """,
        str(tmp_path),
    )
    assert done.out.split() == ["loom:0", "loom:0", "cpu", "cpu"]


@pytest.fixture
def fastai():
    basics = pytest.importorskip("fastai.basics")
    pytest.importorskip("fastai.callback.fp16")
    yield basics
    basics.defaults.use_cuda = None


def learner(fastai, **options):
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = list(zip(x, (x[:, 0] > 0).long(), strict=True))
    options = {"device": fastai.default_device(), "shuffle": False, **options}
    loaders = fastai.DataLoaders.from_dsets(data, data, bs=16, **options)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    made = fastai.Learner(loaders, model, loss_func=nn.CrossEntropyLoss(), metrics=fastai.accuracy)
    made.seen = set()
    model.register_forward_hook(lambda _, __, y: made.seen.add((str(y.device), y.dtype)))
    return made


def fit(made):
    with made.no_bar(), made.no_logging():
        made.fit(3, lr=0.01)
    return torch.tensor(made.recorder.values)


PRECISIONS = {None: torch.float32, "to_fp16": torch.float16, "to_bf16": torch.bfloat16}


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_follows_the_cpu(precision, fastai):
    made = learner(fastai)
    if precision:
        getattr(made, precision)()
    found = fit(made)
    assert made.seen == {("loom:0", PRECISIONS[precision])}
    fastai.default_device(False)
    reference = learner(fastai)
    expected = fit(reference)
    assert reference.seen == {("cpu", torch.float32)}
    tolerance = 0.05 if precision else 1e-3
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:numpy.core is deprecated")
def test_a_saved_learner_is_loaded_onto_loom(fastai, tmp_path):
    made = learner(fastai)
    fit(made)
    made.save(tmp_path / "learner")
    other = learner(fastai).load(tmp_path / "learner")
    with made.no_bar(), other.no_bar():
        assert other.validate() == made.validate()
    for p, q in zip(made.model.parameters(), other.model.parameters(), strict=True):
        assert p.device == q.device == torch.device("loom", 0)
        assert torch.equal(p, q)
