# SPDX-License-Identifier: BSD-3-Clause
"""Prints what of torch's own the package overrides or replaces, with the parameters that it has.

    python tests_py/package/torch_signatures.py [--write]

--write keeps the list beside the tests, for this version of torch.
"""

import importlib
import pkgutil
import re
import sys
import warnings
from pathlib import Path

import torch

import torch_loom
from torch_loom import _replace, _torch_features
from torch_loom.integrations import import_hook

FOLDER = Path(__file__).parent / "signatures"
# What is for programs, and what is for other libraries than torch.
_LEFT_OUT = re.compile(r"torch_loom\.(__main__|_demo.*|_doctor|_report|integrations\..*)")


def table(minor):
    """Where the list for a version of torch is kept."""
    return FOLDER / f"torch-{minor}.txt"


def signatures():
    """A line for each method that is overridden and each function that is replaced, sorted."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # what does not fit is left out with a warning
        classes = _import_everything()
    lines = set()
    for cls in classes:
        for name, _, base in _replace.overrides(cls):
            text = _replace._text(_replace._signature(vars(base)[name]))
            lines.add(f"override {base.__module__}.{base.__qualname__}.{name}{text}")
    lines.update(f"replace {what}{text}" for what, text in _replace.REPLACED.items())
    return [re.sub(r" at 0x[0-9a-f]+", "", line) for line in sorted(lines)]


def _import_everything():
    """All classes of the package, once everything that is patched has been imported."""
    from torch._dynamo import device_interface

    from torch_loom import inductor

    for finder in sys.meta_path:
        if isinstance(finder, import_hook._Finder):
            for module, library in finder._patches._libraries.items():
                if library.distribution == "torch":
                    importlib.import_module(module)
    assert inductor.register()
    # What is patched at its first use.
    torch._dynamo.variables.torch.TorchInGraphFunctionVariable._get_handlers()
    torch.library.opcheck(torch.ops.aten.sin.default, (torch.ones(1),), test_utils=())
    classes = [device_interface.get_interface_for_device("loom")]
    for found in pkgutil.walk_packages(torch_loom.__path__, "torch_loom."):
        if not _LEFT_OUT.fullmatch(found.name):
            things = vars(importlib.import_module(found.name)).values()
            classes += [x for x in things if isinstance(x, type)]
    return [cls for cls in classes if cls.__module__.startswith("torch_loom")]


def main():
    lines = signatures()
    if "--write" in sys.argv[1:]:
        FOLDER.mkdir(exist_ok=True)
        table(_torch_features.MINOR).write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
