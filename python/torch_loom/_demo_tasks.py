# SPDX-License-Identifier: BSD-3-Clause
"""The two things that the demo learns: handwritten digits, and the text of Python's own library."""

import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

Batches = Iterator[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Task:
    """A model to train and its data. All tensors are on the cpu; weights follow torch's seed.

    Attributes:
        name (str): what it is called in the table.
        model (callable): makes the model.
        train (callable): ``train(steps)`` yields that many batches, the same at every call.
        test (callable): ``test()`` yields the batches of the test set.
        learning_rate (float): of AdamW.
        steps (int): optimiser steps unless asked otherwise.
    """

    name: str
    model: Callable[[], nn.Module]
    train: Callable[[int], Batches]
    test: Callable[[], Batches]
    learning_rate: float
    steps: int


def digits_task(seed: int, quick: bool) -> Task:
    """Scikit-learn's 1797 digits of 8x8 pixels, and a small convolutional network."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test, train = order[:360], order[360:]

    def batches(steps: int) -> Batches:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            batch = train[torch.randint(len(train), (128,), generator=generator)]
            yield images[batch], labels[batch]

    def test_batches() -> Batches:
        yield images[test], labels[test]

    steps = 40 if quick else 400
    return Task("digits CNN", _cnn, batches, test_batches, learning_rate=2e-3, steps=steps)


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def text_task(seed: int, quick: bool) -> Task:
    """The sources of Python's standard library, character by character, and a small GPT."""
    length, batch_size = (32, 16) if quick else (64, 32)
    text = _library_text(1 << 20)
    alphabet = sorted(set(text))
    number_of = {character: index for index, character in enumerate(alphabet)}
    tokens = torch.tensor([number_of[character] for character in text])
    split = len(tokens) * 9 // 10

    def sample(part: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(part) - length - 1, (count,), generator=generator)
        rows = part[starts.unsqueeze(1) + torch.arange(length + 1)]
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def batches(steps: int) -> Batches:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            yield sample(tokens[:split], batch_size, generator)

    def test_batches() -> Batches:
        generator = torch.Generator().manual_seed(seed + 1)
        for _ in range(2 if quick else 8):
            yield sample(tokens[split:], 64, generator)

    def model() -> nn.Module:
        layers, width = (2, 64) if quick else (4, 128)
        return _GPT(len(alphabet), length, layers, heads=4, width=width)

    steps = 20 if quick else 240
    return Task("library GPT", model, batches, test_batches, learning_rate=1e-3, steps=steps)


def _library_text(size: int) -> str:
    parts: list[str] = []
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        parts.append(file.read_bytes().decode("ascii", errors="ignore"))
        if sum(map(len, parts)) >= size:
            break
    return "".join(parts)[:size]


class _Block(nn.Module):
    """Self-attention and a perceptron, each added to what comes in."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        added: Tensor = self.perceptron(self.norm2(x))
        return x + added


class _GPT(nn.Module):
    """A decoder-only transformer whose output shares the weights of its input embedding."""

    def __init__(self, characters: int, length: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(characters, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(_Block(heads, width) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)
        for embedding in (self.token, self.position):
            nn.init.normal_(embedding.weight, std=0.02)
        self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.token(tokens) + self.position(positions))
        logits: Tensor = self.head(self.norm(x))
        return logits.transpose(1, 2)  # classes second, as cross_entropy wants them
