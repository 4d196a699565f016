# SPDX-License-Identifier: BSD-3-Clause
"""TorchScript: trace, script, save and load, fork and wait, freeze."""

import io

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.filterwarnings(
    r"ignore:`torch.jit.\w+` is deprecated:DeprecationWarning",
    r"ignore:`torch.jit.\w+` is not supported in Python 3.14:DeprecationWarning",
)

LOOM = "loom"
PLACES = ["cpu", "loom:0", "loom:1"]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    torch.loom.reset_fallbacks()


class Gate(nn.Module):
    """Control flow that depends on data, a loop, a typed list and a buffer."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("limit", torch.tensor(1.5))

    def forward(self, x: torch.Tensor, steps: int) -> tuple[torch.Tensor, int]:
        history: list[torch.Tensor] = []
        rounds = 0
        for i in range(steps):
            x = self.norm(torch.tanh(self.inner(x))) + i
            history.append(x.mean(1))
            if bool(x.abs().mean() > self.limit):
                x = x * 0.5
            else:
                rounds += 1
        return torch.stack(history), rounds


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.inner = kind(4, 5, batch_first=True, **options)

    def forward(self, x):
        return self.inner(x)[0]


def train_step(module, *arguments):
    """The result, and the gradients of all parameters, on the host."""
    module.zero_grad()
    result = module(*arguments)
    first = result[0] if isinstance(result, tuple) else result
    first.square().sum().backward()
    gradients = {name: p.grad.clone().cpu() for name, p in module.named_parameters()}
    return first.detach().cpu(), gradients


def test_a_scripted_module_branches_loops_and_learns():
    eager = Gate()
    scripted = torch.jit.script(eager)
    x = torch.randn(6, 4)
    expected = train_step(eager, x, 4)
    _, rounds = eager(x, 4)
    eager.norm.reset_running_stats()
    scripted.to(LOOM)
    for _ in range(3):  # the profiling executor optimises from the second run on
        result, count = scripted(x.to(LOOM), 4)
        assert result.is_loom
        assert count == rounds
        torch.testing.assert_close(
            train_step(scripted, x.to(LOOM), 4), expected, rtol=1e-4, atol=1e-5
        )


def test_a_scripted_function_is_differentiated():
    @torch.jit.script
    def swish(x: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
        return x * torch.sigmoid(beta * x)

    x = torch.randn(50)
    for _ in range(3):
        mine, theirs = x.to(LOOM).requires_grad_(), x.clone().requires_grad_()
        swish(mine, 2.0).sum().backward()
        (theirs * torch.sigmoid(2 * theirs)).sum().backward()
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad)
    assert torch.loom.fallbacks() == {}


def test_a_device_is_a_value_in_script():
    @torch.jit.script
    def noise(x: torch.Tensor, where: torch.device) -> torch.Tensor:
        on_it = torch.zeros(3, device=where)
        if x.device.type == "loom":
            on_it = on_it + 1
        return on_it + torch.ones(3, device="loom:1").to(where) + x.new_ones(3).to(where)

    result = noise(torch.zeros(1, device="loom:1"), torch.device("loom:0"))
    assert result.device == torch.device("loom:0")
    assert result.tolist() == [3, 3, 3]


def test_a_trace_is_checked_against_the_module():
    module = Image().to(LOOM).eval()
    x = torch.randn(2, 3, 8, 8, device=LOOM)
    traced = torch.jit.trace(module, x, check_inputs=[(torch.randn(5, 3, 6, 6, device=LOOM),)])
    other = torch.randn(4, 3, 10, 10, device=LOOM)
    torch.testing.assert_close(traced(other), module(other))
    torch.testing.assert_close(
        train_step(traced, other), train_step(module, other), rtol=1e-4, atol=1e-5
    )


@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean")
@pytest.mark.filterwarnings("ignore:Trace had nondeterministic nodes")
def test_the_check_of_a_trace_finds_a_branch():
    def branch(x):
        return x + 1 if x.sum() > 0 else x - 1

    ones = torch.ones(3, device=LOOM)
    with (
        pytest.warns(torch.jit.TracerWarning, match="does not match"),
        pytest.raises(torch.jit.TracingCheckError, match="differed"),
    ):
        torch.jit.trace(branch, ones, check_inputs=[(-ones,)])


@pytest.mark.parametrize("source", PLACES)
@pytest.mark.parametrize("target", PLACES)
@pytest.mark.parametrize("make", ["script", "trace"])
def test_saved_modules_load_on_every_device(source, target, make):
    module = Image().eval().to(source)
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        expected = module(x.to(source)).cpu()
    made = torch.jit.script(module) if make == "script" else torch.jit.trace(module, x.to(source))
    file = io.BytesIO()
    torch.jit.save(made, file)
    file.seek(0)
    loaded = torch.jit.load(file, map_location=target)
    state = [*loaded.parameters(), *loaded.buffers()]
    assert {str(t.device) for t in state} == {target}
    with torch.no_grad():
        torch.testing.assert_close(loaded(x.to(target)).cpu(), expected)


def test_saved_modules_come_back_where_they_were():
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(2, 2).to("loom:1")), file)
    file.seek(0)
    assert torch.jit.load(file).weight.device == torch.device("loom:1")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
def test_recurrent_modules_move_after_they_were_scripted(kind, options):
    module = Recurrent(kind, **options)
    x = torch.randn(3, 7, 4)
    expected = train_step(module, x)
    module.zero_grad()
    scripted = torch.jit.script(module).to(LOOM)
    torch.testing.assert_close(train_step(scripted, x.to(LOOM)), expected, rtol=1e-4, atol=1e-5)
    scripted.to("loom:1").cpu()
    torch.testing.assert_close(train_step(scripted, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", PLACES)
def test_recurrent_modules_load_on_every_device(target):
    module = Recurrent(nn.LSTM, num_layers=2)
    x = torch.randn(3, 7, 4)
    expected = train_step(module, x)
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(module), file)
    file.seek(0)
    loaded = torch.jit.load(file, map_location=target)
    torch.testing.assert_close(train_step(loaded, x.to(target)), expected, rtol=1e-4, atol=1e-5)


def test_scripted_parameters_keep_their_identity_when_they_move():
    scripted = torch.jit.script(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(scripted.parameters(), lr=0.5)
    scripted.to(LOOM)
    x = torch.randn(20, 3, device=LOOM)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(scripted(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    assert torch.loom.fallbacks() == {}


def square_slowly(x: torch.Tensor, rounds: int) -> torch.Tensor:
    for _ in range(rounds):
        x = x @ x / 4
    return x


def test_fork_and_wait():
    @torch.jit.script
    def together(x: torch.Tensor, parts: int) -> torch.Tensor:
        futures: list[torch.jit.Future[torch.Tensor]] = []
        for i in range(parts):
            futures.append(torch.jit.fork(square_slowly, x + i, 3))
        total = torch.zeros_like(x)
        for future in futures:
            total = total + torch.jit.wait(future)
        return total

    x = torch.rand(4, 4) / 4
    mine, theirs = x.to(LOOM).requires_grad_(), x.clone().requires_grad_()
    result = together(mine, 5)
    expected = sum(square_slowly(theirs + i, 3) for i in range(5))
    assert result.is_loom
    torch.testing.assert_close(result.cpu(), expected)
    result.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(mine.grad.cpu(), theirs.grad)


def test_fork_works_on_the_stream_of_the_caller():
    @torch.jit.script
    def together(x: torch.Tensor) -> torch.Tensor:
        return torch.jit.wait(torch.jit.fork(square_slowly, x, 5))

    x = torch.rand(64, 64) / 16
    side = torch.loom.Stream()
    with torch.loom.stream(side):
        result = together(x.to(LOOM, non_blocking=True))
    side.synchronize()
    torch.testing.assert_close(result.cpu(), square_slowly(x, 5))


@pytest.mark.parametrize("optimise", [False, True])
def test_a_frozen_module_gives_the_same(optimise):
    module = Image().to(LOOM).eval()
    module(torch.randn(4, 3, 8, 8, device=LOOM))
    frozen = torch.jit.freeze(torch.jit.script(module))
    if optimise:
        frozen = torch.jit.optimize_for_inference(frozen)
    assert list(frozen.parameters()) == []
    x = torch.randn(2, 3, 8, 8, device=LOOM)
    with torch.no_grad():
        for _ in range(3):
            result = frozen(x)
            assert result.is_loom
            torch.testing.assert_close(result, module(x), rtol=1e-4, atol=1e-5)


def test_a_frozen_module_has_folded_its_norm():
    frozen = torch.jit.freeze(torch.jit.script(Image().to(LOOM).eval()))
    torch._C._jit_pass_inline(frozen.graph)
    assert "batch_norm" not in str(frozen.graph)
    assert "conv2d" in str(frozen.graph)


def pick(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[:, i] + x[i, 1:, None][0].T.sum()


def put(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[i] = v
    x[:, i] = v.T
    x.index_put_([i], v, accumulate=True)
    return x.index_put([i], v)


def mask(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[x > 4] = 0.5
    x[m, m] = 2.0
    return x + x[m].sum()


def mixed(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[None, i, ..., 1] + torch.ops.aten._unsafe_index(x, [i, None])[0, 0]


INDEXED = {
    "pick": (pick, (torch.tensor([2, 0]),)),
    "put": (put, (torch.tensor([2, 0]), torch.arange(8.0).view(2, 4))),
    "mask": (mask, (torch.tensor([True, False, False, True]),)),
    "mixed": (mixed, (torch.tensor([2, 0]),)),
}


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("traced", [False, True])
def test_indexing_with_tensors(name, traced):
    function, others = INDEXED[name]
    x = torch.arange(16.0).view(4, 4)
    arguments = [a.to(LOOM) for a in (x, *others)]
    expected = function(x, *others)
    function = torch.jit.trace(function, arguments) if traced else torch.jit.script(function)
    for _ in range(3):  # the third call runs the optimised graph
        result = function(*arguments)
    assert result.is_loom
    torch.testing.assert_close(result.cpu(), expected)


def test_indices_in_a_saved_program():
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(pick), stream)
    stream.seek(0)
    x, i = torch.arange(16.0).view(4, 4), torch.tensor([2, 0])
    loaded = torch.jit.load(stream)
    torch.testing.assert_close(loaded(x.to(LOOM), i.to(LOOM)).cpu(), pick(x, i))
