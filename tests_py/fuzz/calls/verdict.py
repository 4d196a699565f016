# SPDX-License-Identifier: BSD-3-Clause
"""Whether loom did what cpu did. Where numbers differ, the same call in float64 says who is right.

A difference counts where loom is further from float64 than FACTOR times as far as cpu is, and by
more units in the last place than ALLOWED of a dtype. Sums and derivatives are as precise as their
operands let them be: they may also be FACTOR times as far off as a rounding of each operand takes
them in float64.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from calls.call import Call, simpler
from calls.draw import DERIVED
from calls.ways import WAYS, Attempt
from support.oracle import describe, leaves, significant

FACTOR = 4.0
# Units in the last place of an element (pointwise) or of the largest element (sums).
ALLOWED = {torch.float16: 3.0, torch.bfloat16: 3.0, torch.float32: 24.0, torch.float64: 64.0}
# Which of 0 and -0 they give is another one in vectors.
EXTREMA = re.compile(r"\b(maximum|minimum|fmax|fmin|clamp)")
# Without float64 as a judge, as where no kernel takes it.
UNJUDGED = 8.0
WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclasses.dataclass(frozen=True)
class Finding:
    """How loom differs from cpu: error, form (dtypes, shapes), strides, memory or values."""

    kind: str
    text: str


@dataclasses.dataclass
class Outcome:
    """What a call left behind: its results, or its error, and the operands' memory."""

    results: list[Any]
    operands: list[Tensor]
    error: Exception | None = None


def flat(tensor: Tensor) -> Tensor:
    """All memory of the tensor's storage, on cpu."""
    storage = tensor.detach().untyped_storage()
    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage)
    return whole.cpu()


def on_host(value: Any) -> Any:
    """A copy that lies as the tensor does."""
    if not isinstance(value, Tensor):
        return value
    plain = value.detach().resolve_conj().resolve_neg()
    if torch._is_zerotensor(plain):  # it has no memory
        plain = plain.clone()
    return flat(plain).as_strided(plain.shape, plain.stride(), plain.storage_offset())


def seed_generators() -> None:
    """As torch.manual_seed does, which formats a traceback each time."""
    torch.default_generator.manual_seed(7)
    torch.loom.manual_seed_all(7)


def run(call: Call, device: str, operands: Sequence[Tensor] | None = None) -> Outcome:
    """`operands`: other ones than the call's, which are left as they are."""
    attempt = Attempt(call, device, call.make() if operands is None else list(operands))
    seed_generators()
    try:
        results = list(leaves(WAYS[call.way](attempt)))
        results = [on_host(x) for x in results]
        if device == "loom":
            torch.accelerator.synchronize()
        return Outcome(results, [flat(x) for x in attempt.operands])
    except Exception as error:
        with contextlib.suppress(Exception):  # told once is enough
            torch.accelerator.synchronize()
        return Outcome([], [], error)


def compared_forms(got: Any, wanted: Any, call: Call) -> Finding | None:
    if type(got) is not type(wanted):
        return Finding("form", f"{type(got).__name__}, on cpu {type(wanted).__name__}")
    if not isinstance(got, Tensor):
        same = got == wanted or (got != got and wanted != wanted)
        return None if same else Finding("values", f"{got}, on cpu {wanted}")
    for attribute in ("dtype", "shape"):
        ours, theirs = getattr(got, attribute), getattr(wanted, attribute)
        if ours != theirs:
            return Finding("form", f"{attribute} {ours}, on cpu {theirs}")
    if call.strides and significant(got) != significant(wanted):
        return Finding("strides", f"{got.stride()}, on cpu {wanted.stride()}, of {got.shape}")
    return None


def classes(tensor: Tensor) -> Tensor:
    """0 for finite numbers, 1 and 2 for infinities, 3 for NaN."""
    return tensor.isposinf() + 2 * tensor.isneginf().int() + 3 * tensor.isnan().int()


def finite_class(got: Tensor, other: Tensor, most: float) -> Tensor:
    """Whether both are of one class; what nearly overflows is infinite, too."""
    near = (got.abs() > 0.98 * most) & (other.abs() > 0.98 * most) & (got * other > 0)
    return (classes(got) == classes(other)) | near


def largest(tensor: Tensor) -> float:
    finite = tensor[tensor.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large an element's unit in the last place is.

    Attributes:
        operands: the largest number in them.
        terms: how many elements of an operand are added up in one of its gradient.
    """

    call: Call
    operands: float
    terms: int = 1

    def units(self, reference: Tensor, dtype: torch.dtype) -> Tensor:
        info = torch.finfo(dtype)
        least = info.tiny
        if not self.call.pointwise or dtype == torch.float64:
            # Sums may be near zero.
            few = reference.numel() < 64
            small = few or (dtype == torch.float64 and not self.call.pointwise)
            near_zero = 1.0 if small else 2.0**-6
            near_zero *= self.terms**0.25
            least = max(least, largest(reference), near_zero * self.operands)
        elif dtype == torch.float32 and self.call.way in (*DERIVED, "queued"):
            # Derivatives are sums, too; those of half types are made in float32. What is queued
            # begins with a result that is another one by a unit.
            least = max(least, 2.0**-5 * min(1.0, largest(reference)))
        return reference.abs().nan_to_num(0, 0, 0).clamp_min(least) * info.eps


def precision(got: Tensor, call: Call) -> torch.dtype:
    """The least precise dtype that the result may have been computed in."""
    dtypes = [got.dtype, *(o.dtype for o in call.operands if o.dtype.is_floating_point)]
    if ".to(torch.float32)" in call.code or not dtypes[1:]:
        dtypes.append(torch.float32)
    if call.way == "autocast":
        dtypes.append(torch.bfloat16)
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)


def surely_near(got: Tensor, wanted: Tensor, scale: Scale) -> bool:
    """Whether no float64 can say that loom is too far off: it is no further from it than cpu is and
    what is allowed. Costs less than float64."""
    if got.dtype.is_complex:
        got, wanted = torch.view_as_real(got), torch.view_as_real(wanted)
    ours, theirs = got.double(), wanted.double()
    dtype = precision(got, scale.call)
    near = (ours - theirs).abs() <= ALLOWED[dtype] / 2 * scale.units(theirs, dtype)
    return bool((near | (ours == theirs) | (ours.isnan() & theirs.isnan())).all())


def compared_numbers(
    got: Tensor,
    wanted: Tensor,
    reference: Tensor | None,
    scale: Scale,
    perturbed: Tensor | None = None,
) -> Finding | None:
    """`perturbed`: in float64, of operands that are a rounding off: loom may be off as far."""
    if got.dtype.is_complex:
        got, wanted = torch.view_as_real(got), torch.view_as_real(wanted)
        if reference is not None:
            reference = torch.view_as_real(reference.to(torch.complex128))
        if perturbed is not None:
            perturbed = torch.view_as_real(perturbed.to(torch.complex128))
    info, dtype = torch.finfo(got.dtype), precision(got, scale.call)
    judge = wanted if reference is None else reference.to(got.dtype)
    right = wanted.double() if reference is None else reference.double()
    ours, theirs = got.double(), wanted.double()
    # Where cpu overflows on the way, so may loom, elsewhere.
    judged = finite_class(theirs, judge.double(), info.max)
    wrong = judged & ~finite_class(ours, theirs, info.max)
    if not scale.call.pointwise:  # which infinity comes first is decided by the order of a sum
        wrong &= ours.isfinite() | theirs.isfinite() | (right.abs() < info.max)
    units = scale.units(right, dtype)
    off = ((ours - right).abs() / units).nan_to_num(0, 0, 0)
    cpu_off = ((theirs - right).abs() / units).nan_to_num(0, 0, 0)
    if perturbed is not None:
        off_by_rounding = ((perturbed.double() - right).abs() / units).nan_to_num(0, 0, 0)
        cpu_off = torch.maximum(cpu_off, off_by_rounding)
    allowed = ALLOWED[dtype] * (UNJUDGED if reference is None else 1.0)
    if reference is None and not scale.call.pointwise:
        # A loop that adds up or, as cpu's variances, corrects n numbers is off by n / 2 units.
        allowed = max(allowed, scale.call.most_elements() / got.numel())
    alone = scale.call.pointwise and scale.call.way not in DERIVED
    bound = allowed + FACTOR * (cpu_off if alone else cpu_off.max())
    wrong |= judged & ours.isfinite() & right.isfinite() & (off > bound)
    if not wrong.any():
        return None
    index = tuple(wrong.nonzero()[0].tolist())
    told = "not judged" if reference is None else f"float64 {right[index].item():.9g}"
    return Finding("values", (
        f"{int(wrong.sum())} of {wrong.numel()} elements of {got.dtype} {tuple(got.shape)}; "
        f"{got[index].item():.9g}, on cpu {wanted[index].item():.9g} at {index} ({told}; "
        f"loom is off by {float(off.max()):.3g} units, cpu by {float(cpu_off.max()):.3g})"
    ))  # fmt: skip


def differs(got: Tensor, wanted: Tensor, signs: bool) -> Tensor:
    """Which elements are other ones; with `signs`, -0 is not 0. NaN is NaN."""
    if got.is_complex():
        parts = [torch.view_as_real(t) for t in (got, wanted)]
        return differs(parts[0], parts[1], signs).any(-1)
    if not got.is_floating_point():
        return got != wanted
    wrong = got != wanted
    if signs:
        wrong |= got.signbit() != wanted.signbit()
    return wrong & ~(got.isnan() & wanted.isnan())


def same_bits(got: Tensor, wanted: Tensor) -> bool:
    """What most results are; costs less than comparing elements."""
    if got.is_complex():
        got, wanted = torch.view_as_real(got), torch.view_as_real(wanted)
    bits = [x.contiguous().view(BITS[x.element_size()]) for x in (got, wanted)]
    return torch.equal(*bits)


def perturbed(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Each number half a unit in the last place off, in float64."""
    if not tensor.is_floating_point():
        return tensor
    signs = torch.randint(2, tensor.shape, generator=generator) - 0.5
    return tensor.double() * (1 + signs.double() * torch.finfo(tensor.dtype).eps)


class Judge:
    """Compares the outcomes of a call; float64 is asked only where they differ."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.operands = call.make()
        self.on_cpu = run(call, "cpu", self.operands)
        self.on_loom = run(call, "loom", self.operands)

    @functools.cached_property
    def largest_operand(self) -> float:
        return max([1.0, *(largest(x) for x in self.operands if x.is_floating_point())])

    def _in_float64(self, operands: Sequence[Tensor]) -> Outcome:
        wide = [x.to(WIDE.get(x.dtype, x.dtype)) for x in operands]
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # functions of integers
        try:
            return run(self.call, "cpu", wide)
        finally:
            torch.set_default_dtype(usual)

    @functools.cached_property
    def wide(self) -> Outcome:
        return self._in_float64(self.operands)

    @functools.cached_property
    def perturbed(self) -> Outcome:
        """In float64, of operands that are a rounding off: under autocast as that has them."""
        if self.call.way == "autocast":
            cast = (torch.float32, torch.float16)
            return self._in_float64(
                [x.bfloat16().to(x.dtype) if x.dtype in cast else x for x in self.operands]
            )
        generator = torch.Generator().manual_seed(self.call.seed)
        return self._in_float64([perturbed(x, generator) for x in self.operands])

    def finding(self) -> Finding | None:
        ours, theirs = self.on_loom, self.on_cpu
        if type(ours.error) is not type(theirs.error):
            return Finding("error", f"{describe(ours.error)}; on cpu {describe(theirs.error)}")
        if theirs.error is not None:
            return None
        if len(ours.results) != len(theirs.results):
            return Finding("form", f"{len(ours.results)} results, on cpu {len(theirs.results)}")
        for n, (got, wanted) in enumerate(zip(ours.results, theirs.results, strict=True)):
            found = self._result(n, got, wanted)
            if found:
                return dataclasses.replace(found, text=f"result {n}: {found.text}")
        for n, (got, wanted) in enumerate(zip(ours.operands, theirs.operands, strict=True)):
            found = self._tensor(got, wanted, self._memories(n), self.call)
            if found:
                return Finding("memory", f"operand {n} afterwards: {found.text}")
        return None

    def _result(self, n: int, got: Any, wanted: Any) -> Finding | None:
        call = self.call
        terms = 1
        # The first result is not a derivative, but of second ones, where it is the first gradient.
        if call.way == "second" or (n > 0 and call.way in DERIVED):
            call = dataclasses.replace(call, exact=False)
            terms = self._terms(got)
            if terms > 1:
                call = dataclasses.replace(call, pointwise=False)
        if call.way == "autocast" and isinstance(got, Tensor) and got.is_floating_point():
            wanted = wanted.to(got.dtype)
            call = dataclasses.replace(call, strides=False)
        form = compared_forms(got, wanted, call)
        if form or not isinstance(got, Tensor):
            return form
        judges = self._judges(n, not call.pointwise or call.way in (*DERIVED, "autocast"))
        return self._tensor(got, wanted, judges, call, terms)

    def _judges(self, n: int, sensitive: bool) -> Iterator[Any]:
        """The result in float64, and that of other operands where it may be sensitive to them."""
        yield next(iter(self.wide.results[n:]), None)
        if sensitive:
            yield next(iter(self.perturbed.results[n:]), None)

    def _memories(self, n: int) -> Iterator[Any]:
        yield next(iter(self.wide.operands[n:]), None)

    def _terms(self, gradient: Any) -> int:
        """How many elements of the largest operand an element of a gradient may be a sum of."""
        if not isinstance(gradient, Tensor) or not self.call.pointwise:
            return 1
        return self.call.most_elements() // max(gradient.numel(), 1)

    def _tensor(
        self, got: Tensor, wanted: Tensor, judges: Iterator[Any], call: Call, terms: int = 1
    ) -> Finding | None:
        """`judges`: the same in float64, and of operands that are a rounding off, if there are."""
        if same_bits(got, wanted):
            return None
        wrong = differs(got, wanted, call.exact and not EXTREMA.search(call.code))
        if not wrong.any():
            return None
        if call.exact or not (got.is_floating_point() or got.is_complex()):
            index = tuple(wrong.nonzero()[0].tolist())
            return Finding("values", f"{int(wrong.sum())} of {wrong.numel()} elements of "
                           f"{got.dtype} {tuple(got.shape)} are other ones: {got[index]!r}, "
                           f"on cpu {wanted[index]!r} at {index}")  # fmt: skip
        scale = Scale(call, self.largest_operand, terms)
        if surely_near(got, wanted, scale):
            return None
        reference = shaped(next(judges, None), got)
        if got.dtype in (torch.float64, torch.complex128):  # cpu is no less precise
            reference = None
        found = compared_numbers(got, wanted, reference, scale)
        other = shaped(next(judges, None), got) if found else None
        return found if other is None else compared_numbers(got, wanted, reference, scale, other)


def shaped(value: Any, like: Tensor) -> Tensor | None:
    return value if isinstance(value, Tensor) and value.shape == like.shape else None


def judge(call: Call) -> Finding | None:
    """How loom differs from cpu in this call, or nothing. What cpu refuses loom has to refuse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Judge(call).finding()


def simplest(call: Call, finding: Finding) -> Call:
    """The call without what does not matter to the finding."""
    for shorter in simpler(call):
        try:
            found = judge(shorter)
        except Exception:
            continue
        if found is not None and found.kind == finding.kind:
            return simplest(shorter, finding)
    return call
