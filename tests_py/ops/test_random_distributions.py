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


# Distributions that reject samples


def test_a_poisson_variable_has_its_rate_as_mean_and_variance() -> None:
    for rate in (0.3, 4.0, 9.9, 10.0, 30.0, 1e4):
        values = torch.poisson(torch.full((200_000,), rate, device="loom")).cpu().double()
        assert values.min() >= 0
        assert (values == values.floor()).all()
        assert abs(values.mean() / rate - 1) < 5 / math.sqrt(200_000 * rate)
        assert abs(values.var() / rate - 1) < 0.03


@pytest.mark.parametrize("rate", [4.0, 12.0])
def test_poisson_follows_its_distribution(rate: float) -> None:
    values = torch.poisson(torch.full((400_000,), rate, device="loom")).cpu()
    distribution = torch.distributions.Poisson(rate)
    for k in range(int(2 * rate)):
        share = (values == k).double().mean()
        assert abs(share - distribution.log_prob(torch.tensor(float(k))).exp()) < 0.004


@pytest.mark.parametrize(("count", "probability"), [(5, 0.3), (40, 0.5), (100, 0.9), (1000, 0.02)])
def test_binomial_follows_its_distribution(count: int, probability: float) -> None:
    counts = torch.full((400_000,), float(count), device="loom")
    values = torch.binomial(counts, torch.full_like(counts, probability)).cpu()
    distribution = torch.distributions.Binomial(count, torch.tensor(probability))
    for k in range(count + 1):
        share = (values == k).double().mean()
        assert abs(share - distribution.log_prob(torch.tensor(float(k))).exp()) < 0.004


@pytest.mark.parametrize("alpha", [0.2, 1.0, 7.5])
def test_gamma_has_its_moments(alpha: float) -> None:
    values = torch._standard_gamma(torch.full((400_000,), alpha, device="loom")).cpu().double()
    assert values.min() > 0
    assert abs(values.mean() - alpha) < 5 * math.sqrt(alpha / 400_000)
    assert abs(values.var() / alpha - 1) < 0.05
    # That a logarithm of one has the mean digamma(alpha) tells its small values apart.
    assert abs(values.log().mean() - torch.digamma(torch.tensor(alpha).double())) < 0.04


def test_a_dirichlet_variable_sums_up_to_one_and_has_its_means() -> None:
    alpha = torch.tensor([0.5, 1.0, 2.5], device="loom")
    values = torch._sample_dirichlet(alpha.expand(200_000, 3)).cpu()
    assert torch.allclose(values.sum(-1), torch.ones(200_000))
    assert torch.allclose(values.double().mean(0), alpha.cpu().double() / 4, atol=0.005)
    tiny = torch._sample_dirichlet(torch.full((1000, 2), 1e-6, device="loom")).cpu()
    assert ((tiny > 0) & (tiny < 1)).all()


REJECTING: dict[str, Callable[[Tensor], Tensor]] = {
    "poisson": torch.poisson,
    "binomial": lambda t: torch.binomial(t, torch.full_like(t, 0.4)),
    "gamma": torch._standard_gamma,
    "dirichlet": torch._sample_dirichlet,
}


@pytest.mark.parametrize("sample", REJECTING.values(), ids=REJECTING.keys())
class TestRejecting:
    def test_an_element_depends_on_seed_and_index_only(
        self, sample: Callable[[Tensor], Tensor]
    ) -> None:
        matrix = torch.rand(300, 400, device="loom") * 20
        torch.manual_seed(7)
        first = sample(matrix)
        torch.manual_seed(7)
        second = sample(matrix.t().contiguous().t())
        assert torch.equal(first.cpu(), second.cpu())
        assert first.stride() == (400, 1)

    def test_neighbours_and_calls_have_words_of_their_own(
        self, sample: Callable[[Tensor], Tensor]
    ) -> None:
        same = torch.full((4, 50_000), 30.0, device="loom")
        calls = torch.stack([sample(same), sample(same)]).cpu().double().flatten(0, 1)
        assert abs(torch.corrcoef(calls) - torch.eye(8)).max() < 0.03
        shifted = torch.stack([calls[0, :-1], calls[0, 1:]])
        assert abs(torch.corrcoef(shifted)[0, 1]) < 0.03

    def test_runs_without_the_fallback(self, sample: Callable[[Tensor], Tensor]) -> None:
        torch.loom.reset_fallbacks()
        sample(torch.rand(5, 3, device="loom"))
        assert torch.loom.fallbacks() == {}

    def test_an_empty_tensor_takes_no_words(self, sample: Callable[[Tensor], Tensor]) -> None:
        before = torch.loom.get_rng_state()
        assert sample(torch.empty(0, 3, device="loom")).shape == (0, 3)
        assert torch.equal(torch.loom.get_rng_state(), before)

    def test_refuses_what_cpu_refuses(self, sample: Callable[[Tensor], Tensor]) -> None:
        for dtype in (torch.int64, torch.float16, torch.bfloat16):
            results = []
            for device in ("cpu", "loom"):
                try:
                    results.append(sample(torch.ones(2, 3, dtype=dtype, device=device)).dtype)
                except Exception as error:
                    results.append((type(error), str(error)))
            assert results[0] == results[1]


def test_a_negative_poisson_rate_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="invalid Poisson rate"):
        torch.poisson(torch.tensor([1.0, -1.0], device="loom")).tolist()


def test_parameters_that_are_no_numbers_end_the_samplers() -> None:
    nan, inf = math.nan, math.inf
    counts = torch.tensor([nan, 10.0], device="loom")
    assert torch.binomial(counts, torch.tensor([0.5, nan], device="loom")).isnan().all()
    assert torch.poisson(torch.tensor([inf], device="loom")).item() == inf


def test_torch_distributions_take_no_fallback() -> None:
    torch.loom.reset_fallbacks()
    one = torch.tensor([1.5, 0.5], device="loom", requires_grad=True)
    distributions = torch.distributions
    for distribution in (
        distributions.Gamma(one, one),
        distributions.Beta(one, one),
        distributions.Dirichlet(one),
        distributions.StudentT(one),
    ):
        distribution.rsample((3,)).sum().backward()
    distributions.Poisson(one.detach()).sample((3,))
    distributions.Binomial(5, probs=one.detach() / 2).sample((3,))
    assert torch.loom.fallbacks() == {}
