# SPDX-License-Identifier: BSD-3-Clause
"""What torch knows of other devices by name and lets no backend register.

Each patch changes what happens to loom tensors only, and says why it is needed. One that a version
of torch has outgrown is left out, with a warning.
"""

import warnings

from . import (
    attention,
    backward,
    batching,
    compiler,
    costs,
    data_parallel,
    distributed,
    dlpack,
    fakes,
    mixed_precision,
    opcheck,
    optimizers,
    processes,
    profiling,
    quantization,
    settings,
    sharding,
    sparse,
)

__all__ = ["apply"]


def apply() -> None:
    """Apply all patches. Call once."""
    for module in (
        dlpack,
        processes,
        mixed_precision,
        opcheck,
        attention,
        backward,
        batching,
        compiler,
        costs,
        data_parallel,
        distributed,
        fakes,
        optimizers,
        profiling,
        quantization,
        settings,
        sharding,
        sparse,
    ):
        try:
            module.apply()
        except (AttributeError, ImportError, TypeError) as error:  # not what it was made for
            name = module.__name__.rpartition(".")[2]
            warnings.warn(
                f"torch-loom: PyTorch's {name} does not know loom: {error!r}", stacklevel=2
            )
