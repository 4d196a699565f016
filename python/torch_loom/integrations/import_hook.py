# SPDX-License-Identifier: BSD-3-Clause
"""A finder in front of Python's own that patches modules of a table as they are imported."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

__all__ = ["install"]


def install(patches: Mapping[str, str]) -> None:
    """Patch the modules that are imported, and the others when they are.

    Args:
        patches: for the name of a module, the file beside this one and the function in it that
            takes the module: ``"file:function"``.
    """
    sys.meta_path.insert(0, _Finder(patches))


def _patch(module: ModuleType, patch: str) -> None:
    file, _, function = patch.partition(":")
    try:
        getattr(importlib.import_module(f".{file}", __package__), function)(module)
    except Exception as error:  # another version of the library: it works as without loom
        warnings.warn(
            f"torch-loom: {module.__name__} does not choose loom by itself: {error!r}",
            stacklevel=2,
        )


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the table where Python finds them, and has them patched.

    A module may be in the middle of its own import when loom is registered: it was the first to
    import torch. It is patched when something else is imported after it.
    """

    def __init__(self, patches: Mapping[str, str]) -> None:
        self._patches = patches
        self._imported = [name for name in patches if name in sys.modules]
        self._patch_finished()

    def _patch_finished(self) -> None:
        waiting, self._imported = self._imported, []
        for name in waiting:
            module = sys.modules.get(name)
            if module is None:
                continue
            if getattr(module.__spec__, "_initializing", False):
                self._imported.append(name)
            else:
                _patch(module, self._patches[name])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self._imported:
            self._patch_finished()
        patch = self._patches.get(fullname)
        if patch is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, patch)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads as another loader does, then patches the module."""

    def __init__(self, loader: Any, patch: str) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # What reads sources or resources through the module finds the usual loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _patch(module, self._patch)
