# SPDX-License-Identifier: BSD-3-Clause
"""When loom has the name of CUDA: a counted context of the whole process, and a variable."""

import functools
import inspect
import os
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import torch

from .. import _C
from .._utils import set_names
from .changes import Changes

__all__ = ["VARIABLE", "as_cuda", "is_on", "turn_on_as_asked"]

VARIABLE = "TORCH_LOOM_AS_CUDA"
"""The environment variable: ``1`` for on, ``force`` for on even beside a device of CUDA."""

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Reentrant: a hook may import a module that asks for the context, too.
_lock = threading.RLock()
_depth = 0
_changes: Changes | None = None


def is_on() -> bool:
    """Return whether loom has the name of CUDA now."""
    return _C._is_cuda_name_on()


class as_cuda:  # noqa: N801  # reads as a statement: with as_cuda():
    r"""Context manager and decorator in which programs that say ``cuda`` run on loom.

    The name belongs to the process: all threads see it while any of them is inside. Contexts may be
    nested; the last one that ends takes everything back. Tensors made inside stay usable, and print
    as ``loom`` afterwards.

    Args:
        force (bool): whether to take the name even where PyTorch sees a device of CUDA, which the
            program cannot name then. Default: ``False``.

    Raises:
        RuntimeError: where PyTorch sees a device of CUDA, or does not let its names be changed, and
            when a context is left that was not entered.

    Example::

        >>> with torch_loom.as_cuda():
        ...     x = torch.ones(3, device="cuda")
        ...     assert x.is_cuda and torch.cuda.is_available()
    """

    def __init__(self, *, force: bool = False) -> None:
        self._force = force

    def __enter__(self) -> None:
        _enter(self._force)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _leave()

    def __call__(self, function: _Function) -> _Function:
        """Decorate a function: its calls are inside of the context.

        Raises:
            TypeError: for a function whose call returns before its body has run.
        """
        returns_at_once = (
            inspect.isgeneratorfunction,
            inspect.iscoroutinefunction,
            inspect.isasyncgenfunction,
        )
        if any(check(function) for check in returns_at_once):
            raise TypeError(
                "torch_loom.as_cuda: expected a function that has run when its call returns, got "
                f"the generator or coroutine {function.__qualname__}. Write `with as_cuda():` in it"
            )

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            with as_cuda(force=self._force):
                return function(*args, **named)

        return call  # type: ignore[return-value]


def turn_on_as_asked() -> None:
    """Take the name for the rest of the process, if the environment says so.

    Raises:
        ValueError: when the variable has a value without a meaning.
        RuntimeError: as :class:`as_cuda`.
    """
    value = os.environ.get(VARIABLE, "")
    if value in ("", "0"):
        return
    if value not in ("1", "force"):
        raise ValueError(f"{VARIABLE}: expected 0, 1 or force, got {value!r}")
    _enter(force=value == "force")


def _enter(force: bool) -> None:
    global _depth
    with _lock:
        if _depth == 0:
            _turn_on(force)
        _depth += 1


def _leave() -> None:
    global _depth
    with _lock:
        if _depth == 0:
            raise RuntimeError("torch_loom.as_cuda: expected a context that was entered, got none")
        _depth -= 1
        if _depth == 0:
            _turn_off()


def _turn_on(force: bool) -> None:
    global _changes
    if not force and _sees_cuda():
        raise RuntimeError(
            "torch_loom.as_cuda: expected no device of CUDA, got "
            f"{torch.cuda.device_count()}; the program could not reach it. Run the program without "
            "as_cuda, hide the device with CUDA_VISIBLE_DEVICES='', or pass force=True "
            f"({VARIABLE}=force) to run on loom all the same"
        )
    _C._redirect_cuda_name()
    from .table import HOOKS

    changes = Changes(forced=force)
    try:
        # The device's name first: hooks name devices as the program does.
        set_names(frozenset({"loom", "cuda"}))
        changes.on_undo(lambda: set_names(frozenset({"loom"})))
        _C._set_cuda_name(True)
        changes.on_undo(lambda: _C._set_cuda_name(False))
        _check_names()
        for hook in HOOKS:
            try:
                hook.apply(changes)
            except (AttributeError, ImportError, TypeError) as error:  # not what it was made for
                warnings.warn(
                    f"torch_loom.as_cuda: PyTorch's {hook.name} does not know loom as cuda: "
                    f"{error!r}",
                    stacklevel=4,
                )
        changes.follow_imports()
    except BaseException:
        changes.undo()
        raise
    _changes = changes


def _turn_off() -> None:
    global _changes
    changes, _changes = _changes, None
    if changes is not None:
        changes.undo()


def _sees_cuda() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver that does not fit, for example
        return torch.cuda.is_available()


def _check_names() -> None:
    # A PyTorch that has these functions inlined, or calls them in another way.
    loom, cuda = torch.device("loom", 0), torch.device("cuda:0")
    if loom != cuda or loom.type != "cuda" or str(torch.device("cuda")) != "cuda":
        raise RuntimeError(
            f"torch_loom.as_cuda: expected torch {torch.__version__} to take the name of loom's "
            f'device from the functions of its libc10, but it does not. Name the device "loom"'
        )
