# SPDX-License-Identifier: BSD-3-Clause
"""A wheel for several versions of torch: a folder for each, of which one is loaded.

What is compiled belongs to one minor version of torch. A wheel that was built for one has it beside
the modules; ``tools/merge_wheels.py`` makes one wheel of several, in which it lies in
``torch_loom/_torch213`` and the like. The folder of the installed torch becomes part of the
package's path, so ``torch_loom._C`` is the right one, or there is none: a library for another minor
version could be loaded, and would be wrong without a word.
"""

from collections.abc import MutableSequence
from pathlib import Path

__all__ = ["choose", "folder_name", "versions_inside"]

_PREFIX = "_torch"


def folder_name(version: str) -> str:
    """The name of the folder for a version of torch: that for "2.13.0+cpu" is "_torch213"."""
    return _PREFIX + "".join(version.split(".")[:2])


def versions_inside(package: Path) -> list[str]:
    """The minor versions of torch that a package has a folder for, as "2.13", in their order."""
    found = []
    for folder in package.glob(f"{_PREFIX}[0-9]*"):
        digits = folder.name.removeprefix(_PREFIX)
        if digits.isdecimal() and len(digits) > 1 and folder.is_dir():
            found.append((int(digits[0]), int(digits[1:])))
    return [f"{major}.{minor}" for major, minor in sorted(found)]


def choose(path: MutableSequence[str], version: str) -> None:
    """Add the folder for a version of torch to a package's path, if the package has such folders.

    Args:
        path: ``__path__`` of the package, whose first entry is its own folder.
        version: ``torch.__version__``.

    Raises:
        ImportError: there are folders, but none for this version.
    """
    package = Path(path[0])
    inside = versions_inside(package)
    if not inside:
        return
    folder = package / folder_name(version)
    if not folder.is_dir():
        raise ImportError(
            f"torch-loom: expected torch {', '.join(f'{each}.*' for each in inside)}, which this "
            f"wheel has a library for, got torch {version}. Install one of these: pip install "
            f"'torch=={inside[-1]}.*', or build torch-loom with the torch that is there: pip "
            "install --no-binary torch-loom --force-reinstall --no-deps torch-loom"
        )
    if str(folder) not in path:
        path.append(str(folder))
