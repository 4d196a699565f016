# SPDX-License-Identifier: BSD-3-Clause
"""A generator of another device than the tensor's is refused as CUDA's are, by every operator that
takes one."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor

aten = torch.ops.aten

# What is given: the generator, the device, and probabilities that live there.
OPERATORS: dict[str, Callable[[Generator, str, Tensor], object]] = {
    "rand": lambda g, d, x: torch.rand(2, generator=g, device=d),
    "rand out": lambda g, d, x: torch.rand(4, generator=g, out=x),
    "randn": lambda g, d, x: torch.randn(2, generator=g, device=d),
    "randn out": lambda g, d, x: torch.randn(4, generator=g, out=x),
    "randint": lambda g, d, x: torch.randint(3, (2,), generator=g, device=d),
    "randint low": lambda g, d, x: torch.randint(1, 3, (2,), generator=g, device=d),
    "rand_like": lambda g, d, x: aten.rand_like.generator(x, generator=g),
    "randn_like": lambda g, d, x: aten.randn_like.generator(x, generator=g),
    "randint_like": lambda g, d, x: aten.randint_like.generator(x, 3, generator=g),
    "uniform_": lambda g, d, x: x.uniform_(generator=g),
    "normal_": lambda g, d, x: x.normal_(generator=g),
    "normal of means": lambda g, d, x: torch.normal(x, 1.0, generator=g),
    "normal of deviations": lambda g, d, x: torch.normal(0.0, x, generator=g),
    "normal of both": lambda g, d, x: torch.normal(x, x, generator=g),
    "normal of numbers": lambda g, d, x: torch.normal(0.0, 1.0, (2,), generator=g, device=d),
    "log_normal_": lambda g, d, x: x.log_normal_(generator=g),
    "exponential_": lambda g, d, x: x.exponential_(generator=g),
    "cauchy_": lambda g, d, x: x.cauchy_(generator=g),
    "geometric_": lambda g, d, x: x.geometric_(0.5, generator=g),
    "random_": lambda g, d, x: x.random_(generator=g),
    "random_ to": lambda g, d, x: x.random_(5, generator=g),
    "random_ from": lambda g, d, x: x.random_(1, 5, generator=g),
    "bernoulli": lambda g, d, x: torch.bernoulli(x, generator=g),
    "bernoulli of a number": lambda g, d, x: torch.bernoulli(x, 0.5, generator=g),
    "bernoulli_": lambda g, d, x: x.bernoulli_(generator=g),
    "bernoulli_ of a tensor": lambda g, d, x: x.bernoulli_(x.clone(), generator=g),
    "multinomial": lambda g, d, x: torch.multinomial(x, 2, generator=g),
    "multinomial with replacement": lambda g, d, x: torch.multinomial(x, 9, True, generator=g),
    "poisson": lambda g, d, x: torch.poisson(x, generator=g),
    "binomial": lambda g, d, x: torch.binomial(x, x, generator=g),
    "gamma": lambda g, d, x: torch._standard_gamma(x, generator=g),
    "dirichlet": lambda g, d, x: torch._sample_dirichlet(x, generator=g),
    "rrelu": lambda g, d, x: aten.rrelu_with_noise(x - 1, torch.ones_like(x), 0.1, 0.3, True, g),
}


@pytest.mark.parametrize("given", ["loom", "cpu"])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_generator_of_another_device_is_refused(name: str, given: str) -> None:
    device = "cpu" if given == "loom" else "loom"
    generator = Generator(given)
    before = generator.get_state()
    x = torch.full((4,), 0.5, device=device)
    text = f"^Expected a '{device}' device type for generator but found '{given}'"
    with pytest.raises(RuntimeError, match=text):
        OPERATORS[name](generator, device, x)
    assert torch.equal(generator.get_state(), before)
    assert x.tolist() == [0.5] * 4


@pytest.mark.parametrize("given", ["loom", "cpu"])
def test_permutations_compare_whole_devices(given: str) -> None:
    device = "cpu" if given == "loom" else "loom"
    with pytest.raises(RuntimeError, match=f"^Expected a '{device}.*' generator device but found"):
        torch.randperm(3, generator=Generator(given), device=device)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_generator_of_the_tensor_s_device_is_taken(name: str) -> None:
    OPERATORS[name](Generator("loom"), "loom", torch.full((4,), 0.5, device="loom"))
    torch.loom.synchronize()


def test_probabilities_of_another_device() -> None:
    """As on cpu and CUDA, they are moved to where the result is."""
    kept = torch.zeros(1000).bernoulli_(torch.ones(1000, device="loom"))
    assert kept.device.type == "cpu"
    assert kept.all()
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator"):
        torch.zeros(4).bernoulli_(torch.ones(4, device="loom"), generator=Generator("loom"))
