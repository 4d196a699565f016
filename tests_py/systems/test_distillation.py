# SPDX-License-Identifier: BSD-3-Clause
"""Knowledge distillation: a small network learns from the outputs of a large one."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

LOOM = "loom"
CLASSES, SIDE, TEMPERATURE = 4, 8, 3.0


class Classifier(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(channels * 4, CLASSES)

    def forward(self, x):
        maps = self.features(x)
        return self.head(F.adaptive_avg_pool2d(maps, 2).flatten(1)), maps


class Student(nn.Module):
    """With a regressor that compares its maps with those of the teacher."""

    def __init__(self, channels, teacher_channels):
        super().__init__()
        self.classifier = Classifier(channels)
        self.regressor = nn.Conv2d(channels, teacher_channels, 1)

    def forward(self, x):
        logits, maps = self.classifier(x)
        return logits, self.regressor(maps)


def data(count=128):
    """Images with one bright quarter, which is their class."""
    labels = torch.randint(CLASSES, (count,))
    images = torch.randn(count, 1, SIDE, SIDE) * 0.8
    half = SIDE // 2
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = divmod(label, 2)
        image[0, row * half :, column * half :][:half, :half] += 1
    return images, labels


def soft(student, teacher, x, labels):
    """Cross entropy with the labels, and with the softened outputs of the teacher."""
    with torch.no_grad():
        targets = F.softmax(teacher(x)[0] / TEMPERATURE, -1)
    logits, _ = student(x)
    distance = F.kl_div(F.log_softmax(logits / TEMPERATURE, -1), targets, reduction="batchmean")
    return 0.5 * F.cross_entropy(logits, labels) + 0.5 * TEMPERATURE**2 * distance


def cosine(student, teacher, x, labels):
    """The maps of both shall point the same way."""
    with torch.no_grad():
        maps = teacher(x)[1]
    logits, mine = student(x)
    same = torch.ones(len(x), device=x.device)
    distance = F.cosine_embedding_loss(mine.flatten(1), maps.flatten(1), same)
    return 0.75 * F.cross_entropy(logits, labels) + 0.25 * distance


def regression(student, teacher, x, labels):
    """The maps of both shall be equal."""
    with torch.inference_mode():
        maps = teacher(x)[1]
    logits, mine = student(x)
    return 0.75 * F.cross_entropy(logits, labels) + 0.25 * F.mse_loss(mine, maps.clone())


def train(model, loss_of, images, labels, epochs=8):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(epochs):
        for x, y in zip(images.split(32), labels.split(32), strict=True):
            optimizer.zero_grad()
            loss = loss_of(model, x, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses)


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        right = model(images)[0].argmax(1) == labels
    model.train()
    return right.float().mean().item()


@pytest.fixture(scope="module")
def trained():
    """A teacher that has learned, on the host, and its data."""
    torch.manual_seed(0)
    images, labels = data()
    teacher = Classifier(16).to(LOOM)
    x, y = images.to(LOOM), labels.to(LOOM)
    losses = train(teacher, lambda m, x, y: F.cross_entropy(m(x)[0], y), x, y)
    assert losses[-1] < 0.5 * losses[0]
    assert accuracy(teacher, x, y) > 0.9
    return teacher.cpu().eval().requires_grad_(False), images, labels


@pytest.mark.parametrize("distance", [soft, cosine, regression])
def test_a_student_learns_as_on_cpu(trained, distance):
    teacher, images, labels = trained
    torch.manual_seed(1)
    student = Student(4, 16)
    results = {}
    torch.loom.reset_fallbacks()
    for device in ("cpu", LOOM):
        mine, its = copy.deepcopy(student).to(device), copy.deepcopy(teacher).to(device)
        x, y = images.to(device), labels.to(device)
        losses = train(mine, lambda m, x, y, its=its: distance(m, its, x, y), x, y)
        assert losses.device.type == device
        results[device] = losses.cpu(), accuracy(mine, x, y)
        same = zip(its.state_dict().values(), teacher.state_dict().values(), strict=True)
        assert all(torch.equal(a.cpu(), b) for a, b in same)  # the teacher has not changed
        assert all(p.grad is None for p in its.parameters())
    assert torch.loom.fallbacks() == {}
    losses, right = results[LOOM]
    torch.testing.assert_close(losses, results["cpu"][0], rtol=1e-2, atol=1e-3)
    assert losses[-4:].mean() < 0.7 * losses[:4].mean()
    assert right > 0.6


def test_a_teacher_on_another_device(trained):
    teacher, images, labels = trained
    teacher = copy.deepcopy(teacher).to("loom:1")
    torch.manual_seed(1)
    student = Student(4, 16).to("loom:0")

    class Remote(nn.Module):
        def forward(self, x):
            return tuple(t.to(x.device) for t in teacher(x.to("loom:1")))

    x, y = images.to("loom:0"), labels.to("loom:0")
    losses = train(student, lambda m, x, y: soft(m, Remote(), x, y), x, y)
    assert losses.device == torch.device("loom:0")
    assert losses[-4:].mean() < 0.7 * losses[:4].mean()
