# SPDX-License-Identifier: BSD-3-Clause
"""Networks that are served one example at a time, written out from plain torch.nn."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

sys.path.insert(0, str(Path(__file__).parents[2] / "tests_py"))

from models import zoo


class Attention(nn.Module):
    """Self-attention without a mask."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A layer of an encoder, its norms before what they belong to or after it."""

    def __init__(self, width: int, heads: int, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed(x))


def blocks(count: int, width: int, heads: int, norm_first: bool) -> nn.Module:
    return nn.Sequential(*(Block(width, heads, norm_first) for _ in range(count)))


class Bert(nn.Module):
    """Six layers of 384, as small sentence encoders have."""

    def __init__(self, width: int = 384, layers: int = 6, words: int = 30522) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = blocks(layers, width, 12, norm_first=False)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.tokens(ids) + self.places(places))
        return self.layers(x).mean(1)


class Vit(nn.Module):
    """ViT small: patches of 16 x 16, a class token."""

    def __init__(self, width: int = 384, layers: int = 12, classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, 197, width))
        self.layers = blocks(layers, width, 6, norm_first=True)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class Whisper(nn.Module):
    """The encoder of speech: two convolutions of 3000 frames, then layers."""

    def __init__(self, width: int = 384, layers: int = 4) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(80, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, 2, 1)
        self.places = nn.Parameter(0.02 * torch.randn(1500, width))
        self.layers = blocks(layers, width, 6, norm_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(x)))).transpose(1, 2)
        return self.norm(self.layers(x + self.places))


def convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    padding = kernel // 2
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *convolution(inputs, width, 1),
            nn.ReLU(inplace=True),
            *convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *convolution(width, 4 * width, 1),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != 4 * width:
            self.shortcut = nn.Sequential(*convolution(inputs, 4 * width, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


def resnet50(classes: int = 1000) -> nn.Module:
    layers: list[nn.Module] = []
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            width = 64 * 2**stage
            layers.append(Bottleneck(channels, width, 2 if block == 0 and stage > 0 else 1))
            channels = 4 * width
    return nn.Sequential(
        *convolution(3, 64, 7, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        *layers,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, classes),
    )


class InvertedResidual(nn.Module):
    """A thin sum around a wide depthwise convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        wide = [*convolution(inputs, width, 1), nn.ReLU6(inplace=True)] if expansion > 1 else []
        self.adds = stride == 1 and inputs == outputs
        self.body = nn.Sequential(
            *wide,
            *convolution(width, width, 3, stride, groups=width),
            nn.ReLU6(inplace=True),
            *convolution(width, outputs, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


# Expansion, channels, blocks, stride of the first.
MOBILE = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(classes: int = 1000) -> nn.Module:
    layers: list[nn.Module] = [*convolution(3, 32, 3, 2), nn.ReLU6(inplace=True)]
    channels = 32
    for expansion, outputs, count, stride in MOBILE:
        for block in range(count):
            step = stride if block == 0 else 1
            layers.append(InvertedResidual(channels, outputs, step, expansion))
            channels = outputs
    layers += [*convolution(channels, 1280, 1), nn.ReLU6(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes))


class Vae(nn.Module):
    """A convolutional autoencoder of 64 x 64 images, down and up four times.

    What it draws is given, so that every engine draws the same.
    """

    def __init__(self, width: int = 32, latent: int = 128) -> None:
        super().__init__()
        down: list[nn.Module] = []
        up: list[nn.Module] = []
        channels = 3
        for level in range(4):
            outputs = width * 2**level
            down += [nn.Conv2d(channels, outputs, 4, 2, 1), nn.ReLU()]
            up = [nn.ReLU(), nn.ConvTranspose2d(outputs, channels, 4, 2, 1), *up]
            channels = outputs
        self.channels, self.latent = channels, latent
        self.encoder = nn.Sequential(*down, nn.Flatten(), nn.Linear(16 * channels, 2 * latent))
        self.start = nn.Linear(latent, 16 * channels)
        self.decoder = nn.Sequential(*up, nn.Sigmoid())

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        mean, log_deviation = self.encoder(x).chunk(2, dim=1)
        code = self.start(mean + noise * log_deviation.exp())
        return self.decoder(code.unflatten(1, (self.channels, 4, 4)))


class MixAttention(nn.Module):
    """Segformer's attention, whose keys are made of fewer places."""

    def __init__(self, width: int, heads: int, fewer: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.both = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.reduce = nn.Conv2d(width, width, fewer, fewer) if fewer > 1 else None
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        q = self.query(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        if self.reduce is not None:
            image = x.transpose(1, 2).unflatten(2, (height, width))
            x = self.norm(self.reduce(image).flatten(2).transpose(1, 2))
        k, v = self.both(x).unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))


class MixBlock(nn.Module):
    """Attention, and a feed-forward network with a depthwise convolution in it."""

    def __init__(self, width: int, heads: int, fewer: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = MixAttention(width, heads, fewer)
        self.wide, self.thin = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.depthwise = nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        x = x + self.attention(self.norm1(x), height, width)
        y = self.wide(self.norm2(x)).transpose(1, 2).unflatten(2, (height, width))
        return x + self.thin(F.gelu(self.depthwise(y).flatten(2).transpose(1, 2)))


class Segformer(nn.Module):
    """Four stages of fewer and wider places, and a head that sees them all."""

    def __init__(self, classes: int = 150, decoder: int = 256) -> None:
        super().__init__()
        self.patches, self.stages, self.norms = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        self.heads = nn.ModuleList()
        inputs = 3
        for level, (width, heads, fewer) in enumerate(
            ((32, 1, 8), (64, 2, 4), (160, 5, 2), (256, 8, 1))
        ):
            kernel, stride = (7, 4) if level == 0 else (3, 2)
            self.patches.append(nn.Conv2d(inputs, width, kernel, stride, kernel // 2))
            self.stages.append(nn.ModuleList(MixBlock(width, heads, fewer) for _ in range(2)))
            self.norms.append(nn.LayerNorm(width))
            self.heads.append(nn.Linear(width, decoder))
            inputs = width
        self.fuse = nn.Sequential(*convolution(4 * decoder, decoder, 1), nn.ReLU())
        self.classifier = nn.Conv2d(decoder, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = []
        for patches, stage, norm, head in zip(
            self.patches, self.stages, self.norms, self.heads, strict=True
        ):
            x = patches(x)
            height, width = x.shape[-2:]
            x = x.flatten(2).transpose(1, 2)
            for block in stage:
                x = block(x, height, width)
            x = norm(x)
            seen.append(head(x).transpose(1, 2).unflatten(2, (height, width)))
            x = x.transpose(1, 2).unflatten(2, (height, width))
        size = seen[0].shape[-2:]
        larger = [F.interpolate(y, size=size, mode="bilinear") for y in seen[:0:-1]]
        return self.classifier(self.fuse(torch.cat([*larger, seen[0]], dim=1)))


class ConvNextBlock(nn.Module):
    """A depthwise 7 x 7 convolution before a feed-forward network of pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.scale * self.feed(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Its smallest published size."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4)]
        width = 96
        for stage, count in enumerate((3, 3, 9, 3)):
            if stage > 0:
                layers += [nn.GroupNorm(1, width), nn.Conv2d(width, 2 * width, 2, 2)]
                width *= 2
            layers += [ConvNextBlock(width) for _ in range(count)]
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(x).mean((2, 3))))


class Tagger(nn.Module):
    """Words, a recurrent layer in both directions, a tag for each word."""

    def __init__(self, layer: type[nn.RNNBase], width: int = 256, tags: int = 20) -> None:
        super().__init__()
        self.words = nn.Embedding(10_000, width)
        self.layer = layer(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layer(self.words(ids))[0])


def mlp() -> nn.Module:
    return zoo.mlp(784, 512, 10)


def unet() -> nn.Module:
    return zoo.UNet(32)
