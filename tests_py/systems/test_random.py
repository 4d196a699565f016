# SPDX-License-Identifier: BSD-3-Clause
"""Random numbers: seeds, states, generators; the same whatever the timing or the threads."""

import pytest
import torch

from torch_loom._torch_features import ACCELERATOR_RANDOM, PHILOX_STATE


def draw(device="loom", size=1000):
    return torch.rand(size, device=device).cpu()


def test_the_same_seed_gives_the_same_numbers():
    torch.manual_seed(5)
    first = draw()
    torch.manual_seed(5)
    assert torch.equal(draw(), first)
    assert not torch.equal(draw(), first)


def test_manual_seed_of_loom_seeds_the_current_device():
    torch.loom.manual_seed(6)
    first = draw()
    torch.manual_seed(7)
    torch.loom.manual_seed(6)
    assert torch.equal(draw(), first)
    assert torch.loom.initial_seed() == 6


def test_manual_seed_all_seeds_every_device():
    torch.loom.manual_seed_all(8)
    assert torch.equal(draw("loom:0"), draw("loom:1"))


def test_a_seed_before_the_first_use_counts(check):
    source = """
        import torch
        torch.manual_seed({seed})
        {use}
        print(torch.rand(4, device="loom").cpu().tolist())
    """
    early = check(source.format(seed=9, use="")).out
    late = check(
        source.format(seed=1, use='torch.ones(1, device="loom"); torch.manual_seed(9)')
    ).out
    assert early == late


def test_state_is_saved_and_restored():
    state = torch.loom.get_rng_state()
    assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
    first = draw()
    torch.loom.set_rng_state(state)
    assert torch.equal(draw(), first)


def test_states_of_all_devices():
    states = torch.loom.get_rng_state_all()
    assert len(states) == 2
    first = draw("loom:1")
    torch.loom.set_rng_state_all(states)
    assert torch.equal(draw("loom:1"), first)


def test_offset_moves_with_what_is_drawn():
    torch.loom.manual_seed(1)
    assert torch.loom._get_rng_state_offset() == 0
    draw(size=100)
    offset = torch.loom._get_rng_state_offset()
    assert offset > 0
    second = draw()
    torch.loom.manual_seed(1)
    torch.loom._set_rng_state_offset(offset)
    assert torch.equal(draw(), second)


def test_a_wrong_state_is_refused():
    with pytest.raises(RuntimeError):
        torch.loom.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_seed_takes_one_from_the_system():
    torch.loom.seed()
    first = torch.loom.initial_seed()
    torch.loom.seed()
    assert torch.loom.initial_seed() != first
    torch.loom.seed_all()
    assert torch.equal(draw("loom:0"), draw("loom:1"))


def test_generators_of_one_s_own():
    generator = torch.Generator(device="loom").manual_seed(3)
    first = torch.randn(10, device="loom", generator=generator).cpu()
    assert generator.device.type == "loom"
    assert generator.initial_seed() == 3
    copy = generator.clone_state()
    second = torch.randn(10, device="loom", generator=generator).cpu()
    assert torch.equal(torch.randn(10, device="loom", generator=copy).cpu(), second)
    generator.manual_seed(3)
    assert torch.equal(torch.randn(10, device="loom", generator=generator).cpu(), first)


def test_a_generator_of_the_cpu_is_refused():
    with pytest.raises(RuntimeError, match=r"[Gg]enerator"):
        torch.rand(3, device="loom", generator=torch.Generator())


def test_default_generators():
    generators = torch.loom.default_generators
    assert len(generators) == 2
    assert [generator.device.index for generator in generators] == [0, 1]
    with pytest.raises(IndexError):
        generators[2]
    torch.loom.manual_seed(4)
    assert generators[0].initial_seed() == 4


def test_fork_rng_leaves_no_trace():
    torch.manual_seed(2)
    expected = draw()
    torch.manual_seed(2)
    with torch.random.fork_rng(devices=range(2), device_type="loom"):
        torch.manual_seed(99)
        draw()
    assert torch.equal(draw(), expected)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_draws_the_same_dropout_again(reentrant):
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(1000, device="loom", requires_grad=True)
    y = checkpoint(lambda t: torch.dropout(t, 0.5, True), x, use_reentrant=reentrant)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


def test_numbers_do_not_depend_on_the_number_of_cores(check):
    source = """
        import torch
        torch.manual_seed(0)
        x = torch.randn(100_003, device="loom")
        y = torch.bernoulli(torch.full((70_001,), 0.3, device="loom"))
        z = torch.randperm(5000, device="loom")
        print(x.double().sum().item(), y.sum().item(), z[:5].tolist())
    """
    one = check(source, LOOM_THREADS="1", LOOM_DEVICES="1").out
    two = check(source, LOOM_THREADS="2", LOOM_DEVICES="1").out
    assert one == two


def test_uniform_and_normal_have_their_moments():
    torch.manual_seed(0)
    u, n = torch.rand(1_000_000, device="loom").cpu(), torch.randn(1_000_000, device="loom").cpu()
    assert 0 <= u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1
    assert abs(u.mean() - 0.5) < 2e-3
    assert abs(n.mean()) < 5e-3
    assert abs(n.std() - 1) < 5e-3


@pytest.mark.skipif(not PHILOX_STATE.is_there(), reason=PHILOX_STATE.place)
def test_a_generator_hands_out_places_in_its_sequence():
    generator = torch.Generator("loom").manual_seed(2**63 + 5)
    generator.set_offset(8)
    seed, offset, inside = generator.philox_state(5)
    for number in (seed, offset, inside):
        assert number.shape == (1,)
        assert number.dtype == torch.int64
        assert number.device.type == "cpu"
    assert seed.item() % 2**64 == 2**63 + 5
    assert (offset.item(), inside.item()) == (8, 0)
    assert generator.get_offset() == 16
    graph = torch.accelerator.Graph()
    with (
        pytest.raises(RuntimeError, match="philox_state cannot be captured"),
        torch.loom.graphs.graph(graph),
    ):
        generator.philox_state(5)


@pytest.mark.skipif(not ACCELERATOR_RANDOM.is_there(), reason=ACCELERATOR_RANDOM.place)
def test_torch_accelerator_knows_the_default_generators():
    functions = torch.accelerator.random
    torch.loom.manual_seed_all(13)
    assert functions.initial_seed(1) == 13
    assert torch.equal(functions.get_rng_state(), torch.loom.get_rng_state())
    assert len(functions.get_rng_state_all()) == torch.loom.device_count()
