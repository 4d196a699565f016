# SPDX-License-Identifier: BSD-3-Clause
"""Keras with PyTorch below it: everything on loom unasked; training, layers, saving."""

import os

import numpy as np
import pytest
import torch

os.environ["KERAS_BACKEND"] = "torch"
keras = pytest.importorskip("keras")

pytestmark = [
    pytest.mark.usefixtures("no_fallback"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword"),
]

PLACES = {"cpu": "cpu", "cpu:0": "cpu", "gpu:1": "loom:1", "loom:1": "loom:1"}


def mlp():
    return [
        keras.layers.Input((4,)),
        keras.layers.Dense(16, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(3),
    ]


def convolutions():
    return [
        keras.layers.Input((8, 8, 2)),
        keras.layers.Conv2D(4, 3, padding="same", activation="gelu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(3),
    ]


def sequences():
    return [
        keras.layers.Input((6,), dtype="int32"),
        keras.layers.Embedding(20, 8),
        keras.layers.LSTM(8, return_sequences=True),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.LayerNormalization(),
        keras.layers.Dense(3),
    ]


every_model = pytest.mark.parametrize("layers", [mlp, convolutions, sequences])


def data(layers):
    generator = np.random.default_rng(0)
    if layers is sequences:
        x = generator.integers(0, 20, (64, 6)).astype("int32")
        return x, (x[:, 0] % 3).astype("int32")
    x = generator.normal(size=(64, *layers()[0].shape[1:])).astype("float32")
    return x, (x.reshape(64, -1)[:, :2] > 0).sum(1).astype("int32")


def make(layers):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(layers())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def devices(model):
    return {str(variable.value.device) for variable in model.variables}


@every_model
def test_training_follows_the_cpu(layers):
    model = make(layers)
    weights = model.get_weights()
    history = model.fit(*data(layers), batch_size=16, epochs=3, shuffle=False, verbose=0).history
    assert devices(model) == {"loom:0"}
    with keras.device("cpu"):
        reference = make(layers)
        reference.set_weights(weights)
        expected = reference.fit(
            *data(layers), batch_size=16, epochs=3, shuffle=False, verbose=0
        ).history
        assert devices(reference) == {"cpu"}
    assert history["loss"] == pytest.approx(expected["loss"], rel=1e-2)
    assert history["loss"][-1] < history["loss"][0]


def test_names_of_devices():
    assert str(keras.ops.ones(2).device) == "loom:0"
    for name, place in {
        "cpu": "cpu",
        "cpu:0": "cpu",
        "gpu:1": "loom:1",
        "loom:1": "loom:1",
    }.items():
        with keras.device(name):
            assert str(keras.ops.ones(2).device) == place


@pytest.mark.parametrize(("name", "place"), [("cpu", "cpu"), ("loom:1", "loom:1")])
def test_the_variable_of_keras_comes_first(name, place, check):
    source = "import keras; print(keras.ops.ones(2).device)"
    assert check(source, KERAS_TORCH_DEVICE=name, LOOM_DEVICES="2").out.split() == [place]


@every_model
def test_a_saved_model_predicts_as_before(layers, tmp_path):
    model = make(layers)
    x, y = data(layers)
    model.fit(x, y, verbose=0)
    expected = model.predict(x, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert devices(loaded) == {"loom:0"}
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-5)


def test_random_numbers_depend_on_the_seed_only():
    def draw(seed):
        drop = keras.layers.Dropout(0.5, seed=seed)
        return drop(keras.ops.ones((64,)), training=True)

    assert draw(3).is_loom
    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))
