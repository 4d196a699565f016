# SPDX-License-Identifier: BSD-3-Clause
"""Libraries that choose devices by name: imported as ever, and told of loom."""

import textwrap

import pytest

# A library that chooses a device as accelerate does.
CHOOSES = """
    import torch

    class PartialState:
        @property
        def default_device(self):
            return torch.device(CHOICE)
"""

ASKS = """
    import inspect
    from accelerate import state
    assert state.__spec__.loader is state.__loader__
    assert "class PartialState" in inspect.getsource(state)
    print(state.PartialState().default_device)
"""


@pytest.fixture
def library(tmp_path):
    """Write a stand-in for accelerate; answers with the folder to put on Python's path."""

    def write(source, choice="cpu"):
        package = tmp_path / "accelerate"
        package.mkdir()
        (package / "__init__.py").touch()
        source = textwrap.dedent(source).replace("CHOICE", repr(choice))
        (package / "state.py").write_text(source)
        return str(tmp_path)

    return write


def program(folder, *parts):
    # In front of the real one, which may be installed.
    path = f"import sys; sys.path.insert(0, {folder!r})"
    return "\n".join([path, *(textwrap.dedent(part) for part in parts)])


ORDERS = {
    "torch first": ("import torch", ASKS),
    # Which imports torch while it is imported itself: anything that comes after it will do.
    "library first": ("import accelerate.state", "import colorsys", ASKS),
    "loom after the library": ("import accelerate.state", "import torch_loom", ASKS),
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_library_chooses_loom(order, library, check):
    variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if order.startswith("loom") else {}
    done = check(program(library(CHOOSES), *ORDERS[order]), **variables)
    assert done.out.split() == ["loom"]


def test_other_choices_are_kept(library, check):
    done = check(program(library(CHOOSES, "meta"), ASKS))
    assert done.out.split() == ["meta"]


def test_without_loom_nothing_changes(library, check):
    done = check(program(library(CHOOSES), ASKS), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.out.split() == ["cpu"]


def test_another_version_of_a_library_is_imported_with_a_warning(library, check):
    done = check(
        program(
            library("    class Renamed: pass"),
            "import torch",
            "from accelerate.state import Renamed",
            "print(torch.ones(1, device='loom').item())",
        )
    )
    assert "torch-loom: accelerate.state does not choose loom by itself" in done.err
    assert done.out.split() == ["1.0"]


def test_no_library_is_imported_for_loom(check):
    check(
        """
        import sys, torch
        torch.ones(1, device="loom")
        for name in ("accelerate", "lightning", "safetensors", "transformers"):
            assert name not in sys.modules, name
        """
    )
