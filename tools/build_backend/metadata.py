# SPDX-License-Identifier: BSD-3-Clause
"""The dynamic part of the project's metadata, for scikit-build-core."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import torch_location

_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)]+)\)")


def absolute_links(text: str, base: str) -> str:
    """Markdown whose links to files of the project work elsewhere, as on a package index."""
    return _LINK.sub(rf"]({base}/\1)", text)


class Metadata:
    """Provides `dependencies` and `readme`."""

    def build_state(self, build_state: str) -> None:
        """Say what the metadata is for."""
        self._is_sdist = build_state == "sdist"

    def dynamic_metadata(
        self, settings: Mapping[str, Any], project: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the fields of this build."""
        base = f"{project['urls']['Source']}/blob/main"
        text = absolute_links(Path("README.md").read_text(), base)
        return {
            "dependencies": [self._torch_requirement()],
            "readme": {"content-type": "text/markdown", "text": text},
        }

    def dynamic_wheel(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        """Say which fields of a wheel may differ from those of its sources."""
        return {"dependencies": True}

    def _torch_requirement(self) -> str:
        if self._is_sdist:
            return torch_location.Supported.read(Path("pyproject.toml")).requirement()
        return f"torch=={torch_to_build_with().minor}.*"


def torch_to_build_with() -> torch_location.Torch:
    """Return it, or end the build with a message."""
    supported = torch_location.Supported.read(Path("pyproject.toml"))
    try:
        torch = supported.find()
    except torch_location.TorchError as problem:
        sys.exit(f"torch-loom: {problem}")
    if torch is None:
        sys.exit(
            "torch-loom: found no torch to build with. Install one (pip install "
            f"'{supported.requirement()}'), or name its folder: pip install -C torch=FOLDER"
        )
    return torch
