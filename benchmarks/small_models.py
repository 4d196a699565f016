# SPDX-License-Identifier: BSD-3-Clause
"""Networks of the size that people train without a GPU, from plain torch.nn, with their batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

F = torch.nn.functional
WORDS, TAGS, TOKENS = 5000, 20, 1000


def tabular() -> nn.Module:
    """Rows of a table through an MLP with batch norm."""
    widths = [64, 256, 128, 64]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 2))


class Tagger(nn.Module):
    """A tag for each word of a sentence, by a GRU in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 64)
        self.gru = nn.GRU(64, 128, bidirectional=True, batch_first=True)
        self.head = nn.Linear(256, TAGS)

    def forward(self, words: Tensor) -> Tensor:
        states, _ = self.gru(self.embedding(words))
        return self.head(states).flatten(0, 1)


class Vae(nn.Module):
    """A convolutional autoencoder of small images, with noise between its halves."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.mean, self.log_variance = nn.Linear(64 * 49, 16), nn.Linear(64 * 49, 16)
        self.decoder = nn.Sequential(
            nn.Linear(16, 64 * 49),
            nn.Unflatten(1, (64, 7, 7)),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 1, 4, stride=2, padding=1),
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        code = self.encoder(images)
        mean, log_variance = self.mean(code), self.log_variance(code)
        noise = torch.randn_like(mean) if self.training else 0
        return self.decoder(mean + noise * (log_variance / 2).exp()), mean, log_variance


def vae_loss(result: tuple[Tensor, Tensor, Tensor], images: Tensor) -> Tensor:
    pixels, mean, log_variance = result
    far = F.binary_cross_entropy_with_logits(pixels, images, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return (far + divergence) / len(images)


class InvertedResidual(nn.Module):
    """MobileNetV2's block: to many channels, each by itself, and back."""

    def __init__(self, before: int, after: int, stride: int, expansion: int = 4) -> None:
        super().__init__()
        wide = before * expansion
        self.same = stride == 1 and before == after
        self.layers = nn.Sequential(
            nn.Conv2d(before, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.same else self.layers(x)


def inverted_residuals() -> nn.Module:
    blocks = [(16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 32, 2), (32, 32, 1)]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        *(InvertedResidual(*sizes) for sizes in blocks),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


class LlamaBlock(nn.Module):
    """Attention with rotated queries and keys, then a gated MLP, each after an RMS norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 3 * width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)

        def rotated(y: Tensor) -> Tensor:
            first, second = y.chunk(2, -1)
            return y * cos + torch.cat((-second, first), -1) * sin

        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, width: int = 128, heads: int = 4, layers: int = 2, length: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, TOKENS, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(length), 10000.0 ** -(torch.arange(half) / half))
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x)).flatten(0, 1)


@dataclass(frozen=True)
class Network:
    """A model, and for so many samples its input and what the loss compares its result with."""

    model: Callable[[], nn.Module]
    batch: Callable[[int], tuple[Tensor, Tensor]]
    loss: Callable[[object, Tensor], Tensor] = F.cross_entropy


def images_of(*sizes: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda count: (torch.rand(count, *sizes), torch.randint(10, (count,)))


def same_images(count: int) -> tuple[Tensor, Tensor]:
    images = torch.rand(count, 1, 28, 28)
    return images, images


NETWORKS = {
    "tabular MLP with batch norm": Network(
        tabular, lambda count: (torch.randn(count, 64), torch.randint(2, (count,)))
    ),
    "GRU tagger": Network(
        Tagger,
        lambda count: (torch.randint(WORDS, (count, 32)), torch.randint(TAGS, (count * 32,))),
    ),
    "convolutional VAE": Network(Vae, same_images, vae_loss),
    "inverted residuals": Network(inverted_residuals, images_of(3, 32, 32)),
    "small Llama": Network(
        Llama,
        lambda count: (torch.randint(TOKENS, (count, 64)), torch.randint(TOKENS, (count * 64,))),
    ),
}
