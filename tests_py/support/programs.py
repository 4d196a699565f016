# SPDX-License-Identifier: BSD-3-Clause
"""Programs of operators as data: how they are run, shrunk and printed.

A program is a list of steps, each a line of Python with the names that it uses and makes, so that a
failing one can be shrunk by dropping steps and printed as a script. Random ones are made
beside the tests that run them.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass(frozen=True)
class Step:
    """One line of a program.

    Attributes:
        code: the line.
        result: the name that it makes or whose elements it writes, if any.
        uses: the names of its tensor operands.
        comparable: whether cpu gives the same result, up to rounding, for the same operands.
        scale: how much larger than its operands' product the values on the way may be.
    """

    code: str
    result: str = ""
    uses: tuple[str, ...] = ()
    comparable: bool = True
    scale: float = 1.0


@dataclass(frozen=True)
class RandomProgram:
    """Steps, in order, and the seed that they come from."""

    seed: int
    steps: tuple[Step, ...]

    def source(self) -> str:
        return "\n".join(step.code for step in self.steps) + "\n"

    def script(self) -> str:
        """A script that runs the program on loom, in tests_py."""
        return (
            "import torch, torch_loom\nfrom support.programs import run_source\n"
            f"PROGRAM = '''\n{self.source()}'''\n"
            "for fused in (False, True):\n    print(run_source(PROGRAM, 'loom', fused=fused))\n"
        )


def operand(shape: tuple[int, ...], dtype: torch.dtype, seed: int, special: bool) -> torch.Tensor:
    """Small numbers of any dtype; if `special`, with NaN, infinities and extreme values."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(2, shape, generator=generator).bool()
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        low, high = (info.min, info.max) if special else (max(info.min, -9), 10)
        return torch.randint(low, high, shape, generator=generator, dtype=dtype)
    values = (torch.randn(shape, generator=generator, dtype=torch.float64) * 2).to(dtype)
    if special and values.numel() > 0:
        info = torch.finfo(dtype)
        rare = [math.nan, math.inf, -math.inf, 0.0, -0.0, info.max, -info.max, info.tiny, 1.0]
        places = torch.randint(5 * len(rare), shape, generator=generator)
        for place, number in enumerate(rare):
            values = torch.where(places == place, torch.tensor(number, dtype=dtype), values)
    return values


def scope_of(device: str, seen: list[Any], *, hold: bool = False) -> dict[str, Any]:
    """What the steps of a program see. `hold` keeps the device busy, so that all is recorded."""

    def see(value: Any) -> None:
        seen.append(value.detach().to("cpu", copy=True) if torch.is_tensor(value) else value)

    def keep_busy() -> None:
        if hold:
            x = torch.empty(320, 320, device=device)
            torch.mm(x, x)

    def make(*arguments: Any) -> torch.Tensor:
        return operand(*arguments).to(device)

    return {
        "torch": torch,
        "device": device,
        "nan": math.nan,
        "inf": math.inf,
        "make": make,
        "on_cpu": operand,
        "see": see,
        "keep_busy": keep_busy,
        "synchronize": torch.loom.synchronize if device == "loom" else lambda: None,
    }


@functools.lru_cache(maxsize=256)
def compiled(source: str) -> Any:
    """A program, or a step that is run in several ways."""
    return compile(source, "<program>", "exec")


def run_source(source: str, device: str, *, fused: bool = True, hold: bool = False) -> list[Any]:
    """What the program sees, as numbers and cpu tensors."""
    seen: list[Any] = []
    code = compiled(source)
    if device == "cpu":
        exec(code, scope_of(device, seen))
    else:
        with torch.loom.fusion(fused):
            exec(code, scope_of(device, seen, hold=hold))
    return seen


def elements_of(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of the bytes of its storage that the tensor's elements begin at."""
    if tensor.numel() == 0:
        return torch.empty(0, dtype=torch.int64)
    size = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    flat = torch.arange(size).as_strided(tensor.shape, tensor.stride()).reshape(-1)
    return (flat + tensor.storage_offset()) * tensor.element_size()


def may_write(target: torch.Tensor, operands: list[torch.Tensor]) -> bool:
    """Whether PyTorch says what comes out: no element is written twice, or read after it is."""
    written = elements_of(target)
    if len(written.unique()) != len(written):
        return False
    for other in operands:
        if other.untyped_storage().data_ptr() != target.untyped_storage().data_ptr():
            continue
        same = (other.dtype, other.shape, other.stride(), other.storage_offset()) == (
            target.dtype,
            target.shape,
            target.stride(),
            target.storage_offset(),
        )
        width = max(other.element_size(), target.element_size())
        blocks = [torch.unique(e // width) for e in (elements_of(other), written)]
        if not same and torch.isin(*blocks).any():
            return False
    return True


def shrink(program: RandomProgram, fails: Callable[[RandomProgram], bool]) -> RandomProgram:
    """Drops steps while the program still fails."""
    width = max(len(program.steps) // 4, 1)
    while True:
        before = len(program.steps)
        at = before
        while at > 0:
            low = max(at - width, 0)
            shorter = replace(program, steps=program.steps[:low] + program.steps[at:])
            if fails(shorter):
                program = shorter
            at = low
        if width == 1 and len(program.steps) == before:
            return program
        width = max(width // 2, 1)
