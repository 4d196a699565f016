# SPDX-License-Identifier: BSD-3-Clause
"""Libraries that choose devices by name: imported as ever, and told of loom."""

import textwrap
from pathlib import Path

import pytest

from torch_loom import integrations

pytestmark = pytest.mark.thorough

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

    def write(source, choice="cpu", version="1.15.0"):
        package = tmp_path / "accelerate"
        package.mkdir()
        (package / "__init__.py").touch()
        source = textwrap.dedent(source).replace("CHOICE", repr(choice))
        (package / "state.py").write_text(source)
        metadata = tmp_path / f"accelerate-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Name: accelerate\nVersion: {version}\n")
        return str(tmp_path)

    return write


def program(folder, *parts):
    # In front of the real one, which may be installed.
    path = f"import sys; sys.path.insert(0, {folder!r})"
    return "\n".join([path, *(textwrap.dedent(part) for part in parts)])


ORDERS = {
    "torch first": ("import torch", ASKS),
    # Which imports torch while it is imported itself.
    "library first": ("import accelerate.state", ASKS),
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
    assert "set ACCELERATE_TORCH_DEVICE=loom" in done.err
    assert done.out.split() == ["1.0"]


@pytest.mark.parametrize("version", ["2.0.0", "0.34.2", "10.1"])
def test_versions_that_are_not_known_are_left_alone(version, library, check):
    done = check(program(library(CHOOSES, version=version), "import torch", ASKS))
    assert done.out.split() == ["cpu"]
    assert f"torch-loom: expected accelerate 1.*, got {version}, left as it is" in done.err
    assert "set ACCELERATE_TORCH_DEVICE=loom" in done.err


def test_a_module_that_is_loaded_again_is_patched_again(library, check):
    done = check(
        program(
            library(CHOOSES),
            """
            import importlib, torch
            from accelerate import state
            importlib.reload(state)
            """,
            ASKS,
        )
    )
    assert done.out.split() == ["loom"]


def test_every_patch_is_a_function_of_this_package():
    for library in integrations._LIBRARIES:
        for patch in library.patches.values():
            file, _, function = patch.partition(":")
            source = Path(integrations.__file__).parent / f"{file}.py"
            assert f"def {function}(" in source.read_text(), patch


def test_no_library_is_imported_for_loom(check):
    check(
        """
        import sys, torch
        torch.ones(1, device="loom")
        from torch_loom import integrations
        for library in integrations._LIBRARIES:
            for module, patch in library.patches.items():
                assert module.partition(".")[0] not in sys.modules, module
                assert f"torch_loom.integrations.{patch.partition(':')[0]}" not in sys.modules
        """
    )
