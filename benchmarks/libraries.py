# SPDX-License-Identifier: BSD-3-Clause
"""Models of the library transformers on loom and on cpu: a step of training, and inference.

They are the library's own classes, small and with random weights: a step is forward, backward and
AdamW. Losses of some steps and results of inference are compared. Packages: the extra `libraries`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from comparison import Comparison
from measure import describe, duration, interleaved, seconds_per_call
from torch import Tensor, nn
from worker import difference

SECONDS = 0.15
STEPS = 3
# Relative to the norm: optimisers amplify what is rounded otherwise.
TOLERANCES = {"training": 2e-3, "inference": 1e-3}
WORDS = 1000

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Model:
    """A class of the library with its configuration, and a batch with its targets."""

    name: str
    model: str
    config: dict[str, Any]
    batch: Callable[[], Inputs]


def words(count: int, length: int) -> Callable[[], Inputs]:
    def batch() -> Inputs:
        ids = torch.randint(1, WORDS, (count, length))
        return {"input_ids": ids, "labels": ids}

    return batch


def classified(count: int, length: int) -> Callable[[], Inputs]:
    return lambda: {
        "input_ids": torch.randint(1, WORDS, (count, length)),
        "labels": torch.randint(2, (count,)),
    }


def pictures(count: int, size: int) -> Callable[[], Inputs]:
    return lambda: {
        "pixel_values": torch.randn(count, 3, size, size),
        "labels": torch.randint(2, (count,)),
    }


def maps(count: int, size: int) -> Callable[[], Inputs]:
    return lambda: {
        "pixel_values": torch.randn(count, 3, size, size),
        "labels": torch.randint(2, (count, size, size)),
    }


def sounds(count: int, length: int) -> Callable[[], Inputs]:
    return lambda: {
        "input_values": torch.randn(count, length),
        "labels": torch.randint(2, (count,)),
    }


def speech(count: int) -> Callable[[], Inputs]:
    return lambda: {
        "input_features": torch.randn(count, 80, 3000),
        "labels": torch.randint(1, WORDS, (count, 16)),
    }


ENCODER = {
    "vocab_size": WORDS,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
MODELS = (
    Model("Bert", "BertForSequenceClassification", ENCODER, classified(8, 128)),
    Model(
        "DistilBert",
        "DistilBertForSequenceClassification",
        {"vocab_size": WORDS, "dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 1024},
        classified(8, 128),
    ),
    Model("Roberta", "RobertaForMaskedLM", ENCODER, words(8, 128)),
    Model(
        "GPT2",
        "GPT2LMHeadModel",
        {"vocab_size": WORDS, "n_embd": 256, "n_layer": 4, "n_head": 4},
        words(4, 128),
    ),
    Model(
        "Llama",
        "LlamaForCausalLM",
        ENCODER | {"num_key_value_heads": 2, "intermediate_size": 688},
        words(4, 128),
    ),
    Model(
        "T5",
        "T5ForConditionalGeneration",
        {"vocab_size": WORDS, "d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 3}
        | {"num_heads": 4, "decoder_start_token_id": 0},
        words(4, 64),
    ),
    Model(
        "ViT",
        "ViTForImageClassification",
        {key: ENCODER[key] for key in ENCODER if key != "vocab_size"}
        | {"image_size": 112, "patch_size": 8},
        pictures(4, 112),
    ),
    Model(
        "Segformer",
        "SegformerForSemanticSegmentation",
        {"hidden_sizes": [16, 32, 64, 128], "decoder_hidden_size": 64},
        maps(2, 128),
    ),
    Model(
        "ConvNeXt",
        "ConvNextForImageClassification",
        {"hidden_sizes": [32, 64, 128, 256], "depths": [2, 2, 4, 2]},
        pictures(4, 112),
    ),
    Model(
        "MobileNetV2",
        "MobileNetV2ForImageClassification",
        {"image_size": 112, "classifier_dropout_prob": 0.0},
        pictures(4, 112),
    ),
    Model(
        "ResNet",
        "ResNetForImageClassification",
        {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "embedding_size": 32},
        pictures(4, 112),
    ),
    Model(
        "Wav2Vec2",
        "Wav2Vec2ForSequenceClassification",
        {key: ENCODER[key] for key in ENCODER if key != "vocab_size"}
        | {"conv_dim": (64,) * 7, "num_conv_pos_embeddings": 32, "num_conv_pos_embedding_groups": 8}
        | {"apply_spec_augment": False, "layerdrop": 0.0, "feat_proj_dropout": 0.0},
        sounds(4, 16000),
    ),
    Model(
        "Whisper",
        "WhisperForConditionalGeneration",
        {"vocab_size": WORDS, "d_model": 128, "encoder_layers": 2, "decoder_layers": 2}
        | {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 512}
        | {"decoder_ffn_dim": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        | {"decoder_start_token_id": 1, "suppress_tokens": None, "begin_suppress_tokens": None},
        speech(1),
    ),
)


def build(task: Model) -> nn.Module:
    """The model without dropout, whose numbers are the device's own."""
    import transformers

    made = getattr(transformers, task.model)
    config = made.config_class(**task.config)
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0
    torch.manual_seed(0)
    model: nn.Module = made(config)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def training(model: nn.Module, batch: Inputs) -> Callable[[], Tensor]:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(**batch).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def inference(model: nn.Module, batch: Inputs) -> Callable[[], Tensor]:
    model.eval()

    def call() -> Tensor:
        with torch.inference_mode():
            result: Tensor = model(**batch).logits
        return result

    return call


def first_results(kind: str, call: Callable[[], Tensor]) -> list[Tensor]:
    return [call().cpu() for _ in range(STEPS if kind == "training" else 1)]


def measure(task: Model, kind: str, results: Comparison) -> bool:
    """Adds a row; false if results differ."""
    make = training if kind == "training" else inference
    torch.manual_seed(1)
    batch = task.batch()
    calls = {
        device: make(build(task).to(device), {key: batch[key].to(device) for key in batch})
        for device in ("cpu", "loom")
    }
    expected, found = (first_results(kind, calls[device]) for device in ("cpu", "loom"))
    finish = {"cpu": lambda: None, "loom": torch.loom.synchronize}
    times = interleaved(
        {
            device: lambda d=device: seconds_per_call(calls[d], finish[d], 1, SECONDS, keep=True)
            for device in calls
        },
        3,
    )
    name = f"{task.name}, {kind}"
    ratio = results.ratio(f"cpu / loom, {kind}", times["cpu"] / times["loom"], name)
    results.add([name, duration(times["cpu"]), duration(times["loom"]), ratio])
    off = difference(found, expected)
    if off <= TOLERANCES[kind]:
        return True
    results.note(f"{name} differs from cpu by {off:.1e}")
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="?", default="", help="only models that contain this")
    parser.add_argument("--kinds", nargs="+", default=["training", "inference"])
    parser.add_argument("--write", action="store_true", help="write a page in docs/performance")
    given = parser.parse_args()
    describe("models of transformers, float32 (cpu / loom: more than 1 is faster than cpu)")
    if importlib.util.find_spec("transformers") is None:
        print("  not measured without transformers: pip install 'torch-loom[libraries]'")
        return
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "critical"}
    warnings.filterwarnings("ignore")
    results = Comparison(["model", "cpu", "loom", "cpu / loom"])
    agree = True
    for kind in given.kinds:
        for task in MODELS:
            if given.only not in task.name:
                continue
            print(f"  {task.name}, {kind}", file=sys.stderr, flush=True)
            agree = measure(task, kind, results) and agree
    if agree:
        results.note("losses and results are those of cpu, as near as rounding allows")
    results.show()
    if given.write:
        command = 'make bench ARGS="libraries --write"'
        results.write("libraries", "Models of transformers", command)


if __name__ == "__main__":
    main()
