# SPDX-License-Identifier: BSD-3-Clause
"""Getting loom into a process: order of imports, autoload, failures."""

import pytest

from torch_loom import _torch_features

WORKS = 'assert torch.ones(2, 3, device="loom").sum().item() == 6\n'


def test_plain_import_of_torch_is_enough(check):
    check("import torch\n" + WORKS)


def test_torch_loom_may_be_imported_before_torch(check):
    check("import torch_loom, torch\n" + WORKS)


@pytest.mark.thorough
def test_torch_loom_may_be_imported_alone(check):
    check('import torch_loom, sys\ntorch = sys.modules["torch"]\n' + WORKS)


@pytest.mark.thorough
def test_torch_loom_may_be_imported_after_torch(check):
    check("import torch, torch_loom\n" + WORKS)


@pytest.mark.thorough
def test_importing_twice_is_harmless(check):
    check(
        """
        import importlib, sys, torch, torch_loom
        importlib.reload(torch_loom)
        del sys.modules["torch_loom"]
        import torch_loom
        assert torch.ones(2, 3, device="loom").sum().item() == 6
        """
    )


def test_version_is_that_of_the_distribution(check):
    check(
        """
        import importlib.metadata, torch_loom
        assert torch_loom.__version__ == importlib.metadata.version("torch-loom")
        """
    )


def test_without_autoload_loom_waits_for_its_import(check):
    check(
        """
        import torch
        assert not hasattr(torch, "loom")
        import torch_loom
        assert torch.loom.is_available()
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


# torch's version is read from this module while torch is imported; a copy of it in front of the
# real one would need the rest of torch as well, so the file's answer is changed by an import hook.
OTHER_TORCH = """
    import importlib.abc, importlib.machinery, sys

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name != "torch.version":
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            load = spec.loader.exec_module
            def exec_module(module):
                load(module)
                module.__version__ = "2.12.1"
            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder())
"""


def test_another_torch_is_refused_by_name(run):
    done = run(OTHER_TORCH + "    import torch_loom\n", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.code != 0
    minor = _torch_features.MINOR
    assert f"ImportError: torch-loom: expected torch {minor}.*, which its library" in done.err
    assert f"got torch 2.12.1. Install that torch: pip install 'torch=={minor}.*'" in done.err


def test_another_torch_itself_still_imports(check):
    done = check(OTHER_TORCH + "    import torch\n    print(torch.ones(2).sum().item())\n")
    assert done.out == "2.0\n"
    assert "torch-loom is installed but was not loaded: torch-loom: expected torch" in done.err


def test_after_a_failed_autoload_an_explicit_import_says_why(run):
    done = run(OTHER_TORCH + "    import torch\n    import torch_loom\n")
    assert done.code != 0
    assert f"ImportError: torch-loom: expected torch {_torch_features.MINOR}.*" in done.err


def test_a_library_that_does_not_load_does_not_break_torch(check):
    done = check(
        """
        import sys
        sys.modules["torch_loom._C"] = None  # makes importing it fail
        import torch
        print(torch.ones(2).sum().item())
        """
    )
    assert done.out == "2.0\n"
    assert "torch-loom is installed but was not loaded" in done.err


def test_beside_another_accelerator_loom_waits(check):
    done = check(
        """
        import importlib.metadata, sys, torch
        torch.accelerator.current_accelerator = lambda check_available: torch.device("cuda")
        (entry,) = importlib.metadata.entry_points(group="torch.backends", name="torch_loom")
        torch.__spec__._initializing = True  # as during `import torch`
        entry.load()()
        assert not hasattr(torch, "loom") and "torch_loom" not in sys.modules
        torch.__spec__._initializing = False
        import torch_loom
        assert torch.loom.is_available()
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.err == ""


def test_another_backend_of_that_kind_is_reported(run):
    done = run(
        """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        import torch_loom
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.code != 0
    assert "other" in done.err


def test_import_starts_no_thread(check):
    check(
        """
        import os, torch, torch_loom
        before = len(os.listdir("/proc/self/task"))
        torch.manual_seed(1)
        assert torch.loom.is_available() and torch.loom.device_count() == 2
        assert len(os.listdir("/proc/self/task")) == before
        assert not torch.loom.is_initialized()
        """
    )


@pytest.mark.parametrize(
    "command", ["info", pytest.param("env", marks=pytest.mark.thorough), "demo --help"]
)
def test_command_line(check, command):
    done = check(
        """
        import runpy, sys
        sys.argv[0] = "torch_loom"
        runpy.run_module("torch_loom", run_name="__main__")
        """,
        *command.split(),
    )
    wanted = {"info": "loom:1", "env": "LOOM_DEVICES", "demo --help": "--quick"}[command]
    assert wanted in done.out


def test_demo_agrees(check, tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("rich")
    done = check(
        """
        import sys
        from torch_loom.__main__ import main
        sys.exit(main(["demo", "--quick", "--steps", "4", "--picture", sys.argv[1]]))
        """,
        str(tmp_path / "demo.svg"),
    )
    assert done.out.startswith("torch-loom ")
    for part in ("The same training on each device", "training loss", "The devices agree.", "next"):
        assert part in done.out
