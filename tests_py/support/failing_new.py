# SPDX-License-Identifier: BSD-3-Clause
"""Lets allocations of loom's fail, one after the other, in a scenario that is repeated for each.

A program of its own: ``python failing_new.py scenario 'numbers' count``, with failing_new.cpp
loaded before everything else. It prints a line of JSON for each attempt. Where `numbers` are those
of "first", each attempt has a process that has not used loom before; where they are those of
"later", it follows two that succeeded. An attempt in which nothing failed is the last.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_suffix(".cpp")
SECONDS = 60.0  # of an attempt, before it counts as one that hangs
ALL = 1_000_000_000


def library(folder: Path) -> Path:
    """failing_new.cpp, compiled."""
    made = folder / "failing_new.so"
    compiler = shutil.which("c++")
    assert compiler is not None, "the test needs a C++ compiler (c++)"
    command = [compiler, "-std=c++20", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(made)]
    subprocess.run(command, check=True)
    return made


def attempts(
    preloaded: Path, scenario: str, kind: str, numbers: range, count: int
) -> Iterator[dict[str, Any]]:
    """What came of the attempts in which the allocations numbered `number` to `number + count - 1`
    failed, for each of `numbers`."""
    bounds = [str(each) for each in (numbers.start, numbers.stop, numbers.step)]
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__)), scenario, kind, *bounds, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LD_PRELOAD": str(preloaded)},
    )
    with process:
        for line in process.stdout:
            yield json.loads(line)
    assert process.returncode == 0, process.returncode


# What follows runs in the program.


def training(device: str) -> list[Any]:
    """A step of a small model, on new parameters."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.LayerNorm(64),
        nn.GELU(),
        nn.Linear(64, 10),
    ).to(device)
    x, y = torch.randn(64, 3, 8, 8).to(device), (torch.arange(64) % 10).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    torch.accelerator.synchronize()
    return [loss.item(), *(p.detach().double().cpu().sum().item() for p in model.parameters())]


def operators(device: str) -> list[Any]:
    """Operators that do other things than compute: wait, fall back, index, share memory."""
    import torch

    x = torch.arange(6000.0).reshape(60, 100).to(device).requires_grad_()
    y = x.sin().detach()
    places = y.argsort(dim=1)
    rows = y.gather(1, places).index_select(0, torch.arange(0, 60, 7).to(device))
    best = y.topk(3, dim=1).values
    found = (y > 0.9).nonzero()
    attention = torch.nn.functional.scaled_dot_product_attention(
        *(y[:48].reshape(1, 3, 16, 100) for _ in range(3))
    )
    half = y.to(torch.bfloat16) @ y.to(torch.bfloat16).T
    y[::2].mul_(2)
    y.scatter_add_(1, places, y.clone())
    factors = torch.linalg.qr(y[:, :60].double())[1].diagonal()
    torch._foreach_add_([y, best, rows], 1.0)
    total = sum(each.float().sum() for each in (y, rows, best, attention, half, factors.abs()))
    grads = torch.autograd.grad((x.exp().log1p().cumsum(1) / x.abs().clamp(min=1)).mean(), x)
    halves = torch.cat(y.chunk(2, 1)).std(dim=0).tolist()
    return [total.item(), len(found), grads[0].nan_to_num().sum().item(), *halves[:2]]


def streams(device: str) -> list[Any]:
    """Streams, events, memory that several streams use, pinned memory, staged copies."""
    import torch

    pinned = torch.arange(4096.0)
    if device == "cpu":
        return [(pinned * 2).sum().item() + 1, pinned.sum().item() * 2, 0.0]
    pinned = pinned.pin_memory()
    side = torch.Stream(device)
    begin, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    begin.record()
    with side:
        side.wait_event(begin)
        a = pinned.to(device, non_blocking=True)
        b = (a * 2).sum()
        end.record()
    end.wait()
    a.record_stream(torch.accelerator.current_stream())
    b.record_stream(torch.accelerator.current_stream())
    result = torch.empty((), pin_memory=True)
    result.copy_(b + 1, non_blocking=True)
    pageable = torch.empty(4096)
    pageable.copy_(a + a, non_blocking=True)
    end.synchronize()
    torch.accelerator.synchronize()
    return [result.item(), pageable.sum().item(), float(begin.elapsed_time(end) < 0)]


def graphs(device: str) -> list[Any]:
    """A capture and its replays."""
    import torch

    x = torch.arange(1000.0).to(device)
    if device == "cpu":
        return [float((x * 4 + 2).sum()), 40.0]
    stream, graph = torch.Stream(device), torch.accelerator.Graph()
    with stream:
        weight = torch.zeros(10, device=device)
    torch.accelerator.synchronize()
    with stream, graph:
        y = (x * 2 + 1).mul_(2)
        weight.add_(1)
        z = y.sum() + weight.sum() * 0
    with stream:
        for _ in range(4):
            graph.replay()
    torch.accelerator.synchronize()
    return [z.item(), weight.sum().item()]


def group(device: str) -> list[Any]:
    """A process group of one rank."""
    import torch
    from torch import distributed

    x = torch.arange(1000.0).to(device)
    if device == "cpu":
        return [float(x.sum()), 5.0]
    if distributed.is_initialized():  # an attempt could not end it
        distributed.destroy_process_group()
    distributed.init_process_group("lccl", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        work = distributed.all_reduce(x, async_op=True)
        parts = [torch.zeros(5, device=device)]
        distributed.all_gather(parts, torch.ones(5, device=device))
        work.wait()
        torch.accelerator.synchronize()
        return [x.sum().item(), parts[0].sum().item()]
    finally:
        distributed.destroy_process_group()


SCENARIOS: dict[str, Callable[[str], list[Any]]] = {
    each.__name__: each for each in (training, operators, streams, graphs, group)
}


class FailingNew:
    """failing_new.cpp of this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.loom_new_prepare.restype = ctypes.c_bool
        self._library.loom_new_disarm.restype = ctypes.c_int64
        assert self._library.loom_new_prepare()

    def arm(self, number: int, count: int) -> None:
        self._library.loom_new_arm(ctypes.c_int64(number), ctypes.c_int64(count))

    def disarm(self) -> tuple[int, int]:
        """How many allocations there were, and how many of them failed."""
        failed = ctypes.c_int64()
        return self._library.loom_new_disarm(ctypes.byref(failed)), failed.value

    def print(self) -> None:
        self._library.loom_new_print()


def says_that_memory_lacked(error: BaseException) -> bool:
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("bad_alloc" in text or "no memory left" in text)


def agree(got: list[Any], expected: list[Any]) -> bool:
    import math

    return len(got) == len(expected) and all(
        math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-3) for a, b in zip(got, expected, strict=True)
    )


class Attempts:
    """Runs in a child: the attempts, one after the other."""

    def __init__(self, scenario: Callable[[str], list[Any]], expected: list[Any], count: int):
        self.scenario, self.expected, self.count = scenario, expected, count
        self.failing = FailingNew()
        self.wrong: list[str] = []

    def note(self, error: BaseException, where: str) -> None:
        if not says_that_memory_lacked(error):
            self.wrong.append(f"{where}: {type(error).__name__}: {error}")

    def settle(self) -> int:
        """Waits until nothing is raised any more; returns what is allocated then."""
        import torch

        gc.collect()
        for _ in range(8):
            try:
                torch.accelerator.synchronize()
                torch.loom.empty_cache()
                break
            except Exception as error:
                self.note(error, "synchronize")
        else:
            self.wrong.append("synchronize goes on raising")
        return torch.loom.memory_allocated()

    def check_step(self, where: str) -> None:
        try:
            got = self.scenario("loom")
        except Exception as error:
            self.wrong.append(f"{where}: {type(error).__name__}: {error}")
        else:
            if not agree(got, self.expected):
                self.wrong.append(f"{where}: got {got}, expected {self.expected}")

    def attempt(self, number: int, used: bool) -> dict[str, Any]:
        self.wrong = []
        before = self.settle() if used else 0
        raised = ""
        self.failing.arm(number, self.count)
        try:
            got = self.scenario("loom")
        except BaseException as error:
            raised = type(error).__name__
            self.note(error, "the step")
        else:
            if not agree(got, self.expected):
                self.wrong.append(f"the step: got {got}, expected {self.expected}")
        seen, failed = self.failing.disarm()
        self.settle()
        self.check_step("the step after it")
        after = self.settle()
        if after != before:
            self.wrong.append(f"{after - before} bytes are lost")
        if self.wrong:
            self.failing.print()
        return {"number": number, "seen": seen, "failed": failed, "raised": raised}


def in_child(body: Callable[[int], None]) -> tuple[int, int]:
    """Forks a child that calls body(pipe); returns its id and the pipe's other end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 1
        try:
            body(writer)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    return child, reader


def lines_of(reader: int) -> Iterator[Any]:
    """What a child writes, until it ends; None where it takes too long."""
    text = b""
    while True:
        if not select.select([reader], [], [], SECONDS)[0]:
            yield None
            continue
        more = os.read(reader, 1 << 16)
        if not more:
            return
        *lines, text = (text + more).split(b"\n")
        for line in lines:
            yield json.loads(line)


def write_line(pipe: int, value: Any) -> None:
    os.write(pipe, json.dumps(value).encode() + b"\n")


def run_some(make: Callable[[], Attempts], numbers: list[int], kind: str) -> Iterator[Any]:
    """Makes attempts in one child, and yields what came of each, until the child ends."""

    def body(pipe: int) -> None:
        faulthandler.enable()
        attempts = make()
        if kind == "later":
            attempts.check_step("before")
            attempts.check_step("before")
            assert not attempts.wrong, attempts.wrong
        for number in numbers:
            write_line(pipe, number)
            result = attempts.attempt(number, kind == "later")
            write_line(pipe, {**result, "wrong": attempts.wrong})
            if result["failed"] == 0:
                return

    child, reader = in_child(body)
    begun, how = None, ""
    for line in lines_of(reader):
        if line is None:
            how = "hangs"
            os.kill(child, signal.SIGABRT)
        elif isinstance(line, int):
            begun = line
        else:
            begun = None
            yield line
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if begun is not None or status != 0:
        how = how or f"the process ends with {status}"
        yield {"number": begun, "seen": 0, "failed": 1, "raised": "", "wrong": [how]}


def main(name: str, kind: str, start: str, stop: str, step: str, count: str) -> None:
    del os.environ["LD_PRELOAD"]
    import torch
    import torch._dynamo  # by the first optimiser otherwise, in each child

    import torch_loom  # noqa: F401

    torch.set_num_threads(1)  # children have no others
    gc.collect()
    gc.freeze()  # collections of children look at what is theirs
    scenario = SCENARIOS[name]
    child, reader = in_child(lambda pipe: write_line(pipe, scenario("cpu")))
    expected = next(lines_of(reader))
    os.waitpid(child, 0)
    numbers = list(range(int(start), int(stop), int(step)))
    done = 0
    while done < len(numbers):
        some = numbers[done : done + 1] if kind == "first" else numbers[done:]
        for result in run_some(lambda: Attempts(scenario, expected, int(count)), some, kind):
            print(json.dumps(result), flush=True)
            done += 1
            if result["number"] is None or result["failed"] == 0:
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
