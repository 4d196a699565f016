# SPDX-License-Identifier: BSD-3-Clause
"""The models that users train, small, from plain torch.nn, each with a batch of its own kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

VOCABULARY = 37
CONTEXT = 16
CLASSES = 5

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Task:
    """A model, its batches, and the loss of its output."""

    model: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = F.cross_entropy


class BasicBlock(nn.Module):
    """ResNet's block of two 3x3 convolutions with a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


def resnet18(width: int = 8, classes: int = CLASSES) -> nn.Module:
    blocks: list[nn.Module] = []
    channels = width
    for stage in range(4):
        wider = width * 2**stage
        for block in range(2):
            blocks.append(BasicBlock(channels, wider, 2 if block == 0 and stage > 0 else 1))
            channels = wider
    return nn.Sequential(
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, classes),
    )


class Vit(nn.Module):
    """Patches, a class token, learned places and an encoder."""

    def __init__(
        self,
        width: int = 32,
        layers: int = 2,
        heads: int = 4,
        feed: int = 2,
        patch: int = 8,
        size: int = 32,
        classes: int = CLASSES,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, 1 + (size // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, feed * width, 0.0, F.gelu, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        return self.head(self.encoder(x)[:, 0])


class Attention(nn.Module):
    """Causal self-attention through scaled_dot_product_attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class GptBlock(nn.Module):
    """Attention and a feed-forward network, each after a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Gpt(nn.Module):
    """A decoder whose output is tied to its embedding."""

    def __init__(
        self,
        width: int = 32,
        layers: int = 2,
        heads: int = 4,
        vocabulary: int = VOCABULARY,
        context: int = CONTEXT,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(GptBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


class Bert(nn.Module):
    """An encoder of padded sequences; its loss is over all positions that are not padding."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.places = nn.Embedding(CONTEXT, width)
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, F.gelu, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        x = self.norm(self.tokens(ids) + self.places(places))
        x = self.encoder(x, src_key_padding_mask=ids == 0)
        return self.head(x).flatten(0, 1)


class LstmModel(nn.Module):
    """A language model with two layers of LSTM."""

    def __init__(self, width: int = 24, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.tokens(ids))[0]).flatten(0, 1)


def double_conv(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.GroupNorm(4, outputs),
        nn.SiLU(),
    )


class UNet(nn.Module):
    """Down twice, up by a transposed convolution and by interpolation, with skips."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down1, self.down2 = double_conv(3, width), double_conv(width, 2 * width)
        self.middle = double_conv(2 * width, 4 * width)
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up2, self.up1 = double_conv(4 * width, 2 * width), double_conv(3 * width, width)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        x = self.up(self.middle(F.max_pool2d(two, 2)))
        x = self.up2(torch.cat([x, two], dim=1))
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(self.up1(torch.cat([x, one], dim=1)))


def mlp(inputs: int = 20, width: int = 64, classes: int = CLASSES) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.ReLU(),
        nn.Dropout(0.0),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, classes),
    )


def images(size: int) -> Callable[[], Batch]:
    return lambda: (torch.randn(4, 3, size, size), torch.randint(CLASSES, (4,)))


def next_tokens() -> Batch:
    ids = torch.randint(VOCABULARY, (4, CONTEXT + 1))
    return ids[:, :-1], ids[:, 1:].flatten()


def padded_tokens() -> Batch:
    ids = torch.randint(1, VOCABULARY, (4, CONTEXT))
    ids[1, 9:] = 0
    ids[3, 5:] = 0
    return ids, ids.flatten()


def without_padding(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, target, ignore_index=0)


ZOO: dict[str, Task] = {
    "resnet18": Task(resnet18, images(64)),
    "vit": Task(Vit, images(32)),
    "gpt": Task(Gpt, next_tokens),
    "bert": Task(Bert, padded_tokens, without_padding),
    "lstm": Task(LstmModel, next_tokens),
    "unet": Task(UNet, lambda: (torch.randn(2, 3, 16, 16), torch.randint(CLASSES, (2, 16, 16)))),
    "mlp": Task(mlp, lambda: (torch.randn(16, 20), torch.randint(CLASSES, (16,)))),
}

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
}
