# SPDX-License-Identifier: BSD-3-Clause
"""Nested tensors: jagged batches through layers, attention and training, and strided ones."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning"
)

LENGTHS = (3, 5, 2)
WIDTH = 8


def sequences(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, WIDTH, generator=generator) for length in lengths]


def jagged(device: str, *, grad: bool = False, seed: int = 0) -> torch.Tensor:
    parts = [part.to(device) for part in sequences(seed=seed)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=grad)


def strided(device: str, *, grad: bool = False, seed: int = 0) -> torch.Tensor:
    return torch.nested.nested_tensor(
        [part.to(device) for part in sequences(seed=seed)], requires_grad=grad
    )


def parts_on_host(tensor: torch.Tensor, device: str) -> list[torch.Tensor]:
    """The parts of a nested tensor, or the dense one, which must live on `device`."""
    assert tensor.device.type == device
    parts = tensor.unbind() if tensor.is_nested else [tensor]
    assert {part.device.type for part in parts} == {device}
    return [part.detach().cpu() for part in parts]


def assert_same(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(parts_on_host(got, "loom"), parts_on_host(expected, "cpu"))


CONSTRUCTORS: dict[str, Callable[[str], torch.Tensor]] = {
    "nested_tensor": jagged,
    "from_host_tensors": lambda device: torch.nested.nested_tensor(
        sequences(), layout=torch.jagged, device=device
    ),
    "as_nested_tensor": lambda device: torch.nested.as_nested_tensor(
        [part.to(device) for part in sequences()], layout=torch.jagged
    ),
    "from_jagged": lambda device: torch.nested.nested_tensor_from_jagged(
        torch.cat(sequences()).to(device), offsets=torch.tensor([0, 3, 8, 10], device=device)
    ),
    "with_holes": lambda device: torch.nested.nested_tensor_from_jagged(
        torch.cat(sequences()).to(device),
        offsets=torch.tensor([0, 3, 8, 10], device=device),
        lengths=torch.tensor([1, 4, 2], device=device),
    ),
    "narrow": lambda device: torch.nested.narrow(
        torch.stack(sequences((6, 6, 6))).to(device),
        1,
        torch.tensor([0, 2, 1], device=device),
        torch.tensor([2, 4, 1], device=device),
        layout=torch.jagged,
    ),
}


@pytest.mark.parametrize("how", CONSTRUCTORS)
def test_construction(how: str) -> None:
    nested = CONSTRUCTORS[how]("loom")
    assert nested.layout == torch.jagged
    assert nested.values().device.type == "loom"
    assert nested.offsets().device.type == "loom"
    assert_same(nested, CONSTRUCTORS[how]("cpu"))


def test_a_view_of_values_shares_their_memory() -> None:
    values = torch.cat(sequences()).to("loom")
    nested = torch.nested.nested_tensor_from_jagged(
        values, offsets=torch.tensor([0, 3, 10], device="loom")
    )
    values.zero_()
    assert nested.values().count_nonzero().item() == 0


WEIGHT = torch.linspace(-1, 1, 4 * WIDTH).view(4, WIDTH)
OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "sum_of_two": lambda x: x + x.sin(),
    "product_with_dense": lambda x: x * torch.arange(8.0, device=x.device),
    "linear": lambda x: functional.linear(x, WEIGHT.to(x.device)),
    "layer_norm": lambda x: functional.layer_norm(x, (WIDTH,)),
    "softmax": lambda x: functional.softmax(x, -1),
    "softmax_over_positions": lambda x: functional.softmax(x, 1),
    "heads": lambda x: x.unflatten(-1, [2, 4]).transpose(1, 2),
    "chunks": lambda x: torch.cat(x.chunk(2, -1)[::-1], -1),
    "padded": lambda x: torch.nested.to_padded_tensor(x, 0.5),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_on_jagged_tensors_and_their_gradients(name: str) -> None:
    results, grads = {}, {}
    for device in ("cpu", "loom"):
        x = jagged(device, grad=True)
        results[device] = OPERATORS[name](x)
        dense = results[device].values() if results[device].is_nested else results[device]
        dense.square().sum().backward()
        grads[device] = x.grad
    assert_same(results["loom"], results["cpu"])
    assert_same(grads["loom"], grads["cpu"])


@pytest.mark.parametrize("name", ["sum", "mean", "amax"])
@pytest.mark.parametrize("dim", [1, -1])
def test_reductions_of_jagged_tensors(name: str, dim: int) -> None:
    results = {d: getattr(jagged(d), name)(dim, keepdim=True) for d in ("cpu", "loom")}
    assert_same(results["loom"], results["cpu"])


def test_layers_on_jagged_tensors_are_queued() -> None:
    x = jagged("loom", grad=True)
    layers = nn.Sequential(nn.Linear(WIDTH, 16), nn.LayerNorm(16), nn.GELU()).to("loom")
    torch.loom.reset_fallbacks()
    layers(x).values().sum().backward()
    assert torch.loom.fallbacks() == {}


def test_different_offsets_are_refused_as_on_cpu() -> None:
    for device in ("cpu", "loom"):
        with pytest.raises(RuntimeError, match="cannot call binary pointwise function add"):
            jagged(device) + jagged(device)


class Attention(nn.Module):
    """Multi-head attention on padded or jagged batches."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(
        self, query: torch.Tensor, context: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(-1, [2, WIDTH // 2]).transpose(1, 2)
            for layer, x in ((self.q, query), (self.k, context), (self.v, context))
        )
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(attended.transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("kind", ["self", "cross"])
def test_attention_on_jagged_tensors_is_that_on_padded_ones(kind: str) -> None:
    torch.manual_seed(0)
    on_host = Attention()
    on_loom = copy.deepcopy(on_host).to("loom")
    lengths = LENGTHS if kind == "self" else (4, 1, 6)
    queries, contexts = sequences(), sequences(lengths, seed=0 if kind == "self" else 1)

    padded = nn.utils.rnn.pad_sequence(queries, batch_first=True)
    context = nn.utils.rnn.pad_sequence(contexts, batch_first=True)
    there = torch.arange(context.shape[1]) < torch.tensor(lengths)[:, None]
    output = on_host(padded, context, there[:, None, None, :])
    expected = torch.cat([row[:n] for row, n in zip(output, LENGTHS, strict=True)])
    expected.square().sum().backward()

    query = torch.nested.nested_tensor(queries, layout=torch.jagged, device="loom")
    other = torch.nested.nested_tensor(contexts, layout=torch.jagged, device="loom")
    got = on_loom(query, query if kind == "self" else other)
    assert got.device.type == "loom"
    got.values().square().sum().backward()

    torch.testing.assert_close(got.values().cpu(), expected)
    for mine, theirs in zip(on_loom.parameters(), on_host.parameters(), strict=True):
        assert mine.grad.device.type == "loom"
        torch.testing.assert_close(mine.grad.cpu(), theirs.grad)


@pytest.mark.limit(
    "causal attention on jagged tensors: PyTorch has it in its CUDA kernels only, cpu refuses too"
)
@pytest.mark.parametrize("device", ["cpu", "loom"])
def test_causal_attention_on_jagged_tensors_is_refused(device: str) -> None:
    q = jagged(device).unflatten(-1, [2, 4]).transpose(1, 2)
    with pytest.raises(RuntimeError, match="No viable backend for scaled_dot_product_attention"):
        functional.scaled_dot_product_attention(q, q, q, is_causal=True)


def test_training_a_classifier_of_sentences() -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, WIDTH)
            self.norm, self.attention = nn.LayerNorm(WIDTH), Attention()
            self.head = nn.Linear(WIDTH, 3)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.norm(self.embedding(tokens))
            x = torch.nested.to_padded_tensor(x + self.attention(x, x), 0.0)
            return self.head(x.sum(1) / tokens.offsets().diff()[:, None])

    losses = {}
    for device in ("cpu", "loom"):
        torch.manual_seed(0)
        model = Classifier().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        sentences = [torch.arange(n) * 3 % 20 for n in (4, 7, 2, 5)]
        tokens = torch.nested.nested_tensor(sentences, layout=torch.jagged, device=device)
        labels = torch.tensor([0, 1, 2, 1], device=device)
        losses[device] = []
        for _ in range(5):
            loss = functional.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    assert losses["loom"][-1] < losses["loom"][0]
    torch.testing.assert_close(losses["loom"], losses["cpu"])


@pytest.mark.parametrize("make", [jagged, strided])
def test_copies_between_devices(make: Callable[..., torch.Tensor]) -> None:
    moved = make("cpu").to("loom:1")
    assert moved.device == torch.device("loom:1")
    assert_same(moved, make("cpu"))
    assert_same(moved.to("loom:0"), make("cpu"))
    assert_same(moved.clone().half().float(), make("cpu").half().float())
    back = moved.cpu()
    torch.testing.assert_close(parts_on_host(back, "cpu"), sequences())


def test_deep_copies_have_memory_of_their_own() -> None:
    original = jagged("loom")
    copied = copy.deepcopy(original)
    original.values().zero_()
    assert_same(copied, jagged("cpu"))


@pytest.mark.parametrize("target", ["loom", "cpu"])
def test_save_and_load(target: str) -> None:
    file = io.BytesIO()
    torch.save(jagged("loom"), file)
    file.seek(0)
    loaded = torch.load(file, map_location=target)
    assert loaded.layout == torch.jagged
    assert loaded.offsets().device.type == target
    torch.testing.assert_close(parts_on_host(loaded, target), sequences())


@pytest.mark.parametrize("make", [jagged, strided])
def test_printing(make: Callable[..., torch.Tensor]) -> None:
    assert "device='loom:0'" in repr(make("loom"))
