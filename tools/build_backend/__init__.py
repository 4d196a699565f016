# SPDX-License-Identifier: BSD-3-Clause
"""The build backend: scikit-build-core, told which torch to compile against.

``pip install .`` compiles for the torch that is installed, and downloads one only where there is
none.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from scikit_build_core import build as _scikit

from . import torch_location
from .metadata import torch_to_build_with

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, Any] | None


def _without_torch(settings: Settings) -> dict[str, Any]:
    """Return the settings that scikit-build-core knows; remember the one on torch."""
    known = dict(settings or {})
    given = known.pop("torch", None)
    if given:
        os.environ[torch_location.SETTING] = given[-1] if isinstance(given, list) else given
    return known


def _with_torch(settings: Settings) -> dict[str, Any]:
    """Return the settings for scikit-build-core that make CMake find the right torch."""
    known = _without_torch(settings)
    torch = torch_to_build_with()
    print(f"Building for torch {torch.version} in {torch.folder}: {torch.source}", flush=True)
    # Not Torch_ROOT: a build tree that was used before has Torch_DIR in its cache.
    known["cmake.define.Torch_DIR"] = str(torch.folder / torch_location.CONFIG_FOLDER)
    # A tree for each torch: going from one environment to another compiles nothing twice.
    known.setdefault("build-dir", f"build/{{wheel_tag}}-torch{torch.minor.replace('.', '')}")
    return known


def _torch_requirements() -> list[str]:
    supported = torch_location.Supported.read(Path("pyproject.toml"))
    try:
        found = supported.find()
    except torch_location.TorchError as problem:
        sys.exit(f"torch-loom: {problem}")
    return [] if found else [supported.requirement()]


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return what building needs, torch among it only where none is installed."""
    requirements = _scikit.get_requires_for_build_wheel(_without_torch(config_settings))
    return [*requirements, *_torch_requirements()]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """As :func:`get_requires_for_build_wheel`."""
    requirements = _scikit.get_requires_for_build_editable(_without_torch(config_settings))
    return [*requirements, *_torch_requirements()]


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """Return what packing the sources needs: no torch."""
    return _scikit.get_requires_for_build_sdist(_without_torch(config_settings))


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """Write the metadata, and compile nothing."""
    settings = _with_torch(config_settings)
    return _scikit.prepare_metadata_for_build_wheel(metadata_directory, settings)


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """Write the metadata, and compile nothing."""
    settings = _with_torch(config_settings)
    return _scikit.prepare_metadata_for_build_editable(metadata_directory, settings)


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Compile, and pack a wheel for the torch that was found."""
    return _scikit.build_wheel(wheel_directory, _with_torch(config_settings), metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Compile, and pack a wheel that refers to this folder."""
    return _scikit.build_editable(wheel_directory, _with_torch(config_settings), metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Pack the sources."""
    return _scikit.build_sdist(sdist_directory, _without_torch(config_settings))
