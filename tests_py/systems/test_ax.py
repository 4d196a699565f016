# SPDX-License-Identifier: BSD-3-Clause
"""Ax: a Bayesian search whose trials train on loom."""

import importlib.util
import pathlib

import pytest
import torch

pytest.importorskip("ax.api.client")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:add_tracking_metric is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .* keyword:pandas.errors.Pandas4Warning"),
    pytest.mark.filterwarnings("ignore:The 'future.infer_string':pandas.errors.Pandas4Warning"),
    # torch says so where there is more than one device.
    pytest.mark.filterwarnings("ignore:LOOM reports that you have 2 available:UserWarning"),
]

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "tune_ax.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("tune_ax", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_trial_runs_on_loom_as_on_the_cpu(example):
    torch.loom.reset_fallbacks()
    found = example.train(1e-2, 16)
    assert torch.loom.fallbacks() == {}
    assert found.device == torch.device("loom", 0)
    expected = example.train(1e-2, 16, device="cpu")
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-4)


def test_a_search_finds_the_best_of_its_trials(example):
    client = example.search(trials=5, epochs=3)
    table = client.summarize()
    assert len(table) == 5
    assert set(table["trial_status"]) == {"COMPLETED"}
    # The last trials come from a model of the first ones.
    assert table["generation_node"].nunique() > 1
    parameters, prediction, _, _ = client.get_best_parameterization(use_model_predictions=False)
    best = table.loc[table["loss"].idxmin()]
    assert prediction["loss"][0] == pytest.approx(best["loss"])
    assert parameters["lr"] == pytest.approx(best["lr"])
    again = example.train(**parameters, epochs=3)
    assert again.is_loom
    assert again.item() == pytest.approx(best["loss"], rel=1e-4)
