# SPDX-License-Identifier: BSD-3-Clause
"""Finds the torch that the build compiles against, without importing it.

A build frontend isolates the build: it hides the packages of the user's environment, or makes an
environment of its own. But loom will run with the torch of the user's environment, so this looks
where that environment keeps its packages. torch is a build requirement only where there is none.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# The environment variable that names the torch. The setting of pip, `-C torch=DIR`, sets it.
SETTING = "LOOM_BUILD_TORCH"
CONFIG_FOLDER = "share/cmake/Torch"
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_CONFIG = f"{CONFIG_FOLDER}/TorchConfig.cmake"


@dataclass(frozen=True)
class Torch:
    """A torch that can be compiled against.

    Attributes:
        folder (Path): of the package, which has ``include`` and ``lib``.
        version (str): as torch says it, "2.13.0+cpu".
        source (str): what led to it, for messages.
    """

    folder: Path
    version: str
    source: str

    @property
    def minor(self) -> str:
        """The part of the version that the library depends on: "2.13"."""
        return ".".join(self.version.split(".")[:2])


class TorchError(Exception):
    """There is no torch to build with; says what to do."""


def torch_in(folder: Path, source: str) -> Torch | None:
    """Return the torch whose package is ``folder``, if it has what a C++ build needs."""
    try:
        text = (folder / "version.py").read_text()
    except OSError:
        return None
    version = re.search(r"^__version__ = ['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    if version is None or not (folder / _CONFIG).exists():
        return None
    return Torch(folder, version.group(1), source)


def _site_packages(prefix: Path) -> Path:
    return prefix / "lib" / _PYTHON / "site-packages"


def _imported() -> Iterator[Path]:
    spec = importlib.util.find_spec("torch")
    if spec is not None:
        yield from map(Path, spec.submodule_search_locations or ())


def _of_interpreter() -> Iterator[Path]:
    """Where this interpreter keeps packages, whether or not the build may import them."""
    yield Path(sysconfig.get_path("purelib"))
    yield Path(sysconfig.get_path("platlib"))
    try:
        configuration = Path(sys.prefix, "pyvenv.cfg").read_text()
    except OSError:
        configuration = ""
    if re.search(r"(?im)^include-system-site-packages\s*=\s*true", configuration):
        base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
        yield Path(sysconfig.get_path("purelib", vars=base))
        yield Path(sysconfig.get_path("platlib", vars=base))
    elif sys.prefix != sys.base_prefix:
        return
    yield Path(sysconfig.get_path("purelib", sysconfig.get_preferred_scheme("user")))


def _of_project() -> Path:
    """Where a project's environment is by custom: uv, whose builds set VIRTUAL_ENV, uses it."""
    return _site_packages(Path(".venv").absolute())


def _places(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for folder in _imported():
        yield f"what {sys.executable} imports", folder
    for packages in _of_interpreter():
        yield f"the packages of {sys.executable}", packages / "torch"
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environment.get(name):
            yield name, _site_packages(Path(environment[name])) / "torch"
    yield ".venv of the project", _of_project() / "torch"


def find_torch(environment: Mapping[str, str] = os.environ) -> Torch | None:
    """Return the torch to build with, or None.

    ``LOOM_BUILD_TORCH`` comes first: the folder of the package torch, one that holds it, or an
    environment.

    Raises:
        TorchError: if the variable leads to no torch.
    """
    setting = environment.get(SETTING)
    if setting:
        given = Path(setting).expanduser().absolute()
        for folder in (given, given / "torch", _site_packages(given) / "torch"):
            if found := torch_in(folder, f"the setting torch={setting}"):
                return found
        raise TorchError(
            f"torch={setting}: expected the folder of a torch package (with {_CONFIG}), one that "
            f"holds it, or an environment of {_PYTHON}"
        )
    candidates = (torch_in(folder, source) for source, folder in _places(environment))
    return next((torch for torch in candidates if torch is not None), None)


def release(version: str) -> tuple[int, int]:
    """What to compare a version by: "2.13.0+cpu" is (2, 13)."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@dataclass(frozen=True)
class Supported:
    """The minor versions of torch that the project is made for, both included."""

    oldest: str
    newest: str

    @staticmethod
    def read(pyproject: Path) -> Supported:
        """Read what pyproject.toml says."""
        table = tomllib.loads(pyproject.read_text())["tool"]["loom"]
        return Supported(table["oldest-torch"], table["newest-torch"])

    def requirement(self) -> str:
        """One requirement that each of them satisfies."""
        major, minor = release(self.newest)
        return f"torch>={self.oldest},<{major}.{minor + 1}"

    def find(self) -> Torch | None:
        """As :func:`find_torch`, and raise TorchError for an older one. Warns of a newer one."""
        torch = find_torch()
        if torch is None:
            return None
        if release(torch.version) < release(self.oldest):
            raise TorchError(
                f"expected torch {self.oldest} to {self.newest}, found {torch.version} in "
                f"{torch.folder} ({torch.source}). Install one that fits (pip install "
                f"'{self.requirement()}'), or name its folder: pip install -C torch=FOLDER"
            )
        if release(torch.version) > release(self.newest):
            print(
                f"torch-loom: torch {torch.version} is newer than {self.newest}, the newest that "
                "these sources are made for",
                file=sys.stderr,
            )
        return torch
