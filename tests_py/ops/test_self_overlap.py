# SPDX-License-Identifier: BSD-3-Clause
"""Results whose elements share memory, as windows of an unfolded tensor do: the order of writes
decides what is left, so loom writes them as cpu does on one thread, whatever the size."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

ROWS, COLUMNS = 1500, 512
LAYOUTS = {
    "same strides": ((700, 700), (1, 1)),
    "windows": ((ROWS, COLUMNS), (1, 1)),
    "windows a step apart": ((ROWS, COLUMNS), (5, 1)),
    "turned windows": ((ROWS, COLUMNS), (1, 7)),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def values(shape: tuple[int, ...], device: str, seed: int = 1) -> Tensor:
    made = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
    return made.to(device)


def order(shape: tuple[int, ...], device: str) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.stack([torch.randperm(shape[1], generator=generator) for _ in range(shape[0])]).to(
        device
    )


OPERATORS: dict[str, Callable[[Tensor, Tensor, str], object]] = {
    "add_": lambda s, v, d: s.add_(v),
    "add out": lambda s, v, d: torch.add(v, 1, out=s),
    "relu chain": lambda s, v, d: torch.mul(torch.relu(v - 0.5), 3, out=s),
    "sin_": lambda s, v, d: s.sin_(),
    "addcmul_": lambda s, v, d: s.addcmul_(v, v),
    "copy_": lambda s, v, d: s.copy_(v),
    "copy_ turned": lambda s, v, d: s.copy_(v.t().contiguous().t()),
    "copy_ of double": lambda s, v, d: s.copy_(v.double()),
    "fill_": lambda s, v, d: s.fill_(3),
    "zero_": lambda s, v, d: s.zero_(),
    "masked_fill_": lambda s, v, d: s.masked_fill_(v > 0.5, 2.0),
    "cat": lambda s, v, d: torch.cat([v[:3], v[3:]], out=s),
    "cat of columns": lambda s, v, d: torch.cat([v[:, :3], v[:, 3:]], dim=1, out=s),
    "tril": lambda s, v, d: torch.tril(v, out=s),
    "softmax": lambda s, v, d: torch.softmax(v, 1, out=s),
    "cumsum": lambda s, v, d: torch.cumsum(v, 1, out=s),
    "sum": lambda s, v, d: torch.sum(torch.stack([v, v + 1]), 0, out=s),
    "sort": lambda s, v, d: torch.sort(
        v, 1, out=(s, torch.empty(v.shape, dtype=torch.long, device=d))
    ),
    "gather": lambda s, v, d: torch.gather(v, 1, order(tuple(v.shape), d), out=s),
    "scatter_": lambda s, v, d: s.scatter_(1, order(tuple(v.shape), d), v),
    "lerp_": lambda s, v, d: s.lerp_(v, 0.25),
    "_foreach_add_": lambda s, v, d: torch._foreach_add_([s], [v]),
}


def left_in(operator: Callable[[Tensor, Tensor, str], object], layout: str, device: str) -> Tensor:
    sizes, strides = LAYOUTS[layout]
    length = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    # Something before and behind that must stay as it is.
    memory = values((length + 200,), device, seed=2)
    operator(memory.as_strided(sizes, strides, 100), values(sizes, device), device)
    return memory.cpu()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPERATORS)
def test_memory_that_elements_share_is_written_as_on_cpu(name: str, layout: str) -> None:
    actual, expected = (left_in(OPERATORS[name], layout, device) for device in ("loom", "cpu"))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["mm", "addmm"])
def test_products(name: str, layout: str) -> None:
    """cpu's product sums up in the result, whose last row is all that is certain: it is loom's,
    too, or that of a product of its own."""
    sizes, strides = LAYOUTS[layout]
    length = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    memory = torch.full((length + 200,), 7.0, device="loom")
    left, right = values((sizes[0], 64), "loom"), values((64, sizes[1]), "loom", seed=3)
    out = memory.as_strided(sizes, strides, 100)
    if name == "mm":
        torch.mm(left, right, out=out)
    else:
        torch.addmm(values(sizes, "loom"), left, right, out=out)
    memory = memory.cpu()
    assert (memory[:100] == 7).all()
    assert (memory[100 + length :] == 7).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["normal_", "uniform_", "bernoulli_", "exponential_", "random_"])
def test_random_numbers_are_written_in_their_order(name: str, layout: str) -> None:
    sizes, strides = LAYOUTS[layout]
    length = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    place = torch.arange(length).as_strided(sizes, strides).reshape(-1)
    torch.loom.manual_seed(3)
    memory = torch.zeros(length, device="loom")
    getattr(memory.as_strided(sizes, strides), name)()
    torch.loom.manual_seed(3)
    apart = getattr(torch.zeros(sizes, device="loom"), name)().cpu().reshape(-1)
    expected = torch.zeros(length)
    # The last one that is written to a place stays.
    last = torch.zeros(length, dtype=torch.long).scatter_reduce_(
        0, place, torch.arange(place.numel()), "amax", include_self=False
    )
    expected[place] = apart[last[place]]
    torch.testing.assert_close(memory.cpu(), expected, rtol=0, atol=0)


def test_an_expanded_result_is_refused() -> None:
    for device in ("cpu", "loom"):
        expanded = torch.zeros(3, 1, device=device).expand(3, 3)
        for write in (lambda t: t.add_(1), lambda t: t.copy_(torch.ones(3, 3)), torch.Tensor.sin_):
            with pytest.raises(RuntimeError, match="more than one element of the written-to"):
                write(expanded)
