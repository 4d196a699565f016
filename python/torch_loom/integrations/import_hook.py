# SPDX-License-Identifier: BSD-3-Clause
"""A finder in front of Python's own that patches modules of libraries as they are imported."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

__all__ = ["Library", "Patches", "finder", "install"]


@dataclass(frozen=True, eq=False)
class Library:
    """A library, and what in it is patched."""

    distribution: str
    """Its name on PyPI."""
    versions: tuple[str, ...]
    """Beginnings of the versions that the patches were made for. Others are left alone."""
    without: str
    """What a user does, or gets, without the patches."""
    patches: Mapping[str, str]
    """For a module, the file beside this one and the function in it that takes the module."""


def install(libraries: Iterable[Library]) -> None:
    """Patch the modules that are imported, and the others when they are."""
    patches = _Patches(libraries)
    sys.meta_path.insert(0, _Finder(patches))
    for name in patches.imported():
        module = sys.modules[name]
        if getattr(module.__spec__, "_initializing", False):
            _when_finished(module.__spec__, patches)
        else:
            patches.apply(module)


class Patches(Protocol):
    """What is to be done with modules when they are imported."""

    def __contains__(self, module: str) -> bool:
        """Tell by its name whether a module is one of them."""

    def apply(self, module: ModuleType) -> None:
        """Patch a module, before the program gets it."""


def finder(patches: Patches) -> importlib.abc.MetaPathFinder:
    """Make an entry for the front of ``sys.meta_path`` that has modules patched."""
    return _Finder(patches)


class _Patches:
    """Patches modules, and says which it leaves alone, and why."""

    def __init__(self, libraries: Iterable[Library]) -> None:
        self._libraries = {module: library for library in libraries for module in library.patches}
        self._known: dict[Library, bool] = {}

    def __contains__(self, module: str) -> bool:
        return module in self._libraries

    def imported(self) -> list[str]:
        return [name for name in self._libraries if name in sys.modules]

    def apply(self, module: ModuleType) -> None:
        library = self._libraries[module.__name__]
        if library not in self._known:
            self._known[library] = _knows(library)
        if not self._known[library]:
            return
        file, _, function = library.patches[module.__name__].partition(":")
        try:
            getattr(importlib.import_module(f".{file}", __package__), function)(module)
        except Exception as error:  # a version that differs: it works as without loom
            _warn(f"{module.__name__} does not choose loom by itself: {error!r}", library)


def _knows(library: Library) -> bool:
    try:
        version = importlib.metadata.version(library.distribution)
    except importlib.metadata.PackageNotFoundError:  # from a checkout, perhaps
        return True
    if any(f"{version}.".startswith(f"{known}.") for known in library.versions):
        return True
    versions = " or ".join(f"{known}.*" for known in library.versions)
    _warn(f"expected {library.distribution} {versions}, got {version}, left as it is", library)
    return False


def _warn(what: str, library: Library) -> None:
    warnings.warn(
        f"torch-loom: {what}. To use {library.distribution} with loom: {library.without}",
        stacklevel=2,
    )


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules where Python finds them, and has them patched."""

    def __init__(self, patches: Patches) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._patches:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._patches)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads as another loader does, then patches the module."""

    def __init__(self, loader: Any, patches: Patches) -> None:
        self._loader = loader
        self._patches = patches

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # What reads sources or resources through the module finds the usual loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._patches.apply(module)


def _when_finished(spec: Any, patches: _Patches) -> None:
    """Patch a module at the end of its import: it was the first to import torch.

    Python notes the end in the module's specification, before it hands the module to anybody.
    """

    class Watched(importlib.machinery.ModuleSpec):
        @property
        def _initializing(self) -> bool:
            return bool(vars(self)["_initializing"])

        @_initializing.setter
        def _initializing(self, value: bool) -> None:
            vars(self)["_initializing"] = value
            if not value:
                self.__class__ = importlib.machinery.ModuleSpec  # type: ignore[assignment]
                if self.name in sys.modules:  # not so if its import has failed
                    patches.apply(sys.modules[self.name])

    spec.__class__ = Watched
