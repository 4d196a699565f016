# SPDX-License-Identifier: BSD-3-Clause
"""A process of the conformance run: `python worker.py DEVICE [compiled]` prints the list of all
checks, then answers each one's number on standard input with what came of it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from known import NOT_COMPARED, RANDOM_MODULES, UNINITIALISED
from op_checks import CHECKS, Check, applies, dtypes_of
from system_checks import module, optimizer
from torch.testing._comparison import default_tolerances

from support.oracle import DifferenceError, describe, tolerances

# What rounding may amount to once sums are taken in another order, and gradients summed up.
ROUNDING = {
    torch.float32: (1e-4, 1e-4),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1e-4, 1e-4),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (4e-3, 4e-3),
}


@dataclasses.dataclass(frozen=True)
class Unit:
    """One check of one entry in one dtype: a row of the table."""

    database: str
    name: str
    check: str
    dtype: str
    run: Callable[[str, bool], Check] = dataclasses.field(compare=False)

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.database, self.name, self.check, self.dtype


def close_for(info: object, dtype: torch.dtype) -> dict[str, float]:
    rtol, atol = ROUNDING.get(dtype, default_tolerances(dtype))
    granted = tolerances(info, dtype)
    return {"rtol": max(rtol, granted["rtol"]), "atol": max(atol, granted["atol"])}


def op_units() -> list[Unit]:
    from torch.testing._internal.common_methods_invocations import op_db

    def unit(info: object, name: str, check: str, dtype: torch.dtype) -> Unit:
        def run(device: str, compiled: bool) -> Check:
            unknown = info.name in NOT_COMPARED or (info.name, check) in UNINITIALISED
            close = None if unknown else close_for(info, dtype)
            state = Check(info, device, close, compiled)
            return guarded(state, lambda: CHECKS[check][0](state, dtype))

        return Unit("op_db", name, check, str(dtype)[6:], run)

    return [
        unit(info, ".".join(filter(None, (info.name, info.variant_test_name))), check, dtype)
        for info in op_db
        for check in CHECKS
        if applies(info, check)
        for dtype in dtypes_of(info, check)
    ]


def system_units() -> list[Unit]:
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

    close = {"rtol": 1e-4, "atol": 1e-4}

    def module_unit(info: object, training: bool) -> Unit:
        def run(device: str, compiled: bool) -> Check:
            state = Check(info, device, None if info.name in RANDOM_MODULES else close, compiled)
            return guarded(state, lambda: module(state, torch.float32, training))

        return Unit(
            "module_db", info.name, "training" if training else "evaluation", "float32", run
        )

    def optimizer_unit(info: object, implementation: str) -> Unit:
        def run(device: str, compiled: bool) -> Check:
            state = Check(info, device, close, compiled)
            return guarded(state, lambda: optimizer(state, implementation))

        return Unit("optim_db", info.optim_cls.__name__, implementation, "float32", run)

    units = []
    for info in module_db:
        modes = (True, False) if info.train_and_eval_differ else (True,)
        units += [module_unit(info, training) for training in modes]
    for info in optim_db:
        units += [optimizer_unit(info, each) for each in ("forloop", *info.supported_impls)]
    return units


def guarded(state: Check, run: Callable[[], None]) -> Check:
    state.status, state.detail = "agrees", ""
    try:
        run()
    except DifferenceError as difference:
        state.status, state.detail = "differs", f"sample {state.sample}: {difference}"
    except Exception as error:  # of the samples themselves, or of the comparison
        state.status, state.detail = "broken", f"sample {state.sample}: {describe(error)}"
    return state


def main(device: str, compiled: bool) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what operators print is not an answer
    warnings.simplefilter("ignore")
    if device != "cpu":
        import torch_loom  # noqa: F401
    units = op_units() + system_units()
    answers.write(json.dumps([unit.key for unit in units]) + "\n")
    for line in sys.stdin:
        state = units[json.loads(line)].run(device, compiled)
        fallbacks: list[str] = []
        if device != "cpu":
            fallbacks = sorted(torch.loom.fallbacks())
            torch.loom.reset_fallbacks()
        row = {
            "status": state.status,
            "detail": state.detail,
            "samples": state.count,
            "fallbacks": fallbacks,
        }
        answers.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], "compiled" in sys.argv[2:])
