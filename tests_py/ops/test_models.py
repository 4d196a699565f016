# SPDX-License-Identifier: BSD-3-Clause
"""Small models train on loom as they do on cpu."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

STEPS = 8


class Gpt(nn.Module):
    """Two blocks of causal attention, output tied to the embedding."""

    def __init__(self, vocabulary: int = 31, width: int = 32, context: int = 16) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 64, 0.0, F.gelu, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.places(places)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x)).flatten(0, 1)


class LstmModel(nn.Module):
    """A language model with two layers of LSTM."""

    def __init__(self, vocabulary: int = 31, width: int = 24) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.tokens(ids))[0]).flatten(0, 1)


class GruModel(LstmModel):
    """The same with GRU cells, in both directions."""

    def __init__(self, vocabulary: int = 31, width: int = 24) -> None:
        super().__init__(vocabulary, width)
        self.lstm = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 5)
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2, groups=2),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 5),
    )


def text_batch() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(31, (4, 17))
    return ids[:, :-1], ids[:, 1:].flatten()


MODELS: dict[
    str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, torch.Tensor]]]
] = {
    "mlp": (mlp, lambda: (torch.randn(16, 20), torch.randint(5, (16,)))),
    "cnn": (cnn, lambda: (torch.randn(8, 3, 12, 12), torch.randint(5, (8,)))),
    "gpt": (Gpt, text_batch),
    "lstm": (LstmModel, text_batch),
    "gru": (GruModel, text_batch),
}

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=3e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=3e-3, fused=True),
    "adam foreach": lambda p: torch.optim.Adam(p, lr=3e-3, foreach=True),
}


def train(model: nn.Module, optimizer, batches, device: str) -> list[float]:
    model.to(device)
    optimizer = optimizer(model.parameters())
    losses = []
    for inputs, targets in batches:
        loss = F.cross_entropy(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_losses_agree_with_cpu(name: str, optimizer: str) -> None:
    torch.manual_seed(0)
    make, batch = MODELS[name]
    ours = make()
    theirs = copy.deepcopy(ours)
    inputs, targets = batch()
    batches = [(inputs, targets)] * STEPS
    expected = train(theirs, OPTIMIZERS[optimizer], batches, "cpu")
    losses = train(ours, OPTIMIZERS[optimizer], batches, "loom")
    assert expected[-1] < expected[0]
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    if optimizer != "sgd":  # Adam makes steps of full size from gradients that are rounding errors
        return
    for (key, got), wanted in zip(
        ours.state_dict().items(), theirs.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(
            got.cpu(), wanted, rtol=1e-2, atol=1e-3, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_same_seed_trains_the_same_twice() -> None:
    def run() -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(mlp(), nn.Dropout(0.5)).to("loom")
        inputs, targets = torch.randn(16, 20), torch.randint(5, (16,))
        return train(model, OPTIMIZERS["adam"], [(inputs, targets)] * STEPS, "loom")

    assert run() == run()


def test_evaluation_of_a_trained_model_agrees() -> None:
    torch.manual_seed(0)
    ours = cnn()
    inputs, targets = torch.randn(8, 3, 12, 12), torch.randint(5, (8,))
    train(ours, OPTIMIZERS["sgd"], [(inputs, targets)] * STEPS, "loom")
    ours.eval()
    with torch.inference_mode():
        got = ours(inputs.to("loom")).cpu()
        wanted = ours.cpu()(inputs)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def test_encoder_in_evaluation_mode_agrees() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.randn(2, 7, 32)
    with torch.inference_mode():
        wanted = encoder(x)
        got = encoder.to("loom")(x.to("loom")).cpu()
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
