# SPDX-License-Identifier: BSD-3-Clause
"""Models train on loom as on cpu, and a training step never waits for the device."""

import copy
import json
from pathlib import Path

import pytest
import torch

from models.training import batches, losses, step
from models.zoo import OPTIMIZERS, ZOO


@pytest.mark.parametrize("optimizer", ["sgd", "adamw fused"])
@pytest.mark.parametrize("name", ZOO)
def test_losses_are_those_of_cpu(name: str, optimizer: str) -> None:
    def both(dtype: torch.dtype) -> tuple[list[float], list[float]]:
        made = OPTIMIZERS[optimizer]
        return losses(ZOO[name], made, "loom", dtype), losses(ZOO[name], made, "cpu", dtype)

    # Training multiplies rounding errors, most where batch norm has few values; in float64 they
    # stay too small to hide anything else.
    actual, exact = both(torch.float64)
    torch.testing.assert_close(actual, exact, rtol=1e-7, atol=1e-9)
    actual, expected = both(torch.float32)
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(actual[:3], exact[:3], rtol=1e-4, atol=1e-4)

    # What float32 rounding comes to on cpu, by the distance from float64. A sign that changes, or a
    # batch whose values are all alike, may multiply it a thousand times, in some runs and not in
    # others.
    def farthest(run: list[float]) -> float:
        return max(abs(loss - x) for loss, x in zip(run, exact, strict=True))

    error = farthest(expected)
    for noise in range(1, 5):
        if farthest(actual) <= 4 * error:
            break
        error = max(error, farthest(losses(ZOO[name], OPTIMIZERS[optimizer], "cpu", noise=noise)))
    assert farthest(actual) <= max(4 * error, 1e-4)


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ZOO)
def test_a_step_neither_falls_back_nor_waits(name: str, optimizer: str, autocast: bool) -> None:
    task = ZOO[name]
    torch.manual_seed(0)
    model = task.model().to("loom")
    made = OPTIMIZERS[optimizer](model.parameters())
    batch = [t.to("loom") for t in batches(task, 1)[0]]
    torch.loom.synchronize()
    torch.loom.reset_fallbacks()
    before = torch.loom.host_waits()
    loss = step(model, made, task, batch, autocast)
    waits = torch.loom.host_waits() - before
    assert torch.loom.fallbacks() == {}
    assert waits == 0
    assert loss.isfinite().item()


FIRST_STEPS = """
    import sys
    sys.path.insert(0, sys.argv[1])
    import torch, torch_loom
    from models.training import batches, step
    from models.zoo import OPTIMIZERS, ZOO

    for name, task in ZOO.items():
        torch.manual_seed(0)
        model = task.model().to("loom")
        made = OPTIMIZERS["adamw"](model.parameters())
        batch = [t.to("loom") for t in batches(task, 1)[0]]
        torch.loom.synchronize()
        torch.loom.reset_fallbacks()
        before = torch.loom.host_waits()
        loss = step(model, made, task, batch, autocast=False)
        assert torch.loom.host_waits() == before, name
        assert torch.loom.fallbacks() == {}, name
        loss.item()
"""


def test_the_first_step_of_a_process_does_not_wait_either(check) -> None:
    check(FIRST_STEPS, str(Path(__file__).parents[1]))


LOSSES = """
    import json, sys
    sys.path.insert(0, sys.argv[1])
    import torch, torch_loom
    from models.training import losses
    from models.zoo import OPTIMIZERS, ZOO

    print(json.dumps({name: losses(ZOO[name], OPTIMIZERS["sgd"], "loom") for name in ZOO}))
"""


@pytest.mark.thorough
def test_losses_do_not_depend_on_threads_or_memory_mode(check) -> None:
    def run(**environment: str) -> dict[str, list[float]]:
        folder = str(Path(__file__).parents[1])
        return json.loads(check(LOSSES, folder, LOOM_DEVICES="1", **environment).out)

    reference = run(LOOM_THREADS="1", LOOM_MEMORY="unified")
    for threads, memory in (("2", "unified"), ("1", "isolated"), ("2", "isolated")):
        assert run(LOOM_THREADS=threads, LOOM_MEMORY=memory) == reference


def test_a_copy_of_a_model_trains_alike() -> None:
    task = ZOO["mlp"]
    torch.manual_seed(0)
    model = task.model().to("loom")
    twin = copy.deepcopy(model)
    made = [OPTIMIZERS["adam"](m.parameters()) for m in (model, twin)]
    for batch in batches(task, 3):
        moved = [t.to("loom") for t in batch]
        one = step(model, made[0], task, moved, autocast=False)
        other = step(twin, made[1], task, moved, autocast=False)
        assert torch.equal(one, other)
