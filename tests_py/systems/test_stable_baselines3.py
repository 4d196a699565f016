# SPDX-License-Identifier: BSD-3-Clause
"""Stable-Baselines3: agents on loom unasked; on-policy and off-policy training, saving, loading."""

import warnings

import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the libraries below it
    baselines = pytest.importorskip("stable_baselines3")

pytestmark = [
    pytest.mark.usefixtures("no_fallback"),
    pytest.mark.slow,
    # It says so of every device but the cpu.
    pytest.mark.filterwarnings("ignore:You are trying to run (PPO|A2C) on the GPU"),
]

ALGORITHMS = {
    "PPO": ("CartPole-v1", {"n_steps": 64, "batch_size": 32, "n_epochs": 2}),
    "A2C": ("CartPole-v1", {"n_steps": 16}),
    "DQN": ("CartPole-v1", {"learning_starts": 32, "buffer_size": 256}),
    "SAC": ("Pendulum-v1", {"learning_starts": 32, "buffer_size": 256}),
    "TD3": ("Pendulum-v1", {"learning_starts": 32, "buffer_size": 256}),
}

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def make(name, **options):
    environment, settings = ALGORITHMS[name]
    return getattr(baselines, name)("MlpPolicy", environment, seed=3, **settings, **options)


def devices(agent):
    return {str(p.device) for p in agent.policy.parameters()}


PLACES = {"auto": "loom:0", "loom:1": "loom:1", "cpu": "cpu", "cuda": "cpu"}


@pytest.mark.parametrize("device", PLACES)
def test_agents_are_where_they_should_be(device):
    assert devices(make("PPO", device=device)) == {PLACES[device]}


@every_algorithm
def test_an_agent_learns_on_loom(name):
    agent = make(name)
    before = [p.detach().clone() for p in agent.policy.parameters()]
    torch.loom.reset_fallbacks()
    agent.learn(128)
    assert torch.loom.fallbacks() == {}
    assert devices(agent) == {"loom:0"}
    after = list(agent.policy.parameters())
    assert all(p.isfinite().all() for p in after)
    assert any(not torch.equal(p, q) for p, q in zip(before, after, strict=True))


@pytest.mark.parametrize("name", ["PPO", "SAC"])
def test_a_saved_agent_acts_as_before_on_each_device(name, tmp_path):
    agent = make(name)
    agent.learn(128)
    agent.save(tmp_path / "agent")
    observations = np.random.default_rng(0).normal(size=(8, *agent.observation_space.shape))
    expected, _ = agent.predict(observations.astype(np.float32), deterministic=True)
    for device, place in PLACES.items():
        loaded = type(agent).load(tmp_path / "agent", device=device)
        assert devices(loaded) == {place}
        found, _ = loaded.predict(observations.astype(np.float32), deterministic=True)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
