# SPDX-License-Identifier: BSD-3-Clause
"""Ray Tune: a search whose trials train on loom, each in a process of its own."""

import importlib.util
import pathlib
import secrets

import pytest

pytest.importorskip("ray.tune")

pytestmark = pytest.mark.slow

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "tune_ray.py"


@pytest.fixture
def example(monkeypatch):
    # Otherwise Ray writes a token into the home directory.
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Not in sys.modules: so Ray sends the functions themselves to its processes.
    spec = importlib.util.spec_from_file_location("tune_ray", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_trials_train_on_loom_and_the_best_is_found(example, tmp_path):
    results = example.search(rates=(1e-4, 3e-2), widths=(16,), epochs=3, folder=str(tmp_path))
    assert not results.errors
    assert len(results) == 2
    assert len({result.metrics["pid"] for result in results}) == 2
    for result in results:
        assert result.metrics["device"] == "loom:0"
        expected = [loss.item() for loss in example.losses(**result.config, device="cpu")]
        assert len(expected) == 3
        assert result.metrics["loss"] == pytest.approx(expected[-1], rel=1e-3)
    best = results.get_best_result()
    assert best.config["lr"] == 3e-2
    assert best.metrics["training_iteration"] == 3
