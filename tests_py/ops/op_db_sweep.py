# SPDX-License-Identifier: BSD-3-Clause
"""Runs every operator of PyTorch's op_db on loom and on cpu and compares what comes back.

Worker processes take one operator at a time, so that a crash or a hang is the row of the operator
that caused it and the sweep goes on. `python op_db_sweep.py --write` writes docs/op_db.md.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

SAMPLES = 2
# An operator takes milliseconds; the first one of a worker also imports torch's test suite.
SECONDS_PER_OPERATOR = 120.0
SECONDS_TO_START = 240.0


@dataclasses.dataclass(frozen=True)
class Row:
    """What one entry of op_db (an operator, or a variant of one) did."""

    name: str
    variant: str = ""
    status: str = "agrees"  # agrees | differs | crash | hang
    detail: str = ""
    compared: str = "values"  # values | metadata, where values mean nothing | error, raised by both
    fallbacks: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return self.status == "agrees"


# --- in a worker process ---------------------------------------------------------------------


class DifferenceError(Exception):
    """The two devices did not do the same."""


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Rebuilds nested lists, tuples, named tuples and dicts with `function` of each leaf."""
    if isinstance(value, dict):
        return {key: map_leaves(function, item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(function, item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_leaves(function, item) for item in value)
    return function(value)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        yield value
        return
    for item in value:
        yield from leaves(item)


class Mover:
    """Copies arguments to a device: same geometry, same aliasing between them."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._storages: dict[int, Any] = {}
        self._tensors: dict[int, Any] = {}
        self.moved: list[Any] = []

    def __call__(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            if id(value) not in self._tensors:
                self._tensors[id(value)] = (value, self._tensor(value))
                self.moved.append(self._tensors[id(value)][1])
            return self._tensors[id(value)][1]
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(self._device)
        if isinstance(value, str) and value == "cpu":
            return self._device
        return value

    def _tensor(self, tensor: Any) -> Any:
        import torch

        if tensor.layout != torch.strided:
            return tensor.to(self._device)
        if tensor.is_conj():
            return self._tensor(tensor.conj()).conj()
        if tensor.is_neg():
            return torch._neg_view(self._tensor(torch._neg_view(tensor)))
        storage = tensor.untyped_storage()
        key = (storage._cdata, tensor.dtype)
        if key not in self._storages:
            flat = torch.empty(0, dtype=tensor.dtype).set_(storage)
            self._storages[key] = torch.empty_like(flat, device=self._device).copy_(flat)
        moved = torch.empty(0, dtype=tensor.dtype, device=self._device)
        moved.set_(
            self._storages[key].untyped_storage(),
            tensor.storage_offset(),
            tensor.size(),
            tensor.stride(),
        )
        return moved.requires_grad_(tensor.requires_grad)


@dataclasses.dataclass
class Outcome:
    """What a call left behind: its result, or its error, and its arguments."""

    result: Any
    error: Exception | None
    arguments: list[Any]


def call(info: Any, sample: Any, device: str) -> Outcome:
    import torch
    from op_db_differences import HOST_ARGUMENTS

    mover = Mover(device)
    rest = Mover("cpu") if info.name in HOST_ARGUMENTS else mover
    args = (map_leaves(mover, sample.input), *map_leaves(rest, sample.args))
    kwargs = map_leaves(rest, sample.kwargs)
    torch.manual_seed(7)
    try:
        result, error = info.op(*args, **kwargs), None
        if device != "cpu":
            torch.accelerator.synchronize()
    except Exception as raised:
        result, error = None, raised
    return Outcome(result, error, mover.moved)


def shared_with(tensor: Any, arguments: list[Any]) -> list[int]:
    """Which arguments the tensor shares memory with."""
    import torch

    return [i for i, each in enumerate(arguments) if torch._C._is_alias_of(tensor, each)]


def compare_tensor(where: str, actual: Any, expected: Any, close: dict[str, float] | None) -> None:
    import torch

    for attribute in ("dtype", "layout", "shape", "requires_grad"):
        got, wanted = getattr(actual, attribute), getattr(expected, attribute)
        if got != wanted:
            raise DifferenceError(f"{where}: {attribute} {got}, on cpu {wanted}")
    if actual.layout == torch.strided and actual.stride() != expected.stride():
        raise DifferenceError(f"{where}: strides {actual.stride()}, on cpu {expected.stride()}")
    if close is None:
        return
    if actual.is_floating_point() and actual.element_size() == 1:
        close = {"rtol": 0.0, "atol": 0.0}  # assert_close takes nothing else for float8
    try:
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True, **close)
    except AssertionError as error:
        raise DifferenceError(f"{where}: " + " ".join(str(error).split())[:200]) from None


def compare(
    actual: Outcome, expected: Outcome, device: str, close: dict[str, float] | None
) -> None:
    import torch

    if (actual.error is None) != (expected.error is None) or (
        type(actual.error) is not type(expected.error)
    ):
        raise DifferenceError(f"{describe(actual.error)}; on cpu {describe(expected.error)}")
    got, wanted = list(leaves(actual.result)), list(leaves(expected.result))
    if len(got) != len(wanted):
        raise DifferenceError(f"{len(got)} results, on cpu {len(wanted)}")
    for index, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        where = f"result {index}"
        if type(ours) is not type(theirs):
            raise DifferenceError(f"{where}: {type(ours).__name__}, on cpu {type(theirs).__name__}")
        if not isinstance(theirs, torch.Tensor):
            different = ours != theirs and ours == ours
            if different and close is not None and not isinstance(theirs, torch.device):
                raise DifferenceError(f"{where}: {ours}, on cpu {theirs}")
            continue
        if ours.device.type != device:
            raise DifferenceError(f"{where}: on device {ours.device}")
        compare_tensor(where, ours, theirs, close)
        if shared_with(ours, actual.arguments) != shared_with(theirs, expected.arguments):
            raise DifferenceError(f"{where}: shares memory with other arguments than on cpu")
    for index, (ours, theirs) in enumerate(zip(actual.arguments, expected.arguments, strict=True)):
        compare_tensor(f"argument {index} afterwards", ours, theirs, close)


def describe(error: Exception | None) -> str:
    if error is None:
        return "no error"
    return f"{type(error).__name__}: " + " ".join(str(error).split())[:200]


def tolerances(info: Any, dtype: Any) -> dict[str, float]:
    """The loosest of what assert_close takes for the dtype and what op_db grants the operator."""
    from torch.testing._comparison import default_tolerances
    from torch.testing._internal.common_device_type import toleranceOverride

    rtol, atol = default_tolerances(dtype)
    for decorate in (*info.decorators, *info.skips):
        for decorator in getattr(decorate, "decorators", [decorate]):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                granted = decorator.d[dtype]
                atol, rtol = max(atol, granted.atol), max(rtol, granted.rtol)
    return {"rtol": rtol, "atol": atol}


def pick_dtype(info: Any) -> Any:
    """float32, or what an operator without it takes: integers, truth values, complex numbers."""
    import torch

    wanted = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.float64)
    return next((dtype for dtype in wanted if dtype in info.dtypes), torch.float32)


def fallbacks_taken(device: str) -> tuple[str, ...]:
    import torch

    if device == "cpu":
        return ()
    report = sorted(torch.loom.fallbacks())
    torch.loom.reset_fallbacks()
    return tuple(report)


def samples_of(info: Any, dtype: Any) -> Iterator[Any]:
    import itertools
    import random

    import numpy
    import torch

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    return itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES)


def run_entry(info: Any, device: str, metadata_only: bool) -> Row:
    row = Row(info.name, info.variant_test_name, compared="error")
    dtype = pick_dtype(info)
    close = None if metadata_only else tolerances(info, dtype)
    fallbacks_taken(device)
    number = -1
    try:
        for sample in samples_of(info, dtype):
            number += 1
            expected = call(info, sample, "cpu")
            compare(call(info, sample, device), expected, device, close)
            if expected.error is None:
                row = dataclasses.replace(row, compared="metadata" if metadata_only else "values")
    except DifferenceError as difference:
        row = dataclasses.replace(row, status="differs", detail=f"sample {number}: {difference}")
    except Exception as error:  # of the samples themselves, or of the comparison
        row = dataclasses.replace(row, status="differs", detail=f"sweep: {describe(error)}")
    return dataclasses.replace(row, fallbacks=fallbacks_taken(device))


def work(device: str) -> None:
    """Answers each index on standard input with a row on standard output, as JSON lines."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what operators print is not an answer
    import warnings

    warnings.simplefilter("ignore")
    if device != "cpu":
        import torch_loom  # noqa: F401
    from op_db_differences import NOT_COMPARED
    from torch.testing._internal.common_methods_invocations import op_db

    answers.write(json.dumps([(info.name, info.variant_test_name) for info in op_db]) + "\n")
    for line in sys.stdin:
        info = op_db[int(line)]
        row = run_entry(info, device, info.name in NOT_COMPARED)
        answers.write(json.dumps(dataclasses.asdict(row)) + "\n")


# --- in the parent ---------------------------------------------------------------------------


class Worker:
    """One worker process: ask() for a row, or get told how the process ended."""

    def __init__(self, device: str) -> None:
        command = [sys.executable, __file__, "--worker", "--device", device]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        answer = self._next(SECONDS_TO_START)
        if answer is None:
            raise RuntimeError(f"the sweep's worker did not start: {self.how_it_ended()}")
        self.entries: list[tuple[str, str]] = [tuple(entry) for entry in json.loads(answer)]

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _next(self, seconds: float) -> str | None:
        try:
            return self._lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def ask(self, index: int) -> Row | None:
        try:
            self._process.stdin.write(f"{index}\n")
            self._process.stdin.flush()
        except OSError:
            return None
        answer = self._next(SECONDS_PER_OPERATOR)
        if answer is None:
            return None
        fields = json.loads(answer)
        return Row(**{**fields, "fallbacks": tuple(fields["fallbacks"])})

    def how_it_ended(self) -> tuple[str, str]:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "hang", f"no answer within {SECONDS_PER_OPERATOR:.0f} s"
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return "crash", f"the process ended with {name}"

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()


def serve(device: str, indices: queue.SimpleQueue[int], only: set[str]) -> list[Row]:
    """Runs operators until `indices` is empty, starting another process after each crash."""
    rows: list[Row] = []
    worker = Worker(device)
    try:
        while True:
            try:
                index = indices.get_nowait()
            except queue.Empty:
                return rows
            if index >= len(worker.entries):
                continue
            name, variant = worker.entries[index]
            if only and name not in only:
                continue
            row = worker.ask(index)
            if row is None:
                row = Row(name, variant, *worker.how_it_ended())
                worker.kill()
                worker.close()
                worker = Worker(device)
            rows.append(row)
    finally:
        worker.close()


def sweep(device: str = "loom", workers: int = 2, only: Iterable[str] = ()) -> list[Row]:
    """All rows, in the order of their names."""
    indices: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(5000):  # more than op_db has: workers know where it ends
        indices.put(index)
    chosen = set(only)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(serve, device, indices, chosen) for _ in range(workers)]
        rows = [row for each in running for row in each.result()]
    return sorted(rows, key=lambda row: (row.name, row.variant))


def by_name(rows: Iterable[Row]) -> dict[str, Row]:
    """One row a name: that of its first variant that is not good, else of the first."""
    result: dict[str, Row] = {}
    for row in rows:
        if row.name not in result or (result[row.name].good and not row.good):
            result[row.name] = row
    return result


def agreement(rows: Iterable[Row]) -> float:
    """The share of op_db's names that agree, in percent."""
    names = by_name(rows)
    return 100.0 * sum(row.good for row in names.values()) / len(names)


# --- the table in docs/op_db.md --------------------------------------------------------------

_INTRODUCTION = """\
# op_db: loom against cpu

Every name of `torch.testing._internal.common_methods_invocations.op_db` runs with its first
{samples} sample inputs on loom and on cpu, in float32 (an operator without float32: in the first of
int64, bool and complex64 that it takes). Compared are results (values within op_db's own
tolerances, dtypes, shapes, strides, device, which arguments they share memory with), errors, and
the arguments after the call. `tests_py/ops/test_op_db.py` does this on every test run and fails
when a row here is no longer true. This page is written by
`python tests_py/ops/op_db_sweep.py --write`.

| names | agree | of these, the same error on both | native only, no fallback |
|---|---|---|---|
| {names} | {agree} ({percent:.1f} %) | {errors} | {native} |
"""


def report(rows: list[Row], differences: dict[str, str], not_compared: dict[str, str]) -> str:
    names = by_name(rows)
    good = [row for row in names.values() if row.good]
    native = {row.name for row in good} - {row.name for row in rows if row.fallbacks}
    errors = [row for row in good if row.compared == "error"]
    text = _INTRODUCTION.format(
        samples=SAMPLES,
        names=len(names),
        agree=len(good),
        percent=agreement(rows),
        errors=len(errors),
        native=len(native),
    )
    text += "\n## What does not agree\n\n| name | what happens | reason |\n|---|---|---|\n"
    for row in names.values():
        if not row.good:
            detail = row.detail.replace("|", "\\|")
            reason = differences.get(row.name, "")
            text += f"| `{row.name}` | {row.status}: {detail} | {reason} |\n"
    text += "\n## Whose values are not compared\n\n| name | reason |\n|---|---|\n"
    for name, reason in sorted(not_compared.items()):
        text += f"| `{name}` | {reason} |\n"
    text += "\n## What raises the same error on both\n\n"
    return text + ", ".join(f"`{row.name}`" for row in errors) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these names of op_db")
    parser.add_argument("--device", default="loom")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write docs/op_db.md")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.device)
        return
    from op_db_differences import DIFFERENCES, NOT_COMPARED

    start = time.perf_counter()
    rows = sweep(arguments.device, arguments.workers, arguments.names)
    for row in rows:
        if not row.good or arguments.names:
            print(f"{row.name} {row.variant} [{row.compared}] {row.status}: {row.detail}")
    seconds = time.perf_counter() - start
    print(f"{len(by_name(rows))} names, {agreement(rows):.2f} % agree, {seconds:.0f} s")
    if arguments.write:
        page = Path(__file__).parents[2] / "docs" / "op_db.md"
        page.write_text(report(rows, DIFFERENCES, NOT_COMPARED))


if __name__ == "__main__":
    main()
