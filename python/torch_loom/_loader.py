# SPDX-License-Identifier: BSD-3-Clause
"""How torch-loom gets into a process, once, whichever of torch and torch_loom comes first."""

import atexit
import os
import sys
import warnings

_registered = False
_importing = False


def on_import() -> str:
    """Load and register loom, unless torch is in the middle of its own import.

    In that case torch is looking for the entry point, and :func:`autoload` decides.

    Returns:
        str: the version of torch-loom, or ``""`` when the decision is left to :func:`autoload`.
    """
    global _importing
    torch_spec = getattr(sys.modules.get("torch"), "__spec__", None)
    if getattr(torch_spec, "_initializing", False):
        return ""
    _importing = True
    try:
        return _register()
    finally:
        _importing = False


def autoload() -> None:
    """Load loom for ``import torch``, if torch has no other accelerator. Never raises."""
    if _registered or _importing:  # import torch_loom came first and goes on by itself
        return
    package = sys.modules["torch_loom"]
    try:
        if _may_load():
            package.__version__ = _register()  # type: ignore[attr-defined]
            return
    except Exception as error:  # whatever it is, it must not break `import torch`
        warnings.warn(f"torch-loom is installed but was not loaded: {error}", stacklevel=2)
    # An explicit `import torch_loom` starts afresh and reports the error to its caller.
    sys.modules.pop("torch_loom", None)


def _may_load() -> bool:
    """Whether loom is the accelerator of a program that did not import it."""
    # What cuda_names/context.py reads once loom is registered.
    asked = os.environ.get("TORCH_LOOM_AS_CUDA", "")
    if asked == "force" or not _other_accelerator():
        return True
    if asked not in ("", "0"):
        raise RuntimeError(
            f"TORCH_LOOM_AS_CUDA={asked}: expected no other accelerator, got one, which the "
            "program could not reach. Hide it (CUDA_VISIBLE_DEVICES=''), or set "
            "TORCH_LOOM_AS_CUDA=force to run on loom all the same"
        )
    return False


def _other_accelerator() -> bool:
    # A PrivateUse1 backend takes over torch.accelerator, so beside another one loom waits for an
    # explicit import.
    import torch

    return torch.accelerator.current_accelerator(check_available=True) is not None


def _check_torch_version(found: str) -> None:
    # A library that was built for another minor version may load, and be wrong without a word.
    from . import _torch_features as features

    if features.minor_of(found) == features.MINOR:
        return
    known = features.is_known(found)
    other = (
        f"or build torch-loom with torch {features.minor_of(found)}: pip install "
        "--no-build-isolation --force-reinstall --no-deps . in a checkout of torch-loom"
        if known
        else f"as torch-loom is made for torch {features.OLDEST} to {features.NEWEST}"
    )
    raise ImportError(
        f"torch-loom: expected torch {features.MINOR}.*, which its library was built for, got "
        f"torch {found}. Install that torch: pip install 'torch=={features.MINOR}.*', {other}"
    )


def _register() -> str:
    global _registered
    import torch

    from . import _variants

    _variants.choose(sys.modules[__package__].__path__, torch.__version__)
    _check_torch_version(torch.__version__)  # before the library is loaded: its symbols may differ
    from . import _C

    if not _registered:
        from torch.utils import backend_registration

        backend_registration.rename_privateuse1_backend("loom")
        from . import _patches, integrations, loom

        torch._register_device_module("loom", loom)  # type: ignore[no-untyped-call]
        for name in ("amp", "graphs", "memory", "nvtx", "random", "streams"):
            sys.modules[f"torch.loom.{name}"] = getattr(loom, name)
        backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
        _patches.apply()
        integrations.apply()
        # Registered early, and so run after the handlers that programs register.
        atexit.register(loom._at_exit)
        _registered = True
        from .cuda_names import turn_on_as_asked

        turn_on_as_asked()
    return _C.__version__
