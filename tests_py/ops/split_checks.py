# SPDX-License-Identifier: BSD-3-Clause
"""What kernels in blocks are given, and what is asked of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def positive(*shape: int) -> torch.Tensor:
    """Symmetric positive definite matrices."""
    x = random(*shape, dtype=torch.float64)
    return x @ x.mT + shape[-1] * torch.eye(shape[-1], dtype=torch.float64)


def triangles(*shape: int) -> torch.Tensor:
    return torch.linalg.cholesky(positive(*shape))


def grid(*shape: int) -> torch.Tensor:
    return random(*shape).tanh()


def places(count: int, end: int) -> torch.Tensor:
    return torch.randint(0, end, (count,), generator=torch.Generator().manual_seed(count))


Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


@pytest.fixture(autouse=True)
def all_cores() -> Iterator[None]:
    yield
    torch.loom.set_num_threads(torch.loom.get_device_properties(0).core_count)


def results(case: Case, device: str) -> Any:
    function, inputs = case
    return function(*(each.to(device) for each in inputs))


def on_host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cpu()
    return [on_host(each) for each in value]


def check_values(case: Case) -> None:
    expected, found = results(case, "cpu"), results(case, "loom")
    torch.testing.assert_close(on_host(found), on_host(expected), equal_nan=True)
    if isinstance(expected, torch.Tensor):
        assert found.stride() == expected.stride()


def check_cores(case: Case) -> None:
    results(case, "loom")  # the first one of its kind may run on the host
    many = on_host(results(case, "loom"))
    torch.loom.set_num_threads(1)
    one = on_host(results(case, "loom"))
    torch.testing.assert_close(one, many, rtol=0, atol=0, equal_nan=True)


def check_gradients(case: Case) -> None:
    function, inputs = case
    gradients = []
    for device in ("cpu", "loom"):
        own = [each.to(device, copy=True) for each in inputs]
        wanted = [each.requires_grad_() for each in own if each.is_floating_point()]
        made = function(*own)
        (made if isinstance(made, torch.Tensor) else made[0]).abs().sum().backward()
        gradients.append([each.grad.cpu() for each in wanted if each.grad is not None])
    assert gradients[1]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)
