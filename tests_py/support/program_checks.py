# SPDX-License-Identifier: BSD-3-Clause
"""What must hold for a program (programs.py). Each check returns what is wrong, or nothing."""

from typing import Any

import torch

from support.programs import RandomProgram, Step, compiled, run_source, scope_of

# Units in the last place that an operator may be off cpu's result, which is not exact either.
ULPS = {torch.float16: 4, torch.bfloat16: 4, torch.float32: 24, torch.float64: 24}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def describe(got: torch.Tensor, wanted: torch.Tensor, wrong: torch.Tensor) -> str:
    index = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements of {got.dtype} {tuple(got.shape)}; "
        f"{got[index].item()!r} instead of {wanted[index].item()!r} at {index}"
    )


def different_form(got: Any, wanted: Any) -> str:
    if type(got) is not type(wanted):
        return f"{type(got)} instead of {type(wanted)}"
    if torch.is_tensor(got):
        for what in ("dtype", "shape"):
            if getattr(got, what) != getattr(wanted, what):
                return f"{what} {getattr(got, what)} instead of {getattr(wanted, what)}"
    return ""


def different_bits(got: Any, wanted: Any) -> str:
    """NaN is NaN, whatever its payload; everything else is compared bit for bit."""
    form = different_form(got, wanted)
    if form or not torch.is_tensor(got):
        same = form or got == wanted or (got != got and wanted != wanted)
        return form or ("" if same else f"{got!r} instead of {wanted!r}")
    bits = [t.contiguous().view(BITS[t.element_size()]) for t in (got, wanted)]
    wrong = bits[0] != bits[1]
    if got.is_floating_point():
        wrong &= ~(got.isnan() & wanted.isnan())
    return describe(got, wanted, wrong) if wrong.any() else ""


def far_apart(
    got: torch.Tensor, wanted: torch.Tensor, size: float, dtype: torch.dtype | None = None
) -> str:
    """`size`: of the largest value on the way to the result, whose rounding may show in it;
    `dtype`: the one that is computed in, if not the result's."""
    form = different_form(got, wanted)
    if form or got.numel() == 0:
        return form
    if not got.is_floating_point():
        wrong = got != wanted
        return describe(got, wanted, wrong) if wrong.any() else ""
    info = torch.finfo(got.dtype)
    tolerance = max(ULPS[d] * torch.finfo(d).eps for d in (got.dtype, dtype or got.dtype))
    a, b = (t.double().clamp(-info.max, info.max) for t in (got, wanted))
    close = (a - b).abs() <= tolerance * torch.maximum(b.abs(), torch.tensor(size).double())
    close |= (a.abs() > 0.99 * info.max) & (b.abs() > 0.99 * info.max) & (a * b > 0)
    wrong = ~(close | (got.isnan() & wanted.isnan()))
    return describe(got, wanted, wrong) if wrong.any() else ""


def fused_differs(program: RandomProgram) -> str:
    """Fused or not, in whatever pieces, interpreted or compiled: the same bits."""
    source = program.source()
    wanted = run_source(source, "loom", fused=False)
    for hold in (True, False):
        got = run_source(source, "loom", fused=True, hold=hold)
        for n, (one, other) in enumerate(zip(got, wanted, strict=True)):
            wrong = different_bits(one, other)
            if wrong:
                return f"fused{' at once' if hold else ''}, result {n}: {wrong}"
    return ""


def layout(tensor: torch.Tensor) -> list[int]:
    """The strides that make a difference."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1] if tensor.numel() > 0 else []


def of_one_dtype(step: Step, scope: dict[str, Any]) -> bool:
    """Where operands are promoted, cpu lays the result out like copies that it makes first."""
    names = (step.result, *step.uses)
    return len({scope[name].dtype for name in names if torch.is_tensor(scope.get(name))}) == 1


def size_on_the_way(step: Step, scope: dict[str, Any]) -> float:
    """A bound of the values that the step computes with."""
    size = step.scale
    for name in step.uses:
        value = scope.get(name)
        if torch.is_tensor(value) and value.is_floating_point() and value.numel() > 0:
            finite = value[value.isfinite()].abs()
            size *= max(float(finite.max()) if finite.numel() else 1.0, 1.0)
    return size


def least_precise(step: Step, scope: dict[str, Any]) -> torch.dtype:
    """Of the dtypes that the step's operands may be computed in."""
    dtypes = [scope[name].dtype for name in step.uses if torch.is_tensor(scope.get(name))]
    floats = [d if d.is_floating_point else torch.get_default_dtype() for d in dtypes]
    return max(floats, key=lambda d: torch.finfo(d).eps, default=torch.float64)


def copy_storage(to: torch.Tensor, source: torch.Tensor) -> None:
    flat = [
        torch.empty(0, dtype=torch.uint8, device=t.device).set_(t.untyped_storage())
        for t in (to, source)
    ]
    flat[0].copy_(flat[1])


def step_differs(program: RandomProgram, *, fused: bool = False) -> str:
    """Each step does on loom what it does on cpu, to the same operands: loom's memory is made equal
    to cpu's after each, so that differences do not add up."""
    ours: list[Any] = []
    theirs: list[Any] = []
    loom, cpu = scope_of("loom", ours), scope_of("cpu", theirs)
    for step in program.steps:
        size, dtype = size_on_the_way(step, cpu), least_precise(step, cpu)
        code = compiled(step.code)
        exec(code, cpu)
        with torch.loom.fusion(fused):
            exec(code, loom)
        if step.result:
            got, wanted = loom[step.result], cpu[step.result]
            on_loom = got.device.type == "loom"
            wrong = far_apart(got.cpu(), wanted, size, dtype) if step.comparable else (
                different_form(got, wanted)
            )  # fmt: skip
            if not wrong and of_one_dtype(step, cpu) and layout(got) != layout(wanted):
                wrong = f"strides {layout(got)} instead of {layout(wanted)}"
            if wrong:
                return f"{step.code}: {wrong}"
            if on_loom and wanted.untyped_storage().nbytes() != got.untyped_storage().nbytes():
                return f"{step.code}: storage of {got.untyped_storage().nbytes()} bytes"
            if layout(got) != layout(wanted):  # a new tensor, or it would be a view of an equal one
                loom[step.result] = got = torch.empty_strided(
                    wanted.shape, wanted.stride(), dtype=wanted.dtype, device="loom"
                )
            if wanted.numel() > 0 and on_loom:
                copy_storage(got, wanted)
    for n, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        wrong = different_bits(one, other)
        if wrong:
            return f"result {n}: {wrong}"
    return ""


def failure(program: RandomProgram) -> str:
    """What is wrong with how loom runs a program that is valid on cpu."""
    try:
        run_source(program.source(), "cpu")
    except Exception:
        return ""  # not a program: steps were dropped that others need
    try:
        return fused_differs(program) or step_differs(program)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
