# SPDX-License-Identifier: BSD-3-Clause
"""Random operators: reproducible, independent of threads and layouts, with cpu's errors."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from random_helpers import FLOATS, empty, seeded
from torch import Tensor

import torch_loom  # noqa: F401  (registers the device)

# Every operator that fills a tensor, by a name for the test's output.
FILLS: dict[str, Callable[[Tensor], Tensor]] = {
    "uniform": lambda t: t.uniform_(-1, 2),
    "normal": lambda t: t.normal_(1, 2),
    "log_normal": lambda t: t.log_normal_(0, 0.5),
    "exponential": lambda t: t.exponential_(2),
    "cauchy": lambda t: t.cauchy_(1, 2),
    "geometric": lambda t: t.geometric_(0.25),
    "random": lambda t: t.random_(),
    "random_to": lambda t: t.random_(100),
    "random_from_to": lambda t: t.random_(-5, 120),
    "bernoulli": lambda t: t.bernoulli_(0.3),
}


def offset(generator: torch.Generator) -> int:
    return int(generator.get_state().view(torch.int64)[1])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20240229)


# Reproducibility


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS.keys())
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_same_seed_gives_the_same_numbers(
    fill: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    torch.manual_seed(5)
    first = fill(empty(1000, dtype=dtype))
    second = fill(empty(1000, dtype=dtype))
    torch.manual_seed(5)
    assert torch.equal(fill(empty(1000, dtype=dtype)).cpu(), first.cpu())
    assert not torch.equal(first.cpu(), second.cpu())


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_numbers_do_not_depend_on_the_layout(
    fill: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    sizes = (6, 35, 41)
    layouts = {
        "contiguous": empty(*sizes, dtype=dtype),
        "transposed": empty(41, 35, 6, dtype=dtype).permute(2, 1, 0),
        "middle first": empty(35, 6, 41, dtype=dtype).transpose(0, 1),
        "strided": empty(6, 35, 82, dtype=dtype)[:, :, ::2],
        "with gaps": empty(6, 40, 50, dtype=dtype)[:, 2:37, 5:46],
    }
    results = {}
    for name, tensor in layouts.items():
        torch.manual_seed(3)
        results[name] = fill(tensor).cpu().contiguous()
    for name, result in results.items():
        assert torch.equal(result, results["contiguous"]), name


def test_a_longer_tensor_begins_with_the_numbers_of_a_shorter_one() -> None:
    long = empty(100_000).normal_(generator=seeded()).cpu()
    short = empty(1001).normal_(generator=seeded()).cpu()
    assert torch.equal(long[:1001], short)


def test_writes_nothing_beside_a_view() -> None:
    whole = torch.full((50, 60), 7.0, device="loom")
    whole[3:40, 5:50:3].uniform_()
    values = whole.cpu()
    inside = torch.zeros(50, 60, dtype=torch.bool)
    inside[3:40, 5:50:3] = True
    assert (values[~inside] == 7).all()
    assert (values[inside] < 1).all()


PROGRAM = """
import hashlib, torch, torch_loom
torch.manual_seed(9)
digest = hashlib.sha256()
def add(tensor):
    digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
for dtype in (torch.float16, torch.float32, torch.float64):
    x = torch.empty(300_001, dtype=dtype, device="loom")
    for fill in (x.uniform_, x.normal_, x.exponential_, x.cauchy_, x.random_):
        add(fill())
add(torch.empty(100_000, dtype=torch.int64, device="loom").random_(1 << 40))
add(torch.randperm(200_000, device="loom"))
y = torch.ones(500, 700, device="loom")
add(torch.nn.functional.dropout(y, 0.4))
add(torch.bernoulli(torch.rand(500, 700, device="loom")))
add(torch.multinomial(torch.rand(50, 100, device="loom"), 300, replacement=True))
add(torch.multinomial(torch.rand(100, device="loom"), 30_000, replacement=True))
print(digest.hexdigest())
"""


@pytest.mark.thorough
def test_numbers_do_not_depend_on_the_number_of_threads() -> None:
    digests = set()
    for threads in ("1", "2", "5"):
        environment = {**os.environ, "LOOM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment, capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        digests.add(done.stdout.strip())
    assert len(digests) == 1


# Generators


def test_a_generator_is_independent_of_the_default_one() -> None:
    torch.manual_seed(5)
    expected = empty(100).uniform_().cpu()
    torch.manual_seed(5)
    empty(100).uniform_(generator=seeded())
    assert torch.equal(empty(100).uniform_().cpu(), expected)


def test_a_restored_state_continues_where_it_was_taken() -> None:
    empty(333).normal_()
    state = torch.loom.get_rng_state()
    expected = [empty(77).normal_().cpu(), torch.randperm(50, device="loom").cpu()]
    torch.loom.set_rng_state(state)
    again = [empty(77).normal_().cpu(), torch.randperm(50, device="loom").cpu()]
    assert all(map(torch.equal, expected, again))


@pytest.mark.parametrize(
    ("dtype", "count", "words"),
    [
        (torch.float32, 64, 64),
        (torch.float32, 65, 128),
        (torch.float16, 1, 64),
        (torch.float64, 32, 64),
        (torch.float64, 33, 128),
        (torch.float32, 0, 0),
    ],
)
def test_the_offset_moves_by_the_words_of_whole_tiles(
    dtype: torch.dtype, count: int, words: int
) -> None:
    generator = seeded()
    empty(count, dtype=dtype).uniform_(generator=generator)
    assert offset(generator) == words


def test_operators_of_one_generator_do_not_share_words() -> None:
    generator = seeded()
    first = empty(640).uniform_(generator=generator).cpu()
    second = empty(640).uniform_(generator=generator).cpu()
    both = empty(1280).uniform_(generator=seeded()).cpu()
    assert torch.equal(torch.cat([first, second]), both)


def test_an_offset_is_taken_when_the_operator_is_called() -> None:
    generator = seeded()
    tensors = [empty(64).uniform_(generator=generator) for _ in range(10)]
    assert offset(generator) == 640
    assert torch.equal(torch.cat(tensors).cpu(), empty(640).uniform_(generator=seeded()).cpu())


def test_a_failed_call_takes_no_words() -> None:
    generator = seeded()
    with pytest.raises(RuntimeError):
        empty(10).uniform_(2, 1, generator=generator)
    assert offset(generator) == 0


CALLS_WITH_GENERATOR: dict[str, Callable[[torch.Generator], object]] = {
    "uniform_": lambda g: empty(3).uniform_(generator=g),
    "normal_": lambda g: empty(3).normal_(generator=g),
    "random_": lambda g: empty(3).random_(generator=g),
    "bernoulli_": lambda g: empty(3).bernoulli_(0.5, generator=g),
    "exponential_": lambda g: empty(3).exponential_(generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(3, device="loom"), 2, generator=g),
}


@pytest.mark.parametrize("call", CALLS_WITH_GENERATOR.values(), ids=CALLS_WITH_GENERATOR.keys())
def test_a_generator_of_another_device_is_refused(
    call: Callable[[torch.Generator], object],
) -> None:
    expected = "Expected a 'loom' device type for generator but found 'cpu'"
    with pytest.raises(RuntimeError, match=expected):
        call(torch.Generator("cpu"))


def test_randperm_refuses_a_generator_of_another_device() -> None:
    with pytest.raises(RuntimeError, match="generator"):
        torch.randperm(4, device="loom", generator=torch.Generator("cpu"))


# Errors

ERRORS: dict[str, Callable[[str], object]] = {
    "uniform order": lambda d: torch.empty(3, device=d).uniform_(2, 1),
    "uniform bounds": lambda d: torch.empty(3, device=d).uniform_(0, 1e40),
    "uniform half bounds": lambda d: torch.empty(3, device=d, dtype=torch.half).uniform_(0, 1e6),
    "uniform width": lambda d: torch.empty(3, device=d).uniform_(-3e38, 3e38),
    "uniform integers": lambda d: torch.empty(3, device=d, dtype=torch.int32).uniform_(),
    "normal std": lambda d: torch.empty(3, device=d).normal_(0, -1),
    "normal integers": lambda d: torch.empty(3, device=d, dtype=torch.int64).normal_(),
    "normal tensor std": lambda d: torch.normal(0.0, torch.tensor([-1.0], device=d)),
    "normal complex std": lambda d: torch.normal(
        0.0, torch.ones(2, device=d, dtype=torch.complex64)
    ),
    "log_normal std": lambda d: torch.empty(3, device=d).log_normal_(1, 0),
    "log_normal integers": lambda d: torch.empty(3, device=d, dtype=torch.int8).log_normal_(),
    "exponential lambda": lambda d: torch.empty(3, device=d).exponential_(0),
    "exponential integers": lambda d: torch.empty(3, device=d, dtype=torch.int8).exponential_(),
    "cauchy sigma": lambda d: torch.empty(3, device=d).cauchy_(0, 0),
    "cauchy integers": lambda d: torch.empty(3, device=d, dtype=torch.int8).cauchy_(),
    "geometric p": lambda d: torch.empty(3, device=d).geometric_(1),
    "geometric bool": lambda d: torch.empty(3, device=d, dtype=torch.bool).geometric_(0.5),
    "random order": lambda d: torch.empty(3, device=d).random_(5, 5),
    "random bounds": lambda d: torch.empty(3, device=d, dtype=torch.uint8).random_(0, 300),
    "random negative": lambda d: torch.empty(3, device=d, dtype=torch.uint8).random_(-1, 3),
    "random complex": lambda d: torch.empty(3, device=d, dtype=torch.complex64).random_(),
    "random full": lambda d: torch.empty(3, device=d, dtype=torch.int32).random_(-(2**63), None),
    "bernoulli p": lambda d: torch.empty(3, device=d).bernoulli_(1.5),
    "bernoulli complex": lambda d: torch.empty(3, device=d, dtype=torch.complex64).bernoulli_(),
    "bernoulli p dtype": lambda d: torch.empty(3, device=d).bernoulli_(
        torch.ones(3, device=d, dtype=torch.int64)
    ),
    "bernoulli p shape": lambda d: torch.empty(3, device=d).bernoulli_(torch.ones(4, device=d)),
    "overlap": lambda d: torch.empty(1, device=d).expand(5).uniform_(),
    "overlap normal": lambda d: torch.empty(1, device=d).expand(5).normal_(),
    "overlap bernoulli": lambda d: torch.empty(1, device=d).expand(5).bernoulli_(0.5),
    "randperm negative": lambda d: torch.randperm(-1, device=d),
    "randperm half": lambda d: torch.randperm(3000, dtype=torch.half, device=d),
    "randperm bool": lambda d: torch.randperm(2, dtype=torch.bool, device=d),
    "randint order": lambda d: torch.randint(5, 2, (3,), device=d),
    "dropout p": lambda d: torch.native_dropout(torch.ones(3, device=d), 1.5, True),
    "dropout integers": lambda d: torch.native_dropout(
        torch.ones(3, device=d, dtype=torch.int32), 0.5, True
    ),
    "multinomial dim": lambda d: torch.multinomial(torch.ones(1, 2, 3, device=d), 1),
    "multinomial dtype": lambda d: torch.multinomial(torch.ones(3, device=d, dtype=torch.int8), 1),
    "multinomial count": lambda d: torch.multinomial(torch.ones(3, device=d), 4),
    "multinomial zero": lambda d: torch.multinomial(torch.zeros(3, device=d), 1),
}


@pytest.mark.parametrize("call", ERRORS.values(), ids=ERRORS.keys())
def test_errors_are_those_of_cpu(call: Callable[[str], object]) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011
        call("cpu")
    with pytest.raises(type(expected.value)) as found:  # noqa: PT012
        call("loom")
        torch.loom.synchronize()  # what depends on data is found by a kernel
    assert str(found.value).startswith(str(expected.value))


def test_empty_tensors_take_nothing_and_stay_empty() -> None:
    generator = seeded()
    for fill in (Tensor.uniform_, Tensor.normal_, Tensor.random_, Tensor.exponential_):
        assert fill(empty(0, 3), generator=generator).shape == (0, 3)
    assert torch.randperm(0, device="loom", generator=generator).shape == (0,)
    assert torch.native_dropout(empty(0, 3), 0.5, True)[0].shape == (0, 3)
    assert offset(generator) == 0


def test_nothing_here_takes_the_fallback() -> None:
    torch.loom.reset_fallbacks()
    for fill in FILLS.values():
        fill(empty(100))
    torch.nn.functional.dropout(empty(10).normal_(), 0.5)
    torch.randperm(10, device="loom")
    torch.multinomial(torch.ones(3, device="loom"), 4, replacement=True)
    torch.bernoulli(torch.ones(3, device="loom"))
    taken = [str(entry) for entry in torch.loom.fallbacks()]
    assert taken == []
