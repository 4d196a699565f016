# SPDX-License-Identifier: BSD-3-Clause
"""Generators of operators that the fallback runs: loom's are used, the cpu's left alone."""

import pytest
import torch


def test_same_seed_gives_the_same_numbers() -> None:
    weights = torch.rand(100, device="loom")
    torch.manual_seed(3)
    first = [torch.multinomial(weights, 20, replacement=True) for _ in range(2)]
    torch.manual_seed(3)
    again = [torch.multinomial(weights, 20, replacement=True) for _ in range(2)]
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(first[0], first[1])


def test_given_generator_is_used_and_advanced() -> None:
    weights = torch.rand(100, device="loom")

    def draw(generator: torch.Generator) -> list[int]:
        return torch.multinomial(weights, 20, replacement=True, generator=generator).tolist()

    one, other = (torch.Generator("loom").manual_seed(5) for _ in range(2))
    assert draw(one) == draw(other)
    assert draw(one) != draw(torch.Generator("loom").manual_seed(5))


def test_cpu_generator_is_left_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    torch.poisson(torch.full((100,), 3.0, device="loom"))
    torch.nn.functional.rrelu(torch.randn(100, device="loom"), training=True)
    torch.loom.synchronize()
    assert torch.equal(torch.get_rng_state(), before)


def test_cpu_generator_is_refused() -> None:
    with pytest.raises(RuntimeError, match="device type for generator"):
        torch.poisson(torch.ones(3, device="loom"), generator=torch.Generator())
