# SPDX-License-Identifier: BSD-3-Clause
"""Everything that ``torch.loom`` shows is there, documented and typed."""

import inspect
import types

import pytest
import torch

from torch_loom import loom

MODULES = ["loom", "loom.amp", "loom.graphs", "loom.memory", "loom.random", "loom.streams"]
PUBLIC = [name for name in dir(torch.loom) if not name.startswith("__")]


def members(owner):
    """The public functions and properties that a class of loom's own defines."""
    for name, value in vars(owner).items():
        if not name.startswith("_"):
            yield name, value


def test_the_typed_import_is_the_module():
    assert loom is torch.loom


def test_dir_lists_what_is_public_and_nothing_else():
    assert sorted(PUBLIC) == sorted(torch.loom.__all__)
    assert "__doc__" in dir(torch.loom)


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_documented_and_list_what_they_have(module):
    found = loom
    for part in module.split(".")[1:]:
        found = getattr(found, part)
    assert found.__doc__
    assert len(set(found.__all__)) == len(found.__all__)
    for name in found.__all__:
        assert hasattr(found, name), name


@pytest.mark.parametrize("name", PUBLIC)
def test_each_name_is_documented_and_typed(name):
    value = getattr(torch.loom, name)
    text = inspect.getdoc(value)
    assert text
    assert text != inspect.getdoc(type(value)) or not callable(value)
    if isinstance(value, types.FunctionType):
        signature = inspect.signature(value)
        assert signature.return_annotation is not inspect.Signature.empty
        for parameter in signature.parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty, parameter
    if isinstance(value, type) and value.__module__.startswith("torch_loom"):
        for member, function in members(value):
            if callable(function) or isinstance(function, property | staticmethod | classmethod):
                assert inspect.getdoc(getattr(value, member)), f"{name}.{member}"


def test_a_name_that_is_not_there_is_an_error():
    with pytest.raises(
        AttributeError, match=r"module 'torch\.loom' has no attribute 'sinchronize'"
    ):
        _ = torch.loom.sinchronize
