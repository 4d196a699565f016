# SPDX-License-Identifier: BSD-3-Clause
"""Changes of modules and classes that can be taken back, all of them, in reverse order."""

import sys
from collections.abc import Callable, MutableMapping
from types import ModuleType
from typing import Any

from ..integrations import import_hook

__all__ = ["Changes"]

_MISSING = object()


class Changes:
    """What was put in the place of what. One object for each time that the names are on.

    Not thread-safe: :mod:`.context` holds a lock.
    """

    def __init__(self, *, forced: bool = False) -> None:
        self.forced = forced
        """Whether the program insists, beside a device of CUDA."""
        self._undo: list[Callable[[], None]] = []
        # By identity, as not all of them can be hashed. The originals are kept, so that no other
        # object gets their identities.
        self._replaced: dict[int, tuple[Any, Any]] = {}
        self._awaited = _Awaited()

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module or a class, whether it has one of this name or not."""
        before = vars(owner).get(name, _MISSING)
        inherited = getattr(owner, name, _MISSING) if before is _MISSING else before
        if callable(inherited) and callable(value):
            self._replaced.setdefault(id(inherited), (inherited, value))
        setattr(owner, name, value)
        if before is _MISSING:
            self._undo.append(lambda: delattr(owner, name))
        else:
            self._undo.append(lambda: setattr(owner, name, before))

    def set_item(self, mapping: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """Set an item of a dictionary, such as a registry or the environment."""
        before = mapping.get(key, _MISSING)
        mapping[key] = value
        if before is _MISSING:
            self._undo.append(lambda: mapping.pop(key, None) and None)
        else:
            self._undo.append(lambda: mapping.__setitem__(key, before))

    def follow_imports(self) -> None:
        """Replace what modules imported by value, with ``from torch.cuda import Stream``.

        Only functions and classes, which :meth:`set` has replaced so far. Modules that import
        replacements later have the originals again in the end, unless those are loom's own
        functions, which work as before.
        """
        _exchange(self._replaced)
        back = {
            id(new): (new, old)
            for old, new in self._replaced.values()
            if getattr(new, "__module__", "").startswith(__package__)
        }
        self._undo.append(lambda: _exchange(back))

    def when_imported(self, name: str, change: Callable[[ModuleType], None]) -> None:
        """Call a function with a module, now or when it is imported."""
        if name in sys.modules:
            change(sys.modules[name])
            return
        if not self._awaited.changes:
            finder = import_hook.finder(self._awaited)
            sys.meta_path.insert(0, finder)
            self._undo.append(lambda: sys.meta_path.remove(finder))
        self._awaited.changes.setdefault(name, []).append(change)

    def on_undo(self, undo: Callable[[], None]) -> None:
        """Call a function when all later changes have been taken back."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Take everything back, last change first. Every step is done even if one fails.

        Raises:
            Exception: what the first step that failed raised.
        """
        failure: Exception | None = None
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:
                failure = failure or error
        self._replaced.clear()
        if failure is not None:
            raise failure


class _Awaited:
    """Modules that are changed when they are imported."""

    def __init__(self) -> None:
        self.changes: dict[str, list[Callable[[ModuleType], None]]] = {}

    def __contains__(self, module: str) -> bool:
        return module in self.changes

    def apply(self, module: ModuleType) -> None:
        for change in self.changes[module.__name__]:
            change(module)


def _exchange(replaced: dict[int, tuple[Any, Any]]) -> None:
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)  # not getattr(): modules may be lazy
        # Some programs put other objects than modules there.
        if type(names) is not dict or str(names.get("__name__")).startswith("torch_loom"):
            continue
        for name, value in list(names.items()):
            old, new = replaced.get(id(value), (_MISSING, None))
            if value is old:
                names[name] = new
