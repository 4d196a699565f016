# SPDX-License-Identifier: BSD-3-Clause
"""Ray Tune: search for a learning rate and a width, each trial trained on loom in its own process.

pip install 'torch-loom[examples]'
python examples/tune_ray.py
"""

import os
import tempfile

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import torch
from ray import tune
from torch import nn


def problem(count=256):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 8, generator=generator)
    return x, (x[:, :1] * x[:, 1:2] > 0).float()


def losses(lr, width, epochs, device=None):
    """Train on the accelerator; the loss after each epoch."""
    torch.manual_seed(0)
    device = device or torch.accelerator.current_accelerator()
    x, y = (tensor.to(device) for tensor in problem())
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        for batch, target in zip(x.split(64), y.split(64), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch), target)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            yield nn.functional.binary_cross_entropy_with_logits(model(x), y)


def train(config):
    """One trial: reports the loss, and where it ran, after every epoch."""
    for loss in losses(**config):
        tune.report({"loss": loss.item(), "device": str(loss.device)})


def search(rates=(1e-3, 1e-2), widths=(8, 32), epochs=5, folder=None):
    """Try every pair, two at a time; Ray's table of results."""
    ray.init(
        num_cpus=2,
        object_store_memory=100 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        # Ray gives each trial one core, and so does loom.
        runtime_env={"env_vars": {"LOOM_DEVICES": "1", "LOOM_THREADS": "1"}},
    )
    try:
        tuner = tune.Tuner(
            tune.with_resources(train, {"cpu": 1}),
            param_space={
                "lr": tune.grid_search(list(rates)),
                "width": tune.grid_search(list(widths)),
                "epochs": epochs,
            },
            tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=2),
            run_config=tune.RunConfig(storage_path=folder or tempfile.mkdtemp(), verbose=0),
        )
        return tuner.fit()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    results = search()
    best = results.get_best_result()
    print("on", best.metrics["device"], "best", best.config, "loss", best.metrics["loss"])
