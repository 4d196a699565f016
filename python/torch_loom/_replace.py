# SPDX-License-Identifier: BSD-3-Clause
"""Puts functions in the places of torch's own, where those are still what they were.

A patch that PyTorch outgrew must not raise a TypeError in the middle of a user's program: whether a
function fits into a place is found out when it is put there, by the parameters of what was there.
"""

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["REPLACED", "OutgrownError", "check_overrides", "overrides", "replace"]

REPLACED: dict[str, str] = {}
"""The functions of torch that were replaced, with their own parameters, for the tests."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class OutgrownError(TypeError):
    """A function of this torch takes other arguments than the one that loom has for its place."""


def replace(owner: Any, name: str, function: Any) -> None:
    """Put a function, static method or class method into a module or class of torch.

    Raises:
        OutgrownError: if a call that the function there takes would not be one of the new function.
        AttributeError: if there is none.
    """
    original = getattr(owner, name)
    what = f"{_name_of(owner)}.{name}"
    _check(what, original, function)
    REPLACED.setdefault(what, _text(_signature(original)))
    setattr(owner, name, function)


def check_overrides(classes: Iterable[type]) -> None:
    """Check all methods of these classes that override one of torch's.

    Raises:
        OutgrownError: if a call that torch's method takes would not be one of the class's own.
    """
    for cls in classes:
        for name, own, base in overrides(cls):
            if name in ("__init__", "__new__"):  # called by who knows the class
                continue
            _check(f"{_name_of(base)}.{name}", vars(base)[name], own)


def overrides(cls: type) -> Iterator[tuple[str, Any, type]]:
    """Each method of a class that overrides one of torch's, with the class of torch."""
    for name, own in vars(cls).items():
        if not callable(own) and not isinstance(own, (staticmethod, classmethod)):
            continue
        for base in cls.__mro__[1:]:
            if name in vars(base):
                is_torchs = base.__module__.partition(".")[0] == "torch"
                if is_torchs and not isinstance(own, type):
                    yield name, own, base
                break


def _name_of(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__


def _signature(function: Any, *, follow_wrapped: bool = True) -> inspect.Signature | None:
    is_class_method = isinstance(function, classmethod)
    function = getattr(function, "__func__", function) if is_class_method else function
    if isinstance(function, staticmethod):
        function = function.__func__
    try:
        signature = inspect.signature(function, follow_wrapped=follow_wrapped)
    except (TypeError, ValueError):  # of C, without a text of its parameters
        return None
    if is_class_method:  # called without the class
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    return signature


def _text(signature: inspect.Signature | None) -> str:
    if signature is None:
        return "(...)"
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    return str(inspect.Signature(parameters))


def _check(what: str, original: Any, function: Any) -> None:
    # A function that says by functools.wraps whose place it takes has parameters of its own.
    expected, own = _signature(original), _signature(function, follow_wrapped=False)
    if expected is None or own is None:
        return
    if why := _misfit(expected.parameters.values(), own.parameters.values()):
        raise OutgrownError(
            f"{what}{_text(expected)} {why}, and torch-loom has {_text(own)} for it"
        )


def _misfit(expected: Iterable[inspect.Parameter], own: Iterable[inspect.Parameter]) -> str:
    """What a call of the one may have that the other does not take, or nothing."""
    expected, own = list(expected), list(own)
    takes_any = {p.kind for p in own}
    positional = [p for p in own if p.kind in _POSITIONAL]
    ours = {p.name: p for p in own if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
    places = [p for p in expected if p.kind in _POSITIONAL]
    if len(places) > len(positional) and inspect.Parameter.VAR_POSITIONAL not in takes_any:
        return f"takes `{places[len(positional)].name}`"
    for parameter in expected:
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if parameter.name not in ours and inspect.Parameter.VAR_KEYWORD not in takes_any:
            return f"takes `{parameter.name}`"
    # What ours must be given has to be what every call gives.
    given = sum(p.default is inspect.Parameter.empty for p in places)
    needed = sum(p.default is inspect.Parameter.empty for p in positional)
    if needed > given and not any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in expected):
        return f"may be called without `{positional[given].name}`"
    return ""
