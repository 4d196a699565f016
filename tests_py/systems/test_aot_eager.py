# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile without code generation (eager, aot_eager), torch.export, graph breaks."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.export.passes import move_to_device_pass

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        # A compiled optimiser imports modules that are written with torch.jit.
        r"ignore:`torch.jit.\w+` is deprecated:DeprecationWarning",
        # run_decompositions copies tree specifications of an old class.
        r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning",
    ),
]

LOOM = "loom"
BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


@pytest.fixture(autouse=True)
def seed():
    torch._dynamo.reset()
    torch.manual_seed(0)
    torch.loom.reset_fallbacks()
    yield
    torch._dynamo.reset()


class Perceptron(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3)
        )
        self.head = nn.Linear(8, 4)
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):
        self.seen += 1
        return self.head(self.body(x).mean((2, 3)))


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 64)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(self.inner(x)) + torch.rand_like(x[:, :1])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x).mean(1)


MODELS = {
    "perceptron": (Perceptron, (5, 6)),
    "image": (Image, (4, 3, 12, 12)),
    "transformer": (Transformer, (3, 7, 16)),
}


def train(model, run, x, steps=3):
    """The results of some steps of training and the state after them, on the host."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    results = []
    for _ in range(steps):
        optimizer.zero_grad()
        result = run(x)
        assert result.device == x.device
        result.square().mean().backward()
        optimizer.step()
        results.append(result.detach().cpu())
    return results, {name: value.cpu() for name, value in model.state_dict().items()}


@BACKENDS
@pytest.mark.parametrize("name", MODELS)
def test_compiled_models_train_as_on_cpu(name, backend):
    make, shape = MODELS[name]
    model, x = make(), torch.randn(shape)
    mine = copy.deepcopy(model).to(LOOM)
    expected = train(model, model, x)
    compiled = torch.compile(mine, backend=backend, fullgraph=True)
    result = train(mine, compiled, x.to(LOOM))
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-5)
    assert torch.loom.fallbacks() == {}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_random_numbers_are_those_of_the_eager_model(backend):
    model, x = Dropping().to(LOOM), torch.randn(5, 6, device=LOOM)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    torch.manual_seed(3)
    expected = [model(x), model(x)]
    torch.manual_seed(3)
    result = [compiled(x), compiled(x)]
    torch.testing.assert_close(result, expected)
    assert not torch.equal(result[0], result[1])
    gradients = [torch.autograd.grad(r.sum(), model.inner.weight) for r in (*result, *expected)]
    torch.testing.assert_close(gradients[:2], gradients[2:])


@BACKENDS
def test_arguments_are_changed_in_place(backend):
    @torch.compile(backend=backend, fullgraph=True)
    def update(total, x):
        total.mul_(0.9).add_(x)
        view = total[1:]
        view.zero_()
        return total.sum()

    total = torch.ones(4, device=LOOM)
    assert update(total, torch.ones(4, device=LOOM)).item() == pytest.approx(1.9)
    assert total.tolist() == pytest.approx([1.9, 0, 0, 0])


@BACKENDS
def test_shapes_may_change(backend):
    torch._dynamo.utils.counters.clear()
    model = Perceptron().to(LOOM)
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    for rows in (2, 5, 9):
        x = torch.randn(rows, 6, device=LOOM)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@BACKENDS
def test_autocast_inside_a_compiled_function(backend):
    def product(a, b):
        with torch.autocast(LOOM, dtype=torch.bfloat16):
            return torch.relu(a @ b)

    a, b = torch.randn(2, 8, 8, device=LOOM)
    result = torch.compile(product, backend=backend, fullgraph=True)(a, b)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result, product(a, b))


def streams_and_events(x):
    side, done = torch.Stream(device=LOOM), torch.Event(device=LOOM)
    with side:
        y = x * 2
        done.record()
    done.synchronize()
    return y + 1


def streams_by_the_functions_of_loom(x):
    side = torch.loom.Stream()
    side.wait_stream(torch.loom.current_stream())
    with torch.loom.stream(side):
        y = x * 2
        done = side.record_event()
    torch.loom.current_stream().wait_event(done)
    return y + 1


WITHOUT_BREAK = {
    "model": lambda x: torch.softmax(x @ x.T, -1),
    "moves": lambda x: x.cpu().to("loom:1").to(x.device) + x.loom(),
    "factories": lambda x: x + torch.ones(3, device=LOOM) + torch.rand(3, device=x.device),
    "is_loom": lambda x: x + 1 if x.is_loom else x,
    "available": lambda x: x + torch.loom.device_count() if torch.loom.is_available() else x,
    "accelerator": lambda x: x + 1 if torch.accelerator.is_available() else x,
    "streams and events": streams_and_events,
    "streams of loom": streams_by_the_functions_of_loom,
}


@pytest.mark.parametrize("name", WITHOUT_BREAK)
def test_these_break_no_graph(name):
    function, x = WITHOUT_BREAK[name], torch.randn(3, 3, device=LOOM)
    explanation = torch._dynamo.explain(function)(x)
    assert explanation.graph_count == 1
    assert explanation.break_reasons == []
    torch._dynamo.reset()
    torch.manual_seed(1)
    result = torch.compile(function, backend="aot_eager", fullgraph=True)(x)
    torch.manual_seed(1)
    torch.testing.assert_close(result, function(x))


def test_the_default_stream_ends_a_graph():
    def function(x):
        y = x * 2
        default = torch.loom.default_stream()
        torch.loom.current_stream().wait_stream(default)
        return y + 1

    x = torch.randn(3, 3, device=LOOM)
    assert torch._dynamo.explain(function)(x).graph_break_count == 1
    torch._dynamo.reset()
    assert torch.equal(torch.compile(function, backend="aot_eager")(x), function(x))


@pytest.mark.parametrize("name", MODELS)
def test_models_have_no_graph_breaks(name):
    make, shape = MODELS[name]
    explanation = torch._dynamo.explain(make().to(LOOM))(torch.randn(shape, device=LOOM))
    assert explanation.graph_count == 1
    assert explanation.graph_break_count == 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("made_on", ["cpu", LOOM])
def test_exported_programs_run_on_loom(name, made_on, tmp_path):
    make, shape = MODELS[name]
    model, x = make().eval(), torch.randn(shape)
    expected = model(x)
    rows = torch.export.Dim("rows", min=2, max=64)
    model.to(made_on)
    if name == "image":
        model.seen.zero_()
    program = torch.export.export(model, (x.to(made_on),), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "program.pt2")
    program = torch.export.load(tmp_path / "program.pt2")
    if made_on == "cpu":
        program = move_to_device_pass(program, LOOM)
    assert {t.device.type for t in program.state_dict.values()} == {LOOM}
    runner = program.module()
    result = runner(x.to(LOOM))
    assert result.is_loom
    torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)
    twice = runner(torch.cat([x, x]).to(LOOM))
    torch.testing.assert_close(twice[: len(x)], result, rtol=1e-4, atol=1e-5)


def test_decomposed_programs_run_on_loom():
    model, x = Image().to(LOOM).eval(), torch.randn(4, 3, 12, 12, device=LOOM)
    expected = model(x)
    model.seen.zero_()
    program = torch.export.export(model, (x,)).run_decompositions()
    targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
    assert torch.ops.aten.convolution.default in targets
    runner = program.module()
    torch.testing.assert_close(runner(x), expected, rtol=1e-4, atol=1e-5)
    assert runner.seen.item() == 1


def test_compiled_optimisers_step_as_eager_ones():
    models = [Perceptron().to(LOOM)]
    models.append(copy.deepcopy(models[0]))
    x = torch.randn(5, 6, device=LOOM)
    for model, wrap in zip(
        models, (lambda f: f, lambda f: torch.compile(f, backend="aot_eager")), strict=True
    ):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        step = wrap(optimizer.step)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            step()
    torch.testing.assert_close(*(list(m.state_dict().values()) for m in models))


def test_checkpoints_inside_a_compiled_function():
    model, x = Perceptron().to(LOOM), torch.randn(5, 6, device=LOOM, requires_grad=True)

    def run(x):
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).square().sum()

    expected = torch.autograd.grad(run(x), x)
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x), expected)


class Choosing(nn.Module):
    """Has a shape and a branch that depend on values."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x):
        kept = x[x[:, 0] > 0]
        if kept.sum().item() > -1e9:
            kept = kept * 2
        return self.linear(kept)


@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <_io.FileIO:pytest.PytestUnraisableExceptionWarning"
)
def test_draft_exports_say_what_they_assume(tmp_path):
    model, x = Choosing().to(LOOM), torch.randn(8, 6, device=LOOM)
    program = torch.export.draft_export(model, (x,))
    assert program._report.failures
    torch.export.save(program, tmp_path / "program.pt2")
    for p in (program, torch.export.load(tmp_path / "program.pt2")):
        result = p.module()(x)
        assert result.is_loom
        torch.testing.assert_close(result, model(x))
    gc.collect()  # PyTorch leaves a log of its own to be closed


@pytest.mark.parametrize("strict", [True, False])
def test_exported_programs_are_decomposed_saved_and_compiled(strict, tmp_path):
    model, x = Transformer().to(LOOM).eval(), torch.randn(3, 7, 16, device=LOOM)
    program = torch.export.export(model, (x,), strict=strict).run_decompositions()
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2").module()
    expected = model(x)
    torch.testing.assert_close(loaded(x), expected, rtol=1e-4, atol=1e-5)
    compiled = torch.compile(loaded, fullgraph=True)
    torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-5)
