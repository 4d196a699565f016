# SPDX-License-Identifier: BSD-3-Clause
"""Libraries that choose among devices by name, and are told of loom as they are imported.

``torch.accelerator`` says which device there is, but these libraries go through lists of their own
and end at the cpu. Each patch changes that end only: what the user asks for comes first, and a
program in which loom is not torch's accelerator goes its usual way. A program that imports none of
them pays nothing: a file of this package is loaded when its library is imported, never before.

What each library does with loom, and what a user writes where it does nothing: docs/libraries.md.
"""

from . import import_hook
from .import_hook import Library

__all__ = ["apply"]

_LIBRARIES = (
    Library(
        "safetensors",
        versions=("0",),
        without="load files to the cpu and move the tensors",
        patches={"safetensors": "safetensors:patch"},
    ),
    Library(
        "accelerate",
        versions=("1",),
        without='set ACCELERATE_TORCH_DEVICE=loom, and name "loom" in device maps',
        patches={
            "accelerate.state": "accelerate:patch_state",
            "accelerate.utils.modeling": "accelerate:patch_modeling",
            "accelerate.utils.memory": "accelerate:patch_memory",
            "accelerate.checkpointing": "accelerate:patch_checkpointing",
            "accelerate.accelerator": "accelerate:patch_accelerator",
        },
    ),
    Library(
        "transformers",
        versions=("5",),
        without='name device="loom" for pipelines, and move models with model.to("loom")',
        patches={
            "transformers.training_args": "transformers:patch_training_args",
            "transformers.pipelines.base": "transformers:patch_pipelines",
            "transformers.trainer": "transformers:patch_trainer",
            "transformers.integrations.accelerate": "transformers:patch_accelerate",
            "transformers.modeling_utils": "transformers:patch_modeling_utils",
            "transformers.cache_utils": "transformers:patch_cache_utils",
        },
    ),
    Library(
        "lightning",
        versions=("2",),
        without="there is no way known, and its Trainer and Fabric run on the cpu",
        patches={
            "lightning.fabric.connector": "lightning:patch_fabric",
            "lightning.pytorch.trainer.connectors.accelerator_connector": "lightning:patch_trainer",
        },
    ),
    # Its names before 2.0, which are still published, with classes of their own.
    Library(
        "lightning-fabric",
        versions=("2",),
        without="there is no way known, and its Fabric runs on the cpu",
        patches={"lightning_fabric.connector": "lightning:patch_fabric"},
    ),
    Library(
        "pytorch-lightning",
        versions=("2",),
        without="there is no way known, and its Trainer runs on the cpu",
        patches={
            "pytorch_lightning.trainer.connectors.accelerator_connector": "lightning:patch_trainer",
        },
    ),
    Library(
        "sentence-transformers",
        versions=("6",),
        without='name the device: SentenceTransformer(..., device="loom")',
        patches={
            "sentence_transformers.util.environment": "sentence_transformers:patch_environment",
            "sentence_transformers.base.model": "sentence_transformers:patch_model",
        },
    ),
    Library(
        "stable-baselines3",
        versions=("2",),
        without='name the device: PPO(..., device="loom")',
        patches={"stable_baselines3.common.utils": "stable_baselines3:patch_utils"},
    ),
    Library(
        "pytorch-ignite",
        versions=("0.5",),
        without='move models with model.to("loom"), and name device="loom" where engines are made',
        patches={
            "ignite.distributed.comp_models.base": "ignite:patch_distributed",
            "ignite.engine": "ignite:patch_engine",
        },
    ),
    Library(
        "keras",
        versions=("3",),
        without="set KERAS_TORCH_DEVICE=loom",
        patches={"keras.src.backend.torch.core": "keras:patch_core"},
    ),
    Library(
        "fastai",
        versions=("2",),
        without='name the device: DataLoaders.from_dsets(..., device=torch.device("loom"))',
        patches={
            "fastai.torch_core": "fastai:patch_torch_core",
            "fastai.callback.fp16": "fastai:patch_fp16",
        },
    ),
)


def apply() -> None:
    """Patch the libraries that are there, and the others when they come. Call once."""
    import_hook.install(_LIBRARIES)
