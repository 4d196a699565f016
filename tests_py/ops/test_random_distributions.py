# SPDX-License-Identifier: BSD-3-Clause
"""What random operators draw: distributions, permutations, draws from weights."""

import math
from collections.abc import Callable

import pytest
import torch
from random_helpers import FLOATS, INTEGERS, empty, seeded
from torch import Tensor

import torch_loom  # noqa: F401  (registers the device)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20240229)


# Distributions


def normal_cdf(x: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


CONTINUOUS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "uniform": (lambda t: t.uniform_(-1, 3), lambda x: (x + 1) / 4),
    "normal": (lambda t: t.normal_(1, 2), lambda x: normal_cdf((x - 1) / 2)),
    "log_normal": (lambda t: t.log_normal_(0.5, 0.7), lambda x: normal_cdf((x.log() - 0.5) / 0.7)),
    "exponential": (lambda t: t.exponential_(3), lambda x: 1 - torch.exp(-3 * x)),
    "cauchy": (lambda t: t.cauchy_(2, 0.5), lambda x: torch.atan((x - 2) / 0.5) / math.pi + 0.5),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("fill", "cdf"), CONTINUOUS.values(), ids=CONTINUOUS.keys())
def test_the_distance_from_the_distribution_is_within_bounds(
    fill: Callable[[Tensor], Tensor], cdf: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    count = 200_000
    values = fill(empty(count, dtype=dtype)).cpu().double().sort().values
    steps = torch.arange(count, dtype=torch.float64)
    probability = cdf(values)
    # Kolmogorov and Smirnov: 1.95 / sqrt(n) is passed once in a thousand seeds. Half types have
    # steps, whose size adds to the distance.
    rounding = {torch.bfloat16: 2**-7, torch.float16: 2**-10}.get(dtype, 0)
    bound = 1.95 / math.sqrt(count) + rounding
    assert (probability - steps / count).abs().max() < bound
    assert ((steps + 1) / count - probability).abs().max() < bound


@pytest.mark.parametrize("dtype", FLOATS)
def test_moments_of_normal(dtype: torch.dtype) -> None:
    values = torch.randn(1_000_000, dtype=dtype, device="loom").cpu().double()
    assert abs(values.mean()) < 0.005
    assert abs(values.var() - 1) < 0.01
    assert abs((values**3).mean()) < 0.02
    assert abs((values**4).mean() - 3) < 0.05


def test_neighbours_are_uncorrelated() -> None:
    values = torch.randn(1 << 20, device="loom").cpu().double()
    for lag in (1, 2, 16, 32, 64, 2048):
        assert abs((values[:-lag] * values[lag:]).mean()) < 0.005, lag


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_geometric_counts_trials(dtype: torch.dtype) -> None:
    values = empty(200_000, dtype=dtype).geometric_(0.4).cpu().double()
    assert values.min() == 1
    for k in (1, 2, 3, 4):
        assert abs((values == k).double().mean() - 0.6 ** (k - 1) * 0.4) < 0.005


@pytest.mark.parametrize("high", [2, 10, 65_536, 65_537, 1 << 31, (1 << 32) + 5, 3 << 60])
def test_random_is_even_over_its_range(high: int) -> None:
    values = empty(400_000, dtype=torch.int64).random_(0, high).cpu()
    assert values.min() >= 0
    assert values.max() < high
    part = (values.double() / high * 8).long().clamp(max=7)
    if high > 10:
        share = torch.bincount(part, minlength=8).double() / len(values)
        assert (share - 1 / 8).abs().max() < 0.003


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool, *FLOATS])
def test_random_without_bounds_covers_what_the_dtype_holds(dtype: torch.dtype) -> None:
    highest = {
        torch.bool: 1, torch.float16: 2**11, torch.bfloat16: 2**8,
        torch.float32: 2**24, torch.float64: 2**53,
    }.get(dtype)  # fmt: skip
    if highest is None:
        highest = torch.iinfo(dtype).max
    values = empty(100_000, dtype=dtype).random_().cpu().double()
    assert values.min() >= 0
    assert values.max() <= float(highest)
    assert abs(values.mean() / highest - 0.5) < 0.01


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_random_fills_unsigned_types(dtype: torch.dtype) -> None:
    values = empty(1000, dtype=dtype).random_(5, 60_000).cpu().to(torch.int64)
    assert values.min() >= 5
    assert values.max() < 60_000


def test_random_over_all_of_int64_has_both_signs() -> None:
    lowest = torch.iinfo(torch.int64).min
    values = empty(1000, dtype=torch.int64).random_(lowest, None).cpu()
    assert (values < lowest // 2).any()
    assert (values > -(lowest // 2)).any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 1), (1, 1.01), (-3, -2), (0, 1e-3), (5, 5)])
def test_uniform_never_reaches_its_end(dtype: torch.dtype, low: float, high: float) -> None:
    values = empty(500_000, dtype=dtype).uniform_(low, high).cpu()
    end = torch.tensor(high, dtype=dtype)
    begin = torch.tensor(low, dtype=dtype)
    assert (values >= begin).all()
    assert (values < end).all() or begin == end
    assert (values == begin).all() or begin != end


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool, *FLOATS])
@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_bernoulli_has_its_probability(dtype: torch.dtype, p: float) -> None:
    values = empty(100_000, dtype=dtype).bernoulli_(p).cpu().double()
    assert ((values == 0) | (values == 1)).all()
    assert abs(values.mean() - p) < (0.005 if 0 < p < 1 else 1e-12)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bernoulli_follows_a_tensor_of_probabilities(dtype: torch.dtype) -> None:
    p = torch.tensor([0, 0.25, 0.5, 1], dtype=dtype, device="loom")
    mean = empty(50_000, 4, dtype=torch.int64).bernoulli_(p).cpu().double().mean(0)
    assert mean[0] == 0
    assert abs(mean[1] - 0.25) < 0.01
    assert abs(mean[2] - 0.5) < 0.01
    assert mean[3] == 1


def test_bernoulli_takes_probabilities_from_the_host_and_writes_out() -> None:
    values = empty(3, 2).bernoulli_(torch.tensor([0.0, 1.0]))
    assert values.cpu().tolist() == [[0, 1]] * 3
    out = empty(0)
    torch.bernoulli(torch.ones(2, 3, device="loom"), out=out)
    assert out.cpu().tolist() == [[1] * 3] * 2


def test_a_probability_beyond_1_is_reported_at_the_next_synchronisation() -> None:
    empty(4).bernoulli_(torch.tensor([0, 1, 1.5, 0], device="loom"))
    with pytest.raises(RuntimeError, match="Expected p_in >= 0 && p_in <= 1 to be true"):
        torch.loom.synchronize()
    assert empty(4).fill_(1).cpu().tolist() == [1] * 4


def test_normal_of_tensors() -> None:
    mean = torch.arange(4.0, device="loom").expand(100_000, 4)
    std = torch.tensor([0, 1, 2, 3.0], device="loom")
    for values in (torch.normal(mean, std), torch.normal(mean, std, out=empty(0))):
        values = values.cpu().double()
        assert torch.allclose(values.mean(0), torch.arange(4.0).double(), atol=0.05)
        assert torch.allclose(values.std(0), torch.arange(4.0).double(), atol=0.05)
    assert abs(torch.normal(mean, 2.0).cpu()[:, 1].std() - 2) < 0.05
    assert abs(torch.normal(1.0, std.expand(100_000, 4)).cpu()[:, 2].mean() - 1) < 0.05
    assert torch.normal(2.0, 3.0, (4, 5), device="loom").shape == (4, 5)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_normal_has_unit_variance(dtype: torch.dtype) -> None:
    values = torch.randn(200_000, dtype=dtype, device="loom").cpu()
    assert abs(values.abs().square().mean() - 1) < 0.02
    assert abs(values.real.var() - 0.5) < 0.02


def test_factories() -> None:
    assert torch.rand(3, 4, device="loom").shape == (3, 4)
    like = torch.ones(2, 3, dtype=torch.float64, device="loom")
    assert torch.rand_like(like).dtype == torch.float64
    assert torch.randn_like(like).device == like.device
    integers = torch.randint(3, 9, (1000,), device="loom").cpu()
    assert integers.min() == 3
    assert integers.max() == 8
    assert torch.randint_like(like, 5).cpu().max() < 5
    assert (torch.randn(10, device="loom", generator=seeded()).cpu()
            == torch.randn(10, device="loom", generator=seeded()).cpu()).all()  # fmt: skip


# Permutations


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 32_768, 32_769, 1_000_003])
def test_randperm_holds_every_number_once(count: int) -> None:
    values = torch.randperm(count, device="loom").cpu()
    assert values.dtype == torch.int64
    assert torch.equal(values.sort().values, torch.arange(count))
    if count >= 100:
        assert not torch.equal(values, torch.arange(count))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_randperm_of_every_dtype(dtype: torch.dtype) -> None:
    values = torch.randperm(100, dtype=dtype, device="loom").cpu()
    assert torch.equal(values.double().sort().values, torch.arange(100.0).double())


def test_randperm_gives_all_permutations_equally_often() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(4800):
        key = tuple(torch.randperm(4, device="loom").cpu().tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 24
    assert sum((n - 200) ** 2 / 200 for n in counts.values()) < 50  # chi square, 23 degrees


def test_randperm_of_buckets_mixes_evenly() -> None:
    count = 400_000
    values = torch.randperm(count, device="loom").cpu()
    where_from = (values * 20 // count) * 20 + torch.arange(count) * 20 // count
    cells = torch.bincount(where_from, minlength=400).double()
    assert ((cells - 1000) ** 2 / 1000).sum() < 480  # chi square, 361 degrees
    fixed = (values == torch.arange(count)).sum()
    assert fixed < 12  # one is expected


def test_randperm_writes_a_strided_out() -> None:
    whole = torch.full((200_000,), -1, device="loom")
    torch.randperm(100_000, out=whole[::2])
    values = whole.cpu()
    assert torch.equal(values[::2].sort().values, torch.arange(100_000))
    assert (values[1::2] == -1).all()


# Draws from weights


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_multinomial_with_replacement_follows_the_weights(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    weights = torch.tensor([1, 0, 3, 4], dtype=dtype, device="loom").expand(shape)
    picks = torch.multinomial(weights, 50_000, replacement=True).cpu()
    assert picks.shape == (*shape[:-1], 50_000)
    for row in picks.view(-1, 50_000):
        share = torch.bincount(row, minlength=4).double() / 50_000
        assert share[1] == 0
        assert torch.allclose(share, torch.tensor([0.125, 0, 0.375, 0.5]).double(), atol=0.01)


def test_multinomial_without_replacement_repeats_nothing() -> None:
    picks = torch.multinomial(torch.ones(100, 10, device="loom"), 10).cpu()
    assert torch.equal(picks.sort().values, torch.arange(10).expand(100, 10))


def test_multinomial_reports_bad_weights_at_the_next_synchronisation() -> None:
    torch.multinomial(torch.tensor([1.0, -1.0], device="loom"), 2, replacement=True)
    with pytest.raises(RuntimeError, match="encountering probability entry < 0"):
        torch.loom.synchronize()
