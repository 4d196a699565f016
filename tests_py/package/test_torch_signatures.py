# SPDX-License-Identifier: BSD-3-Clause
"""What of torch's own the package overrides or replaces has the parameters that it was made for."""

import difflib
import inspect
import subprocess
import sys
import types
from pathlib import Path

import pytest
from torch_signatures import table

from torch_loom import _replace, _torch_features

SCRIPT = Path(__file__).with_name("torch_signatures.py")


def test_everything_has_the_parameters_that_it_had():
    known = table(_torch_features.MINOR)
    assert known.exists(), f"no list for torch {_torch_features.MINOR}: {SCRIPT.name} --write"
    done = subprocess.run(
        [sys.executable, SCRIPT], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    diff = list(difflib.unified_diff(known.read_text().split("\n"), done.stdout.split("\n"), n=0))
    assert not diff, (
        "\n".join(diff)
        + f"\nLook at what loom has there, then write the list: {SCRIPT.name} --write"
    )


def test_versions_have_lists_until_they_are_dropped():
    minors = {path.stem.removeprefix("torch-") for path in table("0").parent.iterdir()}
    assert _torch_features.OLDEST in minors
    assert all(_torch_features.is_known(minor) for minor in minors)


def module_with(function):
    module = types.ModuleType("torch.somewhere")
    module.function = function
    return module


@pytest.mark.parametrize(
    ("original", "own"),
    [
        (lambda a, b=1: 0, lambda a, b=1: 0),
        (lambda a, b=1: 0, lambda *rest, **named: 0),
        (lambda a, *, c: 0, lambda a, **named: 0),
        (lambda a, *, c: 0, lambda a, b=1, *, c=2: 0),
        (staticmethod(lambda a: 0), staticmethod(lambda a: 0)),
    ],
)
def test_what_takes_all_calls_fits(original, own):
    cls = type("C", (), {"function": original})
    _replace.replace(cls, "function", own)
    assert inspect.getattr_static(cls, "function") is own


@pytest.mark.parametrize(
    ("original", "own", "why"),
    [
        (lambda a, b, dtype=None: 0, lambda a, b: 0, "takes `dtype`"),
        (lambda a, *, read_only=False: 0, lambda a: 0, "takes `read_only`"),
        (lambda a: 0, lambda a, b: 0, "may be called without `b`"),
        (lambda a, b=1: 0, lambda a, b: 0, "may be called without `b`"),
    ],
)
def test_what_does_not_is_refused_and_left_out(original, own, why):
    module = module_with(original)
    with pytest.raises(_replace.OutgrownError, match=f"torch.somewhere.function.* {why}"):
        _replace.replace(module, "function", own)
    assert module.function is original


def test_a_wrapper_is_judged_by_its_own_parameters():
    def original(a, b=None):
        return a, b

    def wrapper(a):
        return original(a)

    wrapper.__wrapped__ = original  # what functools.wraps says
    with pytest.raises(_replace.OutgrownError, match="takes `b`"):
        _replace.replace(module_with(original), "function", wrapper)


def test_a_class_is_judged_by_the_methods_that_override_torchs():
    class Base:
        def method(self, name, dtype=None): ...

        @classmethod
        def make(cls, name): ...

    Base.__module__ = "torch.somewhere"

    class Fits(Base):
        def method(self, name, *rest, **named): ...

        @classmethod
        def make(cls, name): ...

        def own(self): ...

    class Differs(Base):
        def method(self, name): ...

    assert {name for name, _, _ in _replace.overrides(Fits)} == {"method", "make"}
    _replace.check_overrides([Fits])
    with pytest.raises(_replace.OutgrownError, match=r"Base\.method.* takes `dtype`"):
        _replace.check_overrides([Fits, Differs])
