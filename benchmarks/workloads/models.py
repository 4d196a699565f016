# SPDX-License-Identifier: BSD-3-Clause
"""The models of the tests, as large as they are used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "tests_py"))

from models import zoo

CLASSES = 10
CHARACTERS = 65
PLACES = 256


@dataclass(frozen=True)
class Model:
    """A model, and inputs and targets of so many examples."""

    model: Callable[[], nn.Module]
    batch: Callable[[int], tuple[Tensor, Tensor]]
    examples: int  # in a step of training
    bfloat16: bool = False  # measured under autocast, too
    sgd: bool = False
    quick: bool = False


def images(size: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda count: (torch.randn(count, 3, size, size), torch.randint(CLASSES, (count,)))


def characters(length: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    def batch(count: int) -> tuple[Tensor, Tensor]:
        ids = torch.randint(CHARACTERS, (count, length + 1))
        return ids[:, :-1].contiguous(), ids[:, 1:].flatten()

    return batch


MODELS: dict[str, Model] = {
    "MLP": Model(
        lambda: zoo.mlp(784, 512, CLASSES),
        lambda count: (torch.randn(count, 784), torch.randint(CLASSES, (count,))),
        32,
        quick=True,
    ),
    "LSTM": Model(lambda: zoo.LstmModel(256, CHARACTERS), characters(64), 16),
    "ResNet-18 64x64": Model(
        lambda: zoo.resnet18(64, CLASSES), images(64), 8, sgd=True, quick=True
    ),
    "ViT-tiny 224x224": Model(
        lambda: zoo.Vit(192, 12, 3, 4, 16, 224, CLASSES), images(224), 4, bfloat16=True
    ),
    "char-GPT": Model(
        lambda: zoo.Gpt(384, 4, 6, CHARACTERS, PLACES),
        characters(PLACES),
        8,
        bfloat16=True,
        quick=True,
    ),
    "U-Net 64x64": Model(
        lambda: zoo.UNet(32),
        lambda count: (
            torch.randn(count, 3, 64, 64),
            torch.randint(zoo.CLASSES, (count, 64, 64)),
        ),
        4,
        sgd=True,
    ),
}


def variants() -> list[tuple[str, Model, torch.dtype]]:
    """Every model in float32, some under autocast to bfloat16 as well."""
    return [
        (name, model, dtype)
        for name, model in MODELS.items()
        for dtype in (torch.float32, torch.bfloat16)
        if dtype == torch.float32 or model.bfloat16
    ]
